//! CUDA's own handles of 64 bytes, for memory that came from the driver with its address. Nothing is counted here: who
//! gives a handle away keeps the memory until nobody uses it. What was opened is remembered with the device that it was
//! opened for, in whose context alone the driver closes it.

use crate::{
    driver::codes,
    error::{Context, Error, Result},
    memory,
    runtime::{self, Runtime, device::Device, sync_debug},
    status::Status,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// By address: the device that memory was opened for, and how often.
static OPENED: Mutex<BTreeMap<u64, (u32, usize)>> = Mutex::new(BTreeMap::new());

/// What another process needs to open the allocation that an address lies in, and how far the address is from its
/// beginning.
pub fn handle(address: u64) -> Result<([u8; 64], u64)> {
    let runtime = runtime::ready()?;
    if super::is_imported(address) {
        return Err(Error::new(
            Status::IPC_REEXPORT,
            format!("{address:#x} is memory of another process, which alone can share it"),
        ));
    }
    if super::export::is_mapped(runtime, address) {
        return Err(Error::new(
            Status::IPC_NOT_SHAREABLE,
            "memory that is mapped has no handle of 64 bytes; plinth_ipc_send and plinth_ipc_export share it",
        ));
    }
    let Some(owner) = memory::owner(runtime, address)? else {
        return Err(Error::new(Status::INVALID_POINTER, format!("{address:#x} is no memory of a device's")));
    };
    runtime.device(owner as i32)?.with_context(&runtime.driver, |driver| {
        let (base, _) = driver.memory_range(address).context(|| "asking where an allocation begins")?;
        let handle = driver.memory_ipc_handle(base).context(|| "making a handle of an allocation")?;
        Ok((handle, address - base))
    })
}

/// Opens another process's allocation in the context of the device that is to use it.
pub fn open(runtime: &Runtime, device: &Device, handle: [u8; 64]) -> Result<u64> {
    device
        .with_context(&runtime.driver, |driver| driver.with_relaxed_capture(|| Ok(driver.memory_open_ipc(handle)?))?)
        .map_err(|error| match error.driver_code() {
            // The driver tries to map whatever memory the bytes name.
            codes::CUDA_ERROR_MAP_FAILED => error.with_status(Status::INVALID_VALUE),
            _ => error,
        })
        .context(|| "opening another process's memory")
}

/// Opens another process's allocation for a device, and returns where it begins.
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

/// Closes what [`open_on`] opened. Waits for the work of the device that it was opened for.
pub fn close(address: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    if address == 0 {
        return Ok(());
    }
    let not_opened = || {
        let what = format!("{address:#x} is not what a handle of another process's memory was opened as");
        Error::new(Status::INVALID_POINTER, what)
    };
    let user = OPENED.lock().get(&address).map(|(user, _)| *user).ok_or_else(not_opened)?;
    sync_debug::check("plinth_ipc_close_mem_handle")?;
    // It is forgotten last, so that after an error it can still be closed.
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
