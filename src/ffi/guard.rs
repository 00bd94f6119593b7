//! The one place where the core's results become C's: every exported function makes its call inside one of these.
//!
//! An error leaves its status as the return value and its message with the thread; a panic becomes
//! `PLINTH_ERROR_PANIC`. Nothing unwinds into C, and nothing is printed.
//!
//! In a forked child of a process that had initialized the driver, any thread of the parent may have held any lock at the
//! fork, and the driver must not be called. So [`guard`] refuses the call there, [`release`] succeeds and does nothing, and
//! only the bodies of the others run: they take no lock and make no driver call.
//!
//! A signal handler may make calls. One that interrupted another call of its thread is refused, because the interrupted
//! call may hold locks, and may be in the middle of a change. This holds for every call that may take a lock.
//!
//! A thread cannot be cancelled during a call. The calls of [`guard_short`] and [`release_short`] do not pay for that: the
//! functions in which they may block disable cancellation themselves.

use crate::{
    base::cancellation,
    error::{Error, Result},
    ffi::{
        c_text,
        status::{PLINTH_OK, plinth_status_t},
    },
    ops::nvtx,
    runtime::{
        self,
        call_flags::{self, FORKED},
        thread::{self, DroppedInCall},
    },
    status::Status,
    stream::capture_report,
};
use std::{
    any::Any,
    cell::RefCell,
    ffi::{CStr, CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

thread_local! {
    /// The message of the thread's last failed call. [`last_message`] returns it only if the last call failed.
    static MESSAGE: DroppedInCall<RefCell<CString>> = DroppedInCall::new(RefCell::default());
}

/// The message of a call of a signal handler that interrupted another call of its thread.
const INTERRUPTED: &CStr =
    c"making a call in a signal handler: the handler interrupted another call of its thread; make the call later, or \
      block the signal during calls";

/// What a call does in a forked child.
#[derive(Clone, Copy)]
enum InForkedChild {
    Fails,
    Succeeds,
    Works,
}

/// Runs the body of an exported function that returns a status. In a forked child the call fails with FORKED_CHILD.
pub fn guard(body: impl FnOnce() -> Result<()>) -> plinth_status_t {
    run(body, InForkedChild::Fails)
}

/// Does the same as [`guard`] for a body of some nanoseconds. Where the body may block, it must disable cancellation
/// itself: nowhere else may it reach a cancellation point.
#[inline(always)] // hot path
pub fn guard_short(body: impl FnOnce() -> Result<()>) -> plinth_status_t {
    run_short(body, InForkedChild::Fails)
}

/// Runs the body of an exported function that destroys an object or frees memory. In a forked child the call does nothing
/// and succeeds: destructors run there, and the operating system reclaims what the child has.
pub fn release(body: impl FnOnce() -> Result<()>) -> plinth_status_t {
    run(body, InForkedChild::Succeeds)
}

/// Does the same as [`release`] for a body of some nanoseconds; see [`guard_short`].
#[inline(always)] // hot path
pub fn release_short(body: impl FnOnce() -> Result<()>) -> plinth_status_t {
    run_short(body, InForkedChild::Succeeds)
}

/// Runs the body of an exported function that needs no device and works in a forked child, too.
pub fn convert(body: impl FnOnce() -> Result<()>) -> plinth_status_t {
    run(body, InForkedChild::Works)
}

/// Runs a body with cancellation disabled.
fn run<F: FnOnce() -> Result<()>>(body: F, in_forked_child: InForkedChild) -> plinth_status_t {
    let path = std::any::type_name::<F>();
    let mut body = Some(body);
    run_any(path, in_forked_child, &mut || body.take().map_or(Ok(()), |body| body()))
}

/// Does the work of [`run`], once for all bodies.
#[inline(never)]
fn run_any(
    path: &'static str,
    in_forked_child: InForkedChild,
    body: &mut dyn FnMut() -> Result<()>,
) -> plinth_status_t {
    let flags = call_flags::get();
    let forked = flags & FORKED != 0;
    match in_forked_child {
        InForkedChild::Fails if forked => return refuse(Status::FORKED_CHILD, runtime::FORKED_CHILD),
        InForkedChild::Succeeds if forked => return nothing_to_do(),
        _ => {}
    }
    if !thread::begin_call() {
        return refuse(Status::NOT_SUPPORTED, INTERRUPTED);
    }
    let _uncancellable = cancellation::disable();
    let own_call = if flags & !FORKED != 0 { Some(nvtx::begin_own_call(path)) } else { None };
    let mut outcome = caught(body);
    if !forked {
        outcome = outcome.map_err(|error| capture_report::explain(nvtx::function_name(path), error));
    }
    if let Some(own_call) = own_call {
        nvtx::end_own_call(own_call, outcome.as_ref().err());
    }
    finish(outcome)
}

/// What a call that is observed begins before its body and ends after it.
struct Observation {
    own_call: nvtx::OwnCall,
    _uncancellable: cancellation::CancellationDisabled,
}

/// Begins the observation of a call. It is on the heap, so that a call that nothing observes only has an empty pointer.
#[cold]
#[inline(never)]
fn observe(path: &'static str) -> Box<Observation> {
    let uncancellable = cancellation::disable();
    Box::new(Observation { own_call: nvtx::begin_own_call(path), _uncancellable: uncancellable })
}

#[cold]
#[inline(never)]
fn end_observation(observation: Observation, outcome: &Result<()>) {
    nvtx::end_own_call(observation.own_call, outcome.as_ref().err());
}

/// Runs a body that disables cancellation itself. The body occurs only once here, so the compiler makes it a part of the
/// exported function.
#[inline(always)] // hot path
fn run_short<F: FnOnce() -> Result<()>>(body: F, in_forked_child: InForkedChild) -> plinth_status_t {
    let flags = call_flags::get();
    if flags & FORKED != 0 {
        return run(|| Ok(()), in_forked_child);
    }
    if !thread::begin_call() {
        return refuse(Status::NOT_SUPPORTED, INTERRUPTED);
    }
    let path = std::any::type_name::<F>();
    let observation = if flags != 0 { Some(observe(path)) } else { None };
    let outcome = caught(body).map_err(|error| capture_report::explain(nvtx::function_name(path), error));
    if let Some(observation) = observation {
        end_observation(*observation, &outcome);
    }
    finish(outcome)
}

#[inline(always)]
fn caught(body: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(defect(payload)))
}

#[inline(always)]
fn finish(outcome: Result<()>) -> plinth_status_t {
    match outcome {
        Ok(()) => {
            thread::end_call();
            PLINTH_OK
        }
        Err(error) => failed(error),
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
    let value = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        failed(defect(payload));
        fallback
    });
    thread::leave(outer);
    value
}

/// Fails a call before its body runs. Allocates no memory and takes no lock.
#[cold]
fn refuse(status: Status, message: &'static CStr) -> plinth_status_t {
    thread::refuse_call(status, message);
    status.0
}

/// Ends a call that failed. The error is dropped before the call ends: a signal handler may interrupt the C library's
/// allocator there, and a call of it that is not refused may need the allocator, too.
#[cold]
fn failed(error: Error) -> plinth_status_t {
    let (status, driver_code, message) = (error.status(), error.driver_code(), c_text(error.message()));
    drop(error);
    // While the thread exits, its message may be destroyed already; nothing can read it any more.
    let _ = MESSAGE.try_with(|slot| slot.try_borrow_mut().map(|mut slot| *slot = message));
    thread::fail_call(status, driver_code);
    status.0
}

/// Returns the error for a panic.
#[cold]
fn defect(payload: Box<dyn Any + Send>) -> Error {
    let reason = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "no reason given",
    };
    Error::new(Status::PANIC, format!("a defect in plinth: {reason}"))
}

/// Calls a function of the program that returns a status, and converts a failure as [`body_error`] does. The message
/// of a call before the function cannot become part of its error.
pub fn call_back(what: &str, function: impl FnOnce() -> plinth_status_t) -> Result<()> {
    thread::succeed();
    match thread::call_program(function) {
        PLINTH_OK => Ok(()),
        status => Err(body_error(Status(status), what)),
    }
}

/// Converts the status with which a part of the program failed to an error. The error has the message and the driver's
/// code of the thread's last call only if that call failed with this status: otherwise they belong to another error,
/// and the message names `what` failed and the status.
pub fn body_error(status: Status, what: &str) -> Error {
    match thread::failure() {
        Some((failed, code)) if failed == status => {
            Error::new(status, failure_text(|text| text.to_string_lossy().into_owned())).with_driver_code(code)
        }
        _ => match status.info() {
            Some(info) => Error::new(status, format!("{what} failed with {}", info.name.trim_end_matches('\0'))),
            None => Error::new(status, format!("{what} failed with status {}", status.0)),
        },
    }
}

/// Reads the message of the thread's last call, which failed.
fn failure_text<T>(read: impl Fn(&CStr) -> T) -> T {
    match thread::refusal() {
        Some(message) => read(message),
        None => {
            // A signal handler may interrupt the call that writes the message.
            let text = MESSAGE.try_with(|slot| slot.try_borrow().ok().map(|text| read(&text)));
            text.ok().flatten().unwrap_or_else(|| read(c""))
        }
    }
}

/// Returns the message of the thread's last call; empty after a success.
pub fn last_message() -> *const c_char {
    match thread::failure() {
        Some(_) => failure_text(CStr::as_ptr),
        None => c"".as_ptr(),
    }
}

/// Returns the driver's error code of the thread's last call; 0 after a success.
pub fn last_driver_code() -> i32 {
    thread::failure().map_or(0, |(_, code)| code as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::process;

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
    fn a_message_belongs_to_the_call_that_failed() {
        let out_of_memory = || guard(|| Err(Error::new(Status::OUT_OF_MEMORY, "asked for 3 of 2")));
        out_of_memory();
        let error = body_error(Status::OUT_OF_MEMORY, "the block");
        assert_eq!(error.message(), "asked for 3 of 2");
        assert_eq!(
            body_error(Status::TIMED_OUT, "the block").message(),
            "the block failed with PLINTH_ERROR_TIMED_OUT"
        );
        assert_eq!(body_error(Status(-7), "the block").message(), "the block failed with status -7");
        // The function makes no call, so the failure before it is not its own.
        let message = |returned| call_back("the pass", || returned).unwrap_err().message().to_owned();
        assert_eq!(message(Status::OUT_OF_MEMORY.0), "the pass failed with PLINTH_ERROR_OUT_OF_MEMORY");
        assert_eq!(call_back("the pass", out_of_memory).unwrap_err().message(), "asked for 3 of 2");
    }

    #[test]
    fn a_message_belongs_to_its_thread() {
        guard(|| Err(Error::new(Status::INVALID_VALUE, "mine")));
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
        assert_eq!(message(), "mine");
    }
}
