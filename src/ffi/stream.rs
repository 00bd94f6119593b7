//! Streams, as C sees them.

use crate::{
    driver::{self, HostFunction},
    error::{Error, Result},
    ffi::{CUstream_st, Output, guard::guard, null, plinth_stream_t, status::plinth_status_t},
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

/// Hands out a stream of a device's pool. The stream does not wait for the default stream.
///
/// Each priority of each device has a pool of 32 streams, made as they are first needed, handed out in turn, and never
/// destroyed: the 33rd call gives the first stream again. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param priority The priority; lower numbers go first. One out of range becomes the nearest in it; see
///        plinth_stream_priority_range.
/// @param stream Out: the stream, which CUDA and its libraries take as it is. It belongs to the library.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_create(
    device: i32,
    priority: i32,
    stream: *mut plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the stream.
        let stream = unsafe { Output::new(stream, "stream") }?;
        stream.set(to_c(stream::create(device, priority)?));
        Ok(())
    })
}

/// Makes a stream known that somebody else made, with CUDA or another library, so that plinth's calls take it.
///
/// The stream stays its maker's, who keeps it alive while it is used here. It may be made known again, also for
/// another device once it was destroyed and its address came back. Thread-safe.
///
/// @param native A live CUstream or cudaStream_t; a value that never was a stream is the caller's error, which the
///        CUDA driver does not survive. NULL, 1 and 2, CUDA's default streams, need not be made known.
/// @param device The number of the stream's device; -1 for the current one.
/// @param stream Out: the same handle.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL output; PLINTH_ERROR_INVALID_DEVICE;
///         PLINTH_ERROR_DEVICE_MISMATCH if the stream is on another device; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_OUT_OF_MEMORY after some millions of streams; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_from_external(
    native: *mut c_void,
    device: i32,
    stream: *mut plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the stream.
        let output = unsafe { Output::new(stream, "stream") }?;
        // SAFETY: the caller promises a live stream or one of the special handles.
        let native = unsafe { driver::Stream::from_handle(native as usize) };
        output.set(to_c(stream::from_external(native, device)?));
        Ok(())
    })
}

/// Tells the calling thread's current stream on a device: the default stream until it is set.
///
/// @param device The device's number; -1 for the current one.
/// @param stream Out: the stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_current_stream(device: i32, stream: *mut plinth_stream_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the stream.
        let stream = unsafe { Output::new(stream, "stream") }?;
        stream.set(to_c(stream::current(device)?));
        Ok(())
    })
}

/// Tells a device's default stream, which is NULL for every device: CUDA's legacy default stream, which waits for the
/// streams that cuStreamCreate made without CU_STREAM_NON_BLOCKING, and they for it. As an argument, NULL is the
/// default stream of the device that is current at that moment.
///
/// @param device The device's number; -1 for the current one.
/// @param stream Out: the stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_default_stream(device: i32, stream: *mut plinth_stream_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the stream.
        let stream = unsafe { Output::new(stream, "stream") }?;
        stream.set(to_c(stream::default(device)?));
        Ok(())
    })
}

/// Makes a stream the calling thread's current one on the stream's device, and makes that device current.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_stream(stream: plinth_stream_t) -> plinth_status_t {
    guard(|| stream::set(handle(stream)))
}

/// What plinth_stream_context_exit must put back. Filled by plinth_stream_context_enter, and not to be changed.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct plinth_stream_context_t {
    /// The device that was current.
    pub device: i32,
    /// The device of the stream that was entered.
    pub entered_device: i32,
    /// The stream that was current on the device that was current.
    pub stream: plinth_stream_t,
    /// The stream that was current on the device of the stream that was entered.
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
            return Err(Error::new(Status::INVALID_DEVICE, "the saved context names no device"));
        }
        Ok(SavedStreams {
            device: saved.device as u32,
            stream: handle(saved.stream),
            entered_device: saved.entered_device as u32,
            entered_stream: handle(saved.entered_stream),
        })
    }
}

/// Makes a stream and its device current and saves what was: the beginning of torch's StreamContext. Contexts nest;
/// each is left by the thread that entered it.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param saved Out: what plinth_stream_context_exit needs.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL saved; PLINTH_ERROR_INVALID_HANDLE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_context_enter(
    stream: plinth_stream_t,
    saved: *mut plinth_stream_context_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for what is saved.
        let output = unsafe { Output::new(saved, "saved") }?;
        output.set(stream::enter(handle(stream))?.into());
        Ok(())
    })
}

/// Puts back what plinth_stream_context_enter saved: the streams of both devices, and the current device.
///
/// @param saved What was saved.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE or PLINTH_ERROR_INVALID_HANDLE for
///         contents that plinth_stream_context_enter did not write; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_context_exit(saved: *const plinth_stream_context_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or what plinth_stream_context_enter filled.
        let saved = unsafe { saved.as_ref() }.ok_or_else(|| null("saved"))?;
        stream::exit(saved.try_into()?)
    })
}

/// Tells whether all work of a stream is done. Thread-safe.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param done Out: whether it is.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL done; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_CAPTURE_FORBIDS while it captures; PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or
///         PLINTH_ERROR_DRIVER for failed work; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_query(stream: plinth_stream_t, done: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
        let done = unsafe { Output::new(done, "done") }?;
        done.set(stream::query(handle(stream))?);
        Ok(())
    })
}

/// Waits until all work of a stream is done. Thread-safe.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode;
///         PLINTH_ERROR_CAPTURE_FORBIDS while it captures; PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or
///         PLINTH_ERROR_DRIVER for failed work; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_synchronize(stream: plinth_stream_t) -> plinth_status_t {
    guard(|| stream::synchronize(handle(stream)))
}

/// Lets the work that a stream is given from now on wait for the work that another has now. The CPU does not wait, and
/// the streams may be on different devices. Thread-safe.
///
/// @param stream The stream that waits; NULL for the current device's default stream.
/// @param other The stream that is waited for; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_wait_stream(stream: plinth_stream_t, other: plinth_stream_t) -> plinth_status_t {
    guard(|| stream::wait_stream(handle(stream), handle(other)))
}

/// Tells the range of stream priorities of a device. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param least Out: the priority that goes last, 0.
/// @param greatest Out: the priority that goes first, a negative number: -5 on an H200. torch shows the last four of
///        them only.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_priority_range(
    device: i32,
    least: *mut i32,
    greatest: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or places for the numbers.
        let (least, greatest) = unsafe { (Output::new(least, "least")?, Output::new(greatest, "greatest")?) };
        let range = stream::priority_range(device)?;
        least.set(range.0);
        greatest.set(range.1);
        Ok(())
    })
}

/// Tells the priority of a stream. Thread-safe.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param priority Out: the priority; lower numbers go first, and a default stream has 0.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL priority; PLINTH_ERROR_INVALID_HANDLE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_priority(stream: plinth_stream_t, priority: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the priority.
        let priority = unsafe { Output::new(priority, "priority") }?;
        priority.set(stream::priority(handle(stream))?);
        Ok(())
    })
}

/// Tells the number that torch gives a stream (Stream.stream_id). Thread-safe.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param id Out: 0 for a default stream; for a stream of a pool, index * 32 + (1 - priority) * 2 + 1; for an external
///        stream its handle. A number says which stream of its device it is, not which device.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL id; PLINTH_ERROR_INVALID_HANDLE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_id(stream: plinth_stream_t, id: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let id = unsafe { Output::new(id, "id") }?;
        id.set(stream::id(handle(stream))?);
        Ok(())
    })
}

/// Tells the device of a stream. Thread-safe.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param device Out: the device's number.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL device; PLINTH_ERROR_INVALID_HANDLE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_device(stream: plinth_stream_t, device: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let device = unsafe { Output::new(device, "device") }?;
        device.set(stream::device(handle(stream))? as i32);
        Ok(())
    })
}

/// Tells whether a stream is capturing into a graph. Thread-safe.
///
/// @param stream The stream; a default stream never captures.
/// @param capturing Out: whether it is.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL capturing; PLINTH_ERROR_INVALID_HANDLE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_is_capturing(stream: plinth_stream_t, capturing: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
        let capturing = unsafe { Output::new(capturing, "capturing") }?;
        capturing.set(stream::is_capturing(handle(stream))?);
        Ok(())
    })
}

/// Tells whether the calling thread's current stream is capturing into a graph. Makes no context.
///
/// @param capturing Out: whether it is.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_is_current_stream_capturing(capturing: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
        let capturing = unsafe { Output::new(capturing, "capturing") }?;
        capturing.set(stream::is_current_capturing()?);
        Ok(())
    })
}

/// A function that a stream calls. It must not unwind or throw, nor call CUDA or a function of plinth that does.
#[allow(non_camel_case_types)]
pub type plinth_host_function_t = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Lets a stream call a function on the CPU once its earlier work is done; its later work waits for the function to
/// return. In a capture, the function becomes a node of the graph. Thread-safe.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param function The function; called by a thread of the driver's.
/// @param context Passed to the function; the caller keeps it alive until then.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL function; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_launch_host_function(
    stream: plinth_stream_t,
    function: plinth_host_function_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = function.ok_or_else(|| null("function"))?;
        // SAFETY: the caller promises that the function may be called with its context.
        let function = unsafe { HostFunction::new(function, context) };
        stream::launch_host_function(handle(stream), function)
    })
}

/// Keeps a stream busy, with one thread of a kernel, for a number of the multiprocessor's clock cycles: torch's
/// `torch.cuda._sleep`, for tests of order. Thread-safe.
///
/// @param cycles The cycles: some 1.98e9 a second on an H200. The host device sleeps as long.
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sleep(cycles: u64, stream: plinth_stream_t) -> plinth_status_t {
    guard(|| kernel::sleep(cycles, handle(stream)))
}
