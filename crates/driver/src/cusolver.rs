//! cuSOLVER's dense API, loaded at run time: handles and their streams. The program calls the operations itself.

#![allow(missing_docs)]

use super::{
    Stream,
    calls::calls,
    library::{Library, LibrarySpec},
    math::{self, call_error},
};
use crate::{error::Result, status::Status};
use once_cell::sync::OnceCell;
use std::{
    ffi::{c_int, c_void},
    ptr,
};

/// The return type of a cuSOLVER call: 0, or another `cusolverStatus_t`.
pub type Code = c_int;

const SUCCESS: Code = 0;
/// Not a cuSOLVER code: the stub of a missing call returns it.
const ABSENT: Code = -1;

pub type RawHandle = *mut c_void;
pub type RawStream = *mut c_void;

calls! {
    Code, ABSENT;
    required 11000 cusolverDnCreate(handle: *mut RawHandle);
    required 11000 cusolverDnSetStream(handle: RawHandle, stream: RawStream);
}

const LIBRARY: LibrarySpec = LibrarySpec {
    name: "cuSOLVER",
    variable: "PLINTH_CUSOLVER_LIBRARY",
    names: &[(13, c"libcusolver.so.12"), (12, c"libcusolver.so.11")],
    in_toolkit: true,
    in_packages: &["nvidia/cu13/lib", "nvidia/cusolver/lib"],
};

/// A loaded cuSOLVER library.
pub struct Cusolver {
    table: Table,
    on_host_device: bool,
}

/// A `cusolverDnHandle_t`. Never destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(usize);

impl Handle {
    /// Returns the value that cuSOLVER calls take.
    pub fn value(self) -> usize {
        self.0
    }
}

/// Returns the process's cuSOLVER, and loads it on the first call.
pub fn get() -> Result<&'static Cusolver> {
    static CUSOLVER: OnceCell<Cusolver> = OnceCell::new();
    CUSOLVER.get_or_try_init(|| {
        let fill = |library: Library| {
            // SAFETY: each call is looked up under its own symbol, whose signature the table declares and all supported
            // versions share. The library is never closed.
            let (table, missing) = unsafe { Table::from_symbols(|call| library.symbol(call.info().c_symbol)) };
            (table, missing.map(Call::info))
        };
        let (table, on_host_device) = math::load(&LIBRARY, c"plinth_cusolver_on_host_device", fill)?;
        Ok(Cusolver { table, on_host_device })
    })
}

fn check(call: Call, code: Code) -> Result<()> {
    if code == SUCCESS {
        return Ok(());
    }
    let (name, status) = match code {
        1 => ("CUSOLVER_STATUS_NOT_INITIALIZED", Status::LIBRARY),
        2 => ("CUSOLVER_STATUS_ALLOC_FAILED", Status::OUT_OF_MEMORY),
        3 => ("CUSOLVER_STATUS_INVALID_VALUE", Status::INVALID_VALUE),
        4 => ("CUSOLVER_STATUS_ARCH_MISMATCH", Status::NOT_SUPPORTED),
        6 => ("CUSOLVER_STATUS_EXECUTION_FAILED", Status::LIBRARY),
        7 => ("CUSOLVER_STATUS_INTERNAL_ERROR", Status::LIBRARY),
        9 => ("CUSOLVER_STATUS_NOT_SUPPORTED", Status::NOT_SUPPORTED),
        _ => ("", Status::LIBRARY),
    };
    Err(call_error(call.info().symbol, code, name, status))
}

impl Cusolver {
    /// Returns whether the library works on the host device, as test doubles do.
    pub fn works_on_host_device(&self) -> bool {
        self.on_host_device
    }

    /// Creates a handle for the device whose context is current.
    pub fn create(&self) -> Result<Handle> {
        let mut handle: RawHandle = ptr::null_mut();
        // SAFETY: the output is a live local.
        check(Call::cusolverDnCreate, unsafe { (self.table.cusolverDnCreate)(&mut handle) })?;
        Ok(Handle(handle as usize))
    }

    /// Sets the stream of a handle that belongs to this thread.
    pub fn set_stream(&self, handle: Handle, stream: Stream) -> Result<()> {
        // SAFETY: the handle is live and belongs to this thread, and the stream is a driver stream.
        let code = unsafe { (self.table.cusolverDnSetStream)(handle.0 as RawHandle, stream.handle() as RawStream) };
        check(Call::cusolverDnSetStream, code)
    }
}
