//! Functions that the loaders of CUDA's mathematical libraries share: locating a library, and errors of failed calls.

use super::{
    calls::CallInfo,
    library::{Library, LibrarySpec},
};
use crate::{
    error::{Error, Result},
    status::Status,
};
use std::ffi::CStr;

/// Locates a library and fills its table. Also returns whether the library works on the host device: NVIDIA's do not;
/// test doubles export the symbol `mark`. `fill` returns the table and the first required call that is missing.
pub(super) fn load<T>(
    spec: &LibrarySpec,
    mark: &CStr,
    fill: impl FnOnce(Library) -> (T, Option<&'static CallInfo>),
) -> Result<(T, bool)> {
    let library = spec.find().map_err(unavailable)?;
    let (table, missing) = fill(library);
    match missing {
        None => Ok((table, library.symbol(mark).is_some())),
        Some(call) => Err(too_old(spec.name, call)),
    }
}

#[cold]
fn unavailable(reason: impl Into<String>) -> Error {
    Error::new(Status::LIBRARY_UNAVAILABLE, reason)
}

#[cold]
fn too_old(library: &str, call: &CallInfo) -> Error {
    let (symbol, major, minor) = (call.symbol, call.since / 1000, call.since % 1000 / 10);
    unavailable(format!(
        "the {library} found has no {symbol}, which came with CUDA {major}.{minor}; a newer one is needed"
    ))
}

/// Creates the error of a failed call. `name` is the library's name of the code, or empty.
#[cold]
pub(super) fn call_error(symbol: &str, code: i32, name: &str, status: Status) -> Error {
    let name = if name.is_empty() { String::new() } else { format!(", {name}") };
    Error::new(status, format!("{symbol} failed with {code}{name}"))
}

/// Creates the error of a library that only supports GPUs.
#[cold]
pub fn not_on_host_device(library: &str) -> Error {
    unavailable(format!("{library} works with NVIDIA's GPUs, and not with the built-in host device"))
}
