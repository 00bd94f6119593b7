//! Events
//!
//! An event marks a point in a stream. Streams and threads wait for it, and two events tell the time between them:
//! torch.cuda.Event.
//!
//! The caller owns an event and destroys it. Streams that already wait for it are not affected by that. An event
//! belongs to the device of the stream in which it is first recorded. Threads may record and wait for one event at the
//! same time; a wait sees the latest record.

use crate::{
    ffi::{
        Output,
        guard::{guard, guard_short, release},
        handle, null, plinth_stream_t,
        status::plinth_status_t,
    },
    stream::event,
};
use std::ffi::c_void;

/// An event: a point in a stream.
///
/// The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
/// is of another kind, or that never was a handle.
#[allow(non_camel_case_types)]
pub struct plinth_event {
    _private: [u8; 0],
}

/// The handle of an event.
#[allow(non_camel_case_types)]
pub type plinth_event_t = *mut plinth_event;

/// The event records the time at which it completes.
pub const PLINTH_EVENT_TIMING: u32 = 1;
/// A thread that waits for the event sleeps instead of spinning.
pub const PLINTH_EVENT_BLOCKING: u32 = 2;
/// Other processes can open the event. Cannot be combined with PLINTH_EVENT_TIMING.
pub const PLINTH_EVENT_INTERPROCESS: u32 = 4;
/// In a capture, recording the event and waiting for it become nodes of the graph, which order a replay with work
/// outside of the graph. Outside of a capture the flag has no effect. Do not destroy the event while the graph may run.
pub const PLINTH_EVENT_EXTERNAL: u32 = 8;

/// The size in bytes of an event's interprocess handle.
pub const PLINTH_IPC_EVENT_HANDLE_SIZE: usize = 64;

fn to_c(handle: u64) -> plinth_event_t {
    handle as plinth_event_t
}

/// Creates an event. Needs no device.
///
/// The event belongs to no device until it is recorded first; that call determines its device.
///
/// @param flags 0, or PLINTH_EVENT_TIMING, _BLOCKING, _INTERPROCESS and _EXTERNAL combined with bitwise or.
/// @param event Out: the event. The caller owns it and destroys it with plinth_event_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for other flags, and for
///         PLINTH_EVENT_TIMING with PLINTH_EVENT_INTERPROCESS; PLINTH_ERROR_OUT_OF_MEMORY with 16 million live
///         events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_create(flags: u32, event: *mut plinth_event_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let event = unsafe { Output::new(event, "event") }?;
        event.set(to_c(event::create(flags)?));
        Ok(())
    })
}

/// Destroys an event. Streams that wait for it keep waiting for the work that it recorded last.
///
/// @param event The event; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER, only for an interprocess event or one of a
///         graph: it remains valid and can be destroyed again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_destroy(event: plinth_event_t) -> plinth_status_t {
    release(|| if event.is_null() { Ok(()) } else { event::destroy(event as u64) })
}

/// Records an event in a stream.
///
/// The event completes when the work that is in the stream now is done. A later record replaces an earlier one.
///
/// @param event The event.
/// @param stream The stream; NULL for the default stream of the event's device, which is the current device before the
///        first record.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL event; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_DEVICE_MISMATCH if the event was first recorded on another device; PLINTH_ERROR_DRIVER; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_record(event: plinth_event_t, stream: plinth_stream_t) -> plinth_status_t {
    guard_short(|| event::record(handle(event, "event")?, stream as usize))
}

/// Makes later work of a stream wait for the last record of an event.
///
/// The CPU does not wait. Stream and event may be on different devices. Does nothing for an event that was never
/// recorded, except that an event with PLINTH_EVENT_EXTERNAL becomes a node in a capture, and belongs to the stream's
/// device from then on: each replay waits for the last record before it.
///
/// @param event The event.
/// @param stream The stream that waits, of any device; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL event; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_CAPTURE_FORBIDS if the stream is capturing and the event was recorded outside of the capture,
///         which invalidates the capture; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_wait(event: plinth_event_t, stream: plinth_stream_t) -> plinth_status_t {
    guard_short(|| event::wait(handle(event, "event")?, stream as usize))
}

/// Does the same as plinth_event_wait, with the stream as the first argument.
///
/// @param stream The stream that waits, of any device; NULL for the current device's default stream.
/// @param event The event.
/// @return As plinth_event_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_wait_event(stream: plinth_stream_t, event: plinth_event_t) -> plinth_status_t {
    guard_short(|| event::wait(handle(event, "event")?, stream as usize))
}

/// Does the same as plinth_event_record, with the stream as the first argument.
///
/// @param stream The stream; NULL for the default stream of the event's device, which is the current device before the
///        first record.
/// @param event The event.
/// @return As plinth_event_record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_record_event(stream: plinth_stream_t, event: plinth_event_t) -> plinth_status_t {
    guard_short(|| event::record(handle(event, "event")?, stream as usize))
}

/// Checks whether the last record of an event is complete.
///
/// @param event The event.
/// @param done Out: whether it is; true for an event that was never recorded.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a
///         capture forbids the call; PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER
///         for failed work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_query(event: plinth_event_t, done: *mut bool) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let done = unsafe { Output::new(done, "done") }?;
        done.set(event::query(handle(event, "event")?)?);
        Ok(())
    })
}

/// Waits on the CPU until the last record of an event is complete. Returns at once for an event that was never
/// recorded.
///
/// @param event The event.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE if the
///         sync debug mode forbids it; PLINTH_ERROR_CAPTURE_FORBIDS while a capture forbids the call;
///         PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_synchronize(event: plinth_event_t) -> plinth_status_t {
    guard(|| event::synchronize(handle(event, "event")?))
}

/// Gets the time between two events, with a resolution of about half a microsecond on a GPU.
///
/// @param start The first event.
/// @param end The second event, on the same device.
/// @param milliseconds Out: the time in milliseconds; negative if `end` completed before `start`.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_EVENT_TIMING_DISABLED
///         unless both were created with PLINTH_EVENT_TIMING; PLINTH_ERROR_EVENT_NOT_RECORDED;
///         PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_EVENT_NOT_COMPLETE; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_elapsed_time(
    start: plinth_event_t,
    end: plinth_event_t,
    milliseconds: *mut f32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let milliseconds = unsafe { Output::new(milliseconds, "milliseconds") }?;
        milliseconds.set(event::elapsed_time(handle(start, "start")?, handle(end, "end")?)?);
        Ok(())
    })
}

/// Gets the device of an event.
///
/// @param event The event.
/// @param device Out: the device index; -1 for an event that was never recorded.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_device(event: plinth_event_t, device: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let device = unsafe { Output::new(device, "device") }?;
        device.set(event::device(handle(event, "event")?)?.map_or(-1, |device| device as i32));
        Ok(())
    })
}

/// Gets the CUevent of an event, for direct CUDA calls. It is valid until plinth_event_destroy; afterwards the
/// library may reuse it for another event.
///
/// @param event The event.
/// @param native Out: the CUevent; NULL for an event that was never recorded.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_native(event: plinth_event_t, native: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let native = unsafe { Output::new(native, "native") }?;
        native.set(event::native(handle(event, "event")?)? as *mut c_void);
        Ok(())
    })
}

/// Gets the interprocess handle of an event, with which another process can open it. An event that was never recorded
/// is created on the current device.
///
/// @param event An event created with PLINTH_EVENT_INTERPROCESS. It must outlive its use in other processes.
/// @param ipc_handle Out: PLINTH_IPC_EVENT_HANDLE_SIZE bytes, which can be sent to the other process over any
///        channel.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an event
///         without PLINTH_EVENT_INTERPROCESS; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_ipc_handle(event: plinth_event_t, ipc_handle: *mut u8) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or room for 64 bytes.
        let output = unsafe { Output::new(ipc_handle.cast::<[u8; PLINTH_IPC_EVENT_HANDLE_SIZE]>(), "ipc_handle") }?;
        output.set(event::ipc_handle(handle(event, "event")?)?);
        Ok(())
    })
}

/// Opens an event of another process.
///
/// @param device The index of the event's device in this process; -1 for the current device.
/// @param ipc_handle The PLINTH_IPC_EVENT_HANDLE_SIZE bytes from plinth_event_ipc_handle in the other process.
/// @param event Out: the event. The caller owns it and destroys it with plinth_event_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for bytes
///         that are not a handle; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER, for example for a handle of the
///         same process; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_from_ipc_handle(
    device: i32,
    ipc_handle: *const u8,
    event: *mut plinth_event_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let event = unsafe { Output::new(event, "event") }?;
        // SAFETY: the caller passes NULL or 64 bytes; an array of bytes needs no alignment.
        let shared = unsafe { ipc_handle.cast::<[u8; PLINTH_IPC_EVENT_HANDLE_SIZE]>().as_ref() };
        let shared = shared.ok_or_else(|| null("ipc_handle"))?;
        event.set(to_c(event::from_ipc_handle(device, *shared)?));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_the_cores() {
        assert_eq!(
            [PLINTH_EVENT_TIMING, PLINTH_EVENT_BLOCKING, PLINTH_EVENT_INTERPROCESS, PLINTH_EVENT_EXTERNAL],
            [event::TIMING, event::BLOCKING, event::INTERPROCESS, event::EXTERNAL]
        );
    }
}
