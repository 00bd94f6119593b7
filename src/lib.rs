//! plinth: `torch.cuda` without libtorch, behind a C ABI.
//!
//! Two layers, one direction:
//!
//! - **The core** (everything but [`ffi`] and [`driver`]) is safe Rust with [`Result`](error::Result), and knows
//!   nothing of C. Each noun is a file: [`device`], [`stream`], [`event`], [`copy`], [`kernel`], [`tensor`]; or a folder:
//!   [`memory`] is the caching allocator, from what a request meets first to what is done when memory is out, and
//!   in [`memory::pinned`] that of pinned host memory;
//!   [`random`] are generators and fills; [`comm`] are collectives over devices, [`communicator`] those over ranks, wherever
//!   they are; [`graph`] is what is captured and replayed; [`blas`], [`solver`] and [`fft`] lend handles and plans of CUDA's
//!   libraries; [`jit`] makes kernels from source. docs/ tells how each works and why.
//! - **[`ffi`]** holds every exported function, a file a noun, with the same names. Each function checks what came
//!   from C, converts it, and makes one call into the core inside one guard that turns errors and panics into
//!   statuses.
//! - **[`driver`]** is the one gate to the device: a table of CUDA driver calls that is filled from libcuda, or by
//!   the built-in host device. Nothing else in the tree calls CUDA.
//!
//! [`runtime`] is the state of the process (which driver, which devices), [`thread`] that of a thread (current
//! device, current streams, the arenas of memory that it used last), [`handle`] the scheme by which a wrong handle is
//! recognised instead of followed, [`stack`] who called, [`clock`] when. [`sanitizer`] is told of what all of these do, and
//! finds accesses to memory that nothing orders.
//!
//! Unsafe code is allowed in [`ffi`] and [`driver`], where C is, in [`stack`], which reads the callers' stacks, in the one
//! instruction of [`clock`], in two locks of a few lines, [`memory::lock`], which a model checker has tried, and
//! [`memory::biased`], and around the system calls by which processes share: [`unix_socket`] and those of [`memory::ipc`].

#![deny(unsafe_code)]
#![warn(missing_docs)]

pub use plinth_driver::{self as driver, error, half, status, temporary};
pub use plinth_host as host;

pub mod base;
pub mod collectives;
#[allow(unsafe_code)]
pub mod ffi;
pub mod graph;
pub mod init;
pub mod memory;
pub mod ops;
pub mod runtime;
pub mod sanitizer;
pub mod stream;
