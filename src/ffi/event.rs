//! Events
//!
//! An event marks a point in a stream. Streams and threads wait for it, and two events tell the time between them:
//! torch.cuda.Event.
//!
//! The caller owns an event and destroys it. Streams that already wait for it are not affected by that. An event
//! belongs to the device of the stream in which it is first recorded. Threads may record and wait for one event at the
//! same time; a wait sees the latest record.

use crate::{
    error::Result,
    event,
    ffi::{Output, guard::guard, null, plinth_stream_t, status::plinth_status_t},
};
use std::ffi::c_void;

/// An event: a mark in a stream. Opaque, and checked: a handle that was destroyed, is of another kind, or never was
/// one is answered with PLINTH_ERROR_INVALID_HANDLE.
#[allow(non_camel_case_types)]
pub struct plinth_event {
    _private: [u8; 0],
}

/// The handle of an event.
#[allow(non_camel_case_types)]
pub type plinth_event_t = *mut plinth_event;

/// The event records the time at which it is reached.
pub const PLINTH_EVENT_TIMING: u32 = 1;
/// A thread that waits for the event sleeps instead of spinning.
pub const PLINTH_EVENT_BLOCKING: u32 = 2;
/// The event can be opened by other processes. Not together with PLINTH_EVENT_TIMING.
pub const PLINTH_EVENT_INTERPROCESS: u32 = 4;
/// In a capture, recording the event and waiting for it become nodes of the graph, by which a replay and the world
/// outside it order themselves. Outside a capture the flag changes nothing.
pub const PLINTH_EVENT_EXTERNAL: u32 = 8;

/// The bytes of an event's handle for other processes.
pub const PLINTH_IPC_EVENT_HANDLE_SIZE: usize = 64;

#[inline]
fn handle(event: plinth_event_t) -> Result<u64> {
    if event.is_null() { Err(null("event")) } else { Ok(event as u64) }
}

fn to_c(handle: u64) -> plinth_event_t {
    handle as plinth_event_t
}

/// Creates an event. It belongs to no device and is not recorded; its first record decides the device. Needs no device
/// itself. Thread-safe.
///
/// @param flags 0, or PLINTH_EVENT_TIMING, _BLOCKING, _INTERPROCESS and _EXTERNAL or-ed together.
/// @param event Out: the event. The caller owns it and destroys it with plinth_event_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for other flags, and for
///         PLINTH_EVENT_TIMING with PLINTH_EVENT_INTERPROCESS; PLINTH_ERROR_OUT_OF_MEMORY with 16 million live events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_create(flags: u32, event: *mut plinth_event_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the event.
        let event = unsafe { Output::new(event, "event") }?;
        event.set(to_c(event::create(flags)?));
        Ok(())
    })
}

/// Destroys an event. Streams that wait for what it recorded go on waiting for that. Thread-safe, but an event must
/// not be destroyed while another thread is in a call with it.
///
/// @param event The event; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER, which only an event for other processes comes to:
///         it stays, and can be destroyed again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_destroy(event: plinth_event_t) -> plinth_status_t {
    guard(|| if event.is_null() { Ok(()) } else { event::destroy(event as u64) })
}

/// Records an event in a stream: it will be complete when the work that the stream has now is done. A later record
/// takes the place of an earlier one. Thread-safe.
///
/// @param event The event.
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL event; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_DEVICE_MISMATCH if its first record was on another device; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_record(event: plinth_event_t, stream: plinth_stream_t) -> plinth_status_t {
    guard(|| event::record(handle(event)?, stream as usize))
}

/// Lets the work that a stream is given from now on wait for what an event recorded last. The CPU does not wait. The
/// stream may be on another device than the event. Does nothing for an event that never was recorded. Thread-safe.
///
/// @param event The event.
/// @param stream The stream that waits; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL event; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER;
///         the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_wait(event: plinth_event_t, stream: plinth_stream_t) -> plinth_status_t {
    guard(|| event::wait(handle(event)?, stream as usize))
}

/// The same as plinth_event_wait, with the stream first.
///
/// @param stream The stream that waits; NULL for the current device's default stream.
/// @param event The event.
/// @return As plinth_event_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_wait_event(stream: plinth_stream_t, event: plinth_event_t) -> plinth_status_t {
    guard(|| event::wait(handle(event)?, stream as usize))
}

/// The same as plinth_event_record, with the stream first.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param event The event.
/// @return As plinth_event_record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_record_event(stream: plinth_stream_t, event: plinth_event_t) -> plinth_status_t {
    guard(|| event::record(handle(event)?, stream as usize))
}

/// Tells whether what an event recorded last is complete. Thread-safe.
///
/// @param event The event.
/// @param done Out: whether it is; true for an event that never was recorded.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a
///         capture forbids it; PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for
///         failed work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_query(event: plinth_event_t, done: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
        let done = unsafe { Output::new(done, "done") }?;
        done.set(event::query(handle(event)?)?);
        Ok(())
    })
}

/// Waits on the CPU until what an event recorded last is complete; returns at once for an event that never was
/// recorded. Thread-safe.
///
/// @param event The event.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE by the
///         sync debug mode; PLINTH_ERROR_CAPTURE_FORBIDS while a capture forbids it; PLINTH_ERROR_ILLEGAL_ADDRESS,
///         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_synchronize(event: plinth_event_t) -> plinth_status_t {
    guard(|| event::synchronize(handle(event)?))
}

/// Tells the time from one event to another, with a resolution of about half a microsecond on a GPU. Thread-safe.
///
/// @param start The event at the beginning.
/// @param end The event at the end, on the same device.
/// @param milliseconds Out: the time in milliseconds; negative if the end was reached before the start.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_EVENT_TIMING_DISABLED unless
///         both were created with PLINTH_EVENT_TIMING; PLINTH_ERROR_EVENT_NOT_RECORDED; PLINTH_ERROR_DEVICE_MISMATCH;
///         PLINTH_ERROR_EVENT_NOT_COMPLETE; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_elapsed_time(
    start: plinth_event_t,
    end: plinth_event_t,
    milliseconds: *mut f32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the time.
        let milliseconds = unsafe { Output::new(milliseconds, "milliseconds") }?;
        milliseconds.set(event::elapsed_time(handle(start)?, handle(end)?)?);
        Ok(())
    })
}

/// Tells the device of an event. Thread-safe.
///
/// @param event The event.
/// @param device Out: the device's number; -1 for an event that never was recorded.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_device(event: plinth_event_t, device: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let device = unsafe { Output::new(device, "device") }?;
        device.set(event::device(handle(event)?)?.map_or(-1, |device| device as i32));
        Ok(())
    })
}

/// Tells the CUevent behind an event, for calls of CUDA's own. It is the event's until plinth_event_destroy; then it
/// may become another event's.
///
/// @param event The event.
/// @param native Out: the CUevent; NULL for an event that never was recorded.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_native(event: plinth_event_t, native: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let native = unsafe { Output::new(native, "native") }?;
        native.set(event::native(handle(event)?)? as *mut c_void);
        Ok(())
    })
}

/// Tells what another process needs to open an event. An event that never was recorded is made on the current device.
/// Thread-safe.
///
/// @param event An event created with PLINTH_EVENT_INTERPROCESS. It must outlive its use in other processes.
/// @param ipc_handle Out: PLINTH_IPC_EVENT_HANDLE_SIZE bytes, to be sent to the other process by any way.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an event
///         of another kind; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_ipc_handle(event: plinth_event_t, ipc_handle: *mut u8) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or room for 64 bytes.
        let output = unsafe { Output::new(ipc_handle.cast::<[u8; PLINTH_IPC_EVENT_HANDLE_SIZE]>(), "ipc_handle") }?;
        output.set(event::ipc_handle(handle(event)?)?);
        Ok(())
    })
}

/// Opens an event of another process. Thread-safe.
///
/// @param device The number of the event's device in this process; -1 for the current one.
/// @param ipc_handle The PLINTH_IPC_EVENT_HANDLE_SIZE bytes that plinth_event_ipc_handle gave in the other process.
/// @param event Out: the event. The caller owns it and destroys it with plinth_event_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for bytes that
///         are no handle; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER, as for a handle of this very process; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_event_from_ipc_handle(
    device: i32,
    ipc_handle: *const u8,
    event: *mut plinth_event_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the event.
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
