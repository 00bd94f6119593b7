/*!
 * @defgroup plinth_stream Streams
 *
 * A stream is a queue of work of one device. A plinth_stream_t is CUDA's own stream handle, so it may be passed to
 * CUDA and its libraries, and to a kernel launch.
 *
 * The streams that plinth_stream_create returns come from a pool of the device. They belong to the library and are
 * never destroyed. plinth_stream_create_dedicated creates a stream for one owner, who destroys it. A stream that the
 * program or another library created stays its owner's: register it with plinth_stream_from_external, and call
 * plinth_stream_unregister before it is destroyed, because plinth caches memory for it.
 *
 * Each thread has its own current stream on each device, which is the default stream until the thread sets it. Several
 * threads may submit work to one stream; the order of their work is then the order of their calls.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_STREAM_H
#define PLINTH_STREAM_H

#include "base.h"

/*!
 * @file plinth/stream.h
 * @brief Streams.
 */

/*!
 * @addtogroup plinth_stream
 * @{
 */

/**
 * The state that plinth_stream_context_exit restores. Filled by plinth_stream_context_enter; do not modify it.
 */
typedef struct plinth_stream_context_t {
  /**
   * The device that was current.
   */
  int32_t device;
  /**
   * The device of the entered stream.
   */
  int32_t entered_device;
  /**
   * The stream that was current on `device`.
   */
  plinth_stream_t stream;
  /**
   * The stream that was current on `entered_device`.
   */
  plinth_stream_t entered_stream;
} plinth_stream_context_t;

/**
 * A host function. It must not unwind or throw, and must not call CUDA, or a plinth function that calls CUDA.
 */
typedef void (*plinth_host_function_callback_t)(void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns a stream of a device's pool. The stream does not synchronize with the default stream.
 *
 * Each priority of each device has a pool of 32 streams, which are created on demand, returned in rotation, and never
 * destroyed: the 33rd call returns the first stream again.
 *
 * @param device The device number; -1 for the current device.
 * @param priority The priority; lower numbers are more urgent. Values out of range are clamped; see
 *        plinth_stream_priority_range.
 * @param stream Out: the stream, which can be passed to CUDA and its libraries. The library owns it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_create(int32_t device,
                                     int32_t priority,
                                     plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Creates a stream for the caller alone: unlike those of plinth_stream_create it is shared with nobody, and the caller
 * destroys it. The stream does not synchronize with the default stream.
 *
 * @param device The device number; -1 for the current device.
 * @param priority The priority; a lower number is more urgent. A value out of range is clamped; see
 *        plinth_stream_priority_range.
 * @param stream Out: the stream, which can be passed to CUDA and its libraries. Release it with plinth_stream_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_create_dedicated(int32_t device,
                                               int32_t priority,
                                               plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Destroys a stream that plinth_stream_create_dedicated created. Its queued work still runs, and the call does not wait
 * for it.
 *
 * Memory that was allocated for the stream stays valid. What is cached for it goes to other streams once its work is
 * done; blocks in use are freed as usual. If the stream is the calling thread's current stream, the default stream
 * becomes current. No other thread may use the stream during the call or later, also not as its current stream.
 *
 * @param stream The stream; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a stream that plinth_stream_create_dedicated did not create, or
 *         that was destroyed; PLINTH_ERROR_CAPTURE_FORBIDS while the stream captures; PLINTH_ERROR_OUT_OF_MEMORY and
 *         PLINTH_ERROR_DRIVER, in which case the stream stays valid; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_destroy(plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Hands over what the library keeps for an external stream, before the stream's owner destroys it. Afterwards the
 * library does not know the stream. Memory of the stream, also that of plinth_alloc and of other allocator entry
 * points, is treated as plinth_stream_destroy describes; the same rules hold for threads.
 *
 * @param stream A stream that plinth_stream_from_external registered, or for which memory was allocated; NULL does
 *        nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a stream that the library does not know or owns, and for a
 *         default stream; PLINTH_ERROR_CAPTURE_FORBIDS while the stream captures; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_unregister(plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Registers a stream that was created with CUDA or another library, so that plinth's functions accept it.
 *
 * The caller keeps ownership of the stream, and must keep it alive while plinth uses it. It may be registered again,
 * also for another device if it was destroyed and another stream got its address.
 *
 * @param native A live CUstream or cudaStream_t. The value is not validated: the CUDA driver crashes on a value that
 *        never was a stream. NULL, 1 and 2, CUDA's default streams, need no registration.
 * @param device The number of the stream's device; -1 for the current device.
 * @param stream Out: the same handle.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the output is NULL; PLINTH_ERROR_INVALID_DEVICE;
 *         PLINTH_ERROR_DEVICE_MISMATCH if the stream is on another device; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_OUT_OF_MEMORY after some millions of streams; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_from_external(void *native,
                                            int32_t device,
                                            plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Returns the calling thread's current stream on a device: the default stream until another is set.
 *
 * @param device The device number; -1 for the current device.
 * @param stream Out: the stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_current_stream(int32_t device, plinth_stream_t *stream) PLINTH_NOEXCEPT;

/**
 * Returns a device's default stream, which is NULL for every device: CUDA's legacy default stream, which synchronizes
 * with all streams that cuStreamCreate created without CU_STREAM_NON_BLOCKING. As an argument, NULL stands for the
 * default stream of the device that the call is about. PLINTH_STREAM_DEFAULT_OF names the default stream of a device.
 *
 * @param device The device number; -1 for the current device.
 * @param stream Out: the stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_default_stream(int32_t device,
                                      plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Makes a stream the calling thread's current stream on the stream's device, and makes that device current.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_set_stream(plinth_stream_t stream) PLINTH_NOEXCEPT;

/**
 * Makes a stream the calling thread's current stream on a device. The current device stays as it is. With the stream
 * that plinth_current_stream returned for the device, restores it.
 *
 * @param device The device index; -1 for the current device.
 * @param stream The stream, of that device; NULL for the device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH for a
 *         stream of another device; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_set_stream_of(int32_t device,
                                     plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Makes a stream and its device current, and saves the previous state: the beginning of torch's StreamContext. Contexts
 * can be nested; each must be exited by the thread that entered it.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param saved Out: the state for plinth_stream_context_exit.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `saved` is NULL; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_context_enter(plinth_stream_t stream,
                                            struct plinth_stream_context_t *saved)
PLINTH_NOEXCEPT;

/**
 * Restores what plinth_stream_context_enter saved: the current streams of both devices, and the current device.
 *
 * @param saved The saved state.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE or PLINTH_ERROR_INVALID_HANDLE for
 *         contents that plinth_stream_context_enter did not write; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_context_exit(const struct plinth_stream_context_t *saved)
PLINTH_NOEXCEPT;

/**
 * Reports whether all work of a stream is complete.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param done Out: whether it is complete.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `done` is NULL; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while the stream captures; PLINTH_ERROR_ILLEGAL_ADDRESS,
 *         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER if work failed; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_stream_query(plinth_stream_t stream, bool *done) PLINTH_NOEXCEPT;

/**
 * Waits until all work of a stream is complete.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the
 *         wait; PLINTH_ERROR_CAPTURE_FORBIDS while the stream captures; PLINTH_ERROR_ILLEGAL_ADDRESS,
 *         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER if work failed; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_synchronize(plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Makes future work of a stream wait for the work that another stream holds now. The CPU does not wait. The streams
 * may be on different devices.
 *
 * @param stream The stream that waits; NULL for the current device's default stream.
 * @param other The stream that is waited for; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_wait_stream(plinth_stream_t stream,
                                          plinth_stream_t other)
PLINTH_NOEXCEPT;

/**
 * Returns the range of stream priorities of a device.
 *
 * @param device The device number; -1 for the current device.
 * @param least Out: the least urgent priority, 0.
 * @param greatest Out: the most urgent priority, a negative number: -5 on an H200. torch exposes only the last four.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_priority_range(int32_t device,
                                             int32_t *least,
                                             int32_t *greatest)
PLINTH_NOEXCEPT;

/**
 * Returns the priority of a stream.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param priority Out: the priority; lower numbers are more urgent. The default stream has priority 0.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `priority` is NULL; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_priority(plinth_stream_t stream,
                                       int32_t *priority)
PLINTH_NOEXCEPT;

/**
 * Returns the id that torch gives a stream (Stream.stream_id).
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param id Out: 0 for a default stream; index * 32 + (1 - priority) * 2 + 1 for a pool stream; the handle for an
 *        external stream. Ids are unique only per device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `id` is NULL; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_id(plinth_stream_t stream,
                                 uint64_t *id)
PLINTH_NOEXCEPT;

/**
 * Returns the device of a stream.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param device Out: the device number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `device` is NULL; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_device(plinth_stream_t stream,
                                     int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Reports whether a stream is capturing into a graph.
 *
 * @param stream The stream; a default stream never captures.
 * @param capturing Out: whether it is capturing.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `capturing` is NULL; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_is_capturing(plinth_stream_t stream,
                                           bool *capturing)
PLINTH_NOEXCEPT;

/**
 * Reports whether the calling thread's current stream is capturing into a graph. Creates no CUDA context. Without any
 * device it is not.
 *
 * @param capturing Out: whether it is capturing.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_is_current_stream_capturing(bool *capturing)
PLINTH_NOEXCEPT;

/**
 * Enqueues a host function in a stream: it runs when the stream's earlier work is complete, and later work waits until
 * it returns. In a capture it becomes a node of the graph.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param function The function; called by a thread of the driver.
 * @param context Passed to the function; must stay valid until the function has run; in a capture, as long as the graph
 *        may run.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the function is NULL; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_launch_host_function(plinth_stream_t stream,
                                            plinth_host_function_callback_t function,
                                            void *context)
PLINTH_NOEXCEPT;

/**
 * Keeps a stream busy for a number of the multiprocessor's clock cycles, with a kernel of one thread:
 * torch.cuda._sleep, for tests of ordering.
 *
 * @param cycles The number of cycles: about 1.98e9 per second on an H200. The host device sleeps for the same time.
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sleep(uint64_t cycles,
                             plinth_stream_t stream)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_STREAM_H */
