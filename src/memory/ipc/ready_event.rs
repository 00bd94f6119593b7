//! The event in a message, after which the sender has written the block.

use crate::{
    base::retry::retry,
    error::{Context, Result},
    runtime::{Runtime, device::Device},
    stream::{self, ordering::OutsideCaptures},
};

/// Makes the current stream wait for an event of another process.
pub fn wait_for(runtime: &Runtime, device: &Device, handle: [u8; 64]) -> Result<()> {
    let current = stream::current_on(runtime, device.ordinal)?;
    device
        .with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                let event = driver.event_open_ipc(handle)?;
                let outside = OutsideCaptures::lock(runtime);
                let waits = outside.check(current).and_then(|()| outside.wait_for_event(current, event));
                drop(outside);
                // The wait stays in effect. If the event cannot be destroyed, the memory is usable all the same.
                retry(|| driver.event_destroy(event));
                waits
            })?
        })
        .context(|| "waiting for the work of the sender's stream")
}
