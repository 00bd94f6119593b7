//! Green contexts
//!
//! A green context is a part of a device's multiprocessors: torch.cuda.GreenContext. Work in its streams runs on that
//! part only.
//!
//! The caller owns a green context and destroys it. Its streams and the driver's handle belong to the library, and the
//! streams stay valid after the green context is destroyed.
//!
//! plinth_green_context_set_context and plinth_green_context_pop_context change the calling thread's current stream.
//! They nest, and a thread undoes its own calls only.

use crate::{
    error::Result,
    ffi::{CUstream_st, Output, guard::guard, null, plinth_stream_t, status::plinth_status_t},
    green_context,
};
use std::ffi::c_void;

/// A green context: a part of a device's multiprocessors. Opaque, and checked.
#[allow(non_camel_case_types)]
pub struct plinth_green_context {
    _private: [u8; 0],
}

/// The handle of a green context.
#[allow(non_camel_case_types)]
pub type plinth_green_context_t = *mut plinth_green_context;

fn handle(context: plinth_green_context_t) -> Result<u64> {
    if context.is_null() { Err(null("context")) } else { Ok(context as u64) }
}

/// Makes a green context: a part of a device's multiprocessors. What comes into its streams runs on the part alone.
/// Parts of several green contexts may overlap. Thread-safe; may be called while a stream captures.
///
/// @param num_sms How many multiprocessors it is to have at least, from 1 to as many as the device has. The driver
///        rounds up, to a multiple of 8 from compute capability 9.0 on; plinth_green_context_num_sms tells what came of
///        it.
/// @param device The device's number; -1 for the current one.
/// @param context Out: the green context. The caller owns it and destroys it with plinth_green_context_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for a number
///         of multiprocessors that the device does not have; PLINTH_ERROR_NOT_SUPPORTED where the driver is older than
///         CUDA 12.5 or the device cannot be divided; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_create(
    num_sms: i32,
    device: i32,
    context: *mut plinth_green_context_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the green context.
        let context = unsafe { Output::new(context, "context") }?;
        context.set(green_context::create(num_sms, device)? as plinth_green_context_t);
        Ok(())
    })
}

/// Destroys a green context. What is in its streams still runs, and the streams stay streams: the library keeps them,
/// and gives them to who next makes a green context of this size on the device. Thread-safe.
///
/// @param context The green context; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE while a thread has it set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_destroy(context: plinth_green_context_t) -> plinth_status_t {
    guard(|| if context.is_null() { Ok(()) } else { green_context::destroy(handle(context)?) })
}

/// Lets the calling thread work on the green context: a stream of it becomes the thread's current stream on its device,
/// after that waits for the stream that was current there, and the device becomes current. Calls nest. What names a
/// stream of its own, and NULL names the device's default stream, is not moved; nor is the driver's current context
/// changed.
///
/// In a capture of the stream that was current, the green context's stream becomes part of the capture.
///
/// @param context The green context.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS where the
///         stream that was current captures, and the green context's does for somebody else; PLINTH_ERROR_DRIVER; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_set_context(context: plinth_green_context_t) -> plinth_status_t {
    guard(|| green_context::set_context(handle(context)?))
}

/// Undoes the thread's last plinth_green_context_set_context: the stream that was current waits for the one that is
/// current now on the green context's device, and is current again, and so is the device that was.
///
/// @param context The green context, which must be the one that the thread has set last.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
///         green context; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_pop_context(context: plinth_green_context_t) -> plinth_status_t {
    guard(|| green_context::pop_context(handle(context)?))
}

/// Hands out a stream of the green context, which does not wait for the default stream. There are 32, made as they are
/// first needed, handed out in turn, and never destroyed: the 33rd call gives the first stream again. Every call that
/// takes a stream takes them. Thread-safe.
///
/// @param context The green context.
/// @param stream Out: the stream, which CUDA and its libraries take as it is. It belongs to the library.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_stream(
    context: plinth_green_context_t,
    stream: *mut plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the stream.
        let stream = unsafe { Output::new(stream, "stream") }?;
        stream.set(green_context::stream(handle(context)?)? as *mut CUstream_st);
        Ok(())
    })
}

/// Tells how many multiprocessors a green context has. Thread-safe.
///
/// @param context The green context.
/// @param num_sms Out: how many.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_num_sms(
    context: plinth_green_context_t,
    num_sms: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let num_sms = unsafe { Output::new(num_sms, "num_sms") }?;
        num_sms.set(green_context::part(handle(context)?)?.count as i32);
        Ok(())
    })
}

/// Tells the device of a green context. Thread-safe.
///
/// @param context The green context.
/// @param device Out: the device's number.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_device(
    context: plinth_green_context_t,
    device: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let device = unsafe { Output::new(device, "device") }?;
        device.set(green_context::part(handle(context)?)?.device as i32);
        Ok(())
    })
}

/// Gives the driver's own green context, for programs that call the driver themselves. It belongs to the library.
/// Thread-safe.
///
/// @param context The green context.
/// @param native Out: the CUgreenCtx; NULL if nobody wants it.
/// @param as_context Out: the CUcontext that cuCtxFromGreenCtx makes of it, which cuCtxSetCurrent takes, in one thread
///        at a time; NULL if nobody wants it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_native(
    context: plinth_green_context_t,
    native: *mut *mut c_void,
    as_context: *mut *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let part = green_context::part(handle(context)?)?;
        for (place, value) in [(native, part.native.handle()), (as_context, part.context.handle())] {
            if !place.is_null() {
                // SAFETY: it is not NULL, so the caller passes a place for the pointer.
                unsafe { place.write(value as *mut c_void) };
            }
        }
        Ok(())
    })
}
