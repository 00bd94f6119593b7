//! What the loaders of CUDA's mathematical libraries share: finding a library on first use, and errors of failed calls.

use super::{
    Driver, Kind,
    calls::{CallInfo, FunctionTable},
    library::LibrarySpec,
};
use crate::{
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;
use std::ffi::{CStr, c_int, c_void};

/// The return type of a call: 0, or an error of the library.
pub type Code = c_int;

const SUCCESS: Code = 0;
/// Not a code of any library: the stub of a missing call returns it.
pub(super) const ABSENT: Code = -1;

/// A stream: the CUDA runtime and the driver use the same handles.
pub type RawStream = *mut c_void;

/// A mathematical library, loaded on first use.
pub struct MathLibrary<T: 'static> {
    spec: LibrarySpec,
    /// The symbol that a library exports if it works on the host device. NVIDIA's do not; test doubles do.
    mark: &'static CStr,
    loaded: OnceCell<Loaded<T>>,
}

/// A loaded mathematical library.
pub struct Loaded<T> {
    pub(super) table: T,
    on_host_device: bool,
}

impl<T: FunctionTable> MathLibrary<T> {
    /// Creates the library with the calls in `T`.
    pub(super) const fn new(spec: LibrarySpec, mark: &'static CStr) -> Self {
        MathLibrary { spec, mark, loaded: OnceCell::new() }
    }

    /// Returns the process's library, and loads it on the first call.
    pub fn get(&self) -> Result<&Loaded<T>> {
        self.loaded.get_or_try_init(|| {
            let library = self.spec.find().map_err(unavailable)?;
            // SAFETY: the creator of this value pairs a library with its own calls, whose signatures all supported
            // versions share.
            let (table, missing) = unsafe { T::from_library(library) };
            match missing {
                None => Ok(Loaded { table, on_host_device: library.symbol(self.mark).is_some() }),
                Some(call) => Err(unavailable(call.too_old(self.spec.name))),
            }
        })
    }

    /// Returns the library, as [`get`](Self::get) does, if it works on a driver's devices.
    pub fn get_for(&self, driver: &Driver) -> Result<&Loaded<T>> {
        let library = self.get()?;
        if driver.kind() == Kind::Cuda || library.on_host_device {
            return Ok(library);
        }
        let name = self.spec.name;
        Err(unavailable(format!("{name} works with NVIDIA's GPUs, and not with the built-in host device")))
    }
}

#[cold]
fn unavailable(reason: String) -> Error {
    Error::new(Status::LIBRARY_UNAVAILABLE, reason)
}

/// Converts the code of a call. `errors` lists the library's names of its codes, and their statuses.
#[inline]
pub(super) fn check(call: &CallInfo, code: Code, errors: &[(Code, &str, Status)]) -> Result<()> {
    if code == SUCCESS { Ok(()) } else { Err(failure(call, code, errors)) }
}

#[cold]
fn failure(call: &CallInfo, code: Code, errors: &[(Code, &str, Status)]) -> Error {
    let symbol = call.symbol;
    match errors.iter().find(|(known, ..)| *known == code) {
        Some((_, name, status)) => Error::new(*status, format!("{symbol} failed with {code}, {name}")),
        None => Error::new(Status::LIBRARY, format!("{symbol} failed with {code}")),
    }
}
