/*!
 * @defgroup plinth_blas Handles of cuBLAS, cuBLASLt and cuSOLVER
 *
 * Handles of CUDA's libraries, set to the calling thread's current stream: torch.cuda.current_blas_handle.
 *
 * Handles and workspaces belong to the library, and the program must not destroy them. A handle belongs to the thread
 * that asked for it, and must not be used by another one. Ask for it before each use, since it is set to the stream
 * that is current at that moment.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_BLAS_H
#define PLINTH_BLAS_H

#include "base.h"

/*!
 * @file plinth/blas.h
 * @brief Handles of cuBLAS, cuBLASLt and cuSOLVER.
 */

/*!
 * @addtogroup plinth_blas
 * @{
 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Gives the calling thread's handle of cuBLAS for its current device, set to the thread's current stream and to a
 * workspace of the allocator's for that stream: torch.cuda.current_blas_handle.
 *
 * Ask for it before each use, as torch does: the stream, and in a capture the workspace, are those of the moment of
 * the call. cuBLAS's calls want the handle's device current. A handle is the thread's until that ends, and then
 * another thread's, which gets it with cuBLAS's own pointer mode, math mode and atomics mode; otherwise they stay as
 * the thread set them. May be called in a capture: the graph then keeps the workspace.
 *
 * The workspace has 32 MiB for compute capabilities 9 to 12 and 8,519,680 bytes for others, or what
 * CUBLAS_WORKSPACE_CONFIG says, ":SIZE:COUNT" once or more with the sizes in KiB. cuBLAS is looked for in the process,
 * where the system finds libraries, in CUDA's toolkit and in folders of Python packages; PLINTH_CUBLAS_LIBRARY names
 * another file. Thread-safe.
 *
 * @param handle Out: the cublasHandle_t, which belongs to the library and is not to be destroyed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_LIBRARY_UNAVAILABLE where there is no cuBLAS, with a
 *         message that says where it was looked for, and on the host device; PLINTH_ERROR_LIBRARY where cuBLAS fails;
 *         PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_INVALID_CONFIGURATION for a variable that makes no sense;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_current_blas_handle(void **handle)
PLINTH_NOEXCEPT;

/**
 * Gives the calling thread's handle of cuBLASLt for its current device: the same as plinth_current_blas_handle gives,
 * which cuBLASLt takes, too. No stream and no workspace are set, since cuBLASLt's calls name both; see
 * plinth_current_blaslt_workspace. Thread-safe.
 *
 * @param handle Out: the cublasLtHandle_t, which belongs to the library and is not to be destroyed.
 * @return As plinth_current_blas_handle.
 */
PLINTH_API
plinth_status_t plinth_current_blaslt_handle(void **handle)
PLINTH_NOEXCEPT;

/**
 * Gives a workspace for one call of cuBLASLt's in the calling thread's current stream, such as cublasLtMatmul. Ask for
 * it before each use. cuBLAS's calls in the same thread and stream use the same memory. In a capture the graph keeps
 * it. Thread-safe.
 *
 * @param workspace Out: the memory; it belongs to the library.
 * @param bytes Out: its size: 1 MiB, or as many KiB as CUBLASLT_WORKSPACE_SIZE says.
 * @return As plinth_current_blas_handle.
 */
PLINTH_API
plinth_status_t plinth_current_blaslt_workspace(void **workspace,
                                                size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Gives back to the allocator the workspaces of cuBLAS and cuBLASLt, of all threads and streams:
 * torch._C._cuda_clearCublasWorkspaces. The next plinth_current_blas_handle makes new ones; a handle that a thread got
 * before must not be used until then. Graphs keep theirs, also those captured by the driver's own calls. Thread-safe.
 *
 * @return PLINTH_OK; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_clear_blas_workspaces(void)
PLINTH_NOEXCEPT;

/**
 * Gives the calling thread's handle of cuSOLVER's dense part for its current device, set to the thread's current
 * stream. Ask for it before each use. cuSOLVER's calls take their workspaces as arguments. PLINTH_CUSOLVER_LIBRARY
 * names another file than the one that is found. Thread-safe.
 *
 * @param handle Out: the cusolverDnHandle_t, which belongs to the library and is not to be destroyed.
 * @return As plinth_current_blas_handle, of cuSOLVER.
 */
PLINTH_API
plinth_status_t plinth_current_solver_handle(void **handle)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_BLAS_H */
