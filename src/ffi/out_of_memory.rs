//! Out-of-memory callbacks
//!
//! Callbacks that free memory when a request cannot be met, and observers that are called when a request fails.
//!
//! A callback is called in the thread that made the request, with no lock of the library held, and may call the
//! library. The callback and its context belong to the program. Both must stay valid until the callback is removed and
//! no request that may still call it is in progress.

use crate::{
    ffi::{guard::guard, null, status::plinth_status_t},
    memory::callbacks::{self, Callback},
};
use std::ffi::c_void;

/// Frees memory that the program can do without, when there is none for a request. It is called in the thread that asks,
/// with no lock of the library's held, and may call the library; it is not called again from within itself.
///
/// Its arguments are the device, the bytes that were asked for, and the context. It returns whether it freed anything: if
/// so, the request is tried again.
#[allow(non_camel_case_types)]
pub type plinth_free_memory_callback_t =
    Option<unsafe extern "C" fn(device: i32, size: usize, context: *mut c_void) -> bool>;

/// Hears of a request that fails for want of memory, just before the call returns: the device, the bytes that were asked
/// for, the device's total and free bytes, and the context. The rules of plinth_free_memory_callback_t hold.
#[allow(non_camel_case_types)]
pub type plinth_out_of_memory_observer_t = Option<
    unsafe extern "C" fn(device: i32, requested: usize, device_total: usize, device_free: usize, context: *mut c_void),
>;

fn call_free_memory(function: usize, context: usize, device: u32, size: u64) -> bool {
    // SAFETY: the address is that of a function of this type, which the caller of plinth_add_free_memory_callback gave and
    // promised to keep callable until it is removed; function pointers have the size of an address.
    unsafe {
        let function: unsafe extern "C" fn(i32, usize, *mut c_void) -> bool = std::mem::transmute(function);
        function(device as i32, size as usize, context as *mut c_void)
    }
}

fn call_observer(function: usize, context: usize, device: u32, size: u64, total: u64, free: u64) {
    // SAFETY: as above, by plinth_attach_out_of_memory_observer.
    unsafe {
        let function: unsafe extern "C" fn(i32, usize, usize, usize, *mut c_void) = std::mem::transmute(function);
        function(device as i32, size as usize, total as usize, free as usize, context as *mut c_void);
    }
}

/// Adds a callback that may free memory when there is none for a request, before the device is waited for and the request
/// fails. Callbacks are called in the order in which they were added. Thread-safe.
///
/// @param callback The callback, which stays callable, with the context, until it is removed and no request is under way
///        that may have met it.
/// @param context What it is called with; never looked into.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_add_free_memory_callback(
    callback: plinth_free_memory_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = callback.ok_or_else(|| null("callback"))? as usize;
        callbacks::add_free_memory(Callback { function, context: context as usize, call: call_free_memory });
        Ok(())
    })
}

/// Removes what plinth_add_free_memory_callback added, the last one of this callback and context. Thread-safe.
///
/// @param callback The callback.
/// @param context Its context.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_remove_free_memory_callback(
    callback: plinth_free_memory_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = callback.ok_or_else(|| null("callback"))? as usize;
        callbacks::remove_free_memory(function, context as usize)
    })
}

/// Adds an observer of requests that fail for want of memory. Thread-safe.
///
/// @param observer The observer, which stays callable, with the context, until it is detached and no request is under way
///        that may have met it.
/// @param context What it is called with; never looked into.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_attach_out_of_memory_observer(
    observer: plinth_out_of_memory_observer_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = observer.ok_or_else(|| null("observer"))? as usize;
        callbacks::attach_observer(Callback { function, context: context as usize, call: call_observer });
        Ok(())
    })
}

/// Removes what plinth_attach_out_of_memory_observer added, the last one of this observer and context. Thread-safe.
///
/// @param observer The observer.
/// @param context Its context.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_detach_out_of_memory_observer(
    observer: plinth_out_of_memory_observer_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = observer.ok_or_else(|| null("observer"))? as usize;
        callbacks::detach_observer(function, context as usize)
    })
}
