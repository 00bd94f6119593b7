//! What a call from C must do besides its own work. All of it is one word, so that a call that need not do any of it
//! pays for one load.

use std::sync::atomic::{AtomicU8, Ordering};

/// A profiler observes all calls.
pub const ANNOTATED: u8 = 1;
/// The stream sanitizer observes the call that a thread is in.
pub const NAMED: u8 = 2;
/// The log delivers its messages at the end of a call.
pub const LOGGED: u8 = 4;
/// The process is a forked child of one that had initialized the driver. Any thread of the parent may have held any
/// lock at the fork, so a call must end before it waits for one.
pub const FORKED: u8 = 8;

static FLAGS: AtomicU8 = AtomicU8::new(0);

/// Returns the flags. Whoever sees a flag of an observer sees the observer, too.
#[inline(always)]
pub fn get() -> u8 {
    FLAGS.load(Ordering::Acquire)
}

/// Sets or clears a flag.
pub fn set(flag: u8, on: bool) {
    if on {
        FLAGS.fetch_or(flag, Ordering::Release);
    } else {
        FLAGS.fetch_and(!flag, Ordering::Relaxed);
    }
}

/// Makes calls refuse to work, in a forked child. No observer is notified of such a call.
pub fn set_forked() {
    FLAGS.store(FORKED, Ordering::Release);
}
