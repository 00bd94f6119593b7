//! Creates, maps and releases handles, and accounts for the held bytes of the device.

use super::{handle_types, pool::MemoryOptions};
use crate::{
    base::{retry::retry, units::Bytes},
    driver::{Driver, Physical, codes},
    error::{Context, Error, Result},
    runtime::device::Device,
};

/// A handle and its size in bytes.
pub type Handle = (Physical, u64);

/// Creates a handle if at most `max_held` bytes are held with it. Returns `None` if that limit or the driver's memory does
/// not suffice. [`confirm`] or [`undo`] must follow: until then, its bytes count against limits, but not as reserved.
pub fn create(
    device: &Device,
    driver: &Driver,
    bytes: u64,
    max_held: u64,
    options: MemoryOptions,
) -> Result<Option<Handle>> {
    let memory = &device.memory();
    if !memory.try_hold(bytes, max_held) {
        return Ok(None);
    }
    let types = handle_types::types_for(device, driver, options).inspect_err(|_| memory.cancel_hold(bytes))?;
    match driver.memory_create(bytes, device.native, types) {
        Ok(physical) => {
            memory.created.increment();
            Ok(Some((physical, bytes)))
        }
        Err(failure) => {
            memory.cancel_hold(bytes);
            if failure.code == codes::CUDA_ERROR_OUT_OF_MEMORY {
                return Ok(None);
            }
            Err(Error::from(failure).context(format_args!("creating {} of memory", Bytes(bytes))))
        }
    }
}

/// Maps handles from `start` on, one after the other, for all devices with access. All or none.
pub fn map(device: &Device, driver: &Driver, start: u64, handles: &[Handle]) -> Result<()> {
    let bytes: u64 = handles.iter().map(|(_, bytes)| bytes).sum();
    let mut end = start;
    let mut outcome = Ok(());
    for (physical, bytes) in handles {
        let map = || driver.memory_map(end, *bytes, *physical);
        outcome = map().or_else(|failure| {
            // An earlier call may have failed to unmap these addresses.
            let is_mapped = failure.code == codes::CUDA_ERROR_INVALID_VALUE;
            if is_mapped && driver.memory_unmap(end, *bytes).is_ok() { map() } else { Err(failure) }
        });
        if outcome.is_err() {
            break;
        }
        end += bytes;
    }
    if outcome.is_ok() {
        outcome = driver.memory_allow(start, bytes, &device.memory_readers());
    }
    if outcome.is_err() && end > start {
        // If even this fails, the next call for these addresses tries again.
        retry(|| driver.memory_unmap(start, end - start));
    }
    outcome.context(|| format!("mapping {} of memory", Bytes(bytes)))
}

/// Releases a handle that was unmapped, with the mappings at its previous addresses. Returns whether the driver did.
pub fn release(device: &Device, driver: &Driver, physical: Physical) -> bool {
    device.memory().previous_mappings.lock().release(driver, physical);
    retry(|| driver.memory_release(physical))
}

/// Counts created handles, which are mapped now, as reserved.
pub fn confirm(device: &Device, handles: &[Handle]) {
    handles.iter().for_each(|(_, bytes)| device.memory().confirm_hold(*bytes));
}

/// Releases created handles that were never used. Those that the driver does not release count as reserved.
pub fn undo(device: &Device, driver: &Driver, handles: Vec<Handle>) {
    let memory = device.memory();
    for (physical, bytes) in handles {
        if retry(|| driver.memory_release(physical)) {
            memory.released.increment();
            memory.cancel_hold(bytes);
        } else {
            memory.confirm_hold(bytes);
        }
    }
}
