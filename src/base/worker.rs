//! A thread of the library that works in the background. It exists while there is work, and for a moment longer, and ends before
//! the process does.
//!
//! The thread and its work are in one state, which a mutex protects; a condition variable announces changes of it.

use crate::driver::signals;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

/// How long the exit of the process waits for the thread. It takes this long only if the driver hangs.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The thread, if there is one.
#[derive(Debug)]
pub struct Worker {
    thread: Option<JoinHandle<()>>,
    running: bool,
    stop: bool,
}

impl Worker {
    /// Creates a worker without a thread.
    pub const fn new() -> Worker {
        Worker { thread: None, running: false, stop: false }
    }

    /// Returns whether the process exits: the thread ends, and no other is started.
    pub fn must_stop(&self) -> bool {
        self.stop
    }

    /// Starts the thread, if there is none. Without a thread, if the system has none left, its work is not done.
    pub fn start(&mut self, name: &str, body: fn()) {
        if !self.running && !self.stop {
            // The handle of a thread that has ended is dropped.
            let _blocked = signals::block();
            self.thread = thread::Builder::new().name(name.to_owned()).spawn(body).ok();
            self.running = self.thread.is_some();
        }
    }
}

/// Records that the thread is about to end. It does nothing else afterwards.
pub fn end<S>(mut state: MutexGuard<'_, S>, changed: &Condvar, worker: fn(&mut S) -> &mut Worker) {
    worker(&mut state).running = false;
    drop(state);
    changed.notify_all();
}

/// Ends the thread permanently. Call it when the process begins to exit, and not in a forked child, where any thread of the
/// parent may have held the lock.
pub fn stop<S>(state: &Mutex<S>, changed: &Condvar, worker: fn(&mut S) -> &mut Worker) {
    let mut state = state.lock();
    worker(&mut state).stop = true;
    changed.notify_all();
    changed.wait_while_for(&mut state, |state| worker(state).running, EXIT_TIMEOUT);
    let worker = worker(&mut state);
    let thread = if worker.running { None } else { worker.thread.take() };
    drop(state);
    if let Some(thread) = thread {
        // The thread has ended; a panic in it does not matter any more.
        let _ = thread.join();
    }
}
