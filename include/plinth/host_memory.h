/*!
 * @defgroup plinth_host_memory Pinned host memory
 *
 * Host memory that is locked in place, so that copies between it and a device do not wait. plinth_host_alloc has a
 * cache, as torch's pinned memory allocator has. plinth_host_register pins memory that the program has already.
 *
 * The caller owns each block and frees it with plinth_host_free, from any thread. A freed block is reused when the
 * streams that use it have passed the free. The library's own copies and fills note their streams themselves; for
 * other work call plinth_host_record_stream. Registered memory stays the program's, and must be unregistered before it
 * is freed.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_HOST_MEMORY_H
#define PLINTH_HOST_MEMORY_H

#include "base.h"

/*!
 * @file plinth/host_memory.h
 * @brief Pinned host memory.
 */

/*!
 * @addtogroup plinth_host_memory
 * @{
 */

/**
 * Pins the memory for every context of the process, not only for the current one. The usual choice.
 */
#define PLINTH_HOST_REGISTER_PORTABLE 1

/**
 * Maps the memory for devices. Most drivers do so without this flag.
 */
#define PLINTH_HOST_REGISTER_MAPPED 2

/**
 * The memory belongs to another device, such as a network card.
 */
#define PLINTH_HOST_REGISTER_IO_MEMORY 4

/**
 * Devices only read the memory.
 */
#define PLINTH_HOST_REGISTER_READ_ONLY 8

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Allocates pinned host memory from the cache. Every device can access the memory, and copies to and from it are
 * asynchronous.
 *
 * Makes no driver call while the cache has a free block of the size class. Sizes are rounded up by less than one
 * eighth: to multiples of 64 bytes up to 512, then to one of eight sizes between each power of two and the next. Small
 * blocks are cut from slabs of about 2 MiB, each pinned by one driver call; a block above 1 MiB is pinned on its own.
 *
 * @param size Number of bytes; 0 returns NULL.
 * @param pointer Out: the memory, aligned to 64 bytes; to 512 bytes from 4096 bytes on; to a page above 1 MiB. Its
 *        contents are undefined. The caller owns it and frees it with plinth_host_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY, after the cache released all free memory
 *         to the driver and waited for the blocks that streams still used; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_host_alloc(size_t size,
                                  void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees memory of plinth_host_alloc. Never waits.
 *
 * A block that no stream used can be reused at once. A block that streams used (by the library's copies and fills, or
 * by plinth_host_record_stream) can be reused when these streams have passed the point of this call. A block that a
 * graph captured can be reused when the graph and all of its executable graphs are destroyed.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that plinth_host_alloc did not return, or that was freed
 *         already. In a process that is exiting it does nothing, and succeeds.
 */
PLINTH_API
plinth_status_t plinth_host_free(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Records that work in a stream uses memory of plinth_host_alloc: after the memory is freed, it is not reused before
 * the stream has passed the point of the free. Call it for your own kernels and copies; plinth_memcpy, plinth_copy,
 * plinth_memset and plinth_memset_pattern record their streams themselves.
 *
 * If the stream is capturing, the graph keeps the memory: after a free it is not reused as long as the graph or one of
 * its executable graphs exists. If the driver cannot report when that is (before CUDA 11.3), the memory is never
 * reused.
 *
 * @param pointer Any address in the memory; NULL does nothing.
 * @param stream The stream; NULL for the current device's default stream. It must not be destroyed before the memory
 *        is freed.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for an address that is not in memory of plinth_host_alloc;
 *         PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_record_stream(const void *pointer,
                                          plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Releases unused pinned memory to the driver: every driver allocation in which no block is in use. The call itself
 * waits for no stream, but the driver may wait for the devices before it unpins memory.
 *
 * @return PLINTH_OK; PLINTH_ERROR_DRIVER (memory that could not be released stays cached); the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_host_empty_cache(void)
PLINTH_NOEXCEPT;

/**
 * Reports whether an address is in pinned host memory, whatever pinned it. Managed memory is not pinned memory.
 *
 * Every value is valid: the address is looked up, not dereferenced. Memory of plinth_host_alloc, in use or free, is
 * found without a driver call.
 *
 * @param pointer An address.
 * @param pinned Out: whether the address is in pinned memory; false for NULL.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_is_pinned(const void *pointer,
                                 bool *pinned)
PLINTH_NOEXCEPT;

/**
 * Pins memory that the program has allocated, as cudaHostRegister does. Copies to and from it are asynchronous
 * afterwards, and devices can access it. Slow: the driver faults in and locks every page.
 *
 * @param pointer The memory. Whole pages are pinned, so it should begin and end at a page.
 * @param bytes Number of bytes.
 * @param flags A combination of PLINTH_HOST_REGISTER_ constants; torch's pin_memory uses PORTABLE.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for 0 bytes, a range past the end of the
 *         address space, unknown flags, memory that is not mapped, and memory that is pinned already;
 *         PLINTH_ERROR_NOT_SUPPORTED for flags that the device does not support; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_register(void *pointer,
                                     size_t bytes,
                                     uint32_t flags)
PLINTH_NOEXCEPT;

/**
 * Unpins memory of plinth_host_register. Call it before the memory is freed, when the devices have finished with the
 * memory. May wait for the devices.
 *
 * @param pointer The address that was passed to plinth_host_register; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that is not registered; PLINTH_ERROR_WOULD_SYNCHRONIZE if
 *         the sync debug mode forbids the wait; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_unregister(void *pointer)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_host_memory_stats Statistics of pinned host memory
 *
 * The statistics of the memory of plinth_host_alloc, as torch.cuda.host_memory_stats returns them. They count for the
 * whole process. The caller provides the struct; a text that a function returns is the caller's, who frees it with
 * plinth_string_free.
 *
 * @{
 */

/**
 * A counter of pinned memory that goes up and down.
 */
typedef struct plinth_host_stat_t {
  /**
   * The current value.
   */
  uint64_t current;
  /**
   * The highest value since the peaks were reset. After threads have allocated at the same time, it can be too low by
   * a 64th, and 64 blocks or 256 KiB for each thread of at most 32; it is never too high.
   */
  uint64_t peak;
  /**
   * The sum of all increases since the accumulated statistics were reset.
   */
  uint64_t allocated;
  /**
   * The sum of all decreases since the accumulated statistics were reset.
   */
  uint64_t freed;
} plinth_host_stat_t;

/**
 * Durations of driver calls, in microseconds.
 */
typedef struct plinth_host_time_t {
  /**
   * The total since the accumulated statistics were reset.
   */
  uint64_t total;
  /**
   * The longest call since the peaks or the accumulated statistics were reset.
   */
  uint64_t max;
  /**
   * The shortest call since the peaks or the accumulated statistics were reset.
   */
  uint64_t min;
  /**
   * The number of calls since the accumulated statistics were reset.
   */
  uint64_t count;
  /**
   * The mean: total / count, rounded down; 0 if there was no call.
   */
  uint64_t avg;
} plinth_host_time_t;

/**
 * Statistics of pinned host memory, with the names of torch.cuda.host_memory_stats. torch 2.11 counts two of them
 * wrong: here active_requests and active_bytes decrease whenever a block becomes reusable, by the block's own size.
 *
 * The struct grows at its end in newer versions; set struct_size to sizeof(plinth_host_memory_stats_t) before the
 * call.
 */
typedef struct plinth_host_memory_stats_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * Driver allocations; each holds one block or many.
   */
  struct plinth_host_stat_t allocations;
  /**
   * Blocks in use by the program, and freed blocks that streams or graphs may still use.
   */
  struct plinth_host_stat_t active_requests;
  /**
   * Bytes of all driver allocations.
   */
  struct plinth_host_stat_t allocated_bytes;
  /**
   * Bytes of the active blocks, with rounded sizes.
   */
  struct plinth_host_stat_t active_bytes;
  /**
   * Number of successful driver allocations since the accumulated statistics were reset.
   */
  uint64_t num_host_alloc;
  /**
   * Number of driver frees since the accumulated statistics were reset.
   */
  uint64_t num_host_free;
  /**
   * Durations of the driver allocations.
   */
  struct plinth_host_time_t host_alloc_time;
  /**
   * Durations of the driver frees.
   */
  struct plinth_host_time_t host_free_time;
} plinth_host_memory_stats_t;

/*! An initializer for a plinth_host_memory_stats_t. */
#define PLINTH_HOST_MEMORY_STATS_INIT {sizeof(plinth_host_memory_stats_t), {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, \
    {0, 0, 0, 0}, 0, 0, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}}

/**
 * Receives one value of the statistics: its key, the value and the context. The key is valid only during the call.
 * It must not throw.
 */
typedef void (*plinth_host_memory_stats_callback_t)(const char *key, uint64_t value, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Reads the statistics of the pinned memory of plinth_host_alloc. They are not one atomic snapshot: while other
 * threads allocate, each value is correct for some moment of the call.
 *
 * @param stats In: struct_size. Out: the statistics.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size is too small; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_host_memory_stats(struct plinth_host_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Passes the same statistics to a callback one by one, with the keys of torch.cuda.host_memory_stats
 * ("active_bytes.current"), sorted by the bytes of the keys: 28 values.
 *
 * @param callback Called for each value, in the calling thread; not NULL. It may call the library.
 * @param context Passed to the callback; the library does not dereference it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_memory_stats_each(plinth_host_memory_stats_callback_t callback,
                                              void *context)
PLINTH_NOEXCEPT;

/**
 * Returns the same statistics as a JSON object: with the keys of torch.cuda.host_memory_stats,
 * {"active_bytes.current": 0, ...}, or nested as torch.cuda.host_memory_stats_as_nested_dict, {"active_bytes":
 * {"current": 0, ...}, ...}.
 *
 * @param nested Whether the objects are nested.
 * @param text Out: the JSON text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_memory_stats_as_json(bool nested,
                                                 char **text)
PLINTH_NOEXCEPT;

/**
 * Resets the peak statistics of pinned memory: peaks restart at the current values, the longest and shortest durations
 * with the next driver call.
 *
 * @return PLINTH_OK; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_reset_peak_host_memory_stats(void)
PLINTH_NOEXCEPT;

/**
 * Resets the accumulated statistics of pinned memory to 0: allocated and freed of each counter, the numbers of driver
 * calls, and their durations.
 *
 * @return PLINTH_OK; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_reset_accumulated_host_memory_stats(void)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_HOST_MEMORY_H */
