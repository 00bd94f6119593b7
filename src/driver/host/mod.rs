#![allow(missing_docs)]
pub mod api;
pub fn config_error() -> Option<String> {
    None
}
pub fn call_count(_: crate::driver::Call) -> u64 {
    0
}
pub fn call_cost(_: crate::driver::Call) -> u64 {
    0
}
pub struct Live {
    pub device_bytes: Vec<usize>,
    pub pinned_bytes: usize,
    pub streams: usize,
    pub events: usize,
    pub graphs: usize,
    pub execs: usize,
    pub modules: usize,
    pub handles: usize,
    pub mappings: usize,
    pub reservations: usize,
    pub threads: usize,
}
pub fn live() -> Live {
    Live {
        device_bytes: vec![],
        pinned_bytes: 0,
        streams: 0,
        events: 0,
        graphs: 0,
        execs: 0,
        modules: 0,
        handles: 0,
        mappings: 0,
        reservations: 0,
        threads: 0,
    }
}
