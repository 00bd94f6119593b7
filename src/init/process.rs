//! What a library must arrange with its process: to know that exit has begun, that it woke up in a fork's child, and
//! that a panic it will catch must not print.

#![allow(unsafe_code)]

use crate::{
    memory,
    runtime::{self, thread},
};
use std::{panic, sync::Once};

extern "C" fn exiting() {
    memory::pinned::background::stop();
    memory::disable_arena_cache();
    runtime::mark_exiting();
}

unsafe extern "C" fn forked() {
    memory::disable_arena_cache();
    runtime::mark_forked();
}

/// Registers for exit and fork, once a process. Either registration can fail for want of memory; the library then
/// works as before, without the clear error that it would have given.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: both functions live as long as the library, which is linked not to be unloaded. In the child of a fork
        // there are a few stores to atomics, which is allowed there; an exit handler may also end a thread.
        unsafe {
            libc::atexit(exiting);
            libc::pthread_atfork(None, None, Some(forked));
        }
    });
}

/// Puts a hook before the process's panic hook that drops what happens in a call from C, where the panic is caught and
/// its message kept, and passes on everything else.
pub extern "C" fn quiet_panics() {
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

/// Runs when the library is loaded, so that no call has to ask whether the hook is there.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = quiet_panics;
