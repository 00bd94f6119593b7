//! The one place where the core's results become C's: every exported function makes its call inside one of these.
//!
//! An error leaves its status as the return value and its message with the thread; a panic becomes
//! `PLINTH_ERROR_PANIC`. Nothing unwinds into C, and nothing is printed.

use crate::{
    error::{Error, Result},
    ffi::status::{PLINTH_OK, plinth_status_t},
    ops::nvtx,
    runtime::thread,
    status::Status,
};
use std::{
    any::Any,
    cell::RefCell,
    ffi::{CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

thread_local! {
    /// The message of the thread's last failed call. [`last_message`] returns it only if the last call failed.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs the body of an exported function that returns a status.
#[inline]
pub fn guard(body: impl FnOnce() -> Result<()>) -> plinth_status_t {
    thread::begin_call();
    let own_call = if nvtx::observes_own_calls() { nvtx::begin_own_call(std::any::type_name_of_val(&body)) } else { 0 };
    let outcome = catch_unwind(AssertUnwindSafe(body));
    if own_call != 0 {
        nvtx::end_own_call(own_call);
    }
    match outcome {
        Ok(Ok(())) => {
            thread::end_call();
            PLINTH_OK
        }
        Ok(Err(error)) => failed(&error),
        Err(payload) => panicked(payload),
    }
}

/// Returns success for an exported function that has nothing to do, and therefore cannot fail or panic.
#[inline]
pub fn nothing_to_do() -> plinth_status_t {
    thread::succeed();
    PLINTH_OK
}

/// Runs the body of an exported function that returns a text owned by the library. Does not change the thread's last
/// error.
pub fn text(body: impl FnOnce() -> *const c_char) -> *const c_char {
    value(c"".as_ptr(), body)
}

/// Runs the body of an exported function that returns a value, or returns `fallback` after a panic. Does not change
/// the thread's last error unless the body panics.
pub fn value<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    // The panic hook must know that this panic is caught. Afterwards the state of the last call is restored.
    let outer = thread::enter();
    let outcome = catch_unwind(AssertUnwindSafe(body));
    thread::leave(outer);
    outcome.unwrap_or_else(|payload| {
        panicked(payload);
        fallback
    })
}

#[cold]
fn failed(error: &Error) -> plinth_status_t {
    remember(error.message(), error.driver_code());
    error.status().0
}

#[cold]
fn panicked(payload: Box<dyn Any + Send>) -> plinth_status_t {
    let reason = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "no reason given",
    };
    remember(&format!("a defect in plinth: {reason}"), 0);
    Status::PANIC.0
}

fn remember(message: &str, driver_code: u32) {
    thread::fail_call(driver_code);
    // A NUL would truncate the text in C. The library's messages have none, but a path in a message might.
    let message = CString::new(message.replace('\0', "\u{FFFD}")).unwrap_or_default();
    // While the thread exits, its message may be destroyed already; nothing can read it any more.
    let _ = MESSAGE.try_with(|slot| *slot.borrow_mut() = message);
}

/// Returns an error with `status`, and with the message and driver code of the thread's last call if that call failed;
/// otherwise with the message `otherwise`.
pub fn last_error(status: Status, otherwise: &str) -> Error {
    let Some(code) = thread::failure() else { return Error::new(status, otherwise) };
    let message = MESSAGE.try_with(|slot| slot.borrow().to_string_lossy().into_owned()).unwrap_or_default();
    Error::new(status, message).with_driver_code(code)
}

/// Returns the message of the thread's last call; empty after a success.
pub fn last_message() -> *const c_char {
    match thread::failure() {
        Some(_) => MESSAGE.try_with(|slot| slot.borrow().as_ptr()).unwrap_or(c"".as_ptr()),
        None => c"".as_ptr(),
    }
}

/// Returns the driver's error code of the thread's last call; 0 after a success.
pub fn last_driver_code() -> i32 {
    thread::failure().unwrap_or(0) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::process;
    use std::ffi::CStr;

    fn message() -> String {
        // SAFETY: the text is NUL-terminated and is copied before this thread's next call.
        unsafe { CStr::from_ptr(last_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn errors_are_remembered_until_a_success() {
        let status = guard(|| Err(Error::new(Status::INVALID_VALUE, "asked for 3 of 2")));
        assert_eq!((status, message().as_str()), (1, "asked for 3 of 2"));
        assert_eq!(guard(|| Ok(())), PLINTH_OK);
        assert_eq!((message().as_str(), last_driver_code()), ("", 0));
    }

    #[test]
    fn panics_become_a_status() {
        process::install_panic_hook();
        let index = message().len() + 5;
        let status = guard(|| {
            let empty: [i32; 0] = [];
            assert_eq!(empty[index], 1);
            Ok(())
        });
        assert_eq!(status, Status::PANIC.0);
        assert!(message().starts_with("a defect in plinth: index out of bounds"));
        assert_eq!(value(7, || panic!("a {}", "text")), 7);
        assert!(message().ends_with("a text"));
    }

    #[test]
    fn a_message_belongs_to_its_thread() {
        guard(|| Err(Error::new(Status::INVALID_VALUE, "mine")));
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
        assert_eq!(message(), "mine");
    }
}
