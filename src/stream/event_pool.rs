//! Pools of driver events for reuse, per device and kind.
//!
//! Programs and the library itself create and destroy events at a high rate, and the driver's calls for that take its
//! locks. Interprocess events are not pooled, but destroyed.

use crate::{
    driver::{self, Driver, types::*},
    error::{Context, Result},
    runtime::{Runtime, device::Device},
};
use parking_lot::Mutex;

/// The event records the time at which it is reached.
pub const TIMING: u32 = 1;
/// A thread that waits for the event sleeps instead of spinning.
pub const BLOCKING: u32 = 2;
/// Other processes may open the event.
pub const INTERPROCESS: u32 = 4;
/// In a capture, the event becomes a node of the graph instead of an edge.
pub const EXTERNAL: u32 = 8;

/// The pool of one device, by kind of event.
pub struct EventPool([Mutex<Vec<driver::Event>>; 4]);

impl EventPool {
    /// Creates an empty pool.
    pub const fn new() -> Self {
        EventPool([const { Mutex::new(Vec::new()) }; 4])
    }

    fn events(&self, flags: u32) -> &Mutex<Vec<driver::Event>> {
        &self.0[(flags & (TIMING | BLOCKING)) as usize]
    }
}

impl Default for EventPool {
    fn default() -> Self {
        Self::new()
    }
}

fn native_flags(flags: u32) -> u32 {
    let mut native = CU_EVENT_DEFAULT;
    if flags & TIMING == 0 {
        native |= CU_EVENT_DISABLE_TIMING;
    }
    if flags & BLOCKING != 0 {
        native |= CU_EVENT_BLOCKING_SYNC;
    }
    if flags & INTERPROCESS != 0 {
        native |= CU_EVENT_INTERPROCESS;
    }
    native
}

/// Takes a driver event from the pool of a device, or creates one.
pub fn acquire(device: &Device, driver: &Driver, flags: u32) -> Result<driver::Event> {
    if flags & INTERPROCESS == 0
        && let Some(event) = device.events.events(flags).lock().pop()
    {
        return Ok(event);
    }
    device
        .with_context(driver, |driver| Ok(driver.event_create(native_flags(flags))?))
        .context(|| format!("making an event on device {}", device.ordinal))
}

/// Returns an event to the pool; `flags` are those passed to [`acquire`]. The event may still be pending, and streams
/// may still wait for its record, because a wait refers to the last record at the time of the call.
pub fn release(device: &Device, flags: u32, event: driver::Event) {
    device.events.events(flags).lock().push(event);
}

/// Runs `body` with an event without timing from the pool of a device.
pub fn with<T>(runtime: &Runtime, device: u32, body: impl FnOnce(driver::Event) -> Result<T>) -> Result<T> {
    let device = runtime.device(device as i32)?;
    let event = acquire(device, &runtime.driver, 0)?;
    let result = body(event);
    release(device, 0, event);
    result
}
