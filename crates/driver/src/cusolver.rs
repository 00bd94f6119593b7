//! cuSOLVER's dense part, loaded at run time: handles and their streams. The work itself is their user's calls.

#![allow(missing_docs)]

use super::{
    Stream,
    calls::calls,
    library::{Library, LibrarySpec},
    math::{self, failed},
};
use crate::{error::Result, status::Status};
use once_cell::sync::OnceCell;
use std::{
    ffi::{c_int, c_void},
    ptr,
};

/// What a call of cuSOLVER's returns: 0, or one of its `cusolverStatus_t`.
pub type Code = c_int;

const SUCCESS: Code = 0;
/// No code of cuSOLVER's: what the stand-in of an absent call returns.
const ABSENT: Code = -1;

pub type RawHandle = *mut c_void;
pub type RawStream = *mut c_void;

calls! {
    Code, ABSENT;
    required 11000 cusolverDnCreate(handle: *mut RawHandle);
    required 11000 cusolverDnSetStream(handle: RawHandle, stream: RawStream);
}

const LIBRARY: LibrarySpec = LibrarySpec {
    what: "cuSOLVER",
    variable: "PLINTH_CUSOLVER_LIBRARY",
    names: &[(13, c"libcusolver.so.12"), (12, c"libcusolver.so.11")],
    in_toolkit: true,
    in_packages: &["nvidia/cu13/lib", "nvidia/cusolver/lib"],
};

/// A loaded cuSOLVER.
pub struct Cusolver {
    table: Table,
    on_host_device: bool,
}

/// A `cusolverDnHandle_t`. Never destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(usize);

impl Handle {
    /// What cuSOLVER's own calls take.
    pub fn value(self) -> usize {
        self.0
    }
}

/// The one cuSOLVER of the process, loaded by now at the latest.
pub fn get() -> Result<&'static Cusolver> {
    static CUSOLVER: OnceCell<Cusolver> = OnceCell::new();
    CUSOLVER.get_or_try_init(|| {
        let fill = |library: Library| {
            // SAFETY: each call is looked for under its own symbol, whose signature the table states and which the
            // versions that are looked for all have. The library is never closed.
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
    Err(failed(call.info().symbol, code, name, status))
}

impl Cusolver {
    /// Whether it works on the host device, as a stand-in for tests does.
    pub fn works_on_host_device(&self) -> bool {
        self.on_host_device
    }

    /// Makes a handle for the device whose context is current.
    pub fn create(&self) -> Result<Handle> {
        let mut handle: RawHandle = ptr::null_mut();
        // SAFETY: the output is a live local.
        check(Call::cusolverDnCreate, unsafe { (self.table.cusolverDnCreate)(&mut handle) })?;
        Ok(Handle(handle as usize))
    }

    /// Lets a handle of this thread's work in a stream.
    pub fn set_stream(&self, handle: Handle, stream: Stream) -> Result<()> {
        // SAFETY: the handle is live and this thread's, and the stream is the driver's own.
        let code = unsafe { (self.table.cusolverDnSetStream)(handle.0 as RawHandle, stream.handle() as RawStream) };
        check(Call::cusolverDnSetStream, code)
    }
}
