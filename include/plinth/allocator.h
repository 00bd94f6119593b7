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
 * more detailed statistics are in memory_stats.h. Without any device, all statistics are 0, and calls that release
 * cached memory or reset statistics do nothing.
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
 * Allocates device memory for work in a stream, from cached blocks if possible.
 *
 * If a free block fits, the call makes no driver call, except queries of events while freed blocks wait for recorded
 * streams. It waits for work of the device only when no memory is left otherwise. Sizes are rounded up to multiples of
 * 512 bytes. A freed block is reused immediately in the same stream: the order of the stream protects it. For every
 * other stream that uses the block, call plinth_record_stream, or order the work of that stream before the free.
 *
 * While the calling thread, the stream or a capture allocates to a pool (plinth_begin_allocate_to_pool and similar
 * calls), the memory comes from that pool. Call plinth_stream_unregister before a stream of the program or of another
 * library is destroyed.
 *
 * @param size The size in bytes; 0 returns NULL.
 * @param device The device index; -1 for the current device.
 * @param stream The stream, of that device; NULL for the device's default stream.
 * @param pointer Out: the memory, aligned to 512 bytes. The caller owns it and frees it with
 *        plinth_caching_allocator_delete.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DEVICE_MISMATCH for a stream of another device; PLINTH_ERROR_OUT_OF_MEMORY, with a message
 *         that lists the requested, total, free, reserved and allocated bytes, the limit and further details;
 *         PLINTH_ERROR_WOULD_SYNCHRONIZE if only waiting for running work helps, and the sync debug mode forbids it;
 *         PLINTH_ERROR_CAPTURE_FORBIDS for a backend that cannot allocate in a capture; PLINTH_ERROR_NOT_SUPPORTED in
 *         a signal handler that interrupted another call of its thread;
 *         PLINTH_ERROR_INVALID_CONFIGURATION; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_caching_allocator_alloc(size_t size,
                                               int32_t device,
                                               plinth_stream_t stream,
                                               void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees memory from plinth_caching_allocator_alloc, from any thread and with any current device.
 *
 * The call makes no driver call unless other streams were recorded with plinth_record_stream, or the block is the last one
 * of a destroyed pool, whose memory is then released. A recorded block is not reused until the recorded work of those
 * streams is done.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for a pointer that plinth_caching_allocator_alloc did not return,
 *         that was freed already, or that is inside a block; PLINTH_ERROR_WOULD_SYNCHRONIZE if the backend waits for
 *         the device and the sync debug mode forbids it, and PLINTH_ERROR_NOT_SUPPORTED in a signal handler that
 *         interrupted another call of its thread: the memory is not freed.
 */
PLINTH_API
plinth_status_t plinth_caching_allocator_delete(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Records that work in a stream uses memory that was allocated for another stream.
 *
 * When the memory is freed, it is not reused until the work that is in the recorded stream at that time is done. The
 * free does not wait for it. The stream for which the memory was allocated need not be recorded.
 *
 * @param pointer The memory, from plinth_caching_allocator_alloc or plinth_alloc; NULL does nothing.
 * @param stream The stream, of any device. NULL does not tell on which device the work is, and records two streams: the
 *        default streams of the memory's device and of the current device. PLINTH_STREAM_CURRENT does the same with
 *        the calling thread's current streams on both.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER as for plinth_caching_allocator_delete;
 *         PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_record_stream(void *pointer,
                                     plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Releases the unused cached memory of every device to the driver.
 *
 * Only whole physical allocations are released. Memory of private pools that are in use stays. The call waits at most one
 * millisecond for work of streams that may still use memory. What is in use after that is released by the next call when
 * the work is done, or when memory is short. The call also destroys the executable graphs that the library keeps for its
 * next copies of tensors and collectives of one process.
 *
 * @return PLINTH_OK; PLINTH_ERROR_WOULD_SYNCHRONIZE for memory whose release waits for the device, which stays cached;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_empty_cache(void)
PLINTH_NOEXCEPT;

/**
 * Gets the number of bytes that the program has allocated and not freed. Each request counts rounded up to 512
 * bytes.
 *
 * @param device The device index; -1 for the current device.
 * @param bytes Out: the number of bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_allocated(int32_t device,
                                        size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Gets the peak of plinth_memory_allocated since the peaks were last reset.
 *
 * If several threads allocate at the same time, the peak may be too low within the bound that plinth_memory_stats
 * states; otherwise it is exact.
 *
 * @param device The device index; -1 for the current device.
 * @param bytes Out: the number of bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API
plinth_status_t plinth_max_memory_allocated(int32_t device,
                                            size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Gets the number of bytes of physical memory that the allocator holds: allocated and cached memory.
 *
 * @param device The device index; -1 for the current device.
 * @param bytes Out: the number of bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API plinth_status_t plinth_memory_reserved(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * Gets the peak of plinth_memory_reserved since the peaks were last reset.
 *
 * @param device The device index; -1 for the current device.
 * @param bytes Out: the number of bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API plinth_status_t plinth_max_memory_reserved(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * Resets all peak statistics of a device's memory to the current values.
 *
 * @param device The device index; -1 for the current device.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_reset_peak_memory_stats(int32_t device) PLINTH_NOEXCEPT;

/**
 * Writes the memory statistics of a device as a table, in the layout of torch.cuda.memory_summary.
 *
 * @param device The device index; -1 for the current device.
 * @param abbreviated Whether to omit the rows for small and for large blocks.
 * @param text Out: the table. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_summary(int32_t device,
                                      bool abbreviated,
                                      char **text)
PLINTH_NOEXCEPT;

/**
 * Limits the memory that the allocator may hold on a device to a fraction of the device's total memory.
 *
 * The fraction refers to all memory of the device, not only to the memory that is free now. Memory that the
 * allocator already holds above the limit stays, but the allocator adds none.
 *
 * @param fraction From 0 to 1; 1 means no limit.
 * @param device The device index; -1 for the current device.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a fraction that is out of range or NaN;
 *         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_set_per_process_memory_fraction(double fraction,
                                                       int32_t device)
PLINTH_NOEXCEPT;

/**
 * Gets the fraction of a device's memory that the allocator may hold.
 *
 * @param device The device index; -1 for the current device.
 * @param fraction Out: the last value set with plinth_set_per_process_memory_fraction. Before the first such call,
 *        the setting per_process_memory_fraction, whose default is 1.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_CONFIGURATION; the
 *         errors of initialization.
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
 * Changes settings of the allocator, as torch.cuda.memory._set_allocator_settings does.
 *
 * The text has the form "key:value,key:value", in the grammar of PLINTH_ALLOC_CONF. docs/allocator_settings.md lists
 * the keys. Either all keys in the text change or none; the other keys keep their values. The new values apply to
 * later allocations. Needs no device.
 *
 * `backend` and `debug` can change until the first request for memory, and `expandable_segments` until a device has
 * memory.
 *
 * @param settings The text.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for an unknown key or a bad value, with a
 *         message that names it; PLINTH_ERROR_ALREADY_INITIALIZED for a key that cannot change any more;
 *         PLINTH_ERROR_INVALID_CONFIGURATION for an invalid setting in the environment.
 */
PLINTH_API
plinth_status_t plinth_set_allocator_settings(const char *settings)
PLINTH_NOEXCEPT;

/**
 * Gets the settings of the allocator as a text that plinth_set_allocator_settings accepts.
 *
 * The text has every key that has a value. Needs no device.
 *
 * @param settings Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_INVALID_CONFIGURATION for
 *         an invalid setting in the environment.
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
 * Frees memory that the program can spare, when a request cannot be satisfied. Called in the thread of the request,
 * without any lock of the library held. It may call the library; it is not called recursively.
 *
 * Its arguments are the device, the number of bytes that were requested, and the context. It returns whether it freed
 * anything; if so, the request is retried. It must not throw.
 */
typedef bool (*plinth_free_memory_callback_t)(int32_t device, size_t size, void *context);

/**
 * Observes a request that fails because memory ran out, just before the call returns. Its arguments are the device,
 * the number of bytes that were requested, the device's total and free bytes, and the context. The rules of
 * plinth_free_memory_callback_t apply. It must not throw.
 */
typedef void (*plinth_out_of_memory_callback_t)(int32_t device,
                                                size_t requested,
                                                size_t device_total,
                                                size_t device_free,
                                                void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Adds a callback that may free memory when a request cannot be satisfied, before the allocator waits for the device
 * and before the request fails. Callbacks are called in the order in which they were added.
 *
 * @param callback The callback. It and the context must stay valid until it is removed and every request that may have
 *        started before is complete.
 * @param context Passed to the callback; the library does not dereference it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_add_free_memory_callback(plinth_free_memory_callback_t callback,
                                                void *context)
PLINTH_NOEXCEPT;

/**
 * Removes a callback of plinth_add_free_memory_callback: the last one that was added with this function and context.
 *
 * @param callback The callback.
 * @param context Its context.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is no such callback.
 */
PLINTH_API
plinth_status_t plinth_remove_free_memory_callback(plinth_free_memory_callback_t callback,
                                                   void *context)
PLINTH_NOEXCEPT;

/**
 * Attaches an observer of requests that fail because memory ran out.
 *
 * @param observer The observer. It and the context must stay valid until it is detached and every request that may
 *        have started before is complete.
 * @param context Passed to the observer; the library does not dereference it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_attach_out_of_memory_observer(plinth_out_of_memory_callback_t observer,
                                                     void *context)
PLINTH_NOEXCEPT;

/**
 * Detaches an observer of plinth_attach_out_of_memory_observer: the last one that was attached with this function and
 * context.
 *
 * @param observer The observer.
 * @param context Its context.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is no such observer.
 */
PLINTH_API
plinth_status_t plinth_detach_out_of_memory_observer(plinth_out_of_memory_callback_t observer,
                                                     void *context)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_ALLOCATOR_H */
