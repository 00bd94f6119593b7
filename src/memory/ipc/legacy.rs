//! CUDA's 64-byte memory handles, for memory that the driver allocated as a whole. Nothing is counted here: the
//! exporting process must keep the memory until no process uses it. Each opened address is stored with the device that
//! it was opened for, because the driver closes it only in that device's context.

use super::import;
use crate::{
    driver::codes,
    error::{Context, Error, Result},
    memory::device_memory,
    runtime::{self, Runtime, device::Device, sync_debug},
    status::Status,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// By address: the device that the memory was opened for, and the number of times it was opened.
static OPENED: Mutex<BTreeMap<u64, (u32, usize)>> = Mutex::new(BTreeMap::new());

/// Returns the handle with which another process opens the allocation that contains an address, and the offset of the
/// address from the start of the allocation.
pub fn handle(address: u64) -> Result<([u8; 64], u64)> {
    let runtime = runtime::ready()?;
    if import::is_imported(address) {
        return Err(Error::new(
            Status::IPC_REEXPORT,
            format!("{address:#x} is memory of another process, which alone can share it"),
        ));
    }
    if is_mapped(runtime, address) {
        return Err(Error::new(
            Status::IPC_NOT_SHAREABLE,
            "mapped memory has no 64-byte handle; share it with plinth_ipc_send or plinth_ipc_export",
        ));
    }
    let Some(owner) = device_memory::owner(runtime, address)? else {
        return Err(Error::new(Status::INVALID_POINTER, format!("{address:#x} is not device memory")));
    };
    runtime.device(owner as i32)?.with_context(&runtime.driver, |driver| {
        let (base, _) = driver.memory_range(address).context(|| "querying the start of an allocation")?;
        let handle = driver.memory_ipc_handle(base).map_err(|failure| match Error::from(failure) {
            // The driver knows the memory. It may be of a pool, or managed, or mapped by another backend.
            error if error.status() == Status::INVALID_VALUE => error.with_status(Status::IPC_NOT_SHAREABLE).context(
                "only memory of plinth_device_malloc, or of the allocator with expandable_segments:False, has a 64-byte handle",
            ),
            error => error,
        });
        let handle = handle.context(|| "creating a handle of an allocation")?;
        Ok((handle, address - base))
    })
}

/// Opens another process's allocation in the context of the device that will use it.
pub fn open(runtime: &Runtime, device: &Device, handle: [u8; 64]) -> Result<u64> {
    device
        .with_context(&runtime.driver, |driver| driver.with_relaxed_capture(|| Ok(driver.memory_open_ipc(handle)?))?)
        .map_err(|error| match error.driver_code() {
            // The driver tries to map any memory that the bytes name.
            codes::CUDA_ERROR_MAP_FAILED => error.with_status(Status::INVALID_VALUE),
            _ => error,
        })
        .context(|| "opening another process's memory")
}

/// Opens another process's allocation for a device, and returns its start.
pub fn open_on(number: i32, handle: [u8; 64]) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let address = open(runtime, device, handle)?;
    let mut opened = OPENED.lock();
    let (user, count) = opened.entry(address).or_default();
    *user = device.ordinal;
    *count += 1;
    Ok(address)
}

/// Closes an allocation of [`open_on`]. Waits for the work of the device that it was opened for.
pub fn close(address: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    if address == 0 {
        return Ok(());
    }
    let not_opened = || {
        let what = format!("{address:#x} is not the start of memory that was opened from another process's handle");
        Error::new(Status::INVALID_POINTER, what)
    };
    let user = OPENED.lock().get(&address).map(|(user, _)| *user).ok_or_else(not_opened)?;
    sync_debug::check("plinth_ipc_close_mem_handle")?;
    // The entry is removed last, so that the memory can still be closed after an error.
    runtime
        .device(user as i32)?
        .with_context(&runtime.driver, |driver| Ok(driver.memory_close_ipc(address)?))
        .map_err(|error| if error.status() == Status::INVALID_VALUE { not_opened() } else { error })?;
    let mut opened = OPENED.lock();
    if let Some((_, count)) = opened.get_mut(&address) {
        *count -= 1;
        if *count == 0 {
            opened.remove(&address);
        }
    }
    Ok(())
}

/// Returns whether an address is in memory that this process has mapped itself.
fn is_mapped(runtime: &Runtime, address: u64) -> bool {
    let mut arenas = runtime.devices().iter().flat_map(|device| device.memory().arenas());
    arenas.any(|arena| {
        let backing = arena.lock().space.backing_at(address);
        backing.is_some_and(|backing| !backing.is_segment())
    })
}
