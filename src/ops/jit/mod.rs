//! Kernels from source: the jiterator, which makes elementwise kernels from a user's function, and kernels that the
//! program provides.
//!
//! [`parse`] finds the entry of the user's source, [`promote`] determines the common type of the inputs, [`layout`] the
//! iteration order of the elements, [`source`] generates the kernel, [`compiler`] compiles it ([`host_compiler`] for
//! the host device), [`cache`] stores it on disk, [`loaded`] in memory. [`function`] holds the handles of jiterated
//! functions and calls them. [`kernel`] loads and launches kernels and modules that the program provides; [`nvrtc_source`]
//! compiles them, and caches them by the text of the [`headers`] that they may read. For the host device [`host_kernel`]
//! compiles them against the headers of [`host_headers`].

pub mod cache;
pub mod compiler;
pub mod digest;
pub mod function;
pub mod headers;
pub mod host_compiler;
pub mod host_headers;
pub mod host_kernel;
pub mod kernel;
pub mod layout;
pub mod loaded;
pub mod nvrtc_source;
pub mod parse;
pub mod promote;
pub mod scalar;
pub mod source;
