//! GPUs, through NVML.
//!
//! NVML numbers the cards in its own way, and `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` number the devices in
//! theirs, so a device's card is found by what it is called everywhere: its UUID, or its place on the bus.

use super::{Reading, not_read};
use crate::{
    error::{Error, Result},
    runtime::{Runtime, device::Device, properties::Properties},
    status::Status,
};
use nvml_wrapper::{
    Device as Card, Nvml,
    enum_wrappers::device::{Clock, TemperatureSensor},
    enums::device::UsedGpuMemory,
    error::NvmlError,
    struct_wrappers::device::MemoryInfo,
};
use once_cell::sync::{Lazy, OnceCell};
use parking_lot::Mutex;
use std::{collections::HashMap, ffi::OsString};

/// The name under which the driver's package has it, and the variable that names another.
const LIBRARY: &str = "libnvidia-ml.so.1";
const VARIABLE: &str = "PLINTH_NVML_LIBRARY";

/// What can hold a clock down: NVML's bits, and what they mean.
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

/// Loaded once, and never unloaded: cards refer to it.
fn nvml() -> Result<&'static Nvml> {
    static NVML: OnceCell<Nvml> = OnceCell::new();
    NVML.get_or_try_init(|| {
        let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        let library = named.unwrap_or_else(|| OsString::from(LIBRARY));
        Nvml::builder().lib_path(&library).init().map_err(|error| unavailable(&library, &error))
    })
}

#[cold]
fn unavailable(library: &OsString, error: &NvmlError) -> Error {
    Error::new(
        Status::NVML_UNAVAILABLE,
        format!("NVML, which knows what GPUs are doing, cannot be used: {}: {error}", library.to_string_lossy()),
    )
}

#[cold]
fn failed(error: &NvmlError) -> Error {
    match error {
        NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
            not_read(format_args!("the card, or its driver, does not tell: {error}"))
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

fn find(nvml: &'static Nvml, properties: &Properties) -> Result<Card<'static>> {
    // A part of a card, where MIG has cut it, has a UUID of its own.
    for prefix in ["GPU-", "MIG-"] {
        if let Ok(card) = nvml.device_by_uuid(uuid_text(prefix, &properties.uuid)) {
            return Ok(card);
        }
    }
    nvml.device_by_pci_bus_id(properties.pci_bus_id_text.as_str())
        .map_err(|error| failed(&error).context(format_args!("looking for the card at {}", properties.pci_bus_id_text)))
}

/// Runs `body` with a device's card.
fn with_card<T>(
    runtime: &Runtime,
    device: &Device,
    body: impl FnOnce(&'static Nvml, &Card<'static>) -> std::result::Result<T, NvmlError>,
) -> Result<T> {
    static CARDS: Lazy<Mutex<HashMap<u32, &'static Card<'static>>>> = Lazy::new(Mutex::default);
    let nvml = nvml()?;
    let known = CARDS.lock().get(&device.ordinal).copied();
    let card = match known {
        Some(card) => card,
        None => {
            let card = find(nvml, device.properties(&runtime.driver)?)?;
            // As many as there are devices, and needed as long as the process lives.
            let mut cards = CARDS.lock();
            *cards.entry(device.ordinal).or_insert_with(|| Box::leak(Box::new(card)))
        }
    };
    body(nvml, card).map_err(|error| failed(&error))
}

/// The memory that is not to be had, as torch counts it: what the driver keeps for itself is in it, and NVML tells of that apart.
fn taken(memory: &MemoryInfo) -> u64 {
    memory.used + memory.reserved
}

/// One reading.
pub fn read(runtime: &Runtime, device: &Device, reading: Reading) -> Result<u64> {
    with_card(runtime, device, |_, card| {
        Ok(match reading {
            Reading::Utilization => card.utilization_rates()?.gpu.into(),
            Reading::MemoryUsage => card.utilization_rates()?.memory.into(),
            Reading::Temperature => card.temperature(TemperatureSensor::Gpu)?.into(),
            Reading::PowerDraw => card.power_usage()?.into(),
            Reading::ClockRate => card.clock_info(Clock::SM)?.into(),
            Reading::MemoryClockRate => card.clock_info(Clock::Memory)?.into(),
            Reading::MemoryUsed => taken(&card.memory_info()?),
            Reading::Energy => card.total_energy_consumption()?,
            Reading::ThrottleReasons => card.current_throttle_reasons()?.bits(),
        })
    })
}

/// The processes that compute on a card, with the bytes that each has there, where NVML knows them.
pub fn processes(runtime: &Runtime, device: &Device) -> Result<Vec<super::Process>> {
    let found = with_card(runtime, device, |_, card| card.running_compute_processes())?;
    let known = |used| match used {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    Ok(found.into_iter().map(|entry| super::Process { pid: entry.pid, memory: known(entry.used_gpu_memory) }).collect())
}

/// NVML's own number of a card, which torch's list of processes begins with.
pub fn number(runtime: &Runtime, device: &Device) -> Result<u32> {
    with_card(runtime, device, |_, card| card.index())
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
    fn what_the_driver_keeps_is_taken() {
        let memory = MemoryInfo { free: 70, reserved: 10, total: 100, used: 20, version: 2 };
        assert_eq!(taken(&memory), memory.total - memory.free);
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
    fn what_a_card_lacks_is_told_from_what_fails() {
        assert_eq!(failed(&NvmlError::NotSupported).status(), Status::NOT_SUPPORTED);
        assert_eq!(failed(&NvmlError::FailedToLoadSymbol("nvmlDeviceGetName".into())).status(), Status::NOT_SUPPORTED);
        assert_eq!(failed(&NvmlError::DriverNotLoaded).status(), Status::NVML_UNAVAILABLE);
        assert_eq!(failed(&NvmlError::GpuLost).status(), Status::DRIVER);
        assert_eq!(failed(&NvmlError::NoPermission).status(), Status::SYSTEM);
    }
}
