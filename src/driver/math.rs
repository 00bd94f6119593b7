//! What the gates to CUDA's mathematical libraries share: how one is found, and what is said of a call that fails.

use super::library::{Library, Sought};
use crate::{
    error::{Error, Result},
    status::Status,
};
use std::ffi::CStr;

/// Finds a library.
pub(super) fn find(sought: &Sought) -> Result<Library> {
    sought.find().map_err(unavailable)
}

/// Whether a library works on the host device. NVIDIA's do not: the mark is for stand-ins.
pub(super) fn works_on_host_device(library: Library, mark: &CStr) -> bool {
    library.symbol(mark).is_some()
}

#[cold]
pub(super) fn unavailable(reason: impl Into<String>) -> Error {
    Error::new(Status::LIBRARY_UNAVAILABLE, reason)
}

/// The error of a library without a call that is required.
#[cold]
pub(super) fn too_old(what: &str, symbol: &str, since: i32) -> Error {
    let (major, minor) = (since / 1000, since % 1000 / 10);
    unavailable(format!(
        "the {what} found has no {symbol}, which came with CUDA {major}.{minor}; a newer one is needed"
    ))
}

/// The error of a call that failed, where the library calls its code so and means this by it.
#[cold]
pub(super) fn failed(symbol: &str, code: i32, name: &str, status: Status) -> Error {
    let name = if name.is_empty() { String::new() } else { format!(", {name}") };
    Error::new(status, format!("{symbol} failed with {code}{name}"))
}

/// The error of a library that works with GPUs only.
#[cold]
pub fn not_on_host_device(what: &str) -> Error {
    unavailable(format!("{what} works with NVIDIA's GPUs, and not with the built-in host device"))
}
