//! plinth (`torch.cuda` without libtorch, behind a C ABI) consists of these layers, from the lowest to the highest:
//! [`driver`], [`base`], [`runtime`], [`observe`], [`stream`], [`memory`], [`ops`], [`graph`], [`collectives`], [`sanitizer`],
//! [`init`] and [`ffi`].
//!
//! - [`driver`] is the only access to the device: a table of CUDA driver calls, filled from libcuda or by the built-in
//!   host device. Nothing else calls the CUDA driver. [`error`], [`status`], [`half`] and [`temporary`] belong to it.
//! - [`base`] has utilities: units, checked handles, clocks, call stacks, deadlines.
//! - [`runtime`] is the state of the process, its devices and its threads.
//! - [`observe`] is where every layer above reports accesses to memory and waits, for the sanitizer to receive.
//! - [`stream`] has streams, events, the library's kernels, and the state of captures.
//! - [`memory`] has the caching allocators of device memory and, in [`memory::pinned`], of pinned host memory.
//! - [`ops`] has copies, random numbers, the jiterator, telemetry, and handles and plans of CUDA's libraries.
//! - [`graph`] captures, builds and replays graphs.
//! - [`collectives`] has collectives over the devices of a process and over ranks.
//! - [`sanitizer`] observes the other layers and detects memory accesses that nothing orders.
//! - [`init`] connects the library to its process: exit, fork, panics, support for tests.
//! - [`ffi`] has every exported function. Each validates and converts its arguments and makes one call into a lower
//!   layer, inside a guard that converts errors and panics to statuses.
//!
//! A layer imports only lower layers; [`graph`] and [`collectives`] do not import each other. tests/layers.rs checks this.
//!
//! Unsafe code is allowed in [`ffi`] and [`driver`], which interface with C; in [`base::stack`], which reads the
//! callers' stacks; for one instruction in [`base::clock`]; in two short locks, [`memory::lock`], which was tested with
//! a model checker, and [`memory::biased`]; around the system calls of [`init`]; and where a [`driver::Span`] or a
//! [`driver::Image`] is made of an address or of bytes. docs/ explains how each part works and why.
//!
//! Nothing here is an API for Rust programs; [`internal`] is for the tool and for the tests in tests/.

#![deny(unsafe_code)]
#![warn(clippy::missing_docs_in_private_items)]

use plinth_driver::{self as driver, error, half, status, temporary};
use plinth_host as host;

mod base;
mod collectives;
#[allow(unsafe_code)]
mod ffi;
mod graph;
mod init;
#[doc(hidden)]
pub mod internal;
mod memory;
mod observe;
mod ops;
mod runtime;
mod sanitizer;
mod stream;
