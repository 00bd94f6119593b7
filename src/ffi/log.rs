//! Log
//!
//! Messages for which no call has a status: warnings, where torch prints one; failures that no call returns, such as a
//! resource that the driver did not release; findings of the sanitizer; what the library decided. A callback of the
//! program receives them. The library itself prints nothing, and without a callback a message is not even formatted.
//!
//! ```c
//! static void print(int32_t level, const char *message, void *context) {
//!   fprintf(stderr, "%s: %s\n", level >= PLINTH_LOG_WARNING ? "warning" : "info", message);
//! }
//! plinth_set_log_callback(PLINTH_LOG_WARNING, print, NULL);
//! ```

use crate::{
    base::log::{Callback, Level},
    error::{Error, Result},
    ffi::{c_text, guard::guard, status::plinth_status_t},
    ops::nvtx,
    runtime::thread::call_program,
    status::Status,
};
use std::{
    ffi::{c_char, c_void},
    sync::Arc,
};

/// Details for finding an error in a program: each call that fails, with its message.
pub const PLINTH_LOG_DEBUG: i32 = 0;
/// What the library decided, such as the use of the host device because there is no GPU.
pub const PLINTH_LOG_INFO: i32 = 1;
/// A probable mistake of the program, or something that does not work as it was asked for, such as an empty capture, a
/// call that waits in the mode PLINTH_SYNC_DEBUG_WARN, or a setting without effect.
pub const PLINTH_LOG_WARNING: i32 = 2;
/// A failure that no call returns, a finding of the sanitizer, or a defect of the library.
pub const PLINTH_LOG_ERROR: i32 = 3;

/// Receives a message: its level, one of PLINTH_LOG_...; its text, which begins with the name of the call that it is
/// about, if there is one; and the context. The message is valid only during the call. It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_log_callback_t = Option<unsafe extern "C" fn(level: i32, message: *const c_char, context: *mut c_void)>;

/// Sets the callback for the messages of all threads. It replaces the previous one. Needs no device.
///
/// A thread calls it at the end of the plinth call in which the message was logged, without any lock of the library
/// held. Messages of the library's own threads wait for the end of the next plinth call of any thread. So the callback
/// runs only in threads that call plinth, possibly in several of them at once. It may call the library, also this
/// function; what those calls log is dropped. Nothing is logged any more once the process exits, and in a child that
/// was forked after the first use of a device.
///
/// When this returns, other threads may still be in the previous callback, or about to call it, so its context must
/// stay valid.
///
/// @param level The lowest level to receive: PLINTH_LOG_DEBUG, _INFO, _WARNING or _ERROR.
/// @param callback Called with each message of that level or a higher one; NULL for none.
/// @param context Passed to the callback, which may be called by several threads at once.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another level.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_log_callback(
    level: i32,
    callback: plinth_log_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let level = level_of(level)?;
        let context = context as usize;
        nvtx::set_log_callback(
            level,
            callback.map(|callback| -> Callback {
                Arc::new(move |level, message| {
                    let message = c_text(message);
                    // SAFETY: the caller of plinth_set_log_callback promises that the callback may be called with its
                    // context from any thread until another one is set, and later by calls in progress.
                    call_program(|| unsafe { callback(level as i32, message.as_ptr(), context as *mut c_void) });
                })
            }),
        );
        Ok(())
    })
}

fn level_of(level: i32) -> Result<Level> {
    match level {
        PLINTH_LOG_DEBUG => Ok(Level::Debug),
        PLINTH_LOG_INFO => Ok(Level::Info),
        PLINTH_LOG_WARNING => Ok(Level::Warning),
        PLINTH_LOG_ERROR => Ok(Level::Error),
        _ => Err(Error::new(
            Status::INVALID_VALUE,
            format!("{level} is not a level of the log; debug, info, warning and error are 0, 1, 2 and 3"),
        )),
    }
}
