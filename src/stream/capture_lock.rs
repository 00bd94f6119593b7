//! The capture lock: keeps streams from starting to capture while the library queries or uses them.
//!
//! Querying whether a stream's work is done invalidates a capture in it, whichever thread asks and in whatever
//! capture mode. Recording an event in a capturing stream, or waiting in it, becomes part of the capture or
//! invalidates it too. The allocator and graph replays use streams of other threads. They first ask whether such a
//! stream is capturing, which has no side effect. From that query to their last call they hold the lock shared, so
//! that its result stays true: no capture begins, and no stream joins one by waiting for it.
//!
//! The lock does not cover captures that a program begins with the driver's own calls.

use crate::error::Result;
use parking_lot::{RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Held shared by code that uses possibly uncaptured streams; held exclusively to begin or join a capture. Not
/// reentrant.
static CAPTURE_LOCK: RwLock<()> = RwLock::new(());
/// The number of captures in progress that [`begin_capture`] began.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// The capture lock, held shared.
pub type SharedGuard = RwLockReadGuard<'static, ()>;

/// Returns whether a capture that this library began is in progress.
#[inline]
pub fn is_any_capturing() -> bool {
    CAPTURES.load(Ordering::Relaxed) != 0
}

/// Locks out new captures: while the guard lives, a stream that is not capturing stays so. Hold it only for a few
/// driver calls that do not block.
#[must_use = "captures may begin again as soon as it is dropped"]
pub fn lock_shared() -> SharedGuard {
    CAPTURE_LOCK.read()
}

/// Begins a capture with `body`, under the exclusive lock.
pub fn begin_capture(body: impl FnOnce() -> Result<()>) -> Result<()> {
    let _exclusive = CAPTURE_LOCK.write();
    body()?;
    CAPTURES.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Records that a capture has ended.
pub fn end_capture() {
    CAPTURES.fetch_sub(1, Ordering::Relaxed);
}

/// Runs `body`, which makes a stream wait for other work: if that work is part of a capture, the stream joins it.
/// Holds the lock exclusively if any capture is in progress.
#[inline]
pub fn run_exclusive<T>(body: impl FnOnce() -> T) -> T {
    if is_any_capturing() { run_locked(body) } else { body() }
}

#[cold]
fn run_locked<T>(body: impl FnOnce() -> T) -> T {
    let _exclusive = CAPTURE_LOCK.write();
    body()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::Error, status::Status};
    use std::{sync::atomic::AtomicBool, thread, time::Duration};

    /// Returns whether `action`, run in another thread, is delayed until the shared lock is released.
    fn waits_for_shared_lock(action: impl FnOnce() + Send) -> bool {
        let done = AtomicBool::new(false);
        let mut early = true;
        thread::scope(|scope| {
            let held = lock_shared();
            scope.spawn(|| {
                action();
                done.store(true, Ordering::Release);
            });
            thread::sleep(Duration::from_millis(50));
            early = done.load(Ordering::Acquire);
            drop(held);
        });
        !early && done.into_inner()
    }

    #[test]
    fn captures_wait_for_the_shared_lock() {
        let refused = begin_capture(|| Err(Error::new(Status::INVALID_VALUE, "refused")));
        assert_eq!(refused.unwrap_err().status(), Status::INVALID_VALUE);
        assert!(!is_any_capturing());
        assert!(waits_for_shared_lock(|| begin_capture(|| Ok(())).unwrap()));
        assert!(is_any_capturing());
        assert!(waits_for_shared_lock(|| run_exclusive(|| ())));
        end_capture();
        assert!(!is_any_capturing());
    }
}
