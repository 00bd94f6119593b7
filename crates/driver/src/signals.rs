//! The signals of threads that belong to the library: a program's handlers run in the program's threads only.

use std::{marker::PhantomData, mem, ptr};

/// The signals that instructions and system calls of a thread raise: if they are blocked, the kernel ends the process.
const OF_THREAD: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// Keeps the program's signals from the calling thread, and permanently from the threads that it creates meanwhile.
#[must_use = "the thread may receive signals again as soon as this is dropped"]
pub struct SignalsBlocked {
    before: libc::sigset_t,
    /// The signals belong to the thread.
    in_thread: PhantomData<*mut ()>,
}

/// Blocks the program's signals in the calling thread, except those that the thread raises itself.
pub fn block() -> SignalsBlocked {
    // SAFETY: a set of zeros is a valid value, and both sets outlive the calls.
    let before = unsafe {
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = mem::zeroed();
        libc::sigfillset(&mut set);
        for signal in OF_THREAD {
            libc::sigdelset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
        before
    };
    SignalsBlocked { before, in_thread: PhantomData }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is one that the system filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}
