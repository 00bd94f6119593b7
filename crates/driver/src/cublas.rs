//! cuBLAS, loaded at run time: handles, their streams and their workspaces. The program calls the operations itself.
//!
//! A cuBLAS handle is also a cuBLASLt handle.

#![allow(missing_docs)]

use super::{
    Span, Stream,
    calls::{calls, library_call},
    library::LibrarySpec,
    math::{self, ABSENT, Code, Loaded, MathLibrary, RawStream},
};
use crate::{error::Result, status::Status};
use std::{
    ffi::{c_int, c_void},
    ptr,
};

const POINTER_MODE_HOST: c_int = 0;
/// CUBLAS_DEFAULT_MATH.
pub const DEFAULT_MATH: c_int = 0;
/// CUBLAS_TF32_TENSOR_OP_MATH.
pub const ALLOW_TF32: c_int = 3;
/// CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, a flag beside the others.
pub const DISALLOW_REDUCED_PRECISION: c_int = 16;
const ATOMICS_NOT_ALLOWED: c_int = 0;

pub type RawHandle = *mut c_void;

calls! {
    Code, ABSENT;
    required 11000 cublasCreate_v2(handle: *mut RawHandle);
    required 11000 cublasSetStream_v2(handle: RawHandle, stream: RawStream);
    required 11000 cublasSetWorkspace_v2(handle: RawHandle, workspace: *mut c_void, bytes: usize);
    required 11000 cublasSetPointerMode_v2(handle: RawHandle, mode: c_int);
    required 11000 cublasSetMathMode(handle: RawHandle, mode: c_int);
    required 11000 cublasSetAtomicsMode(handle: RawHandle, mode: c_int);
}

/// The process's cuBLAS.
pub static LIBRARY: MathLibrary<Table> = MathLibrary::new(
    LibrarySpec {
        name: "cuBLAS",
        variable: "PLINTH_CUBLAS_LIBRARY",
        names: &[(13, c"libcublas.so.13"), (12, c"libcublas.so.12"), (11, c"libcublas.so.11")],
        in_toolkit: true,
        in_packages: &["nvidia/cu13/lib", "nvidia/cublas/lib"],
    },
    c"plinth_cublas_on_host_device",
);

/// A loaded cuBLAS library.
pub type Cublas = Loaded<Table>;

/// A cuBLAS handle. Never destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(usize);

impl Handle {
    /// Returns the value that cuBLAS calls take.
    pub fn value(self) -> usize {
        self.0
    }

    fn raw(self) -> RawHandle {
        self.0 as RawHandle
    }
}

const ERRORS: &[(Code, &str, Status)] = &[
    (1, "CUBLAS_STATUS_NOT_INITIALIZED", Status::LIBRARY),
    (3, "CUBLAS_STATUS_ALLOC_FAILED", Status::OUT_OF_MEMORY),
    (7, "CUBLAS_STATUS_INVALID_VALUE", Status::INVALID_VALUE),
    (8, "CUBLAS_STATUS_ARCH_MISMATCH", Status::NOT_SUPPORTED),
    (11, "CUBLAS_STATUS_MAPPING_ERROR", Status::LIBRARY),
    (13, "CUBLAS_STATUS_EXECUTION_FAILED", Status::LIBRARY),
    (14, "CUBLAS_STATUS_INTERNAL_ERROR", Status::LIBRARY),
    (15, "CUBLAS_STATUS_NOT_SUPPORTED", Status::NOT_SUPPORTED),
    (16, "CUBLAS_STATUS_LICENSE_ERROR", Status::LIBRARY),
];

impl Cublas {
    fn check(&self, call: Call, code: Code) -> Result<()> {
        math::check(call.info(), code, ERRORS)
    }

    /// Creates a handle for the device whose context is current.
    pub fn create(&self) -> Result<Handle> {
        let mut handle: RawHandle = ptr::null_mut();
        // SAFETY: the output is a live local.
        unsafe { library_call!(self, cublasCreate_v2(&mut handle)) }?;
        Ok(Handle(handle as usize))
    }

    /// Resets a handle to its initial state, whatever its last user set.
    pub fn reset(&self, handle: Handle) -> Result<()> {
        let raw = handle.raw();
        // SAFETY: the handle is live, and because it has no current user, only this thread uses it. The same holds
        // below.
        unsafe { library_call!(self, cublasSetPointerMode_v2(raw, POINTER_MODE_HOST)) }?;
        // SAFETY: as above.
        unsafe { library_call!(self, cublasSetMathMode(raw, DEFAULT_MATH)) }?;
        // SAFETY: as above.
        unsafe { library_call!(self, cublasSetAtomicsMode(raw, ATOMICS_NOT_ALLOWED)) }
    }

    /// Sets the math mode, the stream and the workspace of a handle that belongs to this thread. The stream comes before
    /// the workspace because setting it resets the workspace.
    pub fn set(&self, handle: Handle, math_mode: c_int, stream: Stream, workspace: Span) -> Result<()> {
        let (raw, area) = (handle.raw(), workspace.address() as *mut c_void);
        // SAFETY: the handle is live and belongs to this thread.
        unsafe { library_call!(self, cublasSetMathMode(raw, math_mode)) }?;
        // SAFETY: the handle is live and belongs to this thread, and the stream is a driver stream.
        unsafe { library_call!(self, cublasSetStream_v2(raw, stream.handle() as RawStream)) }?;
        // SAFETY: the workspace is a block of the allocator for this stream, which its owner keeps until the handle
        // gets another one or the program declares it unused.
        unsafe { library_call!(self, cublasSetWorkspace_v2(raw, area, workspace.bytes())) }
    }
}
