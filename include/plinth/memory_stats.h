/*!
 * @defgroup plinth_memory_stats Statistics of the allocator
 *
 * What the caching allocator counts for each device, pool or stream: torch.cuda.memory_stats.
 *
 * The caller provides the struct; a text that a function returns is the caller's, who frees it with
 * plinth_string_free. Counters hold for the whole process, whichever thread allocated. A callback is called by the
 * calling thread, before the function returns.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_MEMORY_STATS_H
#define PLINTH_MEMORY_STATS_H

#include "base.h"
#include "mem_pool.h"

/*!
 * @file plinth/memory_stats.h
 * @brief Statistics of the allocator.
 */

/*!
 * @addtogroup plinth_memory_stats
 * @{
 */

/**
 * A quantity that goes up and down.
 */
typedef struct plinth_memory_stat_t {
  /**
   * What it is.
   */
  int64_t current;
  /**
   * The most that it was, since the peaks were reset.
   */
  int64_t peak;
  /**
   * The sum of all increases, since the sums were reset.
   */
  int64_t allocated;
  /**
   * The sum of all decreases, since the sums were reset.
   */
  int64_t freed;
} plinth_memory_stat_t;

/**
 * A quantity of the whole, and of requests up to 1 MiB and above.
 */
typedef struct plinth_memory_stat_by_pool_t {
  /**
   * The whole.
   */
  struct plinth_memory_stat_t all;
  /**
   * Small blocks.
   */
  struct plinth_memory_stat_t small_pool;
  /**
   * Large blocks.
   */
  struct plinth_memory_stat_t large_pool;
} plinth_memory_stat_by_pool_t;

/**
 * All that the allocator counts; the names are those of torch.cuda.memory_stats.
 *
 * The struct grows at its end in newer versions, and programs compiled against older ones go on working: set struct_size to
 * sizeof(plinth_memory_stats_t) before the call.
 */
typedef struct plinth_memory_stats_t {
  /**
   * In: the size that the caller knows. Out: how much of it was filled.
   */
  size_t struct_size;
  /**
   * Blocks in the program's hands.
   */
  struct plinth_memory_stat_by_pool_t allocation;
  /**
   * Pieces of memory that the driver gave.
   */
  struct plinth_memory_stat_by_pool_t segment;
  /**
   * Blocks in the program's hands, and freed ones that a stream may still be using.
   */
  struct plinth_memory_stat_by_pool_t active;
  /**
   * Free blocks in pieces that are partly in use, and so cannot go back to the driver. They are counted when somebody
   * asks, so peak and sums are those of what was told.
   */
  struct plinth_memory_stat_by_pool_t inactive_split;
  /**
   * Bytes in the program's hands, each request rounded up to 512.
   */
  struct plinth_memory_stat_by_pool_t allocated_bytes;
  /**
   * Bytes that the driver gave.
   */
  struct plinth_memory_stat_by_pool_t reserved_bytes;
  /**
   * Bytes of the active blocks.
   */
  struct plinth_memory_stat_by_pool_t active_bytes;
  /**
   * Bytes of the free blocks that cannot go back to the driver, counted as those.
   */
  struct plinth_memory_stat_by_pool_t inactive_split_bytes;
  /**
   * Bytes that the program asked for, before rounding.
   */
  struct plinth_memory_stat_by_pool_t requested_bytes;
  /**
   * Blocks in the program's hands of at least max_split_size.
   */
  struct plinth_memory_stat_t oversize_allocations;
  /**
   * Pieces of memory from the driver of at least max_split_size.
   */
  struct plinth_memory_stat_t oversize_segments;
  /**
   * Requests that were met only after the device was waited for.
   */
  int64_t num_alloc_retries;
  /**
   * Requests that failed for want of memory.
   */
  int64_t num_ooms;
  /**
   * Blocks of this size and above are not split; -1 where every block may be.
   */
  int64_t max_split_size;
  /**
   * Times that every stream was waited for.
   */
  int64_t num_sync_all_streams;
  /**
   * Driver calls that brought memory.
   */
  int64_t num_device_alloc;
  /**
   * Driver calls that gave memory back.
   */
  int64_t num_device_free;
} plinth_memory_stats_t;

/**
 * Hears of a figure: torch's key for it, which is valid during the call, its value, and the context.
 */
typedef void (*plinth_memory_stats_callback_t)(const char *name, int64_t value, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Tells all that the allocator counts of a device, as torch.cuda.memory_stats does. Counting costs requests nothing that could
 * be measured; to ask walks over all blocks. Thread-safe.
 *
 * The peaks of all allocated and of all reserved bytes are exact. Every other peak of a whole is the sum of the peaks of its
 * parts, small and large blocks, one stream and another, and so the most that it can have been.
 *
 * @param device The device's number; -1 for the current one.
 * @param stats In: struct_size. Out: the figures, as far as struct_size reaches, and in struct_size how far they were
 *        filled.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set;
 *         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_stats(int32_t device,
                                    struct plinth_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Tells all that the allocator counts of a pool on a device. What only the device counts is 0: retries, failures, waits and
 * driver calls. Thread-safe.
 *
 * @param pool The pool; {0, 0} for the default one. A pool without memory has zeros.
 * @param device The device's number; -1 for the current one.
 * @param stats As for plinth_memory_stats.
 * @return As plinth_memory_stats.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_stats(plinth_pool_id_t pool,
                                      int32_t device,
                                      struct plinth_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Tells all that the allocator counts of what was allocated for a stream, in every pool. What only the device counts is 0,
 * as for plinth_mem_pool_stats. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream. For a thread's own default stream what the calling
 *        thread has.
 * @param stats As for plinth_memory_stats.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set;
 *         PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_memory_stats(plinth_stream_t stream,
                                           struct plinth_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Calls a callback for each figure of a device: with the 122 keys of torch.cuda.memory_stats, in their order. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param callback What is called, in this thread, with no lock of the library's held; it may call the library.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_stats_each(int32_t device,
                                         plinth_memory_stats_callback_t callback,
                                         void *context)
PLINTH_NOEXCEPT;

/**
 * Gives the figures of a device in JSON: {"active.all.allocated": 0, ...} or, nested, {"active": {"all": {"allocated": 0,
 * ...}, ...}, ...} as torch.cuda.memory_stats_as_nested_dict has them. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param nested Whether there are objects in objects.
 * @param text Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_stats_as_json(int32_t device,
                                            bool nested,
                                            char **text)
PLINTH_NOEXCEPT;

/**
 * Lets all sums of a device's memory begin again at 0, what was allocated and freed, and all counts: of retries, failures,
 * waits and driver calls. Peaks stay, and so does what is. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_reset_accumulated_memory_stats(int32_t device)
PLINTH_NOEXCEPT;

/**
 * As plinth_memory_reserved: its old name, as torch.cuda.memory_cached is. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API plinth_status_t plinth_memory_cached(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * As plinth_max_memory_reserved: its old name, as torch.cuda.max_memory_cached is. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API plinth_status_t plinth_max_memory_cached(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * As plinth_reset_peak_memory_stats: its old name, as torch.cuda.reset_max_memory_allocated is; it resets all peaks.
 * Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @return As plinth_reset_peak_memory_stats.
 */
PLINTH_API
plinth_status_t plinth_reset_max_memory_allocated(int32_t device)
PLINTH_NOEXCEPT;

/**
 * As plinth_reset_peak_memory_stats: its old name, as torch.cuda.reset_max_memory_cached is; it resets all peaks.
 * Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @return As plinth_reset_peak_memory_stats.
 */
PLINTH_API
plinth_status_t plinth_reset_max_memory_cached(int32_t device)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_MEMORY_STATS_H */
