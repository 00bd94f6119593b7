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
    ffi::{
        CUstream_st, Output,
        guard::{guard, release},
        handle, null, plinth_stream_t,
        status::plinth_status_t,
    },
    ops::green_context,
};
use std::ffi::c_void;

/// A green context: a part of a device's multiprocessors. The handle is opaque and checked: calls return
/// PLINTH_ERROR_INVALID_HANDLE for an invalid one.
#[allow(non_camel_case_types)]
pub struct plinth_green_context {
    _private: [u8; 0],
}

/// The handle of a green context.
#[allow(non_camel_case_types)]
pub type plinth_green_context_t = *mut plinth_green_context;

/// Creates a green context: a part of a device's multiprocessors.
///
/// Work in its streams runs on that part only. The parts of several green contexts may overlap, unless
/// plinth_green_context_split created them together. May be called while a stream captures.
///
/// @param num_sms The minimum number of multiprocessors, from 1 to the number that the device has. The driver rounds
///        it up, to a multiple of 8 for compute capability 9.0 and higher. plinth_green_context_num_sms returns the
///        result.
/// @param device The device index; -1 for the current device.
/// @param context Out: the green context. The caller owns it and destroys it with plinth_green_context_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for a number
///         of multiprocessors that the device does not have; PLINTH_ERROR_NOT_SUPPORTED if the driver is older than
///         CUDA 12.5 or the device cannot be divided; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_create(
    num_sms: i32,
    device: i32,
    context: *mut plinth_green_context_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let context = unsafe { Output::new(context, "context") }?;
        context.set(green_context::create(num_sms, device)? as plinth_green_context_t);
        Ok(())
    })
}

/// Divides a device's multiprocessors into green contexts that do not overlap.
///
/// For example, prefill and decode of an inference server run beside each other on one device. May be called while a stream
/// captures.
///
/// @param num_sms The minimum number of multiprocessors of each, rounded up as by plinth_green_context_create.
/// @param count The number of green contexts, at least 1.
/// @param device The device index; -1 for the current device.
/// @param contexts Out: `count` green contexts. The caller owns each and destroys it with plinth_green_context_destroy.
/// @param rest Out: a green context of the multiprocessors that are left; NULL if they are fewer than the driver's smallest
///        partition. The caller owns it. Pass NULL to leave them unused.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for a number of
///         multiprocessors that the device does not have, and for more green contexts than fit;
///         PLINTH_ERROR_NOT_SUPPORTED, PLINTH_ERROR_OUT_OF_MEMORY, PLINTH_ERROR_DRIVER as for
///         plinth_green_context_create; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_split(
    num_sms: i32,
    count: usize,
    device: i32,
    contexts: *mut plinth_green_context_t,
    rest: *mut plinth_green_context_t,
) -> plinth_status_t {
    guard(|| {
        if contexts.is_null() {
            return Err(null("contexts"));
        }
        let (made, left) = green_context::split(num_sms, count, device, !rest.is_null())?;
        for (index, handle) in made.into_iter().enumerate() {
            // SAFETY: the caller passes room for `count` green contexts, and as many were made.
            unsafe { contexts.add(index).write(handle as plinth_green_context_t) };
        }
        if !rest.is_null() {
            // SAFETY: it is not NULL, so the caller passes a pointer that is valid for writes.
            unsafe { rest.write(left.unwrap_or(0) as plinth_green_context_t) };
        }
        Ok(())
    })
}

/// Destroys a green context.
///
/// Work in its streams still runs. The streams stay valid: the library keeps them and reuses them for the next green
/// context of this size on the device, or for the next such split when all green contexts of this one are destroyed.
///
/// @param context The green context; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE while the green context is set in a
///         thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_destroy(context: plinth_green_context_t) -> plinth_status_t {
    release(|| if context.is_null() { Ok(()) } else { green_context::destroy(handle(context, "context")?) })
}

/// Enters a green context in the calling thread.
///
/// A stream of the green context becomes the thread's current stream on its device, and waits for the stream that was
/// current there. The device becomes current. Calls nest. Calls that name a stream explicitly are not affected; a
/// NULL stream still means the device's default stream. The driver's current context does not change.
///
/// If the stream that was current captures, the green context's stream joins the capture.
///
/// @param context The green context.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS if the
///         stream that was current captures and the green context's stream belongs to another capture;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_set_context(context: plinth_green_context_t) -> plinth_status_t {
    guard(|| green_context::set_context(handle(context, "context")?))
}

/// Undoes the thread's last plinth_green_context_set_context.
///
/// The stream that was current before waits for the stream that is current now on the green context's device. The
/// previous stream and the previous device become current again; if the stream was destroyed meanwhile, the default
/// stream becomes current.
///
/// @param context The green context, which must be the one that the thread set last.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
///         green context; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_pop_context(context: plinth_green_context_t) -> plinth_status_t {
    guard(|| green_context::pop_context(handle(context, "context")?))
}

/// Gets a stream of a green context. The stream does not wait for the default stream.
///
/// A green context has 32 streams, which are created when first needed, returned in round-robin order, and never
/// destroyed: the 33rd call returns the first stream again. Every function with a stream parameter accepts them.
///
/// @param context The green context.
/// @param stream Out: the stream, which CUDA and its libraries accept as well. It belongs to the library.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_stream(
    context: plinth_green_context_t,
    stream: *mut plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let stream = unsafe { Output::new(stream, "stream") }?;
        stream.set(green_context::stream(handle(context, "context")?)? as *mut CUstream_st);
        Ok(())
    })
}

/// Gets the number of multiprocessors of a green context.
///
/// @param context The green context.
/// @param num_sms Out: the number of multiprocessors.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_num_sms(
    context: plinth_green_context_t,
    num_sms: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let num_sms = unsafe { Output::new(num_sms, "num_sms") }?;
        num_sms.set(green_context::partition(handle(context, "context")?)?.count as i32);
        Ok(())
    })
}

/// Gets the device of a green context.
///
/// @param context The green context.
/// @param device Out: the device index.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_device(
    context: plinth_green_context_t,
    device: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let device = unsafe { Output::new(device, "device") }?;
        device.set(green_context::partition(handle(context, "context")?)?.device as i32);
        Ok(())
    })
}

/// Gets the driver's green context, for direct driver calls. It belongs to the library.
///
/// @param context The green context.
/// @param native Out: the CUgreenCtx. May be NULL.
/// @param as_context Out: the CUcontext that cuCtxFromGreenCtx returns for it. cuCtxSetCurrent accepts it, in one
///        thread at a time. May be NULL.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_green_context_native(
    context: plinth_green_context_t,
    native: *mut *mut c_void,
    as_context: *mut *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let partition = green_context::partition(handle(context, "context")?)?;
        for (place, value) in [(native, partition.native.handle()), (as_context, partition.context.handle())] {
            if !place.is_null() {
                // SAFETY: it is not NULL, so the caller passes a pointer that is valid for writes.
                unsafe { place.write(value as *mut c_void) };
            }
        }
        Ok(())
    })
}
