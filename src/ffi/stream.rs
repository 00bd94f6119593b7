//! Streams
//!
//! A stream is a queue of work of one device. A plinth_stream_t is CUDA's own stream handle, so it may be passed to
//! CUDA and its libraries, and to a kernel launch.
//!
//! The streams that plinth_stream_create returns come from a pool of the device. They belong to the library and are
//! never destroyed. plinth_stream_create_dedicated creates a stream for one owner, who destroys it. A stream that the
//! program or another library created stays its owner's: register it with plinth_stream_from_external, and call
//! plinth_stream_unregister before it is destroyed, because plinth caches memory for it.
//!
//! Each thread has its own current stream on each device, which is the default stream until the thread sets it. Several
//! threads may submit work to one stream; the order of their work is then the order of their calls.

use crate::{
    driver::{self, HostFunction},
    error::{Error, Result},
    ffi::{
        CUstream_st, Output,
        guard::{guard, guard_short, release},
        null, plinth_stream_t,
        status::plinth_status_t,
    },
    ops::stream_end::{self, End},
    status::Status,
    stream::{self, SavedStreams, kernel},
};
use std::ffi::c_void;

fn handle(stream: plinth_stream_t) -> usize {
    stream as usize
}

fn to_c(handle: usize) -> plinth_stream_t {
    handle as *mut CUstream_st
}

/// Returns a stream of a device's pool. The stream does not synchronize with the default stream.
///
/// Each priority of each device has a pool of 32 streams, which are created on demand, returned in rotation, and never
/// destroyed: the 33rd call returns the first stream again.
///
/// @param device The device number; -1 for the current device.
/// @param priority The priority; lower numbers are more urgent. Values out of range are clamped; see
///        plinth_stream_priority_range.
/// @param stream Out: the stream, which can be passed to CUDA and its libraries. The library owns it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_create(
    device: i32,
    priority: i32,
    stream: *mut plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let stream = unsafe { Output::new(stream, "stream") }?;
        stream.set(to_c(stream::create(device, priority)?));
        Ok(())
    })
}

/// Creates a stream for the caller alone: unlike those of plinth_stream_create it is shared with nobody, and the caller
/// destroys it. The stream does not synchronize with the default stream.
///
/// @param device The device number; -1 for the current device.
/// @param priority The priority; a lower number is more urgent. A value out of range is clamped; see
///        plinth_stream_priority_range.
/// @param stream Out: the stream, which can be passed to CUDA and its libraries. Release it with plinth_stream_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_create_dedicated(
    device: i32,
    priority: i32,
    stream: *mut plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let stream = unsafe { Output::new(stream, "stream") }?;
        stream.set(to_c(stream::create_dedicated(device, priority)?));
        Ok(())
    })
}

/// Destroys a stream that plinth_stream_create_dedicated created. Its queued work still runs, and the call does not wait
/// for it.
///
/// Memory that was allocated for the stream stays valid. What is cached for it goes to other streams once its work is
/// done; blocks in use are freed as usual. If the stream is the calling thread's current stream, the default stream
/// becomes current. No other thread may use the stream during the call or later, also not as its current stream.
///
/// @param stream The stream; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a stream that plinth_stream_create_dedicated did not create, or
///         that was destroyed; PLINTH_ERROR_CAPTURE_FORBIDS while the stream captures; PLINTH_ERROR_OUT_OF_MEMORY and
///         PLINTH_ERROR_DRIVER, in which case the stream stays valid; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_destroy(stream: plinth_stream_t) -> plinth_status_t {
    release(|| if stream.is_null() { Ok(()) } else { stream_end::end(handle(stream), End::Destroy) })
}

/// Hands over what the library keeps for an external stream, before the stream's owner destroys it. Afterwards the
/// library does not know the stream. Memory of the stream, also that of plinth_alloc and of other allocator entry
/// points, is treated as plinth_stream_destroy describes; the same rules hold for threads.
///
/// @param stream A stream that plinth_stream_from_external registered, or for which memory was allocated; NULL does
///        nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a stream that the library does not know or owns, and for a
///         default stream; PLINTH_ERROR_CAPTURE_FORBIDS while the stream captures; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_unregister(stream: plinth_stream_t) -> plinth_status_t {
    release(|| {
        if stream.is_null() {
            return Ok(());
        }
        // SAFETY: the handle is used as a stream only if memory was allocated for it, so it was a stream, which its
        // owner keeps alive until this call returns.
        stream_end::unregister(unsafe { driver::Stream::from_handle(handle(stream)) })
    })
}

/// Registers a stream that was created with CUDA or another library, so that plinth's functions accept it.
///
/// The caller keeps ownership of the stream, and must keep it alive while plinth uses it. It may be registered again,
/// also for another device if it was destroyed and another stream got its address.
///
/// @param native A live CUstream or cudaStream_t. The value is not validated: the CUDA driver crashes on a value that
///        never was a stream. NULL, 1 and 2, CUDA's default streams, need no registration.
/// @param device The number of the stream's device; -1 for the current device.
/// @param stream Out: the same handle.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the output is NULL; PLINTH_ERROR_INVALID_DEVICE;
///         PLINTH_ERROR_DEVICE_MISMATCH if the stream is on another device; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_OUT_OF_MEMORY after some millions of streams; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_from_external(
    native: *mut c_void,
    device: i32,
    stream: *mut plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let output = unsafe { Output::new(stream, "stream") }?;
        // SAFETY: the caller promises a live stream or one of the special handles.
        let native = unsafe { driver::Stream::from_handle(native as usize) };
        output.set(to_c(stream::from_external(native, device)?));
        Ok(())
    })
}

/// Returns the calling thread's current stream on a device: the default stream until another is set.
///
/// @param device The device number; -1 for the current device.
/// @param stream Out: the stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_current_stream(device: i32, stream: *mut plinth_stream_t) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let stream = unsafe { Output::new(stream, "stream") }?;
        stream.set(to_c(stream::current(device)?));
        Ok(())
    })
}

/// Returns a device's default stream, which is NULL for every device: CUDA's legacy default stream, which synchronizes
/// with all streams that cuStreamCreate created without CU_STREAM_NON_BLOCKING. As an argument, NULL stands for the
/// default stream of the device that the call is about. PLINTH_STREAM_DEFAULT_OF names the default stream of a device.
///
/// @param device The device number; -1 for the current device.
/// @param stream Out: the stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_default_stream(device: i32, stream: *mut plinth_stream_t) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let stream = unsafe { Output::new(stream, "stream") }?;
        stream.set(to_c(stream::default(device)?));
        Ok(())
    })
}

/// Makes a stream the calling thread's current stream on the stream's device, and makes that device current.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_stream(stream: plinth_stream_t) -> plinth_status_t {
    guard_short(|| stream::set(handle(stream)))
}

/// Makes a stream the calling thread's current stream on a device. The current device stays as it is. With the stream
/// that plinth_current_stream returned for the device, restores it.
///
/// @param device The device index; -1 for the current device.
/// @param stream The stream, of that device; NULL for the device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH for a
///         stream of another device; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_stream_of(device: i32, stream: plinth_stream_t) -> plinth_status_t {
    guard(|| stream::set_on(device, handle(stream)))
}

/// The state that plinth_stream_context_exit restores. Filled by plinth_stream_context_enter; do not modify it.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct plinth_stream_context_t {
    /// The device that was current.
    pub device: i32,
    /// The device of the entered stream.
    pub entered_device: i32,
    /// The stream that was current on `device`.
    pub stream: plinth_stream_t,
    /// The stream that was current on `entered_device`.
    pub entered_stream: plinth_stream_t,
}

impl From<SavedStreams> for plinth_stream_context_t {
    fn from(saved: SavedStreams) -> plinth_stream_context_t {
        plinth_stream_context_t {
            device: saved.device as i32,
            entered_device: saved.entered_device as i32,
            stream: to_c(saved.stream),
            entered_stream: to_c(saved.entered_stream),
        }
    }
}

impl TryFrom<&plinth_stream_context_t> for SavedStreams {
    type Error = Error;

    fn try_from(saved: &plinth_stream_context_t) -> Result<SavedStreams> {
        if saved.device < 0 || saved.entered_device < 0 {
            return Err(Error::new(
                Status::INVALID_DEVICE,
                "the saved context has no valid device; pass what plinth_stream_context_enter wrote",
            ));
        }
        Ok(SavedStreams {
            device: saved.device as u32,
            stream: handle(saved.stream),
            entered_device: saved.entered_device as u32,
            entered_stream: handle(saved.entered_stream),
        })
    }
}

/// Makes a stream and its device current, and saves the previous state: the beginning of torch's StreamContext. Contexts
/// can be nested; each must be exited by the thread that entered it.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param saved Out: the state for plinth_stream_context_exit.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `saved` is NULL; PLINTH_ERROR_INVALID_HANDLE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_context_enter(
    stream: plinth_stream_t,
    saved: *mut plinth_stream_context_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let output = unsafe { Output::new(saved, "saved") }?;
        output.set(stream::enter(handle(stream))?.into());
        Ok(())
    })
}

/// Restores what plinth_stream_context_enter saved: the current streams of both devices, and the current device.
///
/// @param saved The saved state.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE or PLINTH_ERROR_INVALID_HANDLE for
///         contents that plinth_stream_context_enter did not write; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_context_exit(saved: *const plinth_stream_context_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a struct that plinth_stream_context_enter filled.
        let saved = unsafe { saved.as_ref() }.ok_or_else(|| null("saved"))?;
        stream::exit(saved.try_into()?)
    })
}

/// Reports whether all work of a stream is complete.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param done Out: whether it is complete.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `done` is NULL; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_CAPTURE_FORBIDS while the stream captures; PLINTH_ERROR_ILLEGAL_ADDRESS,
///         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER if work failed; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_query(stream: plinth_stream_t, done: *mut bool) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let done = unsafe { Output::new(done, "done") }?;
        done.set(stream::query(handle(stream))?);
        Ok(())
    })
}

/// Waits until all work of a stream is complete.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the
///         wait; PLINTH_ERROR_CAPTURE_FORBIDS while the stream captures; PLINTH_ERROR_ILLEGAL_ADDRESS,
///         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER if work failed; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_synchronize(stream: plinth_stream_t) -> plinth_status_t {
    guard(|| stream::synchronize(handle(stream)))
}

/// Makes future work of a stream wait for the work that another stream holds now. The CPU does not wait. The streams
/// may be on different devices.
///
/// @param stream The stream that waits; NULL for the current device's default stream.
/// @param other The stream that is waited for; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_wait_stream(stream: plinth_stream_t, other: plinth_stream_t) -> plinth_status_t {
    guard(|| stream::wait_stream(handle(stream), handle(other)))
}

/// Returns the range of stream priorities of a device.
///
/// @param device The device number; -1 for the current device.
/// @param least Out: the least urgent priority, 0.
/// @param greatest Out: the most urgent priority, a negative number: -5 on an H200. torch exposes only the last four.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_priority_range(
    device: i32,
    least: *mut i32,
    greatest: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or valid pointers.
        let (least, greatest) = unsafe { (Output::new(least, "least")?, Output::new(greatest, "greatest")?) };
        let range = stream::priority_range(device)?;
        least.set(range.0);
        greatest.set(range.1);
        Ok(())
    })
}

/// Returns the priority of a stream.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param priority Out: the priority; lower numbers are more urgent. The default stream has priority 0.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `priority` is NULL; PLINTH_ERROR_INVALID_HANDLE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_priority(stream: plinth_stream_t, priority: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let priority = unsafe { Output::new(priority, "priority") }?;
        priority.set(stream::priority(handle(stream))?);
        Ok(())
    })
}

/// Returns the id that torch gives a stream (Stream.stream_id).
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param id Out: 0 for a default stream; index * 32 + (1 - priority) * 2 + 1 for a pool stream; the handle for an
///        external stream. Ids are unique only per device.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `id` is NULL; PLINTH_ERROR_INVALID_HANDLE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_id(stream: plinth_stream_t, id: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let id = unsafe { Output::new(id, "id") }?;
        id.set(stream::id(handle(stream))?);
        Ok(())
    })
}

/// Returns the device of a stream.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param device Out: the device number.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `device` is NULL; PLINTH_ERROR_INVALID_HANDLE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_device(stream: plinth_stream_t, device: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let device = unsafe { Output::new(device, "device") }?;
        device.set(stream::device(handle(stream))? as i32);
        Ok(())
    })
}

/// Reports whether a stream is capturing into a graph.
///
/// @param stream The stream; a default stream never captures.
/// @param capturing Out: whether it is capturing.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `capturing` is NULL; PLINTH_ERROR_INVALID_HANDLE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_is_capturing(stream: plinth_stream_t, capturing: *mut bool) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let capturing = unsafe { Output::new(capturing, "capturing") }?;
        capturing.set(stream::is_capturing(handle(stream))?);
        Ok(())
    })
}

/// Reports whether the calling thread's current stream is capturing into a graph. Creates no CUDA context. Without any
/// device it is not.
///
/// @param capturing Out: whether it is capturing.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_is_current_stream_capturing(capturing: *mut bool) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let capturing = unsafe { Output::new(capturing, "capturing") }?;
        capturing.set(stream::is_current_capturing()?);
        Ok(())
    })
}

/// A host function. It must not unwind or throw, and must not call CUDA, or a plinth function that calls CUDA.
#[allow(non_camel_case_types)]
pub type plinth_host_function_callback_t = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Enqueues a host function in a stream: it runs when the stream's earlier work is complete, and later work waits until
/// it returns. In a capture it becomes a node of the graph.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param function The function; called by a thread of the driver.
/// @param context Passed to the function; must stay valid until the function has run; in a capture, as long as the graph
///        may run.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the function is NULL; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_launch_host_function(
    stream: plinth_stream_t,
    function: plinth_host_function_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = function.ok_or_else(|| null("function"))?;
        // SAFETY: the caller promises that the function may be called with its context.
        let function = unsafe { HostFunction::new(function, context) };
        stream::launch_host_function(handle(stream), function)
    })
}

/// Keeps a stream busy for a number of the multiprocessor's clock cycles, with a kernel of one thread:
/// torch.cuda._sleep, for tests of ordering.
///
/// @param cycles The number of cycles: about 1.98e9 per second on an H200. The host device sleeps for the same time.
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sleep(cycles: u64, stream: plinth_stream_t) -> plinth_status_t {
    guard(|| kernel::sleep(cycles, handle(stream)))
}
