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
 * The memory is pinned for every context of the process, not only for the current one. The usual choice.
 */
#define PLINTH_HOST_REGISTER_PORTABLE 1

/**
 * The memory is mapped for devices, which most drivers do anyway.
 */
#define PLINTH_HOST_REGISTER_MAPPED 2

/**
 * The memory is of another device, such as a network card.
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
 * Allocates pinned host memory from what is cached, where possible: memory that every device may use, and whose copies do
 * not wait. Thread-safe.
 *
 * Makes no call of the driver as long as there is a free block. Sizes are rounded up by less than an eighth: to multiples
 * of 64 bytes up to 512, then to one of eight sizes between each power of two and the next. Small blocks share pieces of
 * some 2 MiB that are pinned at once; above 1 MiB each block is pinned alone.
 *
 * @param size Bytes; 0 gives NULL.
 * @param pointer Out: the memory, aligned to 64 bytes, from 4096 bytes on to 512, above 1 MiB to a page. Its contents are
 *        whatever its last user left. The caller owns it and frees it with plinth_host_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY, after everything free went back to the driver
 *         and what streams still used was waited for; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_alloc(size_t size,
                                  void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees what plinth_host_alloc gave, from any thread. Never waits. Thread-safe.
 *
 * Memory that no stream used is given out again at once. What streams used, by the copies and fills of this library or by
 * plinth_host_record_stream, stays out of use until they have passed this point; what a graph captured, until the graph and
 * all that was instantiated of it are gone.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_host_alloc did not give or was freed already;
 *         PLINTH_ERROR_FORKED_CHILD. In a process that is exiting it does nothing, and succeeds.
 */
PLINTH_API
plinth_status_t plinth_host_free(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Notes that work in a stream uses memory of plinth_host_alloc, so that after its free it stays out of use until the stream
 * has passed the free. For the program's own kernels and copies; plinth_memcpy, plinth_copy, plinth_memset and
 * plinth_memset_pattern note it themselves. Thread-safe.
 *
 * In a stream that captures, the memory becomes the graph's: it stays out of use, though freed, as long as the graph or
 * anything that was instantiated of it is there. Where the driver cannot tell when that is, as before 11.3, the memory stays
 * out of use for good.
 *
 * @param pointer An address in the memory, not only its first; NULL does nothing.
 * @param stream The stream; NULL for the current device's default stream. It must outlive the free.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what is in no such memory; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_record_stream(const void *pointer,
                                          plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Gives pinned memory back to the driver: every piece of which nothing is in use. Waits for no stream's work by itself, but
 * the driver may wait for the devices before it lets pinned memory go. Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_DRIVER, with what could not go back still cached; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_empty_cache(void)
PLINTH_NOEXCEPT;

/**
 * Tells whether an address is in pinned host memory, no matter who pinned it or how. Managed memory is not.
 *
 * Any value may be asked about: it is looked up, not followed. Memory of plinth_host_alloc is known without a call of the
 * driver, also while it is free. Thread-safe.
 *
 * @param pointer An address.
 * @param pinned Out: whether it is; false for NULL.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_is_pinned(const void *pointer,
                                 bool *pinned)
PLINTH_NOEXCEPT;

/**
 * Pins memory that the program has already, as cudaHostRegister does: copies to and from it do not wait then, and devices
 * may use it. Slow: it brings every page in and locks it. Thread-safe.
 *
 * @param pointer The memory; best whole pages, since whole pages are pinned.
 * @param bytes How much.
 * @param flags PLINTH_HOST_REGISTER_ constants; torch's pin_memory has PORTABLE.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for 0 bytes, a range past the end of all addresses,
 *         unknown flags, memory that is not there, and memory that is pinned already; PLINTH_ERROR_NOT_SUPPORTED for flags that
 *         the device lacks; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_register(void *pointer,
                                     size_t bytes,
                                     uint32_t flags)
PLINTH_NOEXCEPT;

/**
 * Undoes plinth_host_register. To be called before the memory is freed, and when the devices are done with it; may wait for
 * them. Thread-safe.
 *
 * @param pointer What plinth_host_register was given; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what is not registered; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug
 *         mode; PLINTH_ERROR_DRIVER; the errors of initialization.
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
 * A quantity that goes up and down.
 */
typedef struct plinth_host_stat_t {
  /**
   * What it is.
   */
  uint64_t current;
  /**
   * The most that it was, since the peaks were reset.
   */
  uint64_t peak;
  /**
   * The sum of all increases, since the sums were reset.
   */
  uint64_t allocated;
  /**
   * The sum of all decreases, since the sums were reset.
   */
  uint64_t freed;
} plinth_host_stat_t;

/**
 * How long calls of the driver took, in microseconds.
 */
typedef struct plinth_host_time_t {
  /**
   * All of them together, since the sums were reset.
   */
  uint64_t total;
  /**
   * The longest, since the peaks or the sums were reset.
   */
  uint64_t max;
  /**
   * The shortest, since then.
   */
  uint64_t min;
  /**
   * How many there were, since the sums were reset.
   */
  uint64_t count;
  /**
   * Their mean: total / count, rounded down; 0 where there was none.
   */
  uint64_t avg;
} plinth_host_time_t;

/**
 * The figures of pinned memory, by the names of torch.cuda.host_memory_stats. They are right where torch 2.11's are not:
 * active_requests and active_bytes go down with every block that may be given out again, by its own size.
 *
 * The struct grows at its end in newer versions; set struct_size to sizeof(plinth_host_memory_stats_t) before the call.
 */
typedef struct plinth_host_memory_stats_t {
  /**
   * In: the size that the caller knows. Out: how much of it was filled.
   */
  size_t struct_size;
  /**
   * Pieces of memory that the driver gave, each of one block or many.
   */
  struct plinth_host_stat_t allocations;
  /**
   * Blocks in the callers' hands, and freed ones that streams or graphs may still use.
   */
  struct plinth_host_stat_t active_requests;
  /**
   * Bytes that the driver gave.
   */
  struct plinth_host_stat_t allocated_bytes;
  /**
   * Bytes of the active blocks, each as large as it was rounded up to.
   */
  struct plinth_host_stat_t active_bytes;
  /**
   * How often the driver was asked for pinned memory and gave it, since the sums were reset.
   */
  uint64_t num_host_alloc;
  /**
   * How often it was given back, since the sums were reset.
   */
  uint64_t num_host_free;
  /**
   * What the former took.
   */
  struct plinth_host_time_t host_alloc_time;
  /**
   * What the latter took.
   */
  struct plinth_host_time_t host_free_time;
} plinth_host_memory_stats_t;

/*! An initializer for a plinth_host_memory_stats_t. */
#define PLINTH_HOST_MEMORY_STATS_INIT {sizeof(plinth_host_memory_stats_t), {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, \
    {0, 0, 0, 0}, 0, 0, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}}

/**
 * Is told of a figure. The key is valid during the call only.
 */
typedef void (*plinth_host_memory_stats_visitor_t)(const char *key, uint64_t value, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Tells the figures of the pinned memory of plinth_host_alloc. Thread-safe: while other threads allocate, each figure is
 * right for a moment of the call.
 *
 * @param stats In: struct_size. Out: the figures.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that is too small; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_host_memory_stats(struct plinth_host_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Tells the same figures one by one, under the keys of torch.cuda.host_memory_stats ("active_bytes.current"), in the order
 * of their bytes: 28 of them. Thread-safe.
 *
 * @param visitor Is called for each, in the calling thread; not NULL. It may call the library.
 * @param context Is passed to the visitor.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_memory_stats_each(plinth_host_memory_stats_visitor_t visitor,
                                              void *context)
PLINTH_NOEXCEPT;

/**
 * Gives the same figures as a JSON object with the keys of torch.cuda.host_memory_stats: {"active_bytes.current": 0, ...}.
 * Thread-safe.
 *
 * @param text Out: the object. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_memory_stats_json(char **text)
PLINTH_NOEXCEPT;

/**
 * Gives the same figures as a JSON object of objects, as torch.cuda.host_memory_stats_as_nested_dict:
 * {"active_bytes": {"current": 0, ...}, ...}. Thread-safe.
 *
 * @param text Out: the object. The caller owns it and frees it with plinth_string_free.
 * @return As plinth_host_memory_stats_json.
 */
PLINTH_API plinth_status_t plinth_host_memory_stats_as_nested_dict(char **text) PLINTH_NOEXCEPT;

/**
 * Lets all peaks of pinned memory begin again at what is now, and the longest and shortest times with the next call of the
 * driver. Thread-safe.
 *
 * @return PLINTH_OK; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_reset_peak_host_memory_stats(void)
PLINTH_NOEXCEPT;

/**
 * Sets all sums of pinned memory to 0: allocated and freed of each quantity, the counts of driver calls, and their times.
 * Thread-safe.
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
