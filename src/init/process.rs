//! Process hooks: detection of exit and of forked children, and silence for panics that the library catches.

#![allow(unsafe_code)]

use crate::{
    base::{cancellation, log},
    collectives::communicator::watchdog,
    host, memory,
    ops::telemetry::sampler,
    runtime::{self, thread},
};
use std::{panic, sync::Once};

extern "C" fn on_exit() {
    // A forked child has nothing to end, and its parent's threads may have held any lock at the fork.
    if runtime::is_forked() {
        return;
    }
    let _uncancellable = cancellation::disable();
    memory::pinned::background::stop();
    memory::share::stop();
    sampler::stop();
    watchdog::stop();
    memory::trace::WRITER.stop_at_exit();
    memory::disable_arena_cache();
    log::disable();
    runtime::mark_exiting();
    host::leave();
}

unsafe extern "C" fn on_forked_child() {
    if runtime::mark_forked() {
        log::disable();
    }
}

/// Registers the handler for forks, once per process. This can fail if memory is exhausted; the library then works
/// without the clear errors in a forked child.
pub fn register_fork() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as the library, which is linked so that it is never unloaded. It only
        // stores to a few atomics in the child, which is allowed there.
        unsafe {
            libc::pthread_atfork(None, None, Some(on_forked_child));
        }
    });
}

/// Registers the handler for the exit of the process, once per process. It must be registered after those of the driver,
/// so that it runs before them. This can fail if memory is exhausted; the library then works without the clear errors
/// while the process exits.
pub fn register_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as the library, which is never unloaded. An exit handler may end a thread.
        unsafe {
            libc::atexit(on_exit);
        }
    });
}

/// Installs a panic hook before the process's own. It ignores panics in a call from C, which are caught and whose
/// message is kept, and forwards all others.
pub fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !thread::in_call() {
                previous(info);
            }
        }));
    });
}
