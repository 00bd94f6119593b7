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
 * Gets the calling thread's cuBLAS handle for its current device: torch.cuda.current_blas_handle.
 *
 * The handle is set to the thread's current stream, to a workspace from the allocator for that stream, and to the math
 * mode of the precision settings (plinth_set_matmul_allow_tf32 and others). Call this function before each use of the
 * handle, as torch does: it sets the stream, the math mode, and in a capture the workspace, that are current at the time
 * of the call. cuBLAS requires that the handle's device is current. A handle belongs to its
 * thread until the thread ends. Afterwards another thread gets it, with pointer mode and atomics mode
 * reset to cuBLAS's defaults; otherwise pointer mode and atomics mode stay as the thread set them. May be called in a capture; the
 * graph then keeps the workspace.
 *
 * The workspace has 32 MiB for compute capabilities 9 to 12 and 8,519,680 bytes for others, or the size in
 * CUBLAS_WORKSPACE_CONFIG: ":SIZE:COUNT" once or more, with sizes in KiB. The library looks for cuBLAS in the
 * process, in the system's library paths, in the CUDA toolkit and in folders of Python packages;
 * PLINTH_CUBLAS_LIBRARY names another file.
 *
 * @param handle Out: the cublasHandle_t. It belongs to the library and must not be destroyed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_LIBRARY_UNAVAILABLE if cuBLAS is not found, with a
 *         message that lists where the library looked for it, and on the host device; PLINTH_ERROR_LIBRARY if cuBLAS
 *         fails; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_INVALID_CONFIGURATION for an invalid environment variable;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_current_blas_handle(void **handle)
PLINTH_NOEXCEPT;

/**
 * Gets the calling thread's cuBLASLt handle for its current device.
 *
 * It is the handle that plinth_current_blas_handle returns, which cuBLASLt accepts too. No stream and no workspace
 * are set, because cuBLASLt's calls take both as arguments; see plinth_current_blaslt_workspace.
 *
 * @param handle Out: the cublasLtHandle_t. It belongs to the library and must not be destroyed.
 * @return As plinth_current_blas_handle.
 */
PLINTH_API
plinth_status_t plinth_current_blaslt_handle(void **handle)
PLINTH_NOEXCEPT;

/**
 * Gets a workspace for one cuBLASLt call, such as cublasLtMatmul, in the calling thread's current stream.
 *
 * Call this function before each use of the workspace. cuBLAS calls in the same thread and stream use the same
 * memory. In a capture the graph keeps the workspace.
 *
 * @param workspace Out: the memory, which belongs to the library.
 * @param bytes Out: its size in bytes: 1 MiB, or CUBLASLT_WORKSPACE_SIZE KiB if that variable is set.
 * @return As plinth_current_blas_handle.
 */
PLINTH_API
plinth_status_t plinth_current_blaslt_workspace(void **workspace,
                                                size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Returns the cuBLAS and cuBLASLt workspaces of all threads and streams to the allocator:
 * torch._C._cuda_clearCublasWorkspaces.
 *
 * The next plinth_current_blas_handle allocates a new workspace. Do not use a handle that a thread got earlier until
 * then. Graphs keep their workspaces, including graphs captured with the driver's own calls.
 *
 * @return PLINTH_OK; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_clear_blas_workspaces(void)
PLINTH_NOEXCEPT;

/**
 * Gets the calling thread's dense cuSOLVER handle for its current device, set to the thread's current stream.
 *
 * Call this function before each use of the handle. cuSOLVER's calls take their workspaces as arguments.
 * PLINTH_CUSOLVER_LIBRARY names a file to use instead of the cuSOLVER that the library finds.
 *
 * @param handle Out: the cusolverDnHandle_t. It belongs to the library and must not be destroyed.
 * @return As plinth_current_blas_handle, for cuSOLVER.
 */
PLINTH_API plinth_status_t plinth_current_solver_handle(void **handle) PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_precision Precision of matrix products
 *
 * torch.backends.cuda.matmul, torch.set_float32_matmul_precision and the preferred libraries. The settings hold for the
 * whole process; threads may set and read them at any time. None of these functions needs a device.
 *
 * plinth_current_blas_handle sets the math mode of the handle that it returns to these settings. cuBLASLt and the Ex
 * functions of cuBLAS take a compute type as an argument, and the program calls the library that it prefers: there the
 * program reads the setting and passes what it says.
 *
 * @{
 */

/**
 * Products of float32 matrices use float32 throughout. The initial setting.
 */
#define PLINTH_MATMUL_PRECISION_HIGHEST 0

/**
 * Products of float32 matrices may use TF32 (10 bits of the fraction), or float32 split into bfloat16 numbers.
 */
#define PLINTH_MATMUL_PRECISION_HIGH 1

/**
 * Products of float32 matrices may use bfloat16 (7 bits of the fraction). cuBLAS uses TF32, as in torch.
 */
#define PLINTH_MATMUL_PRECISION_MEDIUM 2

/**
 * The default library for matrix products, which is cuBLAS.
 */
#define PLINTH_BLAS_LIBRARY_DEFAULT 0

/**
 * cuBLAS. The initial setting, unless the environment variable TORCH_BLAS_PREFER_CUBLASLT is 1.
 */
#define PLINTH_BLAS_LIBRARY_CUBLAS 1

/**
 * cuBLASLt.
 */
#define PLINTH_BLAS_LIBRARY_CUBLASLT 2

/**
 * No preference: the program chooses a library for each operation. The initial setting, unless the environment variable
 * TORCH_LINALG_PREFER_CUSOLVER is 1.
 */
#define PLINTH_LINALG_LIBRARY_DEFAULT 0

/**
 * cuSOLVER.
 */
#define PLINTH_LINALG_LIBRARY_CUSOLVER 1

/**
 * MAGMA, of which the library has no handles.
 */
#define PLINTH_LINALG_LIBRARY_MAGMA 2

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Sets whether products of float32 matrices may use TF32: torch.backends.cuda.matmul.allow_tf32.
 *
 * It is another view of plinth_set_float32_matmul_precision: true is PLINTH_MATMUL_PRECISION_HIGH, false
 * PLINTH_MATMUL_PRECISION_HIGHEST. Initially false, or true if the environment variable
 * TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is 1. Devices that plinth_is_tf32_supported reports as not supported ignore it.
 *
 * @param allow Whether they may.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_set_matmul_allow_tf32(bool allow)
PLINTH_NOEXCEPT;

/**
 * Returns whether products of float32 matrices may use TF32. A program that passes a compute type passes
 * CUBLAS_COMPUTE_32F_FAST_TF32 if so.
 *
 * @param allow Out: whether they may: the precision is not PLINTH_MATMUL_PRECISION_HIGHEST.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_get_matmul_allow_tf32(bool *allow) PLINTH_NOEXCEPT;

/**
 * Sets whether products of float16 matrices may be summed in reduced precision:
 * torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction. Initially true.
 *
 * cuBLAS has one flag for float16 and bfloat16: a handle forbids it for both if one of the two settings is false.
 *
 * @param allow Whether they may.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_set_matmul_allow_fp16_reduced_precision_reduction(bool allow)
PLINTH_NOEXCEPT;

/**
 * Returns whether products of float16 matrices may be summed in reduced precision.
 *
 * @param allow Out: whether they may.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_get_matmul_allow_fp16_reduced_precision_reduction(bool *allow)
PLINTH_NOEXCEPT;

/**
 * Sets whether products of bfloat16 matrices may be summed in reduced precision:
 * torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction. Initially true.
 *
 * @param allow Whether they may; see plinth_set_matmul_allow_fp16_reduced_precision_reduction.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_set_matmul_allow_bf16_reduced_precision_reduction(bool allow)
PLINTH_NOEXCEPT;

/**
 * Returns whether products of bfloat16 matrices may be summed in reduced precision.
 *
 * @param allow Out: whether they may.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_get_matmul_allow_bf16_reduced_precision_reduction(bool *allow)
PLINTH_NOEXCEPT;

/**
 * Sets the precision of products of float32 matrices: torch.set_float32_matmul_precision.
 *
 * @param precision PLINTH_MATMUL_PRECISION_HIGHEST, _HIGH or _MEDIUM.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number.
 */
PLINTH_API plinth_status_t plinth_set_float32_matmul_precision(int32_t precision) PLINTH_NOEXCEPT;

/**
 * Returns the precision of products of float32 matrices: torch.get_float32_matmul_precision.
 *
 * @param precision Out: PLINTH_MATMUL_PRECISION_HIGHEST, _HIGH or _MEDIUM.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_get_float32_matmul_precision(int32_t *precision) PLINTH_NOEXCEPT;

/**
 * Sets the preferred library for matrix products: torch.backends.cuda.preferred_blas_library.
 *
 * @param library PLINTH_BLAS_LIBRARY_DEFAULT, _CUBLAS or _CUBLASLT.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number.
 */
PLINTH_API plinth_status_t plinth_set_preferred_blas_library(int32_t library) PLINTH_NOEXCEPT;

/**
 * Returns the preferred library for matrix products. The program calls plinth_current_blas_handle or
 * plinth_current_blaslt_handle accordingly.
 *
 * @param library Out: PLINTH_BLAS_LIBRARY_CUBLAS or _CUBLASLT; as in torch, the default is returned as the library that it
 *        means.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_get_preferred_blas_library(int32_t *library)
PLINTH_NOEXCEPT;

/**
 * Sets the preferred library for linear algebra: torch.backends.cuda.preferred_linalg_library.
 *
 * @param library PLINTH_LINALG_LIBRARY_DEFAULT, _CUSOLVER or _MAGMA.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number.
 */
PLINTH_API plinth_status_t plinth_set_preferred_linalg_library(int32_t library) PLINTH_NOEXCEPT;

/**
 * Returns the preferred library for linear algebra.
 *
 * @param library Out: PLINTH_LINALG_LIBRARY_DEFAULT, _CUSOLVER or _MAGMA.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_get_preferred_linalg_library(int32_t *library) PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_BLAS_H */
