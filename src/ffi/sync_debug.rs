//! Sync debug mode
//!
//! Finds calls that make the CPU wait for a device, as torch.cuda.set_sync_debug_mode does. The mode, the callback and
//! the count of warnings hold for the whole process. The callback is called by the thread whose call waits, possibly by
//! several threads at once.

use crate::{
    error::Error,
    ffi::{Output, guard::guard, status::plinth_status_t},
    runtime::{
        sync_debug::{self, Mode},
        thread::call_program,
    },
    status::Status,
};
use std::ffi::{CString, c_char, c_void};

/// Calls wait for the device without notice. The initial mode.
pub const PLINTH_SYNC_DEBUG_DEFAULT: i32 = 0;
/// The callback of plinth_set_sync_debug_callback is called for each call that waits, and the call is counted.
pub const PLINTH_SYNC_DEBUG_WARN: i32 = 1;
/// Each call that would wait fails with PLINTH_ERROR_WOULD_SYNCHRONIZE before it waits, and without an effect.
pub const PLINTH_SYNC_DEBUG_ERROR: i32 = 2;

/// Receives a warning and the context. The message is valid only during the call. It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_sync_debug_callback_t = Option<unsafe extern "C" fn(message: *const c_char, context: *mut c_void)>;

/// Sets, for all threads, what happens when a call of the library makes the CPU wait for the device.
///
/// Some calls always wait: plinth_synchronize, plinth_stream_synchronize, plinth_event_synchronize, blocking copies and
/// copies with pageable host memory, plinth_device_free, plinth_pinned_free, plinth_managed_free and
/// plinth_host_unregister. Others wait at times: an allocation for which memory is short waits for work that uses freed
/// memory; without caching each free waits; plinth_empty_cache waits up to a millisecond for work that is about to
/// complete. All are reported, by the name of the call or of the driver's. A call is reported once.
///
/// In the error mode an allocation that would have to wait fails with PLINTH_ERROR_WOULD_SYNCHRONIZE,
/// plinth_empty_cache keeps memory that running work uses, and a call waits all the same where memory would otherwise
/// be reused too early: a free of a graph's memory for a stream that is capturing, and the destruction of a
/// communicator. Needs no device.
///
/// @param mode PLINTH_SYNC_DEBUG_DEFAULT, _WARN or _ERROR.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_sync_debug_mode(mode: i32) -> plinth_status_t {
    guard(|| {
        sync_debug::set_mode(match mode {
            PLINTH_SYNC_DEBUG_DEFAULT => Mode::Default,
            PLINTH_SYNC_DEBUG_WARN => Mode::Warn,
            PLINTH_SYNC_DEBUG_ERROR => Mode::Error,
            _ => {
                return Err(Error::new(
                    Status::INVALID_VALUE,
                    format!("{mode} is not a sync debug mode; default, warn and error are 0, 1 and 2"),
                ));
            }
        });
        Ok(())
    })
}

/// Returns the sync debug mode. Needs no device.
///
/// @param mode Out: the mode.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_sync_debug_mode(mode: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let mode = unsafe { Output::new(mode, "mode") }?;
        mode.set(sync_debug::mode() as i32);
        Ok(())
    })
}

/// Sets the callback for warnings in the mode PLINTH_SYNC_DEBUG_WARN, for all threads. Without a callback, warnings are
/// only counted: the library prints nothing. Needs no device.
///
/// @param callback Called with the message, by the thread whose call waits, before it waits; NULL for none. It must not
///        unwind or throw.
/// @param context Passed to the callback, which may be called by several threads at once.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_sync_debug_callback(
    callback: plinth_sync_debug_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let context = context as usize;
        sync_debug::set_callback(callback.map(|callback| -> sync_debug::Callback {
            Box::new(move |sentence| {
                let sentence = CString::new(sentence).unwrap_or_default();
                // SAFETY: the caller of plinth_set_sync_debug_callback promises that the callback may be called with
                // its context from any thread until another one is set.
                call_program(|| unsafe { callback(sentence.as_ptr(), context as *mut c_void) });
            })
        }));
        Ok(())
    })
}

/// Returns the number of warnings since the process started, with or without a callback. Needs no device.
///
/// @param count Out: the count.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_sync_debug_warnings(count: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let count = unsafe { Output::new(count, "count") }?;
        count.set(sync_debug::warnings());
        Ok(())
    })
}
