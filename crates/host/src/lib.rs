//! The built-in host device: the CUDA driver calls that plinth uses, executed by the CPU.
//!
//! It is a device, not a mock. Memory is real addresses and real pages ([`memory`]); streams run on threads and are
//! truly asynchronous ([`stream`], [`scheduler`]); events, captures, graphs, peers and sharing with other processes
//! behave as CUDA specifies, error codes included.
//!
//! Structure: [`api`] has one function for each entry of the driver table. It checks its arguments and calls the module
//! that implements the operation. [`state`] is what `cuInit` creates from the environment ([`config`], [`model`]): the
//! memory behind one lock and the [`engine`] behind another. The engine owns every stream, event, capture, graph and
//! module, and advances streams. The threads of the [`scheduler`] take work from the engine and execute it ([`work`],
//! [`kernels`]) without its lock; kernels are built in ([`cpu_kernels`]) or compiled at run time ([`compiled`],
//! [`cuda_kernel`]). A
//! [`signal`] is the point in a stream that an [`event`] refers to after a recording; [`shared`] is the page that
//! processes share for one event. Handles are numbers that are never reused ([`ids`]), so a wrong handle is always
//! detected. Every call counts and prices itself ([`cost`]).
//!
//! Work that fails ends the contexts of its device, as on a GPU: the rest of the work in all its streams is skipped, and
//! every call that needs the context returns the first error until the process ends ([`context`]). Failed waits for other
//! processes, and a lack of threads, end their stream only.
//!
//! A child process created by fork has the parent's host devices but not their threads. As with CUDA, the child must
//! not use them.

// The functions have the names and the contracts of the driver calls that they implement.
#![allow(missing_docs, non_snake_case, clippy::missing_safety_doc)]

pub mod api;
pub mod capture;
pub mod compiled;
pub mod config;
pub mod context;
pub mod cost;
pub mod cpu_kernels;
pub mod cuda_kernel;
pub mod engine;
pub mod event;
pub mod faults;
pub mod graph;
pub mod green_context;
pub mod ids;
pub mod kernels;
pub mod memory;
pub mod model;
pub mod place;
pub mod scheduler;
pub mod shared;
pub mod shared_memory;
pub mod signal;
pub mod state;
pub mod stream;
pub mod work;

#[cfg(test)]
mod tests;

use plinth_driver as driver;

pub use cost::{call_cost, call_count, reset_counts};
pub use memory::share::leave;
pub use state::{config_error, device_count};

/// Returns what is checked while kernels in CUDA C++ run. Nothing before `cuInit`.
pub fn checks() -> config::Checks {
    state::get().map_or_else(|_| config::Checks::default(), |state| state.config.checks)
}

/// Counts of live objects, which tests compare to detect leaks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// Streams that the program created and has not destroyed, or whose work is not complete.
    pub streams: usize,
    pub events: usize,
    /// Graphs that are not inside other graphs.
    pub graphs: usize,
    pub execs: usize,
    /// User objects to which the program or a graph holds a reference.
    pub objects: usize,
    pub modules: usize,
    /// Physical memory handles that the program holds.
    pub handles: usize,
    /// Mappings of handles, including those under whole allocations.
    pub mappings: usize,
    /// Reserved address ranges, including those under whole allocations.
    pub reservations: usize,
    /// The memory in use on each device.
    pub device_bytes: Vec<u64>,
    pub pinned_bytes: u64,
    /// Threads that execute work or wait for it.
    pub threads: usize,
}

/// Counts the live objects. All counts are 0 before `cuInit`.
pub fn live() -> Live {
    let Ok(state) = state::get() else { return Live::default() };
    let mut live = Live { threads: scheduler::thread_count(), ..Live::default() };
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
        memory.devices[device].reclaim();
    }
    live.handles = memory.physical.values().filter(|physical| physical.references > 0).count();
    live.mappings = memory.mappings.len();
    live.reservations = memory.reservations.len();
    live.device_bytes = memory.devices.iter().map(|device| device.used).collect();
    live.pinned_bytes = memory.pinned.values().map(|range| range.bytes).sum();
    live
}

macro_rules! table {
    ($($name:ident)*) => {
        /// Returns the table of driver calls, filled with the host device's functions.
        pub fn table() -> driver::Table {
            driver::Table { $( $name: api::$name, )* }
        }
    };
}
plinth_driver::for_each_call!(table);
