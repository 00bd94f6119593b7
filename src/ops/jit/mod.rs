//! Kernels from source: the jiterator, which makes one of a function of elements, and kernels that a program wrote itself.
//!
//! [`parse`] finds the entry of a user's text, [`promote`] the type that its inputs have in common, [`layout`] the order in which
//! elements are walked through, [`source`] writes the kernel, [`compiler`] compiles it ([`host_compiler`] for the host device),
//! [`cache`] keeps it on disk, [`loaded`] in memory. [`function`] is what a program holds and calls. [`kernel`] are
//! kernels and modules that are loaded as they are.

pub mod cache;
pub mod compiler;
pub mod digest;
pub mod function;
pub mod host_compiler;
pub mod kernel;
pub mod layout;
pub mod loaded;
pub mod parse;
pub mod promote;
pub mod scalar;
pub mod source;
