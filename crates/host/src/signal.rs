//! A point in a stream's work that others wait for: what an event refers to after each recording.

use super::{engine::Engine, ids::Id, scheduler::RETRY_INTERVAL};
use crate::driver::{codes, table::Code};
use once_cell::sync::OnceCell;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

/// Pending until the work before it is complete, then complete for ever.
#[derive(Default)]
pub struct Signal {
    completed: OnceCell<Instant>,
    error: AtomicU32,
    /// Streams that are parked until the signal completes.
    waiting: Mutex<Vec<Id>>,
    /// Threads that sleep until the signal completes, with the engine's lock.
    sleepers: Condvar,
}

impl Signal {
    pub fn new() -> Arc<Signal> {
        Arc::new(Signal::default())
    }

    /// Returns when the signal completed, or `None` while it is pending.
    pub fn completed_at(&self) -> Option<Instant> {
        self.completed.get().copied()
    }

    pub fn is_complete(&self) -> bool {
        self.completed.get().is_some()
    }

    /// Returns `Ok` after completion without error, the stream's error after a failure, or `CUDA_ERROR_NOT_READY`.
    pub fn query(&self) -> Result<(), Code> {
        if !self.is_complete() {
            return Err(codes::CUDA_ERROR_NOT_READY);
        }
        match self.error() {
            codes::CUDA_SUCCESS => Ok(()),
            error => Err(error),
        }
    }

    /// Returns the error of the stream in which the signal completed.
    pub fn error(&self) -> Code {
        self.error.load(Ordering::Acquire)
    }

    /// Parks a stream until the signal completes. The caller holds the engine's lock, so the signal cannot complete
    /// meanwhile.
    pub fn park(&self, stream: Id) {
        self.waiting.lock().push(stream);
    }

    /// Completes the signal, wakes the waiting threads, and returns the parked streams. The caller holds the engine's
    /// lock.
    pub fn complete(&self, error: Code) -> Vec<Id> {
        self.error.store(error, Ordering::Release);
        // A signal completes only once: it is in exactly one queue.
        let _ = self.completed.set(Instant::now());
        self.sleepers.notify_all();
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Blocks until the signal completes.
    pub fn wait(&self, engine: &mut MutexGuard<'_, Engine>) -> Result<(), Code> {
        while !self.is_complete() {
            self.sleepers.wait_for(engine, RETRY_INTERVAL);
            engine.retry_threads();
        }
        self.query()
    }
}
