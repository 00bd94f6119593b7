//! Changing the current device for a block of code
//!
//! torch's `device` and `device_of` contexts, as pairs of calls: the first call changes the current device and returns
//! the previous one, and the second call restores it. Both calls of a pair must be made by the same thread.

use crate::{
    ffi::{
        Output,
        guard::{guard, guard_short},
        status::plinth_status_t,
    },
    memory,
    runtime::device,
};
use std::ffi::c_void;

/// Sets the current device and returns the previous one: the start of torch's `device` context. Call
/// plinth_maybe_exchange_device(previous, ...) at its end.
///
/// @param device The device index; a negative one changes nothing.
/// @param previous Out: the device that was current; -1 if nothing was changed.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_exchange_device(device: i32, previous: *mut i32) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let previous = unsafe { Output::new(previous, "previous") }?;
        previous.set(device::exchange(device)?);
        Ok(())
    })
}

/// Does the same as plinth_exchange_device, but never creates a context. A device without a context becomes current
/// for plinth at once, and for CUDA when it is first used.
///
/// @param device The device index; a negative one changes nothing.
/// @param previous Out: the device that was current; -1 if nothing was changed.
/// @return As plinth_exchange_device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_maybe_exchange_device(device: i32, previous: *mut i32) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let previous = unsafe { Output::new(previous, "previous") }?;
        previous.set(device::maybe_exchange(device)?);
        Ok(())
    })
}

/// Makes the device current to whose memory a pointer belongs, and returns the previous device: the start of torch's
/// `device_of` context. Call plinth_maybe_exchange_device(previous, ...) at its end.
///
/// @param pointer An address. If it is not in a device's memory, or there is no device, nothing changes.
/// @param previous Out: the device that was current; -1 if nothing was changed.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL previous; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_exchange_device_of(pointer: *const c_void, previous: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let previous = unsafe { Output::new(previous, "previous") }?;
        let owner = memory::device_of(pointer as u64)?;
        previous.set(device::exchange(owner.map_or(-1, |device| device as i32))?);
        Ok(())
    })
}
