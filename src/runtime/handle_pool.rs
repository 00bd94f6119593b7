//! Pools of CUDA library handles: one handle per thread and device.
//!
//! A handle is expensive to create, and two threads must not use one at the same time. A thread keeps its handles
//! until it ends. Then they return to the pool, so that the number of handles never exceeds the highest number of
//! threads that used them at once. Handles are never destroyed, because destroying one waits for the device and must
//! not happen while the process exits.

use crate::{
    error::{Error, Result},
    runtime,
    status::Status,
};
use parking_lot::Mutex;
use std::cell::RefCell;

/// All handles of one library.
pub struct HandlePool<T: 'static> {
    all: Mutex<Vec<&'static T>>,
    /// The handles that no thread owns, with their devices.
    idle: Mutex<Vec<(u32, &'static T)>>,
}

impl<T> HandlePool<T> {
    /// Creates an empty pool.
    pub const fn new() -> Self {
        HandlePool { all: Mutex::new(Vec::new()), idle: Mutex::new(Vec::new()) }
    }

    /// Returns every handle that was created.
    pub fn all(&self) -> Vec<&'static T> {
        self.all.lock().clone()
    }

    fn take_idle(&self, device: u32) -> Option<&'static T> {
        let mut idle = self.idle.lock();
        let index = idle.iter().rposition(|(of, _)| *of == device)?;
        Some(idle.remove(index).1)
    }
}

impl<T> Default for HandlePool<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A thread's handles from one pool, with their devices. Belongs in a thread-local variable.
pub struct ThreadHandles<T: 'static> {
    pool: &'static HandlePool<T>,
    handles: RefCell<Vec<(u32, &'static T)>>,
    /// Called with each handle when the thread ends.
    on_thread_exit: fn(&T),
}

impl<T> ThreadHandles<T> {
    /// Creates an empty set. When the thread ends, it calls `on_thread_exit` with each handle before other threads
    /// can get it.
    pub const fn new(pool: &'static HandlePool<T>, on_thread_exit: fn(&T)) -> Self {
        ThreadHandles { pool, handles: RefCell::new(Vec::new()), on_thread_exit }
    }

    /// Returns the thread's handle for a device. Reuses an idle handle of the pool after `renew` resets it; if there
    /// is none, creates one with `make`.
    pub fn get(
        &self,
        device: u32,
        renew: impl FnOnce(&T) -> Result<()>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<&'static T> {
        let mut handles = self.handles.borrow_mut();
        if let Some((_, handle)) = handles.iter().find(|(of, _)| *of == device) {
            return Ok(handle);
        }
        let handle = match self.pool.take_idle(device) {
            Some(handle) => {
                if let Err(error) = renew(handle) {
                    self.pool.idle.lock().push((device, handle));
                    return Err(error);
                }
                handle
            }
            None => {
                let handle: &'static T = Box::leak(Box::new(make()?));
                self.pool.all.lock().push(handle);
                handle
            }
        };
        handles.push((device, handle));
        Ok(handle)
    }
}

impl<T> Drop for ThreadHandles<T> {
    fn drop(&mut self) {
        // In a forked child the pool's lock may be held by a thread that does not exist there.
        if runtime::usable().is_none() {
            return;
        }
        for (device, handle) in self.handles.take() {
            (self.on_thread_exit)(handle);
            self.pool.idle.lock().push((device, handle));
        }
    }
}

/// Creates the error for a thread whose thread-local variables are already destroyed.
#[cold]
pub fn thread_ending_error<E>(_: E) -> Error {
    Error::new(Status::SHUTTING_DOWN, "the thread is ending")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static POOL: HandlePool<AtomicU32> = HandlePool::new();

    fn thread_handles() -> ThreadHandles<AtomicU32> {
        ThreadHandles::new(&POOL, |handle| {
            handle.fetch_add(100, Ordering::Relaxed);
        })
    }

    fn get(handles: &ThreadHandles<AtomicU32>, device: u32) -> &'static AtomicU32 {
        let renew = |handle: &AtomicU32| {
            handle.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        handles.get(device, renew, || Ok(AtomicU32::new(device))).unwrap()
    }

    #[test]
    fn a_thread_keeps_its_handle_for_each_device() {
        let (one, two) = (thread_handles(), thread_handles());
        let first = get(&one, 70);
        assert!(std::ptr::eq(first, get(&one, 70)));
        assert!(!std::ptr::eq(first, get(&one, 71)));
        assert!(!std::ptr::eq(first, get(&two, 70)));
        assert_eq!(first.load(Ordering::Relaxed), 70);
        assert!(POOL.all().len() >= 3);
    }

    #[test]
    fn a_handle_that_cannot_be_created_or_renewed_is_not_kept() {
        let one = thread_handles();
        let fail = || Err::<(), _>(Error::new(Status::LIBRARY, "no"));
        assert!(one.get(80, |_| fail(), || fail().map(|()| AtomicU32::new(0))).is_err());
        let made = get(&one, 80);
        POOL.idle.lock().push((81, made));
        assert!(one.get(81, |_| fail(), || Ok(AtomicU32::new(0))).is_err());
        assert!(std::ptr::eq(get(&one, 81), made));
    }
}
