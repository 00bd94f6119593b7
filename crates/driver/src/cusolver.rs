//! cuSOLVER's dense API, loaded at run time: handles and their streams. The program calls the operations itself.

#![allow(missing_docs)]

use super::{
    Stream,
    calls::{calls, library_call},
    library::LibrarySpec,
    math::{self, ABSENT, Code, Loaded, MathLibrary, RawStream},
};
use crate::{error::Result, status::Status};
use std::{ffi::c_void, ptr};

pub type RawHandle = *mut c_void;

calls! {
    Code, ABSENT;
    required 11000 cusolverDnCreate(handle: *mut RawHandle);
    required 11000 cusolverDnSetStream(handle: RawHandle, stream: RawStream);
}

/// The process's cuSOLVER.
pub static LIBRARY: MathLibrary<Table> = MathLibrary::new(
    LibrarySpec {
        name: "cuSOLVER",
        variable: "PLINTH_CUSOLVER_LIBRARY",
        names: &[(13, c"libcusolver.so.12"), (12, c"libcusolver.so.11")],
        in_toolkit: true,
        in_packages: &["nvidia/cu13/lib", "nvidia/cusolver/lib"],
    },
    c"plinth_cusolver_on_host_device",
);

/// A loaded cuSOLVER library.
pub type Cusolver = Loaded<Table>;

/// A `cusolverDnHandle_t`. Never destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(usize);

impl Handle {
    /// Returns the value that cuSOLVER calls take.
    pub fn value(self) -> usize {
        self.0
    }
}

const ERRORS: &[(Code, &str, Status)] = &[
    (1, "CUSOLVER_STATUS_NOT_INITIALIZED", Status::LIBRARY),
    (2, "CUSOLVER_STATUS_ALLOC_FAILED", Status::OUT_OF_MEMORY),
    (3, "CUSOLVER_STATUS_INVALID_VALUE", Status::INVALID_VALUE),
    (4, "CUSOLVER_STATUS_ARCH_MISMATCH", Status::NOT_SUPPORTED),
    (6, "CUSOLVER_STATUS_EXECUTION_FAILED", Status::LIBRARY),
    (7, "CUSOLVER_STATUS_INTERNAL_ERROR", Status::LIBRARY),
    (9, "CUSOLVER_STATUS_NOT_SUPPORTED", Status::NOT_SUPPORTED),
];

impl Cusolver {
    fn check(&self, call: Call, code: Code) -> Result<()> {
        math::check(call.info(), code, ERRORS)
    }

    /// Creates a handle for the device whose context is current.
    pub fn create(&self) -> Result<Handle> {
        let mut handle: RawHandle = ptr::null_mut();
        // SAFETY: the output is a live local.
        unsafe { library_call!(self, cusolverDnCreate(&mut handle)) }?;
        Ok(Handle(handle as usize))
    }

    /// Sets the stream of a handle that belongs to this thread.
    pub fn set_stream(&self, handle: Handle, stream: Stream) -> Result<()> {
        // SAFETY: the handle is live and belongs to this thread, and the stream is a driver stream.
        unsafe { library_call!(self, cusolverDnSetStream(handle.0 as RawHandle, stream.handle() as RawStream)) }
    }
}
