//! What a library must arrange with its process: to know that exit has begun, that it woke up in a fork's child, and
//! that a panic it will catch must not print.

#![allow(unsafe_code)]

use crate::runtime;
use std::{cell::Cell, panic, sync::Once};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

extern "C" fn exiting() {
    runtime::mark_exiting();
}

unsafe extern "C" fn forked() {
    runtime::mark_forked();
}

/// Registers for exit and fork, once a process. Either registration can fail for want of memory; the library then
/// works as before, without the clear error that it would have given.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: both functions live as long as the library, which is linked not to be unloaded; each makes one
        // store to an atomic, which is allowed in an exit handler and in the child of a fork.
        unsafe {
            libc::atexit(exiting);
            libc::pthread_atfork(None, None, Some(forked));
        }
    });
}

/// Runs `body` with panics kept silent: whoever calls this turns them into an error that carries their message.
#[inline]
pub fn silently<T>(body: impl FnOnce() -> T) -> T {
    let outer = GUARDED.replace(true);
    let value = body();
    GUARDED.set(outer);
    value
}

/// Ends the silence after a panic has skipped the end of [`silently`].
pub fn speak() {
    GUARDED.set(false);
}

/// Puts a hook before the process's panic hook that drops what [`silently`] covers and passes on everything else.
pub fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !GUARDED.try_with(Cell::get).unwrap_or(false) {
                previous(info);
            }
        }));
    });
}
