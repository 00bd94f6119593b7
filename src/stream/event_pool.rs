//! Pools of driver events for reuse, per device and kind.
//!
//! Programs and the library itself create and destroy events at a high rate, and the driver's calls for that take its
//! locks. Interprocess events that a program creates are not pooled, but destroyed.

use crate::{
    driver::{self, Driver, types::*},
    error::{Context, Result},
    runtime::{self, Runtime, device::Device, per_device::PerDevice},
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
/// An interprocess event of the library's own, which is released only once no other process can refer to it.
pub const EXPORTED: u32 = INTERPROCESS | 16;

/// The number of kinds of pooled events.
const KINDS: usize = 5;

/// The pool of one device, by kind of event.
pub struct EventPool([Mutex<Vec<driver::Event>>; KINDS]);

impl EventPool {
    /// Creates an empty pool.
    pub const fn new() -> Self {
        EventPool([const { Mutex::new(Vec::new()) }; KINDS])
    }

    fn events(&self, flags: u32) -> &Mutex<Vec<driver::Event>> {
        let kind = if flags & EXPORTED == EXPORTED { KINDS - 1 } else { (flags & (TIMING | BLOCKING)) as usize };
        &self.0[kind]
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

/// Takes a driver event from the pool of a device, or creates one. It may still have a record of its previous owner,
/// until it is recorded again.
pub fn acquire(device: &Device, driver: &Driver, flags: u32) -> Result<driver::Event> {
    if flags & EXPORTED != INTERPROCESS
        && let Some(event) = device.events().events(flags).lock().pop()
    {
        return Ok(event);
    }
    create(device, driver, flags)
}

/// Creates a driver event. Unlike one from the pool, it has no record of a previous owner.
pub fn create(device: &Device, driver: &Driver, flags: u32) -> Result<driver::Event> {
    device
        .with_context(driver, |driver| Ok(driver.event_create(native_flags(flags))?))
        .context(|| format!("making an event on device {}", device.ordinal))
}

/// Returns an event to the pool; `flags` are those passed to [`acquire`]. The event may still be pending, and streams
/// may still wait for its record, because a wait refers to the last record at the time of the call.
pub fn release(device: &Device, flags: u32, event: driver::Event) {
    device.events().events(flags).lock().push(event);
}

/// Destroys the library's own interprocess events that wait to be used again: each of them may keep a file open. Those
/// that could not be destroyed return to the pool, and the next call tries again.
pub fn destroy_exported(device: &Device, driver: &Driver) -> Result<()> {
    let mut events = std::mem::take(&mut *device.events().events(EXPORTED).lock());
    if events.is_empty() {
        return Ok(());
    }
    let destroyed = device.with_context(driver, |driver| {
        let mut result = Ok(());
        events.retain(|event| match driver.event_destroy(*event) {
            Ok(()) => false,
            Err(error) => {
                result = Err(error.into());
                true
            }
        });
        result
    });
    device.events().events(EXPORTED).lock().append(&mut events);
    destroyed.context(|| format!("destroying events on device {}", device.ordinal))
}

/// Returns the handle with which other processes open an interprocess event of a device. The driver (580, CUDA 13.0)
/// crashes while the context of another device is current.
pub fn ipc_handle(device: &Device, driver: &Driver, event: driver::Event) -> Result<[u8; 64]> {
    device.with_context(driver, |driver| Ok(driver.event_ipc_handle(event)?))
}

/// An event from a device's pool, which returns to the pool when it is dropped.
#[derive(Debug)]
pub struct PooledEvent {
    event: driver::Event,
    pool: &'static Mutex<Vec<driver::Event>>,
}

impl PooledEvent {
    /// Takes an event from the pool of a device, or creates one.
    pub fn acquire(device: &Device, driver: &Driver, flags: u32) -> Result<PooledEvent> {
        Ok(PooledEvent { event: acquire(device, driver, flags)?, pool: device.events().events(flags) })
    }

    /// Returns the driver event.
    pub fn native(&self) -> driver::Event {
        self.event
    }

    /// Waits on the CPU for the last record.
    pub fn synchronize(&self, runtime: &Runtime) -> Result<()> {
        runtime.in_any_context(|driver| Ok(driver.event_synchronize(self.event)?))
    }
}

impl Drop for PooledEvent {
    fn drop(&mut self) {
        // In a forked child the pool's lock may be held by a thread that does not exist there.
        if runtime::usable().is_some() {
            self.pool.lock().push(self.event);
        }
    }
}

impl Device {
    /// Returns the events that wait to be used again.
    #[inline]
    pub(super) fn events(&self) -> &'static EventPool {
        static VALUES: PerDevice<EventPool> = PerDevice::new();
        VALUES.of(self)
    }
}
