//! The driver's events that wait to be used again, on each device by kind.
//!
//! Events are made and destroyed at a high rate, by programs and by the library's own ordering of streams; the driver's
//! calls for that take its locks. An event that other processes may have opened never comes here: it is really
//! destroyed.

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

/// The driver's events of one device that wait to be used again, by kind.
pub struct EventPool([Mutex<Vec<driver::Event>>; 4]);

impl EventPool {
    /// An empty pool.
    pub const fn new() -> Self {
        EventPool([const { Mutex::new(Vec::new()) }; 4])
    }

    fn shelf(&self, flags: u32) -> &Mutex<Vec<driver::Event>> {
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

/// Takes an event of the driver's from the pool of a device, or makes one.
pub fn take(device: &Device, driver: &Driver, flags: u32) -> Result<driver::Event> {
    if flags & INTERPROCESS == 0
        && let Some(event) = device.events.shelf(flags).lock().pop()
    {
        return Ok(event);
    }
    device
        .with_context(driver, |driver| Ok(driver.event_create(native_flags(flags))?))
        .context(|| format!("making an event on device {}", device.ordinal))
}

/// Puts an event that [`take`] gave with these flags back for the next one. It may still be pending, and streams may still
/// wait for what it recorded: a wait is for the record that was the last when it was asked for.
pub fn give_back(device: &Device, flags: u32, event: driver::Event) {
    device.events.shelf(flags).lock().push(event);
}

/// Runs `body` with an event without timing from the pool of a device.
pub fn with<T>(runtime: &Runtime, device: u32, body: impl FnOnce(driver::Event) -> Result<T>) -> Result<T> {
    let device = runtime.device(device as i32)?;
    let event = take(device, &runtime.driver, 0)?;
    let result = body(event);
    give_back(device, 0, event);
    result
}
