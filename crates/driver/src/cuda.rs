//! The `cuda` provider: libcuda, located at run time.
//!
//! The library does not link CUDA. It uses a libcuda that the process has already loaded; otherwise it loads
//! `libcuda.so.1` from the system's library path. `PLINTH_CUDA_LIBRARY` names another file. Each call is resolved
//! through `cuGetProcAddress`, at the version whose calling convention [`table`](super::table) declares, or through
//! `dlsym` if the driver is older than that version.

use super::{
    Code, Driver, Kind, codes,
    library::{self, Library},
    table::{Call, Table},
};
use crate::{
    environment::Environment,
    error::{Error, Result},
    status::Status,
};
use std::{
    ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_ulonglong, c_void},
    ptr,
};

/// The file name that every driver installation provides.
const LIBRARY: &CStr = c"libcuda.so.1";

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, c_ulonglong, *mut c_uint) -> Code;

/// Locates libcuda and fills the table from it. Does not initialize the driver.
pub fn load(faulty: bool) -> Result<Driver> {
    let library = open()?;
    let resolver = Resolver::new(library);
    // SAFETY: the resolver requests each call under its own name and version, whose signature the table declares. The
    // library is never closed.
    let (table, missing) = unsafe { Table::from_symbols(|call| resolver.find(call)) };
    match missing {
        None => {
            let mut version = 0;
            // SAFETY: the output is a live local. The call works before the driver is initialized; if it fails, the
            // version stays 0.
            unsafe { (table.cuDriverGetVersion)(&mut version) };
            library::record_driver_version(version);
            Ok(Driver::new(Kind::Cuda, table, faulty))
        }
        Some(call) => Err(Error::new(
            Status::DRIVER_TOO_OLD,
            format!(
                "the CUDA driver has no {}, which came with CUDA {}.{}; a newer NVIDIA driver is needed, or \
                 PLINTH_DEVICE=host",
                call.info().symbol,
                call.info().since / 1000,
                call.info().since % 1000 / 10
            ),
        )),
    }
}

/// Returns the file that the environment names.
pub fn named() -> Option<OsString> {
    Environment::of_process().value("PLINTH_CUDA_LIBRARY")
}

/// Opens libcuda through the system's loader only: a driver belongs to the machine's kernel, so toolkit folders and
/// Python packages are not searched.
fn open() -> Result<Library> {
    if let Some(path) = named() {
        return Library::open_path(&path)
            .map_err(|reason| no_driver(&format!("PLINTH_CUDA_LIBRARY cannot be loaded ({reason})")));
    }
    // Share the libcuda that the process already uses, whatever its path.
    if let Some(library) = Library::loaded(LIBRARY) {
        return Ok(library);
    }
    Library::open(LIBRARY).map_err(|reason| no_driver(&format!("no NVIDIA driver was found ({reason})")))
}

/// Creates the error for a machine without a driver. Its message always names the alternative.
pub fn no_driver(reason: &str) -> Error {
    Error::new(
        Status::NO_DEVICE,
        format!("{reason}; set PLINTH_DEVICE=host to run on the CPU with the built-in host device"),
    )
}

/// Resolves the driver's calls.
struct Resolver {
    library: Library,
    get_proc_address: Option<GetProcAddress>,
}

impl Resolver {
    fn new(library: Library) -> Self {
        let mut resolver = Resolver { library, get_proc_address: None };
        resolver.get_proc_address = library.symbol(c"cuGetProcAddress_v2").map(|pointer| {
            // SAFETY: this is the signature of the call since CUDA 12.0, and no other version uses this symbol.
            unsafe { std::mem::transmute::<*const c_void, GetProcAddress>(pointer) }
        });
        resolver
    }

    fn find(&self, call: Call) -> Option<*const c_void> {
        let info = call.info();
        if let Some(get_proc_address) = self.get_proc_address {
            let name = CString::new(info.base_name()).ok()?;
            let (mut pointer, mut status) = (ptr::null_mut(), 0);
            // SAFETY: the name is NUL-terminated, the outputs are live locals, and flags 0 request the variants for the
            // legacy default stream.
            let code = unsafe { get_proc_address(name.as_ptr(), &mut pointer, info.since, 0, &mut status) };
            if code == codes::CUDA_SUCCESS && !pointer.is_null() {
                return Some(pointer.cast_const());
            }
        }
        self.library.symbol(info.c_symbol)
    }
}
