/*!
 * @defgroup plinth_event Events
 *
 * An event marks a point in a stream. Streams and threads wait for it, and two events tell the time between them:
 * torch.cuda.Event.
 *
 * The caller owns an event and destroys it. Streams that already wait for it are not affected by that. An event
 * belongs to the device of the stream in which it is first recorded. Threads may record and wait for one event at the
 * same time; a wait sees the latest record.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_EVENT_H
#define PLINTH_EVENT_H

#include "base.h"

/*!
 * @file plinth/event.h
 * @brief Events.
 */

/*!
 * @addtogroup plinth_event
 * @{
 */

/**
 * The event records the time at which it is reached.
 */
#define PLINTH_EVENT_TIMING 1

/**
 * A thread that waits for the event sleeps instead of spinning.
 */
#define PLINTH_EVENT_BLOCKING 2

/**
 * The event can be opened by other processes. Not together with PLINTH_EVENT_TIMING.
 */
#define PLINTH_EVENT_INTERPROCESS 4

/**
 * In a capture, recording the event and waiting for it become nodes of the graph, by which a replay and the world
 * outside it order themselves. Outside a capture the flag changes nothing.
 */
#define PLINTH_EVENT_EXTERNAL 8

/**
 * The bytes of an event's handle for other processes.
 */
#define PLINTH_IPC_EVENT_HANDLE_SIZE 64

/**
 * An event: a mark in a stream. Opaque, and checked: a handle that was destroyed, is of another kind, or never was
 * one is answered with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_event plinth_event;

/**
 * The handle of an event.
 */
typedef struct plinth_event *plinth_event_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates an event. It belongs to no device and is not recorded; its first record decides the device. Needs no device
 * itself. Thread-safe.
 *
 * @param flags 0, or PLINTH_EVENT_TIMING, _BLOCKING, _INTERPROCESS and _EXTERNAL or-ed together.
 * @param event Out: the event. The caller owns it and destroys it with plinth_event_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for other flags, and for
 *         PLINTH_EVENT_TIMING with PLINTH_EVENT_INTERPROCESS; PLINTH_ERROR_OUT_OF_MEMORY with 16 million live events.
 */
PLINTH_API
plinth_status_t plinth_event_create(uint32_t flags,
                                    plinth_event_t *event)
PLINTH_NOEXCEPT;

/**
 * Destroys an event. Streams that wait for what it recorded go on waiting for that. Thread-safe, but an event must
 * not be destroyed while another thread is in a call with it.
 *
 * @param event The event; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER, which only an event for other processes comes to:
 *         it stays, and can be destroyed again.
 */
PLINTH_API
plinth_status_t plinth_event_destroy(plinth_event_t event)
PLINTH_NOEXCEPT;

/**
 * Records an event in a stream: it will be complete when the work that the stream has now is done. A later record
 * takes the place of an earlier one. Thread-safe.
 *
 * @param event The event.
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL event; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DEVICE_MISMATCH if its first record was on another device; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_event_record(plinth_event_t event,
                                    plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Lets the work that a stream is given from now on wait for what an event recorded last. The CPU does not wait. The
 * stream may be on another device than the event. Does nothing for an event that never was recorded. Thread-safe.
 *
 * @param event The event.
 * @param stream The stream that waits; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL event; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER;
 *         the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_event_wait(plinth_event_t event,
                                  plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * The same as plinth_event_wait, with the stream first.
 *
 * @param stream The stream that waits; NULL for the current device's default stream.
 * @param event The event.
 * @return As plinth_event_wait.
 */
PLINTH_API
plinth_status_t plinth_stream_wait_event(plinth_stream_t stream,
                                         plinth_event_t event)
PLINTH_NOEXCEPT;

/**
 * The same as plinth_event_record, with the stream first.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param event The event.
 * @return As plinth_event_record.
 */
PLINTH_API
plinth_status_t plinth_stream_record_event(plinth_stream_t stream,
                                           plinth_event_t event)
PLINTH_NOEXCEPT;

/**
 * Tells whether what an event recorded last is complete. Thread-safe.
 *
 * @param event The event.
 * @param done Out: whether it is; true for an event that never was recorded.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a
 *         capture forbids it; PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for
 *         failed work.
 */
PLINTH_API
plinth_status_t plinth_event_query(plinth_event_t event,
                                   bool *done)
PLINTH_NOEXCEPT;

/**
 * Waits on the CPU until what an event recorded last is complete; returns at once for an event that never was
 * recorded. Thread-safe.
 *
 * @param event The event.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE by the
 *         sync debug mode; PLINTH_ERROR_CAPTURE_FORBIDS while a capture forbids it; PLINTH_ERROR_ILLEGAL_ADDRESS,
 *         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work.
 */
PLINTH_API
plinth_status_t plinth_event_synchronize(plinth_event_t event)
PLINTH_NOEXCEPT;

/**
 * Tells the time from one event to another, with a resolution of about half a microsecond on a GPU. Thread-safe.
 *
 * @param start The event at the beginning.
 * @param end The event at the end, on the same device.
 * @param milliseconds Out: the time in milliseconds; negative if the end was reached before the start.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_EVENT_TIMING_DISABLED unless
 *         both were created with PLINTH_EVENT_TIMING; PLINTH_ERROR_EVENT_NOT_RECORDED; PLINTH_ERROR_DEVICE_MISMATCH;
 *         PLINTH_ERROR_EVENT_NOT_COMPLETE; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_event_elapsed_time(plinth_event_t start,
                                          plinth_event_t end,
                                          float *milliseconds)
PLINTH_NOEXCEPT;

/**
 * Tells the device of an event. Thread-safe.
 *
 * @param event The event.
 * @param device Out: the device's number; -1 for an event that never was recorded.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API plinth_status_t plinth_event_device(plinth_event_t event, int32_t *device) PLINTH_NOEXCEPT;

/**
 * Tells the CUevent behind an event, for calls of CUDA's own. It is the event's until plinth_event_destroy; then it
 * may become another event's.
 *
 * @param event The event.
 * @param native Out: the CUevent; NULL for an event that never was recorded.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_event_native(plinth_event_t event,
                                    void **native)
PLINTH_NOEXCEPT;

/**
 * Tells what another process needs to open an event. An event that never was recorded is made on the current device.
 * Thread-safe.
 *
 * @param event An event created with PLINTH_EVENT_INTERPROCESS. It must outlive its use in other processes.
 * @param ipc_handle Out: PLINTH_IPC_EVENT_HANDLE_SIZE bytes, to be sent to the other process by any way.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an event
 *         of another kind; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_event_ipc_handle(plinth_event_t event,
                                        uint8_t *ipc_handle)
PLINTH_NOEXCEPT;

/**
 * Opens an event of another process. Thread-safe.
 *
 * @param device The number of the event's device in this process; -1 for the current one.
 * @param ipc_handle The PLINTH_IPC_EVENT_HANDLE_SIZE bytes that plinth_event_ipc_handle gave in the other process.
 * @param event Out: the event. The caller owns it and destroys it with plinth_event_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for bytes that
 *         are no handle; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER, as for a handle of this very process; the
 *         errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_event_from_ipc_handle(int32_t device,
                                             const uint8_t *ipc_handle,
                                             plinth_event_t *event)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_EVENT_H */
