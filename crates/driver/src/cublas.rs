//! cuBLAS, loaded at run time: handles, their streams and their workspaces. The program calls the operations itself.
//!
//! A cuBLAS handle is also a cuBLASLt handle.

#![allow(missing_docs)]

use super::{
    Span, Stream,
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

/// The return type of a cuBLAS call: 0, or another `cublasStatus_t`.
pub type Code = c_int;

const SUCCESS: Code = 0;
const ALLOC_FAILED: Code = 3;
const INVALID_VALUE: Code = 7;
const NOT_SUPPORTED: Code = 15;
/// Not a cuBLAS code: the stub of a missing call returns it.
const ABSENT: Code = -1;

const POINTER_MODE_HOST: c_int = 0;
const DEFAULT_MATH: c_int = 0;
const ATOMICS_NOT_ALLOWED: c_int = 0;

pub type RawHandle = *mut c_void;
pub type RawStream = *mut c_void;

calls! {
    Code, ABSENT;
    required 11000 cublasCreate_v2(handle: *mut RawHandle);
    required 11000 cublasSetStream_v2(handle: RawHandle, stream: RawStream);
    required 11000 cublasSetWorkspace_v2(handle: RawHandle, workspace: *mut c_void, bytes: usize);
    required 11000 cublasSetPointerMode_v2(handle: RawHandle, mode: c_int);
    required 11000 cublasSetMathMode(handle: RawHandle, mode: c_int);
    required 11000 cublasSetAtomicsMode(handle: RawHandle, mode: c_int);
}

const LIBRARY: LibrarySpec = LibrarySpec {
    name: "cuBLAS",
    variable: "PLINTH_CUBLAS_LIBRARY",
    names: &[(13, c"libcublas.so.13"), (12, c"libcublas.so.12"), (11, c"libcublas.so.11")],
    in_toolkit: true,
    in_packages: &["nvidia/cu13/lib", "nvidia/cublas/lib"],
};

/// A loaded cuBLAS library.
pub struct Cublas {
    table: Table,
    on_host_device: bool,
}

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

/// Returns the process's cuBLAS, and loads it on the first call.
pub fn get() -> Result<&'static Cublas> {
    static CUBLAS: OnceCell<Cublas> = OnceCell::new();
    CUBLAS.get_or_try_init(|| {
        let fill = |library: Library| {
            // SAFETY: each call is looked up under its own symbol, whose signature the table declares and all supported
            // versions share. The library is never closed.
            let (table, missing) = unsafe { Table::from_symbols(|call| library.symbol(call.info().c_symbol)) };
            (table, missing.map(Call::info))
        };
        let (table, on_host_device) = math::load(&LIBRARY, c"plinth_cublas_on_host_device", fill)?;
        Ok(Cublas { table, on_host_device })
    })
}

fn check(call: Call, code: Code) -> Result<()> {
    if code == SUCCESS {
        return Ok(());
    }
    let (name, status) = match code {
        1 => ("CUBLAS_STATUS_NOT_INITIALIZED", Status::LIBRARY),
        ALLOC_FAILED => ("CUBLAS_STATUS_ALLOC_FAILED", Status::OUT_OF_MEMORY),
        INVALID_VALUE => ("CUBLAS_STATUS_INVALID_VALUE", Status::INVALID_VALUE),
        8 => ("CUBLAS_STATUS_ARCH_MISMATCH", Status::NOT_SUPPORTED),
        11 => ("CUBLAS_STATUS_MAPPING_ERROR", Status::LIBRARY),
        13 => ("CUBLAS_STATUS_EXECUTION_FAILED", Status::LIBRARY),
        14 => ("CUBLAS_STATUS_INTERNAL_ERROR", Status::LIBRARY),
        NOT_SUPPORTED => ("CUBLAS_STATUS_NOT_SUPPORTED", Status::NOT_SUPPORTED),
        16 => ("CUBLAS_STATUS_LICENSE_ERROR", Status::LIBRARY),
        _ => ("", Status::LIBRARY),
    };
    Err(call_error(call.info().symbol, code, name, status))
}

impl Cublas {
    /// Returns whether the library works on the host device, as test doubles do.
    pub fn works_on_host_device(&self) -> bool {
        self.on_host_device
    }

    /// Creates a handle for the device whose context is current.
    pub fn create(&self) -> Result<Handle> {
        let mut handle: RawHandle = ptr::null_mut();
        // SAFETY: the output is a live local.
        check(Call::cublasCreate_v2, unsafe { (self.table.cublasCreate_v2)(&mut handle) })?;
        Ok(Handle(handle as usize))
    }

    /// Resets a handle to its initial state, whatever its last user set.
    pub fn reset(&self, handle: Handle) -> Result<()> {
        let (raw, table) = (handle.raw(), &self.table);
        // SAFETY: the handle is live, and because it has no current user, only this thread uses it. The same holds
        // below.
        check(Call::cublasSetPointerMode_v2, unsafe { (table.cublasSetPointerMode_v2)(raw, POINTER_MODE_HOST) })?;
        // SAFETY: as above.
        check(Call::cublasSetMathMode, unsafe { (table.cublasSetMathMode)(raw, DEFAULT_MATH) })?;
        // SAFETY: as above.
        check(Call::cublasSetAtomicsMode, unsafe { (table.cublasSetAtomicsMode)(raw, ATOMICS_NOT_ALLOWED) })
    }

    /// Sets the stream and the workspace of a handle that belongs to this thread. The stream comes first because
    /// setting it resets the workspace.
    pub fn set(&self, handle: Handle, stream: Stream, workspace: Span) -> Result<()> {
        let (raw, table) = (handle.raw(), &self.table);
        // SAFETY: the handle is live and belongs to this thread, and the stream is a driver stream.
        let code = unsafe { (table.cublasSetStream_v2)(raw, stream.handle() as RawStream) };
        check(Call::cublasSetStream_v2, code)?;
        // SAFETY: the workspace is a block of the allocator for this stream, which its owner keeps until the handle
        // gets another one or the program declares it unused.
        let code = unsafe { (table.cublasSetWorkspace_v2)(raw, workspace.address() as *mut c_void, workspace.bytes()) };
        check(Call::cublasSetWorkspace_v2, code)
    }
}
