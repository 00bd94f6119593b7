//! The built-in host device: the CUDA driver calls that plinth uses, carried out by the CPU.
//!
//! It is a device, not a mock. Memory is real addresses and real pages ([`memory`]); streams run on threads and are
//! truly asynchronous ([`stream`], [`scheduler`]); events, captures, graphs, peers and sharing with other processes
//! behave as CUDA specifies, error codes included.
//!
//! How the parts fit: [`api`] holds one function for each line of the driver table, which checks its arguments and
//! asks the part that knows. [`state`] is what `cuInit` sets up from the environment ([`config`], [`model`]): the
//! memory behind one lock and the [`engine`] behind another. The engine holds every stream, event, capture, graph
//! and module, and moves streams on; the scheduler's threads take work from it and carry it out ([`work`],
//! [`kernels`], of which [`cpu_kernels`] are some and [`compiled`] are made at run time) without its lock. A [`signal`] is the point in a stream that an [`event`] stands for after a
//! recording, [`shared`] the page that processes share for one event. Handles are numbers that are never used twice
//! ([`ids`]), so that a wrong one is always noticed. Every call counts and prices itself ([`cost`]).
//!
//! Errors of work belong to its stream: the rest of that stream's work is skipped, and every query of it, wait for it
//! and launch into it returns the first error until the stream is destroyed. (CUDA condemns the whole context.)
//!
//! A process that forks has the parent's host devices in the child, but not their threads: like CUDA, the child must
//! not use them.

// Its functions have the names and the contracts of the driver calls that they implement.
#![allow(missing_docs, non_snake_case, clippy::missing_safety_doc)]

pub mod api;
pub mod capture;
pub mod compiled;
pub mod config;
pub mod context;
pub mod cost;
pub mod cpu_kernels;
pub mod engine;
pub mod event;
pub mod graph;
pub mod green_context;
pub mod ids;
pub mod kernels;
pub mod memory;
pub mod model;
pub mod scheduler;
pub mod shared;
pub mod signal;
pub mod state;
pub mod stream;
pub mod work;

#[cfg(test)]
mod tests;

use plinth_driver as driver;

pub use cost::{call_cost, call_count, reset_counts};
pub use state::config_error;

/// How much of everything there is: what tests compare to see that nothing leaks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// Streams that the program created and has not destroyed, or whose work has not ended.
    pub streams: usize,
    pub events: usize,
    /// Graphs that are not parts of others.
    pub graphs: usize,
    pub execs: usize,
    /// User objects that the program or a graph has a reference to.
    pub objects: usize,
    pub modules: usize,
    /// Physical memory handles that the program holds.
    pub handles: usize,
    /// Handles mapped at addresses, those under whole allocations included.
    pub mappings: usize,
    /// Address ranges, those under whole allocations included.
    pub reservations: usize,
    /// The memory in use on each device.
    pub device_bytes: Vec<u64>,
    pub pinned_bytes: u64,
    /// Threads that carry out work, or wait for some.
    pub threads: usize,
}

/// Counts everything. Nothing lives before `cuInit`.
pub fn live() -> Live {
    let Ok(state) = state::get() else { return Live::default() };
    let mut live = Live { threads: scheduler::threads(), ..Live::default() };
    {
        let engine = state.engine.lock();
        live.streams = engine.streams.values().filter(|stream| matches!(stream.kind, stream::Kind::Created)).count();
        live.events = engine.events.len();
        live.graphs = engine.graphs.values().filter(|graph| graph.parent.is_none()).count();
        live.execs = engine.execs.len();
        live.objects = engine.objects.len();
        live.modules = engine.modules.len();
    }
    let mut memory = state.memory.write();
    for device in 0..memory.devices.len() {
        memory.devices[device].sweep();
    }
    live.handles = memory.physical.values().filter(|physical| physical.holds > 0).count();
    live.mappings = memory.mappings.len();
    live.reservations = memory.reservations.len();
    live.device_bytes = memory.devices.iter().map(|device| device.used).collect();
    live.pinned_bytes = memory.pinned.values().map(|range| range.bytes).sum();
    live
}

macro_rules! table {
    ($($name:ident)*) => {
        /// The table of driver calls, filled with the host device's.
        pub fn table() -> driver::Table {
            driver::Table { $( $name: api::$name, )* }
        }
    };
}
plinth_driver::for_each_call!(table);
