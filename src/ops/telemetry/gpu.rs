//! GPUs, through NVML.
//!
//! NVML numbers the GPUs in its own way, and `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` number the devices in
//! theirs. A device's NVML handle is therefore found by an identifier that is the same everywhere: its UUID or its PCI
//! bus id.

use super::{Reading, not_read};
use crate::{
    error::{Error, Result},
    runtime::{Runtime, device::Device, nvml, properties::Properties},
    status::Status,
};
use nvml_wrapper::{
    Device as NvmlDevice, Nvml,
    enum_wrappers::device::{Clock, TemperatureSensor},
    enums::device::UsedGpuMemory,
    error::NvmlError,
    struct_wrappers::device::MemoryInfo,
};
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::collections::HashMap;

/// NVML's bits for reduced clock rates, and their meanings.
pub const THROTTLE_REASONS: [(u64, &str); 9] = [
    (0x1, "idle"),
    (0x2, "application clocks"),
    (0x4, "power cap"),
    (0x8, "slowdown by hardware"),
    (0x10, "in step with other cards"),
    (0x20, "too warm, by the driver"),
    (0x40, "too warm, by hardware"),
    (0x80, "power brake"),
    (0x100, "display clock"),
];

#[cold]
fn failed(error: &NvmlError) -> Error {
    match error {
        NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
            not_read(format_args!("the GPU or its driver does not report this: {error}"))
        }
        NvmlError::NoPermission => Error::new(Status::SYSTEM, format!("NVML refused: {error}")),
        NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound => {
            Error::new(Status::NVML_UNAVAILABLE, format!("NVML cannot be used: {error}"))
        }
        _ => Error::new(Status::DRIVER, format!("NVML failed: {error}")),
    }
}

fn uuid_text(prefix: &str, uuid: &[u8; 16]) -> String {
    let mut text = prefix.to_owned();
    for (index, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

fn find(nvml: &'static Nvml, properties: &Properties) -> Result<NvmlDevice<'static>> {
    // A MIG instance has its own UUID.
    for prefix in ["GPU-", "MIG-"] {
        if let Ok(handle) = nvml.device_by_uuid(uuid_text(prefix, &properties.uuid)) {
            return Ok(handle);
        }
    }
    nvml.device_by_pci_bus_id(properties.pci_bus_id_text.as_str())
        .map_err(|error| failed(&error).context(format_args!("looking for the GPU at {}", properties.pci_bus_id_text)))
}

/// Runs `body` with the NVML handle of a device.
fn with_handle<T>(
    runtime: &Runtime,
    device: &Device,
    body: impl FnOnce(&'static Nvml, &NvmlDevice<'static>) -> std::result::Result<T, NvmlError>,
) -> Result<T> {
    static HANDLES: Lazy<Mutex<HashMap<u32, &'static NvmlDevice<'static>>>> = Lazy::new(Mutex::default);
    let nvml = nvml::get()?;
    let known = HANDLES.lock().get(&device.ordinal).copied();
    let handle = match known {
        Some(handle) => handle,
        None => {
            let handle = find(nvml, device.properties(&runtime.driver)?)?;
            // There are as many as devices, and they are needed until the process ends.
            let mut handles = HANDLES.lock();
            *handles.entry(device.ordinal).or_insert_with(|| Box::leak(Box::new(handle)))
        }
    };
    body(nvml, handle).map_err(|error| failed(&error))
}

/// Returns the memory in use as torch counts it: including what the driver reserves, which NVML reports separately.
fn used_bytes(memory: &MemoryInfo) -> u64 {
    memory.used + memory.reserved
}

/// Returns one reading.
pub fn read(runtime: &Runtime, device: &Device, reading: Reading) -> Result<u64> {
    with_handle(runtime, device, |_, handle| {
        Ok(match reading {
            Reading::Utilization => handle.utilization_rates()?.gpu.into(),
            Reading::MemoryUsage => handle.utilization_rates()?.memory.into(),
            Reading::Temperature => handle.temperature(TemperatureSensor::Gpu)?.into(),
            Reading::PowerDraw => handle.power_usage()?.into(),
            Reading::ClockRate => handle.clock_info(Clock::SM)?.into(),
            Reading::MemoryClockRate => handle.clock_info(Clock::Memory)?.into(),
            Reading::MemoryUsed => used_bytes(&handle.memory_info()?),
            Reading::Energy => handle.total_energy_consumption()?,
            Reading::ThrottleReasons => handle.current_throttle_reasons()?.bits(),
        })
    })
}

/// Returns the processes that compute on a GPU, with the bytes that each uses, if NVML reports them.
pub fn processes(runtime: &Runtime, device: &Device) -> Result<Vec<super::Process>> {
    let found = with_handle(runtime, device, |_, handle| handle.running_compute_processes())?;
    let known = |used| match used {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    Ok(found.into_iter().map(|entry| super::Process { pid: entry.pid, memory: known(entry.used_gpu_memory) }).collect())
}

/// Returns NVML's index of a GPU, with which torch's process list begins.
pub fn number(runtime: &Runtime, device: &Device) -> Result<u32> {
    with_handle(runtime, device, |_, handle| handle.index())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvml_wrapper::bitmasks::device::ThrottleReasons;

    #[test]
    fn a_uuid_is_written_as_nvml_does() {
        let uuid = std::array::from_fn(|index| index as u8 * 17);
        assert_eq!(uuid_text("GPU-", &uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn reserved_memory_counts_as_used() {
        let memory = MemoryInfo { free: 70, reserved: 10, total: 100, used: 20, version: 2 };
        assert_eq!(used_bytes(&memory), memory.total - memory.free);
    }

    #[test]
    fn the_reasons_are_nvmls() {
        let all = [
            ThrottleReasons::GPU_IDLE,
            ThrottleReasons::APPLICATIONS_CLOCKS_SETTING,
            ThrottleReasons::SW_POWER_CAP,
            ThrottleReasons::HW_SLOWDOWN,
            ThrottleReasons::SYNC_BOOST,
            ThrottleReasons::SW_THERMAL_SLOWDOWN,
            ThrottleReasons::HW_THERMAL_SLOWDOWN,
            ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
            ThrottleReasons::DISPLAY_CLOCK_SETTING,
        ];
        assert_eq!(THROTTLE_REASONS.map(|(bit, _)| bit), all.map(|reason| reason.bits()));
    }

    #[test]
    fn unsupported_readings_are_distinguished_from_failures() {
        assert_eq!(failed(&NvmlError::NotSupported).status(), Status::NOT_SUPPORTED);
        assert_eq!(failed(&NvmlError::FailedToLoadSymbol("nvmlDeviceGetName".into())).status(), Status::NOT_SUPPORTED);
        assert_eq!(failed(&NvmlError::DriverNotLoaded).status(), Status::NVML_UNAVAILABLE);
        assert_eq!(failed(&NvmlError::GpuLost).status(), Status::DRIVER);
        assert_eq!(failed(&NvmlError::NoPermission).status(), Status::SYSTEM);
    }
}
