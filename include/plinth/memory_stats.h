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
 * A counter of the allocator that goes up and down.
 */
typedef struct plinth_memory_stat_t {
  /**
   * The current value.
   */
  int64_t current;
  /**
   * The highest value since the peaks were reset.
   */
  int64_t peak;
  /**
   * The sum of all increases since the accumulated statistics were reset.
   */
  int64_t allocated;
  /**
   * The sum of all decreases since the accumulated statistics were reset.
   */
  int64_t freed;
} plinth_memory_stat_t;

/**
 * A counter for all blocks, and separately for requests of up to 1 MiB and above 1 MiB.
 */
typedef struct plinth_memory_stat_by_pool_t {
  /**
   * All blocks.
   */
  struct plinth_memory_stat_t all;
  /**
   * Blocks of requests up to 1 MiB.
   */
  struct plinth_memory_stat_t small_pool;
  /**
   * Blocks of requests above 1 MiB.
   */
  struct plinth_memory_stat_t large_pool;
} plinth_memory_stat_by_pool_t;

/**
 * The statistics of the allocator; the names are those of torch.cuda.memory_stats.
 *
 * The struct grows at its end in newer versions, and programs that were compiled against older versions keep working:
 * set struct_size to sizeof(plinth_memory_stats_t) before the call.
 */
typedef struct plinth_memory_stats_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * Allocated blocks.
   */
  struct plinth_memory_stat_by_pool_t allocation;
  /**
   * Segments that were allocated from the driver.
   */
  struct plinth_memory_stat_by_pool_t segment;
  /**
   * Allocated blocks, and freed blocks that a stream may still use.
   */
  struct plinth_memory_stat_by_pool_t active;
  /**
   * Free blocks in segments that are partly in use and therefore cannot be released to the driver. They are counted
   * when statistics are read, so peak, allocated and freed cover only the values that were read.
   */
  struct plinth_memory_stat_by_pool_t inactive_split;
  /**
   * Bytes of allocated blocks, each request rounded up to 512.
   */
  struct plinth_memory_stat_by_pool_t allocated_bytes;
  /**
   * Bytes of the segments.
   */
  struct plinth_memory_stat_by_pool_t reserved_bytes;
  /**
   * Bytes of the active blocks.
   */
  struct plinth_memory_stat_by_pool_t active_bytes;
  /**
   * Bytes of the blocks of inactive_split, counted in the same way.
   */
  struct plinth_memory_stat_by_pool_t inactive_split_bytes;
  /**
   * Bytes that the program requested for the active blocks, before rounding.
   */
  struct plinth_memory_stat_by_pool_t requested_bytes;
  /**
   * Allocated blocks of at least max_split_size, counted when statistics are read, as inactive_split is. 0 if that is not
   * set, and for memory of expandable segments, which it does not limit.
   */
  struct plinth_memory_stat_t oversize_allocations;
  /**
   * Segments of at least max_split_size, counted in the same way.
   */
  struct plinth_memory_stat_t oversize_segments;
  /**
   * Requests that succeeded only after a wait for the device.
   */
  int64_t num_alloc_retries;
  /**
   * Requests that failed because memory ran out.
   */
  int64_t num_ooms;
  /**
   * Blocks of at least this size are not split; -1 if every block may be split.
   */
  int64_t max_split_size;
  /**
   * Number of times that the allocator waited for all streams: for a request, or to empty the cache.
   */
  int64_t num_sync_all_streams;
  /**
   * Driver calls that allocated memory.
   */
  int64_t num_device_alloc;
  /**
   * Driver calls that freed memory.
   */
  int64_t num_device_free;
} plinth_memory_stats_t;

/*! An initializer for a plinth_memory_stats_t. */
#define PLINTH_MEMORY_STATS_INIT {sizeof(plinth_memory_stats_t), \
    {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, \
    {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, \
    {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, \
    {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, \
    {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, {0, 0, 0, 0}, {0, 0, 0, 0}, 0, 0, 0, 0, 0, 0}

/**
 * Receives one value of the statistics: torch's key, which is valid during the call, the value, and the context.
 * It must not throw.
 */
typedef void (*plinth_memory_stats_callback_t)(const char *name, int64_t value, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Reads the statistics of a device's allocator, as torch.cuda.memory_stats does. The counters cost requests no
 * measurable time; this call visits all blocks.
 *
 * The values are those of one moment, whatever other threads do, so they agree with each other: `all` is the sum of both
 * pools, no current value exceeds its peak, and allocated_bytes and requested_bytes are at most active_bytes, which are at
 * most reserved_bytes. Three values do not follow: reserved_bytes.all also includes memory that a call is just creating or
 * releasing, inactive_split is counted shortly before, and memory of a pool that is asleep is active but not reserved.
 *
 * The peaks are those of the device: the most that was in use at one moment, over all streams, pools and threads. They
 * are never too high. Those of all allocated bytes, of all reserved bytes and of segments are exact while one thread
 * allocates at a time, and the others are too low by at most a 64th. If several threads allocate at the same time, a peak may
 * be too low by at most an eighth, or by 4 MiB (1024 blocks, for a count) for each stream with memory in each pool if that
 * is more. The peaks of segment and of all reserved bytes are exact even then.
 *
 * @param device The device number; -1 for the current device.
 * @param stats In: struct_size. Out: the statistics, as far as struct_size reaches; struct_size is set to the number
 *        of bytes that were filled.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set;
 *         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_stats(int32_t device,
                                    struct plinth_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Reads the statistics of a pool on a device. Counters that exist only per device are 0: retries, failures, waits and
 * driver calls. If several streams have memory in the pool, its peaks are the sums of the peaks of the streams, and
 * therefore upper bounds.
 *
 * @param pool The pool; {0, 0} for the default pool. All values of a pool without memory are 0.
 * @param device The device number; -1 for the current device.
 * @param stats As in plinth_memory_stats.
 * @return The statuses of plinth_memory_stats; PLINTH_ERROR_INVALID_HANDLE as for plinth_mem_pool_memory.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_stats(plinth_pool_id_t pool,
                                      int32_t device,
                                      struct plinth_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Reads the statistics of the memory that was allocated for a stream, in all pools. Counters that exist only per
 * device are 0, as in plinth_mem_pool_stats. If the stream has memory in several pools, its peaks are the sums of the
 * peaks in these pools, and therefore upper bounds.
 *
 * @param stream The stream; NULL for the current device's default stream. CUDA's per-thread default stream stands for
 *        that of the calling thread, which may have taken over the memory, and its counts, of a thread that ended.
 * @param stats As in plinth_memory_stats.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set;
 *         PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_memory_stats(plinth_stream_t stream,
                                           struct plinth_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Passes the statistics of a device to a callback, value by value: the 122 keys of torch.cuda.memory_stats, in the
 * same order.
 *
 * @param device The device number; -1 for the current device.
 * @param callback Called for each value, in the calling thread, without any lock of the library held; it may call the
 *        library.
 * @param context Passed to the callback; the library does not dereference it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the callback is NULL; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_stats_each(int32_t device,
                                         plinth_memory_stats_callback_t callback,
                                         void *context)
PLINTH_NOEXCEPT;

/**
 * Returns the statistics of a device as JSON: {"active.all.allocated": 0, ...} or, nested, {"active": {"all":
 * {"allocated": 0, ...}, ...}, ...} as in torch.cuda.memory_stats_as_nested_dict.
 *
 * @param device The device number; -1 for the current device.
 * @param nested Whether the keys are split into nested objects.
 * @param text Out: the JSON text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_stats_as_json(int32_t device,
                                            bool nested,
                                            char **text)
PLINTH_NOEXCEPT;

/**
 * Resets the accumulated statistics of a device's memory to 0: allocated and freed of every counter, and the counts of
 * retries, failures, waits and driver calls. Current values and peaks are kept.
 *
 * @param device The device number; -1 for the current device.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_reset_accumulated_memory_stats(int32_t device)
PLINTH_NOEXCEPT;

/**
 * Returns the same as plinth_memory_reserved: its former name, as torch.cuda.memory_cached.
 *
 * @param device The device number; -1 for the current device.
 * @param bytes Out: the number of bytes.
 * @return The statuses of plinth_memory_allocated.
 */
PLINTH_API plinth_status_t plinth_memory_cached(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * Returns the same as plinth_max_memory_reserved: its former name, as torch.cuda.max_memory_cached.
 *
 * @param device The device number; -1 for the current device.
 * @param bytes Out: the number of bytes.
 * @return The statuses of plinth_memory_allocated.
 */
PLINTH_API plinth_status_t plinth_max_memory_cached(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * Resets all peaks, as plinth_reset_peak_memory_stats: a former name, as torch.cuda.reset_max_memory_allocated.
 *
 * @param device The device number; -1 for the current device.
 * @return The statuses of plinth_reset_peak_memory_stats.
 */
PLINTH_API
plinth_status_t plinth_reset_max_memory_allocated(int32_t device)
PLINTH_NOEXCEPT;

/**
 * Resets all peaks, as plinth_reset_peak_memory_stats: a former name, as torch.cuda.reset_max_memory_cached.
 *
 * @param device The device number; -1 for the current device.
 * @return The statuses of plinth_reset_peak_memory_stats.
 */
PLINTH_API plinth_status_t plinth_reset_max_memory_cached(int32_t device) PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_MEMORY_STATS_H */
