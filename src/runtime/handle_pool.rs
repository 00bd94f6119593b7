//! Handles of CUDA's libraries: one for each thread and device that asks.
//!
//! A handle is dear to make, and no two threads may use one at once. A thread keeps those that it was given until it
//! ends; then they wait for the next thread, so that there are never more than there were threads at work at once. They
//! are never destroyed: that would wait for the device, and must not happen while the process exits.

use crate::{
    error::{Error, Result},
    runtime,
    status::Status,
};
use parking_lot::Mutex;
use std::cell::RefCell;

/// All handles of one kind.
pub struct Pool<T: 'static> {
    all: Mutex<Vec<&'static T>>,
    /// Those that no thread has, by device.
    idle: Mutex<Vec<(u32, &'static T)>>,
}

impl<T> Pool<T> {
    /// A pool without any.
    pub const fn new() -> Self {
        Pool { all: Mutex::new(Vec::new()), idle: Mutex::new(Vec::new()) }
    }

    /// Every handle that was made.
    pub fn all(&self) -> Vec<&'static T> {
        self.all.lock().clone()
    }

    fn take_idle(&self, device: u32) -> Option<&'static T> {
        let mut idle = self.idle.lock();
        let index = idle.iter().rposition(|(of, _)| *of == device)?;
        Some(idle.remove(index).1)
    }
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The handles that a thread has of a pool, by device: a variable of the thread's.
pub struct Held<T: 'static> {
    pool: &'static Pool<T>,
    handles: RefCell<Vec<(u32, &'static T)>>,
    /// Called with each handle when the thread ends.
    part: fn(&T),
}

impl<T> Held<T> {
    /// None yet. When the thread ends, `part` is called with each, before other threads may have it.
    pub const fn new(pool: &'static Pool<T>, part: fn(&T)) -> Self {
        Held { pool, handles: RefCell::new(Vec::new()), part }
    }

    /// The thread's handle for a device. One that another thread had is made like new by `renew`; where there is none,
    /// `make` makes one.
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

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        // In the child of a fork the pool's lock may be held by a thread that is not there.
        if runtime::usable().is_none() {
            return;
        }
        for (device, handle) in self.handles.take() {
            (self.part)(handle);
            self.pool.idle.lock().push((device, handle));
        }
    }
}

/// The error of a thread whose variables are gone already.
#[cold]
pub fn ending<E>(_: E) -> Error {
    Error::new(Status::SHUTTING_DOWN, "the thread is ending")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static POOL: Pool<AtomicU32> = Pool::new();

    fn held() -> Held<AtomicU32> {
        Held::new(&POOL, |handle| {
            handle.fetch_add(100, Ordering::Relaxed);
        })
    }

    fn get(held: &Held<AtomicU32>, device: u32) -> &'static AtomicU32 {
        let renew = |handle: &AtomicU32| {
            handle.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        held.get(device, renew, || Ok(AtomicU32::new(device))).unwrap()
    }

    #[test]
    fn a_thread_keeps_its_handle_for_each_device() {
        let (one, two) = (held(), held());
        let first = get(&one, 70);
        assert!(std::ptr::eq(first, get(&one, 70)));
        assert!(!std::ptr::eq(first, get(&one, 71)));
        assert!(!std::ptr::eq(first, get(&two, 70)));
        assert_eq!(first.load(Ordering::Relaxed), 70);
        assert!(POOL.all().len() >= 3);
    }

    #[test]
    fn what_cannot_be_made_or_renewed_is_not_kept() {
        let one = held();
        let fail = || Err::<(), _>(Error::new(Status::LIBRARY, "no"));
        assert!(one.get(80, |_| fail(), || fail().map(|()| AtomicU32::new(0))).is_err());
        let made = get(&one, 80);
        POOL.idle.lock().push((81, made));
        assert!(one.get(81, |_| fail(), || Ok(AtomicU32::new(0))).is_err());
        assert!(std::ptr::eq(get(&one, 81), made));
    }
}
