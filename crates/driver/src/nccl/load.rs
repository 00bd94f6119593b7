//! Locates libnccl at run time.
//!
//! A library that the process has already loaded is used, whatever its path. Otherwise `libnccl.so.2` is searched for
//! in the system's library path, then in the folders of Python packages. `PLINTH_NCCL_LIBRARY` names another file; then
//! only that file is tried.

use super::{
    Nccl,
    table::{ErrorString, LastError, SUCCESS, Table},
};
use crate::{
    calls::FunctionTable,
    error::{Error, Result},
    library::LibrarySpec,
    status::Status,
};
use std::ffi::{CStr, c_int, c_void};

const LIBRARY: LibrarySpec = LibrarySpec {
    name: "NCCL",
    variable: "PLINTH_NCCL_LIBRARY",
    names: &[(0, c"libnccl.so.2")],
    in_toolkit: false,
    in_packages: &["nvidia/nccl/lib"],
};
/// A library that exports this symbol works on the host device. NVIDIA's does not; test doubles do.
const ON_HOST_DEVICE: &CStr = c"plinth_nccl_on_host_device";

/// Loads NCCL. The library is never closed: its own threads may be running in it.
pub fn load() -> Result<Nccl> {
    let library = LIBRARY.find().map_err(unavailable)?;
    // SAFETY: this is NCCL, which never changes the signature of a call.
    let (table, missing) = unsafe { Table::from_library(library) };
    // SAFETY: the symbols have these signatures in every version that exports them.
    let (error_string, last_error) = unsafe {
        (
            library
                .symbol(c"ncclGetErrorString")
                .map(|pointer| std::mem::transmute::<*const c_void, ErrorString>(pointer)),
            library.symbol(c"ncclGetLastError").map(|pointer| std::mem::transmute::<*const c_void, LastError>(pointer)),
        )
    };
    let mut version: c_int = 0;
    // SAFETY: the output is a live local.
    let code = unsafe { (table.ncclGetVersion)(&mut version) };
    if let Some(call) = missing {
        let has = if code == SUCCESS { format!("NCCL {}", Version(version)) } else { "the libnccl found".to_owned() };
        let (symbol, since) = (call.symbol, Version(call.since));
        return Err(unavailable(format!("{has} has no {symbol}, which came with {since}; a newer NCCL is needed")));
    }
    if code != SUCCESS {
        return Err(unavailable(format!("ncclGetVersion failed with {code}")));
    }
    let on_host_device = library.symbol(ON_HOST_DEVICE).is_some();
    Ok(Nccl { table, error_string, last_error, version, on_host_device })
}

#[cold]
fn unavailable(reason: impl Into<String>) -> Error {
    Error::new(Status::NCCL_UNAVAILABLE, reason)
}

/// A version in NCCL's encoding: up to 2.8 the major version is in thousands, then in ten thousands.
pub struct Version(pub c_int);

impl Version {
    /// Returns major, minor and patch version.
    pub fn parts(&self) -> (i32, i32, i32) {
        let major = if self.0 < 10_000 { 1_000 } else { 10_000 };
        (self.0 / major, self.0 % major / 100, self.0 % 100)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor, patch) = self.parts();
        write!(formatter, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_decode_both_encodings() {
        for (code, text) in [(2708, "2.7.8"), (2804, "2.8.4"), (20900, "2.9.0"), (22907, "2.29.7"), (23203, "2.32.3")] {
            assert_eq!(Version(code).to_string(), text);
        }
    }
}
