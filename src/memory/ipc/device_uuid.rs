//! Devices by their UUIDs, which are the same in every process.

use crate::{
    error::{Error, Result},
    runtime::{self, device::Device},
    status::Status,
};

/// Creates the error for memory on a device that this process does not see.
#[cold]
pub fn no_device_here(uuid: [u8; 16]) -> Error {
    let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let what = format!("the memory is on the device with the UUID {name}, which is not visible to this process");
    Error::new(Status::INVALID_DEVICE, what)
}

/// Returns the device with a UUID, if this process sees it.
pub fn device_with_uuid(uuid: [u8; 16]) -> Result<&'static Device> {
    let runtime = runtime::ready()?;
    for device in runtime.devices() {
        if device.properties(&runtime.driver)?.uuid == uuid {
            return Ok(device);
        }
    }
    Err(no_device_here(uuid))
}
