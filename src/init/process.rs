//! Process hooks: detection of exit and of forked children, and silence for panics that the library catches.

#![allow(unsafe_code)]

use crate::{
    memory,
    runtime::{self, thread},
};
use std::{panic, sync::Once};

extern "C" fn on_exit() {
    memory::pinned::background::stop();
    memory::disable_arena_cache();
    runtime::mark_exiting();
}

unsafe extern "C" fn on_forked_child() {
    memory::disable_arena_cache();
    runtime::mark_forked();
}

/// Registers the handlers for exit and fork, once per process. Either registration can fail if memory is exhausted;
/// the library then works without the clear errors for these cases.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: both functions live as long as the library, which is linked so that it is never unloaded. The fork
        // handler only stores to a few atomics in the child, which is allowed there; an exit handler may also end a
        // thread.
        unsafe {
            libc::atexit(on_exit);
            libc::pthread_atfork(None, None, Some(on_forked_child));
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
