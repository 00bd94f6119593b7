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
 * What the host device holds at a moment: for tests that nothing is lost.
 *
 * The struct grows at its end in newer versions; set struct_size to sizeof(plinth_host_usage_t) before the call.
 */
typedef struct plinth_host_usage_t {
  /**
   * In: the size that the caller knows. Out: how much of it was filled.
   */
  size_t struct_size;
  /**
   * Bytes of device memory in use, all devices together.
   */
  uint64_t device_bytes;
  /**
   * Bytes of pinned host memory.
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
   * Handles of physical memory.
   */
  uint64_t memory_handles;
  /**
   * Mappings of physical memory.
   */
  uint64_t mappings;
  /**
   * Reserved ranges of addresses.
   */
  uint64_t reservations;
  /**
   * Threads that work at this moment, or wait for work.
   */
  uint64_t threads;
} plinth_host_usage_t;

/*! An initializer for a plinth_host_usage_t. */
#define PLINTH_HOST_USAGE_INIT {sizeof(plinth_host_usage_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Lets driver calls be made to fail, and counts them. For tests: it puts a layer before every driver call.
 *
 * Must come before the first use of a device and the first question about one; PLINTH_FAULT_INJECTION=1 in the
 * environment does the same. Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_ALREADY_INITIALIZED if it is too late.
 */
PLINTH_API
plinth_status_t plinth_enable_fault_injection(void)
PLINTH_NOEXCEPT;

/**
 * Makes one driver call fail, before it has any effect: the nth from now on, of all threads. It happens once.
 *
 * A test runs a piece of work with nth = 1, 2, 3 and so on until plinth_tripped_fault tells that the work ended before
 * the fault, and so sees every failure that the driver could cause.
 *
 * @param nth Which call from now on, the next being 1; 0 calls a fault off that has not happened yet.
 * @param driver_code The CUresult that it fails with; 2 is CUDA_ERROR_OUT_OF_MEMORY. Not 0, unless nth is.
 * @return PLINTH_OK; PLINTH_ERROR_NOT_SUPPORTED without plinth_enable_fault_injection; PLINTH_ERROR_INVALID_VALUE for a
 *         driver_code of 0.
 */
PLINTH_API
plinth_status_t plinth_inject_fault(uint64_t nth,
                                    int32_t driver_code)
PLINTH_NOEXCEPT;

/**
 * Tells which driver call met the fault that plinth_inject_fault set last.
 *
 * @return The call's name, a static text; NULL if none has.
 */
PLINTH_API const char *plinth_tripped_fault(void) PLINTH_NOEXCEPT;

/**
 * Counts the calls of a driver function: always on the host device, and on a GPU with plinth_enable_fault_injection.
 * Thread-safe.
 *
 * @param name The function, "cuMemCreate".
 * @param count Out: how often it was called in this process.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
 *         PLINTH_ERROR_NOT_SUPPORTED where nobody counts; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_driver_call_count(const char *name,
                                         uint64_t *count)
PLINTH_NOEXCEPT;

/**
 * Tells what the calls of a driver function would have cost on an H200 (driver 580): the host device keeps account
 * of it. Thread-safe.
 *
 * @param name The function, "cuMemCreate".
 * @param nanoseconds Out: the cost of all its calls in this process.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
 *         PLINTH_ERROR_NOT_SUPPORTED on a GPU; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_driver_call_cost(const char *name,
                                        uint64_t *nanoseconds)
PLINTH_NOEXCEPT;

/**
 * Gives the driver's function of a name, for programs that call the driver themselves, on a GPU and on the host device
 * alike, and for measuring plinth against the bare call. Thread-safe.
 *
 * @param name The function, with or without its version: "cuMemAlloc" or "cuMemAlloc_v2".
 * @param function Out: the function, of the type that cuda.h gives it. A function that the driver lacks is present
 *        and returns CUDA_ERROR_NOT_SUPPORTED.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
 *         the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_driver_entry_point(const char *name,
                                          void **function)
PLINTH_NOEXCEPT;

/**
 * Tells what the host device holds. Thread-safe.
 *
 * @param usage In: struct_size. Out: the counts, as far as struct_size reaches.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set;
 *         PLINTH_ERROR_NOT_SUPPORTED on a GPU; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_usage(struct plinth_host_usage_t *usage)
PLINTH_NOEXCEPT;

/**
 * Describes the driver calls that plinth uses, a line each: name, the CUDA version that brought it, and "required" or
 * "optional". Needs no device. Thread-safe.
 *
 * @param text Out: the lines. The caller owns them and frees them with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_driver_calls(char **text)
PLINTH_NOEXCEPT;

/**
 * Walks every structure of the caching allocator and of that of pinned memory, and checks that they agree. For tests, while no other
 * thread allocates or frees: what is in the middle of a step does not agree with itself.
 *
 * @return PLINTH_OK; PLINTH_ERROR_PANIC with a message that names what is broken; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_testing_check_allocator(void)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_TESTING_H */
