/*!
 * @defgroup plinth_testing Testing
 *
 * Failures of driver calls on demand, counts of driver calls, and what the host device still holds, for tests of
 * plinth and of programs that use it.
 *
 * All of it holds for the whole process. A text that a function returns is the caller's, who frees it with
 * plinth_string_free.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_TESTING_H
#define PLINTH_TESTING_H

#include "base.h"

/*!
 * @file plinth/testing.h
 * @brief Testing.
 */

/*!
 * @addtogroup plinth_testing
 * @{
 */

/**
 * The resources that the host device holds at one time, for leak tests.
 *
 * The struct grows at its end in newer versions; set struct_size to sizeof(plinth_host_usage_t) before the call.
 */
typedef struct plinth_host_usage_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * Bytes of device memory in use, all devices together.
   */
  uint64_t device_bytes;
  /**
   * Bytes of pinned host memory in use.
   */
  uint64_t pinned_bytes;
  /**
   * Streams that were created and not destroyed.
   */
  uint64_t streams;
  /**
   * Events that were created and not destroyed.
   */
  uint64_t events;
  /**
   * Graphs that were created and not destroyed.
   */
  uint64_t graphs;
  /**
   * Executable graphs that were instantiated and not destroyed.
   */
  uint64_t executable_graphs;
  /**
   * Modules that were loaded and not unloaded.
   */
  uint64_t modules;
  /**
   * Physical memory handles that were created and not released.
   */
  uint64_t memory_handles;
  /**
   * Mappings of physical memory that were not unmapped.
   */
  uint64_t mappings;
  /**
   * Address ranges that were reserved and not freed.
   */
  uint64_t reservations;
  /**
   * Threads that are working or waiting for work.
   */
  uint64_t threads;
} plinth_host_usage_t;

/*! An initializer for a plinth_host_usage_t. */
#define PLINTH_HOST_USAGE_INIT {sizeof(plinth_host_usage_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Enables the injection of driver errors, and counts driver calls. For tests: it adds an indirection to every driver
 * call.
 *
 * Must be called before the first call that uses or queries a device. Setting PLINTH_FAULT_INJECTION=1 in the
 * environment has the same effect.
 *
 * @return PLINTH_OK; PLINTH_ERROR_ALREADY_INITIALIZED if a device was used already.
 */
PLINTH_API
plinth_status_t plinth_enable_fault_injection(void)
PLINTH_NOEXCEPT;

/**
 * Makes one future driver call fail, before it has any effect: the nth from now on, counted over all threads. The
 * fault happens once.
 *
 * A test runs an operation with nth = 1, 2, 3 and so on until plinth_tripped_fault reports that the operation ended
 * before the fault; it then has covered every driver failure.
 *
 * @param nth The index of the call, where 1 is the next call; 0 cancels a pending fault.
 * @param driver_code The CUresult to return; 2 is CUDA_ERROR_OUT_OF_MEMORY. Must not be 0, unless nth is 0.
 * @return PLINTH_OK; PLINTH_ERROR_NOT_SUPPORTED without plinth_enable_fault_injection; PLINTH_ERROR_INVALID_VALUE for
 *         a driver_code of 0; PLINTH_ERROR_INVALID_CONFIGURATION if PLINTH_FAULT_INJECTION is neither 1 nor 0.
 */
PLINTH_API
plinth_status_t plinth_inject_fault(uint64_t nth,
                                    int32_t driver_code)
PLINTH_NOEXCEPT;

/**
 * Returns the name of the driver call in which the last fault of plinth_inject_fault happened.
 *
 * @return The name, a static string; NULL if the fault has not happened.
 */
PLINTH_API const char *plinth_tripped_fault(void) PLINTH_NOEXCEPT;

/**
 * Returns how often a driver function was called. Calls are counted on the host device, and on a GPU after
 * plinth_enable_fault_injection.
 *
 * @param name The name of the function, for example "cuMemCreate".
 * @param count Out: the number of calls in this process.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
 *         PLINTH_ERROR_NOT_SUPPORTED if calls are not counted; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_driver_call_count(const char *name,
                                         uint64_t *count)
PLINTH_NOEXCEPT;

/**
 * Returns the time that the calls of a driver function would have taken on an H200 (driver 580), by the host device's
 * cost model.
 *
 * @param name The name of the function, for example "cuMemCreate".
 * @param nanoseconds Out: the total time of all calls in this process, in nanoseconds.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
 *         PLINTH_ERROR_NOT_SUPPORTED on a GPU; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_driver_call_cost(const char *name,
                                        uint64_t *nanoseconds)
PLINTH_NOEXCEPT;

/**
 * Returns the address of a driver function, for programs that call the driver themselves, on a GPU or on the host
 * device, and for benchmarks of plinth against the driver call.
 *
 * A function that plinth uses (plinth_driver_calls lists them) has the version that plinth uses. Any other function of
 * the driver has the newest version that the driver knows; plinth_driver_entry_point_by_version finds a given one. The
 * host device has the functions that plinth uses.
 *
 * @param name The name of the function: "cuMemAlloc"; of a function that plinth uses also with its version suffix,
 *        "cuMemAlloc_v2".
 * @param function Out: the function, with the type that cuda.h declares. For a function that plinth uses and the driver
 *        lacks, it is a stub that returns CUDA_ERROR_NOT_SUPPORTED.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a name that is no function of the driver;
 *         PLINTH_ERROR_NOT_SUPPORTED for a function that plinth does not use if the driver is older than CUDA 12.0;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_driver_entry_point(const char *name,
                                          void **function)
PLINTH_NOEXCEPT;

/**
 * Returns the address of a driver function as of a CUDA version: cuGetProcAddress, and
 * cudaGetDriverEntryPointByVersion of torch.cuda.cudart().
 *
 * @param name The name of the function without a version suffix, for example "cuMemAlloc".
 * @param cuda_version The version of CUDA whose cuda.h declares the function as the program calls it, in CUDA's encoding:
 *        13000 for 13.0. With 12000, a function is found as CUDA 12.0 declares it, whatever came later.
 * @param flags 0, or 1 (CU_GET_PROC_ADDRESS_LEGACY_STREAM) for the legacy default stream, or 2
 *        (CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) for the variant that uses the default stream of each thread. The
 *        host device has no such variants.
 * @param function Out: the function.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a name that is no function of the driver as
 *         of that version, and for other flags; PLINTH_ERROR_NOT_SUPPORTED if the driver is older than CUDA 12.0;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_driver_entry_point_by_version(const char *name,
                                                     int32_t cuda_version,
                                                     uint64_t flags,
                                                     void **function)
PLINTH_NOEXCEPT;

/**
 * Returns the resources that the host device holds.
 *
 * @param usage In: struct_size. Out: the counts, as far as struct_size reaches.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set;
 *         PLINTH_ERROR_NOT_SUPPORTED on a GPU; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_host_usage(struct plinth_host_usage_t *usage) PLINTH_NOEXCEPT;

/**
 * Lists the driver functions that plinth uses, one per line: name, the CUDA version that introduced it, and "required"
 * or "optional". Needs no device.
 *
 * @param text Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_driver_calls(char **text)
PLINTH_NOEXCEPT;

/**
 * Checks the internal consistency of the caching allocator and of the pinned memory allocator. For tests. No other
 * thread may allocate or free during the call, because operations in progress leave inconsistent intermediate states.
 *
 * @return PLINTH_OK; PLINTH_ERROR_PANIC with a message that names the inconsistency; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_testing_check_allocator(void)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_TESTING_H */
