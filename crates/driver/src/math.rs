//! What the gates to CUDA's mathematical libraries share: how one is found, and what is said of a call that fails.

use super::{
    calls::CallInfo,
    library::{Library, LibrarySpec},
};
use crate::{
    error::{Error, Result},
    status::Status,
};
use std::ffi::CStr;

/// Finds a library and fills its table; whether it works on the host device, too. NVIDIA's do not: the mark is an exported
/// symbol of stand-ins. `fill` gives the table, and the first call that is required and missing.
pub(super) fn load<T>(
    sought: &LibrarySpec,
    mark: &CStr,
    fill: impl FnOnce(Library) -> (T, Option<&'static CallInfo>),
) -> Result<(T, bool)> {
    let library = sought.find().map_err(unavailable)?;
    let (table, missing) = fill(library);
    match missing {
        None => Ok((table, library.symbol(mark).is_some())),
        Some(call) => Err(too_old(sought.what, call)),
    }
}

#[cold]
fn unavailable(reason: impl Into<String>) -> Error {
    Error::new(Status::LIBRARY_UNAVAILABLE, reason)
}

#[cold]
fn too_old(what: &str, call: &CallInfo) -> Error {
    let (symbol, major, minor) = (call.symbol, call.since / 1000, call.since % 1000 / 10);
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
