//! A point in a stream's work that others wait for: what an event stands for after each recording.

use super::{engine::Engine, ids::Id};
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

/// Pending until the work before it is done; then done for ever.
#[derive(Default)]
pub struct Signal {
    reached: OnceCell<Instant>,
    error: AtomicU32,
    /// Streams that are parked until then.
    waiting: Mutex<Vec<Id>>,
    /// Threads that sleep until then, with the engine's lock.
    sleepers: Condvar,
}

impl Signal {
    pub fn new() -> Arc<Signal> {
        Arc::new(Signal::default())
    }

    /// When it was reached, if it has been.
    pub fn reached(&self) -> Option<Instant> {
        self.reached.get().copied()
    }

    pub fn is_reached(&self) -> bool {
        self.reached.get().is_some()
    }

    /// `Ok` once reached in good order, the stream's error if that had one, else `CUDA_ERROR_NOT_READY`.
    pub fn query(&self) -> Result<(), Code> {
        if !self.is_reached() {
            return Err(codes::CUDA_ERROR_NOT_READY);
        }
        match self.error() {
            codes::CUDA_SUCCESS => Ok(()),
            error => Err(error),
        }
    }

    /// The error of the stream it was reached in.
    pub fn error(&self) -> Code {
        self.error.load(Ordering::Acquire)
    }

    /// Parks a stream until the signal is reached. Under the engine's lock, so that it cannot be reached meanwhile.
    pub fn park(&self, stream: Id) {
        self.waiting.lock().push(stream);
    }

    /// Marks it reached, wakes the threads, and returns the streams to look at again. Under the engine's lock.
    pub fn reach(&self, error: Code) -> Vec<Id> {
        self.error.store(error, Ordering::Release);
        // It is reached only once: each signal stands in one queue.
        let _ = self.reached.set(Instant::now());
        self.sleepers.notify_all();
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Sleeps until it is reached.
    pub fn wait(&self, engine: &mut MutexGuard<'_, Engine>) -> Result<(), Code> {
        while !self.is_reached() {
            self.sleepers.wait(engine);
        }
        self.query()
    }
}
