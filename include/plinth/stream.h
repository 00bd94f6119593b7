/*!
 * @defgroup plinth_stream Streams
 *
 * A stream is a queue of work of one device. A plinth_stream_t is CUDA's own stream handle, so it may be passed to
 * CUDA and its libraries, and to a kernel launch.
 *
 * The streams that plinth_stream_create returns come from a pool of the device. They belong to the library and are
 * never destroyed. A stream that the program or another library made stays its owner's, who keeps it alive while
 * plinth uses it; register it with plinth_stream_from_external.
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
 * What plinth_stream_context_exit must put back. Filled by plinth_stream_context_enter, and not to be changed.
 */
typedef struct plinth_stream_context_t {
  /**
   * The device that was current.
   */
  int32_t device;
  /**
   * The device of the stream that was entered.
   */
  int32_t entered_device;
  /**
   * The stream that was current on the device that was current.
   */
  plinth_stream_t stream;
  /**
   * The stream that was current on the device of the stream that was entered.
   */
  plinth_stream_t entered_stream;
} plinth_stream_context_t;

/**
 * A function that a stream calls. It must not unwind or throw, nor call CUDA or a function of plinth that does.
 */
typedef void (*plinth_host_function_t)(void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Hands out a stream of a device's pool. The stream does not wait for the default stream.
 *
 * Each priority of each device has a pool of 32 streams, made as they are first needed, handed out in turn, and never
 * destroyed: the 33rd call gives the first stream again. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param priority The priority; lower numbers go first. One out of range becomes the nearest in it; see
 *        plinth_stream_priority_range.
 * @param stream Out: the stream, which CUDA and its libraries take as it is. It belongs to the library.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_create(int32_t device,
                                     int32_t priority,
                                     plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Makes a stream known that somebody else made, with CUDA or another library, so that plinth's calls take it.
 *
 * The stream stays its maker's, who keeps it alive while it is used here. It may be made known again, also for
 * another device once it was destroyed and its address came back. Thread-safe.
 *
 * @param native A live CUstream or cudaStream_t; a value that never was a stream is the caller's error, which the
 *        CUDA driver does not survive. NULL, 1 and 2, CUDA's default streams, need not be made known.
 * @param device The number of the stream's device; -1 for the current one.
 * @param stream Out: the same handle.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL output; PLINTH_ERROR_INVALID_DEVICE;
 *         PLINTH_ERROR_DEVICE_MISMATCH if the stream is on another device; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_OUT_OF_MEMORY after some millions of streams; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_from_external(void *native,
                                            int32_t device,
                                            plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Tells the calling thread's current stream on a device: the default stream until it is set.
 *
 * @param device The device's number; -1 for the current one.
 * @param stream Out: the stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_current_stream(int32_t device, plinth_stream_t *stream) PLINTH_NOEXCEPT;

/**
 * Tells a device's default stream, which is NULL for every device: CUDA's legacy default stream, which waits for the
 * streams that cuStreamCreate made without CU_STREAM_NON_BLOCKING, and they for it. As an argument, NULL is the
 * default stream of the device that is current at that moment.
 *
 * @param device The device's number; -1 for the current one.
 * @param stream Out: the stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_default_stream(int32_t device,
                                      plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Makes a stream the calling thread's current one on the stream's device, and makes that device current.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_set_stream(plinth_stream_t stream) PLINTH_NOEXCEPT;

/**
 * Makes a stream and its device current and saves what was: the beginning of torch's StreamContext. Contexts nest;
 * each is left by the thread that entered it.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param saved Out: what plinth_stream_context_exit needs.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL saved; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_context_enter(plinth_stream_t stream,
                                            struct plinth_stream_context_t *saved)
PLINTH_NOEXCEPT;

/**
 * Puts back what plinth_stream_context_enter saved: the streams of both devices, and the current device.
 *
 * @param saved What was saved.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE or PLINTH_ERROR_INVALID_HANDLE for
 *         contents that plinth_stream_context_enter did not write; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_context_exit(const struct plinth_stream_context_t *saved)
PLINTH_NOEXCEPT;

/**
 * Tells whether all work of a stream is done. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param done Out: whether it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL done; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while it captures; PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or
 *         PLINTH_ERROR_DRIVER for failed work; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_query(plinth_stream_t stream,
                                    bool *done)
PLINTH_NOEXCEPT;

/**
 * Waits until all work of a stream is done. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while it captures; PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or
 *         PLINTH_ERROR_DRIVER for failed work; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_synchronize(plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Lets the work that a stream is given from now on wait for the work that another has now. The CPU does not wait, and
 * the streams may be on different devices. Thread-safe.
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
 * Tells the range of stream priorities of a device. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param least Out: the priority that goes last, 0.
 * @param greatest Out: the priority that goes first, a negative number: -5 on an H200. torch shows the last four of
 *        them only.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_priority_range(int32_t device,
                                             int32_t *least,
                                             int32_t *greatest)
PLINTH_NOEXCEPT;

/**
 * Tells the priority of a stream. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param priority Out: the priority; lower numbers go first, and a default stream has 0.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL priority; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_priority(plinth_stream_t stream,
                                       int32_t *priority)
PLINTH_NOEXCEPT;

/**
 * Tells the number that torch gives a stream (Stream.stream_id). Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param id Out: 0 for a default stream; for a stream of a pool, index * 32 + (1 - priority) * 2 + 1; for an external
 *        stream its handle. A number says which stream of its device it is, not which device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL id; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_id(plinth_stream_t stream,
                                 uint64_t *id)
PLINTH_NOEXCEPT;

/**
 * Tells the device of a stream. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param device Out: the device's number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL device; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API plinth_status_t plinth_stream_device(plinth_stream_t stream, int32_t *device) PLINTH_NOEXCEPT;

/**
 * Tells whether a stream is capturing into a graph. Thread-safe.
 *
 * @param stream The stream; a default stream never captures.
 * @param capturing Out: whether it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL capturing; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_is_capturing(plinth_stream_t stream,
                                           bool *capturing)
PLINTH_NOEXCEPT;

/**
 * Tells whether the calling thread's current stream is capturing into a graph. Makes no context.
 *
 * @param capturing Out: whether it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_is_current_stream_capturing(bool *capturing) PLINTH_NOEXCEPT;

/**
 * Lets a stream call a function on the CPU once its earlier work is done; its later work waits for the function to
 * return. In a capture, the function becomes a node of the graph. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param function The function; called by a thread of the driver's.
 * @param context Passed to the function; the caller keeps it alive until then.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL function; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_launch_host_function(plinth_stream_t stream,
                                            plinth_host_function_t function,
                                            void *context)
PLINTH_NOEXCEPT;

/**
 * Keeps a stream busy, with one thread of a kernel, for a number of the multiprocessor's clock cycles: torch's
 * `torch.cuda._sleep`, for tests of order. Thread-safe.
 *
 * @param cycles The cycles: some 1.98e9 a second on an H200. The host device sleeps as long.
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
