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
 * From complex numbers to complex ones.
 */
#define PLINTH_CUFFT_C2C 0

/**
 * From real numbers to complex ones, of which the last dimension has n / 2 + 1.
 */
#define PLINTH_CUFFT_R2C 1

/**
 * From those back to real numbers.
 */
#define PLINTH_CUFFT_C2R 2

/**
 * From a signal to its frequencies.
 */
#define PLINTH_CUFFT_FORWARD -1

/**
 * Back. Like cuFFT's, it does not divide by the number of elements.
 */
#define PLINTH_CUFFT_INVERSE 1

/**
 * A plan of Fourier transforms. Opaque, and checked.
 */
typedef struct plinth_cufft_plan plinth_cufft_plan;

/**
 * What a plan is for. PLINTH_CUFFT_PARAMS_INIT sets struct_size, and the rest to 0.
 */
typedef struct plinth_cufft_params_t {
  /**
   * sizeof(plinth_cufft_params_t).
   */
  size_t struct_size;
  /**
   * How many dimensions a signal has: 1, 2 or 3.
   */
  int32_t rank;
  /**
   * PLINTH_CUFFT_C2C, _R2C or _C2R.
   */
  int32_t transform;
  /**
   * The type of the real numbers, or of the parts of complex ones: a float of 16, 32 or 64 bits.
   */
  DLDataType number;
  /**
   * How many signals there are, then the size of each dimension, as of real numbers.
   */
  int64_t sizes[4];
  /**
   * The distance of neighbours in the input, in its elements: of signals, then in each dimension. All 0: side by
   * side.
   */
  int64_t input_strides[4];
  /**
   * The same of the output.
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
 * Gets a plan of Fourier transforms: from the device's cache, where it is the one used last from now on, or newly made
 * and put there. With a cache of no plans it is the caller's alone. Thread-safe; may be called while a stream
 * captures.
 *
 * cuFFT is looked for in the process, where the system finds libraries, in CUDA's toolkit and in folders of Python
 * packages; PLINTH_CUFFT_LIBRARY names another file.
 *
 * @param params What it is for.
 * @param device The device's number; -1 for the current one.
 * @param plan Out: the plan. The caller gives it up with plinth_cufft_plan_destroy; it lives on in the cache, and also
 *        in the graphs that it was captured into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for sizes,
 *         types or strides that cuFFT does not do; PLINTH_ERROR_LIBRARY_UNAVAILABLE where there is no cuFFT, with a
 *         message that says where it was looked for, and on the host device; PLINTH_ERROR_LIBRARY where cuFFT fails;
 *         PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_get_plan(const struct plinth_cufft_params_t *params,
                                      int32_t device,
                                      plinth_cufft_plan_t *plan)
PLINTH_NOEXCEPT;

/**
 * Carries a plan out, in the calling thread's current stream on the plan's device. Threads may share a plan: each call
 * takes it for as long as the call lasts, and works in memory of its own, which the allocator gives. May be captured.
 * Thread-safe.
 *
 * @param plan The plan.
 * @param input The input, in the device's memory, aligned to its elements.
 * @param output The output; the input itself where both have the same layout. From complex to real numbers, cuFFT may
 *        overwrite the input.
 * @param direction PLINTH_CUFFT_FORWARD or _INVERSE; from real numbers always forward, to real numbers always inverse.
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
 * Gives the calling thread a plan for itself, for calls of cuFFT's that plinth does not make: set to the thread's
 * current stream on the plan's device, with memory to work with. Others that want the plan wait until
 * plinth_cufft_release_plan, which the thread must call before it ends. Thread-safe.
 *
 * @param plan The plan.
 * @param native Out: the cufftHandle. It belongs to the library; what is set in it stays set, but for stream and work
 *         area.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if the thread
 *         has it already; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_LIBRARY; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_acquire_plan(plinth_cufft_plan_t plan,
                                          int32_t *native)
PLINTH_NOEXCEPT;

/**
 * Ends what plinth_cufft_acquire_plan began. What was put into the stream meanwhile is still carried out.
 *
 * @param plan The plan.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if the thread
 *         does not have it; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_release_plan(plinth_cufft_plan_t plan)
PLINTH_NOEXCEPT;

/**
 * Gives a plan up. What is in a stream is still carried out. Thread-safe.
 *
 * @param plan The plan; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE while a thread has acquired the plan by this
 *         handle: plinth_cufft_release_plan comes first.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_destroy(plinth_cufft_plan_t plan)
PLINTH_NOEXCEPT;

/**
 * Tells how many plans a device's cache may hold: cufft_plan_cache.max_size, 4096 until it is set. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param max_size Out: how many.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_cache_max_size(int32_t device,
                                                 int64_t *max_size)
PLINTH_NOEXCEPT;

/**
 * Says how many plans a device's cache may hold. If it holds more, those that were not used for the longest time go.
 * Thread-safe.
 *
 * @param max_size How many; 0 lets it hold none.
 * @param device The device's number; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a negative number; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_cache_set_max_size(int64_t max_size,
                                                     int32_t device)
PLINTH_NOEXCEPT;

/**
 * Tells how many plans a device's cache holds: cufft_plan_cache.size. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param size Out: how many.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_cufft_plan_cache_size(int32_t device, int64_t *size) PLINTH_NOEXCEPT;

/**
 * Empties a device's cache: cufft_plan_cache.clear. Plans that somebody has, or a graph, live on for them.
 * Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_cufft_plan_cache_clear(int32_t device) PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_CUFFT_H */
