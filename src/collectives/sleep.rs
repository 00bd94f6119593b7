//! What the communicators that sleep have in common.

use crate::{
    base::deadline::Deadline,
    driver::Driver,
    error::{Error, Result},
    observe,
    runtime::{Runtime, device::Device},
    status::Status,
    stream::{
        capture_lock,
        capture_scope::{self, CaptureResource},
    },
};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a communicator sleeps or is destroyed, or memory that is registered with it was deregistered. Graphs that captured
/// work with it hold it.
#[derive(Debug)]
pub struct SleepState {
    asleep: AtomicBool,
    is_destroyed: AtomicBool,
    /// The error of replays then.
    destroyed: &'static str,
}

impl Default for SleepState {
    fn default() -> SleepState {
        SleepState::with_error(
            "a communicator whose calls the graph has captured was destroyed; capture the calls of another one",
        )
    }
}

impl SleepState {
    /// Creates the state of registered memory.
    pub fn of_memory() -> SleepState {
        SleepState::with_error(
            "memory of a communicator's calls that the graph has captured was deregistered; capture them again",
        )
    }

    fn with_error(destroyed: &'static str) -> SleepState {
        SleepState { asleep: AtomicBool::new(false), is_destroyed: AtomicBool::new(false), destroyed }
    }

    /// Returns whether it sleeps.
    pub fn get(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Sets whether it sleeps.
    pub fn set(&self, asleep: bool) {
        if self.asleep.swap(asleep, Ordering::Relaxed) != asleep {
            capture_scope::count_asleep(asleep);
        }
    }

    /// Makes replays of the graphs fail from now on: the memory that they use is about to be released.
    pub fn destroy(&self) {
        self.is_destroyed.store(true, Ordering::Relaxed);
        self.set(true);
    }
}

impl CaptureResource for SleepState {
    fn check_awake(&self) -> Result<()> {
        if !self.get() {
            return Ok(());
        }
        if self.is_destroyed.load(Ordering::Relaxed) {
            return Err(Error::new(Status::ABORTED, self.destroyed));
        }
        Err(Error::new(Status::GRAPH_ASLEEP, "the communicator is asleep; call plinth_communicator_wake on all ranks"))
    }
}

impl Drop for SleepState {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Waits for all work of a device, which includes replays of graphs that other code launched, and while `health` does not
/// fail. Without CUDA 12.5 the wait has no limit.
pub fn await_device(
    runtime: &Runtime,
    device: &Device,
    deadline: Deadline,
    health: impl Fn() -> Result<()>,
) -> Result<()> {
    let ahead = observe::end_of_device(device.ordinal);
    let Ok(event) = capture_lock::record_in_device(runtime, device) else {
        return capture_lock::synchronize_device(runtime, device);
    };
    let what = || format!("this rank waited for the work of device {}", device.ordinal);
    let poll = |driver: &Driver| match driver.event_query(event.native())? {
        true => Ok(Some(())),
        false => health().map(|()| None),
    };
    // Another thread may be capturing.
    let wait = |driver: &Driver| driver.with_relaxed_capture(|| deadline.until(what, || poll(driver)))?;
    device.with_context(&runtime.driver, wait)?;
    ahead.finish();
    Ok(())
}
