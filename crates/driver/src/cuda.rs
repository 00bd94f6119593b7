//! The `cuda` provider: libcuda, found at run time.
//!
//! The library has no link-time need of CUDA. It looks for a libcuda that the process has loaded already, then for
//! `libcuda.so.1` where the system finds libraries; `PLINTH_CUDA_LIBRARY` names another file. Each call is resolved
//! through `cuGetProcAddress`, at the version whose calling convention [`table`](super::table) means, or by `dlsym`
//! where the driver is older than that.

use super::{
    Code, Driver, Kind, codes,
    library::{self, Library},
    table::{Call, Table},
};
use crate::{
    error::{Error, Result},
    status::Status,
};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void},
    ptr,
};

/// The name under which every installation of the driver provides it.
const LIBRARY: &CStr = c"libcuda.so.1";

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, c_ulonglong, *mut c_uint) -> Code;

/// Finds libcuda and fills the table from it. Does not initialise the driver.
pub fn load(faulty: bool) -> Result<Driver> {
    let library = open()?;
    let resolver = Resolver::new(library);
    // SAFETY: the resolver asks the driver for each call under its own name and version, whose signature the table
    // states. The library is never closed.
    let (table, missing) = unsafe { Table::from_symbols(|call| resolver.find(call)) };
    match missing {
        None => {
            let mut version = 0;
            // SAFETY: the output is a live local. The call needs no initialised driver, and one that fails leaves 0.
            unsafe { (table.cuDriverGetVersion)(&mut version) };
            library::note_driver(version);
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

/// Opens libcuda. The system alone finds it: a driver belongs to a machine's kernel, not to a folder.
fn open() -> Result<Library> {
    if let Some(path) = std::env::var_os("PLINTH_CUDA_LIBRARY").filter(|path| !path.is_empty()) {
        return Library::open_path(&path)
            .map_err(|reason| no_driver(&format!("PLINTH_CUDA_LIBRARY cannot be loaded ({reason})")));
    }
    // The one that the process uses already, whatever its path, is the one to share.
    if let Some(library) = Library::loaded(LIBRARY) {
        return Ok(library);
    }
    Library::open(LIBRARY).map_err(|reason| no_driver(&format!("no NVIDIA driver was found ({reason})")))
}

/// The error of a machine without a driver, which always says what to do about it.
pub fn no_driver(reason: &str) -> Error {
    Error::new(
        Status::NO_DEVICE,
        format!("{reason}; set PLINTH_DEVICE=host to run on the CPU with the built-in host device"),
    )
}

/// Finds the driver's calls.
struct Resolver {
    library: Library,
    get_proc_address: Option<GetProcAddress>,
}

impl Resolver {
    fn new(library: Library) -> Self {
        let mut resolver = Resolver { library, get_proc_address: None };
        resolver.get_proc_address = library.symbol(c"cuGetProcAddress_v2").map(|pointer| {
            // SAFETY: this is the signature that CUDA 12.0 gave the call, under a symbol that no other version has.
            unsafe { std::mem::transmute::<*const c_void, GetProcAddress>(pointer) }
        });
        resolver
    }

    fn find(&self, call: Call) -> Option<*const c_void> {
        let info = call.info();
        if let Some(get_proc_address) = self.get_proc_address {
            let name = CString::new(info.base_name()).ok()?;
            let (mut pointer, mut status) = (ptr::null_mut(), 0);
            // SAFETY: the name is NUL-terminated, the outputs are live locals, and flags 0 asks for the calls of the
            // legacy default stream.
            let code = unsafe { get_proc_address(name.as_ptr(), &mut pointer, info.since, 0, &mut status) };
            if code == codes::CUDA_SUCCESS && !pointer.is_null() {
                return Some(pointer.cast_const());
            }
        }
        self.library.symbol(info.c_symbol)
    }
}
