//! What a device is doing: how busy and how warm it is, how fast its clock, how much power and memory it takes.
//!
//! GPUs are asked through NVML (`gpu`), the host device's readings are those of the machine's processors (`cpu`). A
//! reading that there is not has a status of its own, so that a program can tell "cannot be read here" from a failure.

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

/// The readings, each a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reading {
    /// Per cent of the time in which at least one kernel ran, over a period that the card chooses.
    Utilization,
    /// Per cent of the time in which memory was read or written.
    MemoryUsage,
    /// Degrees Celsius.
    Temperature,
    /// Milliwatts.
    PowerDraw,
    /// Megahertz of the multiprocessors.
    ClockRate,
    /// Megahertz of the memory.
    MemoryClockRate,
    /// Bytes that all processes have, and those that the driver keeps for itself.
    MemoryUsed,
    /// Millijoules since the driver was loaded.
    Energy,
    /// What holds the clock down: bits of [`THROTTLE_REASONS`].
    ThrottleReasons,
}

impl Reading {
    /// Each of them.
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

/// One reading of a device.
pub fn read(number: i32, reading: Reading) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    read_from(runtime, device, reading)
        .context(|| format!("reading the {} of device {}", reading.describe(), device.ordinal))
}

/// All readings of a device, as far as there are any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// When they were read, in microseconds since 1970.
    pub time_us: u64,
    /// By the number of the [`Reading`]; `None` for what the device cannot tell.
    pub values: [Option<u64>; Reading::ALL.len()],
}

/// Reads all that a device can tell.
pub fn read_all(number: i32) -> Result<Telemetry> {
    read_each(number, |_, read| read())
}

/// Reads what `visit` wants to be read: it is given each reading, and how to do it.
fn read_each(
    number: i32,
    mut visit: impl FnMut(Reading, &dyn Fn() -> Result<Option<u64>>) -> Result<Option<u64>>,
) -> Result<Telemetry> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let mut telemetry = Telemetry { time_us: now(), ..Telemetry::default() };
    for reading in Reading::ALL {
        telemetry.values[reading as usize] = visit(reading, &|| match read_from(runtime, device, reading) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.status() == Status::NOT_SUPPORTED => Ok(None),
            Err(error) => Err(error.context(format_args!("reading the telemetry of device {}", device.ordinal))),
        })?;
    }
    Ok(telemetry)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}
