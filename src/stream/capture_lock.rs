//! The capture lock: keeps streams from starting to capture while the library queries or uses them.
//!
//! Querying whether a stream's work is done invalidates a capture in it, whichever thread asks and in whatever
//! capture mode. Recording an event in a capturing stream, or waiting in it, becomes part of the capture or
//! invalidates it too. The allocator and graph replays use streams of other threads. They first ask whether such a
//! stream is capturing, which has no side effect. From that query to their last call they hold the lock shared, so
//! that its result stays true: no capture begins, and no stream joins one by waiting for it.
//!
//! The lock does not cover captures that a program begins with the driver's own calls.

use super::{capture_report, event_pool::PooledEvent};
use crate::{
    driver::Driver,
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device, thread::MAX_DEVICES},
    status::Status,
};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Held shared by code that uses possibly uncaptured streams; held exclusively to begin or join a capture. Not
/// reentrant.
static CAPTURE_LOCK: RwLock<()> = RwLock::new(());
/// The number of captures in progress that [`begin_capture`] began.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// What orders captures on a device and waits for that device. The driver looks for captures when a wait begins, and
/// invalidates those that it finds, whichever thread began them and in whatever mode.
struct DeviceCaptures {
    /// Held shared from the check for captures until the wait is over, exclusively while a capture begins.
    lock: RwLock<()>,
    /// The number of captures in progress.
    count: AtomicUsize,
}

static DEVICE_CAPTURES: [DeviceCaptures; MAX_DEVICES] =
    [const { DeviceCaptures { lock: RwLock::new(()), count: AtomicUsize::new(0) } }; MAX_DEVICES];

/// The longest time for which a capture does not begin because another thread waits for the device. By then that thread
/// is inside the driver, where a new capture does not concern it.
const LONGEST_DELAY: Duration = Duration::from_millis(100);

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

/// Locks out all code that uses streams of other threads, and new captures.
#[must_use = "streams may be used again as soon as it is dropped"]
pub fn lock_exclusive() -> RwLockWriteGuard<'static, ()> {
    CAPTURE_LOCK.write()
}

/// Begins a capture on a device with `body`, under the exclusive lock.
pub fn begin_capture(device: u32, body: impl FnOnce() -> Result<()>) -> Result<()> {
    let captures = &DEVICE_CAPTURES[device as usize % MAX_DEVICES];
    let _no_wait = captures.lock.try_write_for(LONGEST_DELAY);
    // From here on no other thread begins to wait for the device.
    captures.count.fetch_add(1, Ordering::Relaxed);
    let _exclusive = CAPTURE_LOCK.write();
    if !is_any_capturing() {
        capture_report::clear();
    }
    match body() {
        Ok(()) => CAPTURES.fetch_add(1, Ordering::Relaxed),
        Err(error) => {
            captures.count.fetch_sub(1, Ordering::Relaxed);
            return Err(error);
        }
    };
    Ok(())
}

/// Records that a capture on a device has ended.
pub fn end_capture(device: u32) {
    CAPTURES.fetch_sub(1, Ordering::Relaxed);
    DEVICE_CAPTURES[device as usize % MAX_DEVICES].count.fetch_sub(1, Ordering::Relaxed);
}

/// Waits for all work of a device. Fails while a stream of the device captures, and leaves that capture valid.
pub fn synchronize_device(runtime: &Runtime, device: &Device) -> Result<()> {
    while_none_captures(runtime, device, |driver| Ok(driver.context_synchronize()?))
        .context(|| format!("synchronizing device {}", device.ordinal))
}

/// Records an event after all work of a device. Fails while a stream of the device captures, and leaves that capture
/// valid. Needs CUDA 12.5.
pub fn record_in_device(runtime: &Runtime, device: &Device) -> Result<PooledEvent> {
    let event = PooledEvent::acquire(device, &runtime.driver, 0)?;
    while_none_captures(runtime, device, |driver| Ok(driver.context_record_event(event.native())?))
        .context(|| format!("recording an event on device {}", device.ordinal))?;
    Ok(event)
}

/// Calls `body` while no stream of a device captures. Fails if one does. A capture that begins waits for `body` only a moment.
pub fn while_none_captures<T>(
    runtime: &Runtime,
    device: &Device,
    body: impl FnOnce(&Driver) -> Result<T>,
) -> Result<T> {
    let captures = &DEVICE_CAPTURES[device.ordinal as usize % MAX_DEVICES];
    let _no_capture = captures.lock.read();
    if captures.count.load(Ordering::Relaxed) > 0 {
        return Err(Error::new(Status::CAPTURE_FORBIDS, "a stream of the device is capturing"));
    }
    device.with_context(&runtime.driver, body)
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
    use std::{sync::atomic::AtomicBool, thread};

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
        let refused = begin_capture(0, || Err(Error::new(Status::INVALID_VALUE, "refused")));
        assert_eq!(refused.unwrap_err().status(), Status::INVALID_VALUE);
        assert!(!is_any_capturing());
        assert!(waits_for_shared_lock(|| begin_capture(0, || Ok(())).unwrap()));
        assert!(is_any_capturing());
        assert!(waits_for_shared_lock(|| run_exclusive(|| ())));
        end_capture(0);
        assert!(!is_any_capturing());
    }
}
