/*!
 * @defgroup plinth_allocator Caching allocator
 *
 * The caching allocator gives device memory to streams and keeps freed memory for the next request: the allocator of
 * torch.cuda.
 *
 * The caller owns each block and frees it with plinth_caching_allocator_delete. A block belongs to the stream that it
 * was allocated for. Freed memory is reused in that stream at once, because the stream's order protects it. For every
 * other stream that uses the block, call plinth_record_stream before the free.
 *
 * Any thread may free what another thread allocated. Statistics, limits and settings hold for the whole process; the
 * more detailed statistics are in memory_stats.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_ALLOCATOR_H
#define PLINTH_ALLOCATOR_H

#include "base.h"

/*!
 * @file plinth/allocator.h
 * @brief Caching allocator.
 */

/*!
 * @addtogroup plinth_allocator
 * @{
 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Allocates device memory for work in a stream, from what is cached where possible. Thread-safe.
 *
 * Makes no call of the driver as long as there is a free block, and never waits for work of the device unless memory is
 * truly out. Sizes are rounded up to multiples of 512 bytes. Memory that was freed is given out again in the same stream
 * at once: the stream's order protects it. Work in other streams must be told of with plinth_record_stream, or be ordered
 * by the caller before the free.
 *
 * While the calling thread, the stream or a capture allocates to a pool (plinth_begin_allocate_to_pool and the like), the
 * memory comes from that. A stream must outlive what is allocated for it, and plinth_empty_cache must be called before a
 * stream is destroyed that memory was allocated for.
 *
 * @param size Bytes; 0 gives NULL.
 * @param device The device's number; -1 for the current one.
 * @param stream The stream, of that device; NULL for the device's default stream.
 * @param pointer Out: the memory, aligned to 512 bytes. The caller owns it and frees it with
 *        plinth_caching_allocator_delete.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DEVICE_MISMATCH for a stream of another device; PLINTH_ERROR_OUT_OF_MEMORY, with a message that
 *         tells request, total, free, held, limit, live and the rest; PLINTH_ERROR_INVALID_CONFIGURATION;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_caching_allocator_alloc(size_t size,
                                               int32_t device,
                                               plinth_stream_t stream,
                                               void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees what plinth_caching_allocator_alloc gave, from any thread and with any device current. Makes no call of the
 * driver, unless other streams were recorded: then the memory stays out of use until they have passed. Thread-safe.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_caching_allocator_alloc did not give, or was freed
 *         already, or lies inside a block.
 */
PLINTH_API
plinth_status_t plinth_caching_allocator_delete(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Tells the allocator that work in a stream uses memory that was allocated for another. When the memory is freed, it
 * stays out of use until the work has passed which that stream has then; nobody waits for that. The memory's own stream
 * need not be recorded. Thread-safe.
 *
 * @param pointer The memory, from plinth_caching_allocator_alloc or plinth_alloc; NULL does nothing.
 * @param stream The stream, of any device; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER as for plinth_caching_allocator_delete; PLINTH_ERROR_INVALID_HANDLE;
 *         the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_record_stream(void *pointer,
                                     plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Gives the free memory of every device back to the driver, in whole handles. Memory of private pools that somebody uses
 * stays. What a stream may still be using goes back too, as soon as the stream has passed: the call gives work that is
 * about to end one millisecond, and waits for nothing longer. Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_empty_cache(void)
PLINTH_NOEXCEPT;

/**
 * Tells how much memory is in the program's hands, each request rounded up to 512 bytes. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_memory_allocated(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * Tells how much memory was in the program's hands at most, since the peaks were reset. Where several threads allocate
 * at the same moment, it is the peak of what was seen of them one after the other. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API
plinth_status_t plinth_max_memory_allocated(int32_t device,
                                            size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Tells how much physical memory the allocator holds: what is in the program's hands and what is cached. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API
plinth_status_t plinth_memory_reserved(int32_t device,
                                       size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Tells how much physical memory the allocator held at most, since the peaks were reset. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API plinth_status_t plinth_max_memory_reserved(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * Lets all peaks of a device's memory begin again at what is now. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_reset_peak_memory_stats(int32_t device) PLINTH_NOEXCEPT;

/**
 * Gives the figures of a device's memory as a table, in the layout of torch.cuda.memory_summary. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param abbreviated Leaves out the lines for small and for large blocks.
 * @param text Out: the table. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_summary(int32_t device,
                                      bool abbreviated,
                                      char **text)
PLINTH_NOEXCEPT;

/**
 * Limits how much memory the allocator may hold on a device: a fraction of the device's memory, all of which counts, not
 * only what is free now. What is held already stays, but nothing is added beyond the limit. Thread-safe.
 *
 * @param fraction From 0 to 1; 1 is no limit.
 * @param device The device's number; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a fraction out of range or no number; PLINTH_ERROR_INVALID_DEVICE;
 *         the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_set_per_process_memory_fraction(double fraction,
                                                       int32_t device)
PLINTH_NOEXCEPT;

/**
 * Tells which fraction of a device's memory the allocator may hold. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param fraction Out: what plinth_set_per_process_memory_fraction was given; if it was not called, the setting
 *        per_process_memory_fraction, which is 1 at first.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_CONFIGURATION; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_get_per_process_memory_fraction(int32_t device,
                                                       double *fraction)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_allocator_settings Settings of the allocator
 *
 * The settings that PLINTH_ALLOC_CONF holds when the process starts, read and changed at run time. They hold for the
 * whole process.
 *
 * @{
 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Changes settings of the allocator, as torch.cuda.memory._set_allocator_settings does: "key:value,key:value", in the
 * grammar of PLINTH_ALLOC_CONF. docs/allocator_settings.md has the keys. Those that the text names change, all or none;
 * the others stay. They hold for what is allocated from now on. Needs no device. Thread-safe.
 *
 * `backend` and `debug` can change until the first request for memory, and `expandable_segments` until a device has
 * memory.
 *
 * @param settings The text.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for an unknown key or a bad value, with a message
 *         that names it; PLINTH_ERROR_ALREADY_INITIALIZED for a key that cannot change any more;
 *         PLINTH_ERROR_INVALID_CONFIGURATION where the environment makes no sense.
 */
PLINTH_API
plinth_status_t plinth_set_allocator_settings(const char *settings)
PLINTH_NOEXCEPT;

/**
 * Tells the settings of the allocator, as a text that plinth_set_allocator_settings takes: every key that has a value.
 * Needs no device. Thread-safe.
 *
 * @param settings Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_INVALID_CONFIGURATION where the
 *         environment makes no sense.
 */
PLINTH_API
plinth_status_t plinth_get_allocator_settings(char **settings)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*!
 * @defgroup plinth_out_of_memory Out-of-memory callbacks
 *
 * Callbacks that free memory when a request cannot be met, and observers that are called when a request fails.
 *
 * A callback is called in the thread that made the request, with no lock of the library held, and may call the
 * library. The callback and its context belong to the program. Both must stay valid until the callback is removed and
 * no request that may still call it is in progress.
 *
 * @{
 */

/**
 * Frees memory that the program can do without, when there is none for a request. It is called in the thread that asks,
 * with no lock of the library's held, and may call the library; it is not called again from within itself.
 *
 * Its arguments are the device, the bytes that were asked for, and the context. It returns whether it freed anything: if
 * so, the request is tried again.
 */
typedef bool (*plinth_free_memory_callback_t)(int32_t device, size_t size, void *context);

/**
 * Hears of a request that fails for want of memory, just before the call returns: the device, the bytes that were asked
 * for, the device's total and free bytes, and the context. The rules of plinth_free_memory_callback_t hold.
 */
typedef void (*plinth_out_of_memory_observer_t)(int32_t device,
                                                size_t requested,
                                                size_t device_total,
                                                size_t device_free,
                                                void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Adds a callback that may free memory when there is none for a request, before the device is waited for and the request
 * fails. Callbacks are called in the order in which they were added. Thread-safe.
 *
 * @param callback The callback, which stays callable, with the context, until it is removed and no request is under way
 *        that may have met it.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_add_free_memory_callback(plinth_free_memory_callback_t callback,
                                                void *context)
PLINTH_NOEXCEPT;

/**
 * Removes what plinth_add_free_memory_callback added, the last one of this callback and context. Thread-safe.
 *
 * @param callback The callback.
 * @param context Its context.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is none.
 */
PLINTH_API
plinth_status_t plinth_remove_free_memory_callback(plinth_free_memory_callback_t callback,
                                                   void *context)
PLINTH_NOEXCEPT;

/**
 * Adds an observer of requests that fail for want of memory. Thread-safe.
 *
 * @param observer The observer, which stays callable, with the context, until it is detached and no request is under way
 *        that may have met it.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_attach_out_of_memory_observer(plinth_out_of_memory_observer_t observer,
                                                     void *context)
PLINTH_NOEXCEPT;

/**
 * Removes what plinth_attach_out_of_memory_observer added, the last one of this observer and context. Thread-safe.
 *
 * @param observer The observer.
 * @param context Its context.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is none.
 */
PLINTH_API
plinth_status_t plinth_detach_out_of_memory_observer(plinth_out_of_memory_observer_t observer,
                                                     void *context)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_ALLOCATOR_H */
