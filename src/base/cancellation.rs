//! Cancellation of threads: `pthread_cancel` ends a thread at a cancellation point, such as a read, a write, a poll or a
//! sleep, by unwinding its stack. Such an unwinding must not pass through the library: it would leave locks held, and it
//! cannot leave a function that C calls. So nothing that may reach a cancellation point runs while it is enabled.

use std::{ffi::c_int, marker::PhantomData, ptr};

// The libc crate does not declare this function for Linux.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, previous: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc and musl.
const DISABLE: c_int = 1;

/// Keeps the calling thread from being cancelled. A cancellation that is requested meanwhile takes effect at the
/// thread's next cancellation point after this was dropped.
#[must_use = "the thread may be cancelled again as soon as this is dropped"]
#[derive(Debug)]
pub struct CancellationDisabled {
    previous: c_int,
    /// The state belongs to the thread.
    in_thread: PhantomData<*mut ()>,
}

/// Disables cancellation of the calling thread.
pub fn disable() -> CancellationDisabled {
    let mut previous = DISABLE;
    // SAFETY: the pointer is valid for a write. The call fails only for an unknown state.
    unsafe { pthread_setcancelstate(DISABLE, &mut previous) };
    CancellationDisabled { previous, in_thread: PhantomData }
}

impl Drop for CancellationDisabled {
    fn drop(&mut self) {
        // SAFETY: the state is one that the call above returned, and NULL means that the previous state is not wanted.
        unsafe { pthread_setcancelstate(self.previous, ptr::null_mut()) };
    }
}
