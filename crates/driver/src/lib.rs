//! The only interface to the device: no other crate calls CUDA.
//!
//! [`table`] lists the driver calls once. Three providers fill it: [`cuda`] from libcuda at run time, the crate of
//! the host device, and [`fault_injection`], which wraps either and makes the n-th call fail.
//!
//! [`Driver`] wraps the table in safe methods, one file per kind of object. The methods are safe because their
//! arguments can only be constructed here: a [`Stream`], [`Event`], [`Context`] or [`Function`] comes from the driver,
//! or from an unsafe constructor whose contract the C interface passes on to its caller.

#![warn(missing_docs)]

pub mod calls;
mod capture;
pub mod codes;
pub mod collective;
mod condition;
mod context;
pub mod cublas;
pub mod cuda;
pub mod cufft;
pub mod cusolver;
mod device;
pub mod element;
pub mod environment;
pub mod error;
mod event;
pub mod fault_injection;
pub mod file_description;
pub mod float8;
mod graph;
mod graph_node;
mod graph_view;
mod green_context;
pub mod group;
pub mod half;
mod image;
pub mod jit;
mod kernel;
pub mod kernel_call;
pub mod library;
pub mod math;
mod memory;
pub mod memory_pool;
pub mod nccl;
pub mod number_map;
pub mod nvrtc;
pub mod nvtx;
pub mod observer;
mod pages;
pub mod permutation;
pub mod plugin;
pub mod process_lock;
mod processor;
pub mod random;
pub mod runtime_codes;
mod shareable;
pub mod shared_page;
pub mod signals;
pub mod slot_file;
pub mod status;
mod stream;
mod stream_table;
pub mod table;
pub mod temporary;
pub mod types;
pub mod user;
mod virtual_memory;
pub mod visible;
pub mod work_report;

pub use capture::CaptureInfo;
pub use context::Context;
pub use event::{Event, EventCell};
pub use graph::{Graph, GraphExec, GraphNode, ReleaseCallback, UpdateError, UpdateRefusal, UserObject};
pub use graph_node::{Conditional, ConditionalKind, FillNode, KernelNode, NodeFunction};
pub use graph_view::{CopyView, HostView, KernelView, NodeType};
pub use green_context::{GreenContext, Multiprocessors};
pub use image::Image;
pub use kernel::{Arguments, Function, LaunchShape, Module};
pub use memory::{MemoryKind, PointerDetails, PointerInfo, Span};
pub use memory_pool::MemoryPool;
pub use pages::{Pages, page_size};
pub use processor::thread_time;
pub use shareable::FABRIC_HANDLE_BYTES;
pub use stream::{HostFunction, Stream};
pub use stream_table::{StreamInfo, StreamOrigin, StreamTable};
pub use table::{Call, Code, Table};
pub use virtual_memory::{HandleTypes, Physical, Segment};

/// A failed driver call and its error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The call.
    pub call: Call,
    /// CUDA's error code. A newer driver may return codes that are not listed in [`codes`].
    pub code: Code,
}

/// The result of a driver call.
pub type DriverResult<T> = Result<T, Failure>;

/// The kind of device that a driver controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// NVIDIA GPUs, through libcuda.
    Cuda,
    /// The built-in CPU device.
    Host,
}

/// A filled table of driver calls, with safe methods over it.
pub struct Driver {
    table: Table,
    kind: Kind,
    faulty: bool,
}

impl Driver {
    /// Creates a driver of `kind` over `table`. With `faulty`, calls are counted and can be made to fail.
    pub fn new(kind: Kind, table: Table, faulty: bool) -> Self {
        Driver { table: if faulty { fault_injection::wrap(table) } else { table }, kind, faulty }
    }

    /// Returns the kind of device.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns whether calls go through fault injection.
    pub fn is_faulty(&self) -> bool {
        self.faulty
    }

    /// Returns the table, for code that calls the driver directly.
    pub fn table(&self) -> &Table {
        &self.table
    }
}

/// Converts an error code to a result.
#[inline]
fn check(call: Call, code: Code) -> DriverResult<()> {
    if code == codes::CUDA_SUCCESS { Ok(()) } else { Err(Failure { call, code }) }
}

/// Makes one call of the table and converts its code to a [`DriverResult`]. The caller supplies the unsafe block and
/// states in its SAFETY comment why the arguments are valid.
macro_rules! call {
    ($driver:expr, $name:ident ( $($argument:expr),* $(,)? )) => {
        $crate::check($crate::Call::$name, ($driver.table.$name)($($argument),*))
    };
}
use call;
