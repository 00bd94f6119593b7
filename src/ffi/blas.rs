//! Handles of cuBLAS, cuBLASLt and cuSOLVER
//!
//! Handles of CUDA's libraries, set to the calling thread's current stream: torch.cuda.current_blas_handle.
//!
//! Handles and workspaces belong to the library, and the program must not destroy them. A handle belongs to the thread
//! that asked for it, and must not be used by another one. Ask for it before each use, since it is set to the stream
//! that is current at that moment.

use crate::{
    ffi::{Output, guard::guard, status::plinth_status_t},
    ops::{blas, solver},
};
use std::ffi::c_void;

/// Gets the calling thread's cuBLAS handle for its current device: torch.cuda.current_blas_handle.
///
/// The handle is set to the thread's current stream, to a workspace from the allocator for that stream, and to the math
/// mode of the precision settings (plinth_set_matmul_allow_tf32 and others). Call this function before each use of the
/// handle, as torch does: it sets the stream, the math mode, and in a capture the workspace, that are current at the time
/// of the call. cuBLAS requires that the handle's device is current. A handle belongs to its
/// thread until the thread ends. Afterwards another thread gets it, with pointer mode and atomics mode
/// reset to cuBLAS's defaults; otherwise pointer mode and atomics mode stay as the thread set them. May be called in a capture; the
/// graph then keeps the workspace.
///
/// The workspace has 32 MiB for compute capabilities 9 to 12 and 8,519,680 bytes for others, or the size in
/// CUBLAS_WORKSPACE_CONFIG: ":SIZE:COUNT" once or more, with sizes in KiB. The library looks for cuBLAS in the
/// process, in the system's library paths, in the CUDA toolkit and in folders of Python packages;
/// PLINTH_CUBLAS_LIBRARY names another file.
///
/// @param handle Out: the cublasHandle_t. It belongs to the library and must not be destroyed.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_LIBRARY_UNAVAILABLE if cuBLAS is not found, with a
///         message that lists where the library looked for it, and on the host device; PLINTH_ERROR_LIBRARY if cuBLAS
///         fails; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_INVALID_CONFIGURATION for an invalid environment variable;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_current_blas_handle(handle: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let handle = unsafe { Output::new(handle, "handle") }?;
        handle.set(blas::current_handle()? as *mut c_void);
        Ok(())
    })
}

/// Gets the calling thread's cuBLASLt handle for its current device.
///
/// It is the handle that plinth_current_blas_handle returns, which cuBLASLt accepts too. No stream and no workspace
/// are set, because cuBLASLt's calls take both as arguments; see plinth_current_blaslt_workspace.
///
/// @param handle Out: the cublasLtHandle_t. It belongs to the library and must not be destroyed.
/// @return As plinth_current_blas_handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_current_blaslt_handle(handle: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let handle = unsafe { Output::new(handle, "handle") }?;
        handle.set(blas::current_lt_handle()? as *mut c_void);
        Ok(())
    })
}

/// Gets a workspace for one cuBLASLt call, such as cublasLtMatmul, in the calling thread's current stream.
///
/// Call this function before each use of the workspace. cuBLAS calls in the same thread and stream use the same
/// memory. In a capture the graph keeps the workspace.
///
/// @param workspace Out: the memory, which belongs to the library.
/// @param bytes Out: its size in bytes: 1 MiB, or CUBLASLT_WORKSPACE_SIZE KiB if that variable is set.
/// @return As plinth_current_blas_handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_current_blaslt_workspace(
    workspace: *mut *mut c_void,
    bytes: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or pointers that are valid for writes.
        let (workspace, bytes) = unsafe { (Output::new(workspace, "workspace")?, Output::new(bytes, "bytes")?) };
        let (address, size) = blas::current_lt_workspace()?;
        workspace.set(address as *mut c_void);
        bytes.set(size);
        Ok(())
    })
}

/// Returns the cuBLAS and cuBLASLt workspaces of all threads and streams to the allocator:
/// torch._C._cuda_clearCublasWorkspaces.
///
/// The next plinth_current_blas_handle allocates a new workspace. Do not use a handle that a thread got earlier until
/// then. Graphs keep their workspaces, including graphs captured with the driver's own calls.
///
/// @return PLINTH_OK; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_clear_blas_workspaces() -> plinth_status_t {
    guard(|| {
        blas::clear_workspaces()?;
        Ok(())
    })
}

/// Gets the calling thread's dense cuSOLVER handle for its current device, set to the thread's current stream.
///
/// Call this function before each use of the handle. cuSOLVER's calls take their workspaces as arguments.
/// PLINTH_CUSOLVER_LIBRARY names a file to use instead of the cuSOLVER that the library finds.
///
/// @param handle Out: the cusolverDnHandle_t. It belongs to the library and must not be destroyed.
/// @return As plinth_current_blas_handle, for cuSOLVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_current_solver_handle(handle: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let handle = unsafe { Output::new(handle, "handle") }?;
        handle.set(solver::current_handle()? as *mut c_void);
        Ok(())
    })
}
