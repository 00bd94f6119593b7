/*!
 * @defgroup plinth_cufft Plans of cuFFT
 *
 * Plans for Fourier transforms, with a cache for each device: torch.backends.cuda.cufft_plan_cache.
 *
 * The caller owns the handle of a plan and destroys it. The plan itself lives as long as the cache, a handle or a
 * graph needs it. Threads may share a plan: each execution takes the plan for the length of the call, and allocates
 * its own work memory. A thread that acquires a plan must release it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_CUFFT_H
#define PLINTH_CUFFT_H

#include "base.h"
#include "tensor.h"

/*!
 * @file plinth/cufft.h
 * @brief Plans of cuFFT.
 */

/*!
 * @addtogroup plinth_cufft
 * @{
 */

/**
 * Complex to complex.
 */
#define PLINTH_CUFFT_C2C 0

/**
 * Real to complex. The last dimension of the output has n / 2 + 1 elements.
 */
#define PLINTH_CUFFT_R2C 1

/**
 * Complex to real; the inverse of PLINTH_CUFFT_R2C.
 */
#define PLINTH_CUFFT_C2R 2

/**
 * The forward transform, from a signal to its frequencies.
 */
#define PLINTH_CUFFT_FORWARD -1

/**
 * The inverse transform. Like cuFFT's, it does not divide by the number of elements.
 */
#define PLINTH_CUFFT_INVERSE 1

/**
 * A plan for Fourier transforms. The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for an
 * invalid one.
 */
typedef struct plinth_cufft_plan plinth_cufft_plan;

/**
 * The parameters of a plan. PLINTH_CUFFT_PARAMS_INIT sets struct_size, and the other fields to 0.
 */
typedef struct plinth_cufft_params_t {
  /**
   * sizeof(plinth_cufft_params_t).
   */
  size_t struct_size;
  /**
   * The number of dimensions of a signal: 1, 2 or 3.
   */
  int32_t rank;
  /**
   * PLINTH_CUFFT_C2C, _R2C or _C2R.
   */
  int32_t transform;
  /**
   * The type of the real numbers, or of the real and imaginary parts of complex ones: a float of 16, 32 or 64
   * bits.
   */
  DLDataType number;
  /**
   * The number of signals, then the size of each dimension, in elements of the real signal.
   */
  int64_t sizes[4];
  /**
   * The strides of the input, in its elements: between signals, then in each dimension. All 0 for a contiguous
   * input.
   */
  int64_t input_strides[4];
  /**
   * The strides of the output, in the same form.
   */
  int64_t output_strides[4];
} plinth_cufft_params_t;

/*! An initializer for a plinth_cufft_params_t. */
#define PLINTH_CUFFT_PARAMS_INIT {sizeof(plinth_cufft_params_t), 0, 0, {0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}

/**
 * The handle of a plan.
 */
typedef struct plinth_cufft_plan *plinth_cufft_plan_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Gets a plan for Fourier transforms from the device's cache, or creates it and adds it to the cache.
 *
 * The plan becomes the most recently used one of the cache. If the maximum size of the cache is 0, only the caller
 * has the plan. May be called while a stream captures.
 *
 * The library looks for cuFFT in the process, in the system's library paths, in the CUDA toolkit and in folders of
 * Python packages; PLINTH_CUFFT_LIBRARY names another file.
 *
 * @param params The parameters of the plan.
 * @param device The device index; -1 for the current device.
 * @param plan Out: the plan. The caller releases it with plinth_cufft_plan_destroy. The cache, and graphs that
 *        captured the plan, keep their own references.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for sizes,
 *         types or strides that cuFFT does not support; PLINTH_ERROR_LIBRARY_UNAVAILABLE if cuFFT is not found, with
 *         a message that lists where the library looked for it, and on the host device; PLINTH_ERROR_LIBRARY if
 *         cuFFT fails; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_create(const struct plinth_cufft_params_t *params,
                                         int32_t device,
                                         plinth_cufft_plan_t *plan)
PLINTH_NOEXCEPT;

/**
 * Executes a plan in the calling thread's current stream on the plan's device.
 *
 * Threads may share a plan: each call locks the plan until it returns, and uses a work area of its own from the
 * allocator. May be captured.
 *
 * @param plan The plan.
 * @param input The input, in the device's memory, aligned to its elements.
 * @param output The output; may be the input if both have the same layout. A complex-to-real transform may overwrite
 *        the input.
 * @param direction PLINTH_CUFFT_FORWARD or _INVERSE. A real-to-complex transform is always forward, a
 *        complex-to-real transform always inverse.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
 *         direction, and for a plan that this thread has acquired; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_LIBRARY;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_execute(plinth_cufft_plan_t plan,
                                     const void *input,
                                     void *output,
                                     int32_t direction)
PLINTH_NOEXCEPT;

/**
 * Acquires a plan exclusively for the calling thread, for cuFFT calls that the program makes itself.
 *
 * The plan is set to the thread's current stream on the plan's device and has a work area. Other threads that use
 * the plan wait until plinth_cufft_plan_release. The thread must make that call before it ends.
 *
 * @param plan The plan.
 * @param native Out: the cufftHandle. It belongs to the library. Settings that the program changes on it persist,
 *        except stream and work area.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if the
 *         thread has already acquired the plan; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_LIBRARY;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_acquire(plinth_cufft_plan_t plan,
                                          int32_t *native)
PLINTH_NOEXCEPT;

/**
 * Releases a plan that plinth_cufft_plan_acquire acquired. Work that was added to the stream in between still runs.
 *
 * @param plan The plan.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if the
 *         thread has not acquired the plan; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_release(plinth_cufft_plan_t plan)
PLINTH_NOEXCEPT;

/**
 * Releases the caller's reference to a plan. Work that is in a stream still runs.
 *
 * @param plan The plan; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE while a thread has acquired the plan
 *         through this handle: call plinth_cufft_plan_release first.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_destroy(plinth_cufft_plan_t plan)
PLINTH_NOEXCEPT;

/**
 * Gets the maximum number of plans in a device's cache: cufft_plan_cache.max_size. The default is 4096.
 *
 * @param device The device index; -1 for the current device.
 * @param max_size Out: the maximum number of plans.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_cache_get_max_size(int32_t device,
                                                     int64_t *max_size)
PLINTH_NOEXCEPT;

/**
 * Sets the maximum number of plans in a device's cache. If the cache has more, the least recently used plans are
 * removed.
 *
 * @param device The device index; -1 for the current device.
 * @param max_size The maximum number of plans; 0 disables the cache.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a negative number; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_cache_set_max_size(int32_t device,
                                                     int64_t max_size)
PLINTH_NOEXCEPT;

/**
 * Gets the number of plans in a device's cache: cufft_plan_cache.size.
 *
 * @param device The device index; -1 for the current device.
 * @param size Out: the number of plans.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_cufft_plan_cache_size(int32_t device, int64_t *size) PLINTH_NOEXCEPT;

/**
 * Removes all plans from a device's cache: cufft_plan_cache.clear. Plans that the program or a graph uses stay
 * valid.
 *
 * @param device The device index; -1 for the current device.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_cache_clear(int32_t device)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_CUFFT_H */
