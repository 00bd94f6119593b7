//! A thread that looks whether freed memory is still used, where the program asked for one.
//!
//! It makes a request cheaper that would have had to look itself: by one question to the driver, some 0.2 microseconds.
//! It comes with the first block that waits, sleeps while none does, and is gone before the process exits. A child of a
//! fork has none.

use super::uses;
use crate::{memory::config, runtime};
use parking_lot::{Condvar, Mutex};
use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

/// How long blocks wait at least for the next look.
const PAUSE: Duration = Duration::from_micros(100);
/// How long exit waits for a look to end. One never takes so long, unless the driver hangs.
const PATIENCE: Duration = Duration::from_secs(1);

struct State {
    thread: Option<JoinHandle<()>>,
    /// Blocks may be waiting.
    work: bool,
    stop: bool,
    ended: bool,
}

static STATE: Mutex<State> = Mutex::new(State { thread: None, work: false, stop: false, ended: false });
static CHANGED: Condvar = Condvar::new();

/// Tells the thread that a block waits; the first time, makes it.
pub fn notice() {
    if !config::with(|config| config.pinned_use_background_threads).unwrap_or(false) {
        return;
    }
    let mut state = STATE.lock();
    if state.stop {
        return;
    }
    state.work = true;
    if state.thread.is_none() {
        // Where the system has no thread to give, requests look for themselves.
        state.thread = thread::Builder::new().name("plinth-pinned".into()).spawn(look).ok();
    }
    drop(state);
    CHANGED.notify_all();
}

fn look() {
    let mut state = STATE.lock();
    loop {
        while !state.stop && !state.work {
            CHANGED.wait(&mut state);
        }
        if !state.stop {
            CHANGED.wait_while_for(&mut state, |state| !state.stop, PAUSE);
        }
        if state.stop {
            break;
        }
        state.work = false;
        drop(state);
        if let Some(runtime) = runtime::usable() {
            uses::reap(runtime, false);
        }
        let waiting = uses::any_waiting();
        state = STATE.lock();
        state.work |= waiting;
    }
    state.ended = true;
    drop(state);
    CHANGED.notify_all();
}

/// Ends the thread, for good, where there is one: called as the process begins to exit.
pub fn stop() {
    // A child of a fork has no such thread, and its lock may be anybody's.
    if runtime::usable().is_none() {
        return;
    }
    let mut state = STATE.lock();
    state.stop = true;
    CHANGED.notify_all();
    let Some(thread) = state.thread.take() else { return };
    if !state.ended {
        CHANGED.wait_while_for(&mut state, |state| !state.ended, PATIENCE);
    }
    let ended = state.ended;
    drop(state);
    if ended {
        // It has nothing left to do; that it panicked would say nothing here.
        let _ = thread.join();
    }
}
