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
    runtime::thread::call_program,
};
use std::ffi::c_void;

/// Frees memory that the program can spare, when a request cannot be satisfied. Called in the thread of the request,
/// without any lock of the library held. It may call the library; it is not called recursively.
///
/// Its arguments are the device, the number of bytes that were requested, and the context. It returns whether it freed
/// anything; if so, the request is retried. It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_free_memory_callback_t =
    Option<unsafe extern "C" fn(device: i32, size: usize, context: *mut c_void) -> bool>;

/// Observes a request that fails because memory ran out, just before the call returns. Its arguments are the device,
/// the number of bytes that were requested, the device's total and free bytes, and the context. The rules of
/// plinth_free_memory_callback_t apply. It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_out_of_memory_callback_t = Option<
    unsafe extern "C" fn(device: i32, requested: usize, device_total: usize, device_free: usize, context: *mut c_void),
>;

fn call_free_memory(function: usize, context: usize, device: u32, size: u64) -> bool {
    // SAFETY: the address is that of a function of this type. The caller of plinth_add_free_memory_callback passed it
    // and promised to keep it callable until it is removed; function pointers have the size of an address.
    unsafe {
        let function: unsafe extern "C" fn(i32, usize, *mut c_void) -> bool = std::mem::transmute(function);
        call_program(|| function(device as i32, size as usize, context as *mut c_void))
    }
}

fn call_observer(function: usize, context: usize, device: u32, size: u64, total: u64, free: u64) {
    // SAFETY: as above, for plinth_attach_out_of_memory_observer.
    unsafe {
        let function: unsafe extern "C" fn(i32, usize, usize, usize, *mut c_void) = std::mem::transmute(function);
        call_program(|| function(device as i32, size as usize, total as usize, free as usize, context as *mut c_void));
    }
}

/// Adds a callback that may free memory when a request cannot be satisfied, before the allocator waits for the device
/// and before the request fails. Callbacks are called in the order in which they were added.
///
/// @param callback The callback. It and the context must stay valid until it is removed and every request that may have
///        started before is complete.
/// @param context Passed to the callback; the library does not dereference it.
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

/// Removes a callback of plinth_add_free_memory_callback: the last one that was added with this function and context.
///
/// @param callback The callback.
/// @param context Its context.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is no such callback.
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

/// Attaches an observer of requests that fail because memory ran out.
///
/// @param observer The observer. It and the context must stay valid until it is detached and every request that may
///        have started before is complete.
/// @param context Passed to the observer; the library does not dereference it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_attach_out_of_memory_observer(
    observer: plinth_out_of_memory_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = observer.ok_or_else(|| null("observer"))? as usize;
        callbacks::attach_observer(Callback { function, context: context as usize, call: call_observer });
        Ok(())
    })
}

/// Detaches an observer of plinth_attach_out_of_memory_observer: the last one that was attached with this function and
/// context.
///
/// @param observer The observer.
/// @param context Its context.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is no such observer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_detach_out_of_memory_observer(
    observer: plinth_out_of_memory_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = observer.ok_or_else(|| null("observer"))? as usize;
        callbacks::detach_observer(function, context as usize)
    })
}
