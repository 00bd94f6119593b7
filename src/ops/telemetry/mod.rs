//! Telemetry of a device: utilization, temperature, clock rates, power and memory.
//!
//! GPUs are read through NVML (`gpu`); the host device's readings are those of the machine's processors (`cpu`). A
//! reading that is not available has its own status, so that a program can distinguish "not supported here" from a
//! failure.

mod cpu;
mod gpu;
mod processes;
pub mod sampler;

pub use gpu::THROTTLE_REASONS;
pub use processes::{Process, list, processes};

use crate::{
    driver::Kind,
    error::{Context, Error, Result},
    runtime::{self, Runtime, device::Device},
    status::Status,
};
use std::time::{SystemTime, UNIX_EPOCH};

/// The readings. Each is an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reading {
    /// Percentage of time in which at least one kernel ran, over a period that the GPU chooses.
    Utilization,
    /// Percentage of time in which memory was read or written.
    MemoryUsage,
    /// Degrees Celsius.
    Temperature,
    /// Milliwatts.
    PowerDraw,
    /// Megahertz of the multiprocessors.
    ClockRate,
    /// Megahertz of the memory.
    MemoryClockRate,
    /// Bytes in use by all processes, including those the driver reserves.
    MemoryUsed,
    /// Millijoules since the driver was loaded.
    Energy,
    /// Reasons for a reduced clock rate: bits of [`THROTTLE_REASONS`].
    ThrottleReasons,
}

impl Reading {
    /// All readings.
    pub const ALL: [Reading; 9] = [
        Reading::Utilization,
        Reading::MemoryUsage,
        Reading::Temperature,
        Reading::PowerDraw,
        Reading::ClockRate,
        Reading::MemoryClockRate,
        Reading::MemoryUsed,
        Reading::Energy,
        Reading::ThrottleReasons,
    ];

    fn describe(self) -> &'static str {
        match self {
            Reading::Utilization => "utilization",
            Reading::MemoryUsage => "utilization of memory",
            Reading::Temperature => "temperature",
            Reading::PowerDraw => "power",
            Reading::ClockRate => "clock rate",
            Reading::MemoryClockRate => "clock rate of memory",
            Reading::MemoryUsed => "memory in use",
            Reading::Energy => "energy used",
            Reading::ThrottleReasons => "reasons for a slower clock",
        }
    }
}

#[cold]
fn not_read(what: impl std::fmt::Display) -> Error {
    Error::new(Status::NOT_SUPPORTED, what.to_string())
}

fn read_from(runtime: &Runtime, device: &Device, reading: Reading) -> Result<u64> {
    match (runtime.driver.kind(), reading) {
        (Kind::Cuda, _) => gpu::read(runtime, device, reading),
        (Kind::Host, Reading::MemoryUsed) => {
            let (free, total) = device.memory_info(&runtime.driver)?;
            Ok(total - free)
        }
        (Kind::Host, _) => cpu::machine().read(reading),
    }
}

/// Returns one reading of a device.
pub fn read(number: i32, reading: Reading) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    read_from(runtime, device, reading)
        .context(|| format!("reading the {} of device {}", reading.describe(), device.ordinal))
}

/// All available readings of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// Time of the reading, in microseconds since 1970.
    pub time_us: u64,
    /// Values by the number of the [`Reading`]; `None` for those that the device does not report.
    pub values: [Option<u64>; Reading::ALL.len()],
}

/// Returns all readings that a device reports.
pub fn read_all(number: i32) -> Result<Telemetry> {
    read_with(number, now_us(), |_, read| read())
}

/// Takes a sample, whose time is `time_us`. Calls `visit` for each reading with a function that reads it; `visit` decides
/// whether to call the function.
fn read_with(
    number: i32,
    time_us: u64,
    mut visit: impl FnMut(Reading, &dyn Fn() -> Result<Option<u64>>) -> Result<Option<u64>>,
) -> Result<Telemetry> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let mut telemetry = Telemetry { time_us, ..Telemetry::default() };
    for reading in Reading::ALL {
        telemetry.values[reading as usize] = visit(reading, &|| match read_from(runtime, device, reading) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.status() == Status::NOT_SUPPORTED => Ok(None),
            Err(error) => Err(error.context(format_args!("reading the telemetry of device {}", device.ordinal))),
        })?;
    }
    Ok(telemetry)
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}
