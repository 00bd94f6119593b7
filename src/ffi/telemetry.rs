//! Telemetry
//!
//! What a device is doing now: utilization, temperature, power, clocks, energy and processes, as torch.cuda.utilization
//! and its siblings return them. GPUs are read through NVML, and the host device through Linux.
//!
//! The caller provides the structs. A text that a function returns is the caller's, who frees it with
//! plinth_string_free. The caller owns a sampler, which has a thread of its own, and destroys it. No function waits for
//! a device, and all are allowed during captures.

use crate::{
    error::{Error, Result},
    ffi::{
        Output,
        guard::{guard, release},
        handle, null, owned_text,
        status::plinth_status_t,
        structs::{StructOutput, StructOutputList},
    },
    ops::telemetry::{self, Reading, Telemetry, sampler},
    runtime::thread::call_program,
    status::Status,
};
use std::{
    ffi::{c_char, c_void},
    time::Duration,
};

/// Bit of plinth_telemetry_t.valid: `utilization` is valid.
pub const PLINTH_TELEMETRY_UTILIZATION: u32 = 1;
/// Bit of plinth_telemetry_t.valid: `memory_usage` is valid.
pub const PLINTH_TELEMETRY_MEMORY_USAGE: u32 = 2;
/// Bit of plinth_telemetry_t.valid: `temperature` is valid.
pub const PLINTH_TELEMETRY_TEMPERATURE: u32 = 4;
/// Bit of plinth_telemetry_t.valid: `power_draw` is valid.
pub const PLINTH_TELEMETRY_POWER_DRAW: u32 = 8;
/// Bit of plinth_telemetry_t.valid: `clock_rate` is valid.
pub const PLINTH_TELEMETRY_CLOCK_RATE: u32 = 16;
/// Bit of plinth_telemetry_t.valid: `memory_clock_rate` is valid.
pub const PLINTH_TELEMETRY_MEMORY_CLOCK_RATE: u32 = 32;
/// Bit of plinth_telemetry_t.valid: `memory_used` is valid.
pub const PLINTH_TELEMETRY_MEMORY_USED: u32 = 64;
/// Bit of plinth_telemetry_t.valid: `energy` is valid.
pub const PLINTH_TELEMETRY_ENERGY: u32 = 128;
/// Bit of plinth_telemetry_t.valid: `throttle_reasons` is valid.
pub const PLINTH_TELEMETRY_THROTTLE_REASONS: u32 = 256;

/// Throttle reason: the GPU is idle.
pub const PLINTH_THROTTLE_IDLE: u64 = 0x1;
/// Throttle reason: the application clock setting limits the clocks.
pub const PLINTH_THROTTLE_APPLICATION_CLOCKS: u64 = 0x2;
/// Throttle reason: the power limit.
pub const PLINTH_THROTTLE_POWER_CAP: u64 = 0x4;
/// Throttle reason: hardware slowdown, because of temperature or power.
pub const PLINTH_THROTTLE_HARDWARE: u64 = 0x8;
/// Throttle reason: the clocks are synchronized with those of other GPUs (sync boost).
pub const PLINTH_THROTTLE_SYNC_BOOST: u64 = 0x10;
/// Throttle reason: the driver reduces the clocks because of the temperature.
pub const PLINTH_THROTTLE_THERMAL: u64 = 0x20;
/// Throttle reason: the hardware reduces the clocks because of the temperature.
pub const PLINTH_THROTTLE_HARDWARE_THERMAL: u64 = 0x40;
/// Throttle reason: the power supply asserted the power brake.
pub const PLINTH_THROTTLE_POWER_BRAKE: u64 = 0x80;
/// Throttle reason: a display requires this clock.
pub const PLINTH_THROTTLE_DISPLAY: u64 = 0x100;

/// All readings of a device at one time. `valid` states which readings are available; the others are 0.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct plinth_telemetry_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// Time of the readings, in microseconds since 1970.
    pub time_us: u64,
    /// PLINTH_TELEMETRY_ bits of the valid readings.
    pub valid: u32,
    /// Percentage of time in which at least one kernel ran. The GPU chooses the sample period, from 1/6 to 1 s.
    pub utilization: u32,
    /// Percentage of time in which memory was read or written; not the fraction of memory in use.
    pub memory_usage: u32,
    /// Temperature in degrees Celsius.
    pub temperature: u32,
    /// Power draw in milliwatts.
    pub power_draw: u32,
    /// Clock rate of the multiprocessors, in MHz.
    pub clock_rate: u32,
    /// Clock rate of the memory, in MHz.
    pub memory_clock_rate: u32,
    /// Reserved: 0.
    pub reserved: u32,
    /// Memory in use by all processes, in bytes.
    pub memory_used: u64,
    /// Energy in millijoules since the driver was loaded.
    pub energy: u64,
    /// PLINTH_THROTTLE_ bits of the throttle reasons.
    pub throttle_reasons: u64,
}

/// A process that has a compute context on a device.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct plinth_gpu_process_t {
    /// The size of the struct in the library's version.
    pub struct_size: usize,
    /// The process's memory on the device in bytes; UINT64_MAX if the driver does not report it.
    pub memory_used: u64,
    /// The process id.
    pub pid: u32,
    /// Reserved: 0.
    pub reserved: u32,
}

/// Receives a process, which is valid during the call, and the context. It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_gpu_process_callback_t =
    Option<unsafe extern "C" fn(process: *const plinth_gpu_process_t, context: *mut c_void)>;

/// The opaque type behind plinth_telemetry_sampler_t.
#[allow(non_camel_case_types)]
pub struct plinth_telemetry_sampler {
    _private: [u8; 0],
}

/// A sampler of a device's telemetry.
#[allow(non_camel_case_types)]
pub type plinth_telemetry_sampler_t = *mut plinth_telemetry_sampler;

/// Writes one reading of a device.
///
/// # Safety
/// `output` is NULL, or a T may be written through it.
unsafe fn read<T: TryFrom<u64>>(device: i32, reading: Reading, output: *mut T, name: &str) -> Result<()> {
    // SAFETY: the caller makes this promise.
    let output = unsafe { Output::new(output, name) }?;
    let value = telemetry::read(device, reading)?;
    output
        .set(T::try_from(value).map_err(|_| {
            Error::new(Status::DRIVER, format!("NVML returned {value}, which does not fit the output"))
        })?);
    Ok(())
}

impl From<&Telemetry> for plinth_telemetry_t {
    fn from(telemetry: &Telemetry) -> Self {
        let value = |reading: Reading| telemetry.values[reading as usize].unwrap_or(0);
        let small = |reading| u32::try_from(value(reading)).unwrap_or(u32::MAX);
        let known = Reading::ALL.iter().filter(|reading| telemetry.values[**reading as usize].is_some());
        plinth_telemetry_t {
            struct_size: size_of::<plinth_telemetry_t>(),
            time_us: telemetry.time_us,
            valid: known.map(|reading| 1 << *reading as u32).sum(),
            utilization: small(Reading::Utilization),
            memory_usage: small(Reading::MemoryUsage),
            temperature: small(Reading::Temperature),
            power_draw: small(Reading::PowerDraw),
            clock_rate: small(Reading::ClockRate),
            memory_clock_rate: small(Reading::MemoryClockRate),
            reserved: 0,
            memory_used: value(Reading::MemoryUsed),
            energy: value(Reading::Energy),
            throttle_reasons: value(Reading::ThrottleReasons),
        }
    }
}

/// Returns the percentage of time in which at least one kernel ran on a device, as torch.cuda.utilization. For the host
/// device: the utilization of the machine's processors by all processes.
///
/// This and the following calls read NVML, which is loaded at the first of them (libnvidia-ml.so.1; PLINTH_NVML_LIBRARY
/// names another file). A device is matched with its card by UUID or PCI address, never by number. The calls take
/// microseconds to milliseconds, do not wait for the device, and may be called while streams capture. For the host
/// device they return what Linux reports of the machine's processors.
///
/// @param device The device number; -1 for the current device.
/// @param percent Out: 0 to 100, over the card's last sample period of 1/6 to 1 s.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NVML_UNAVAILABLE;
///         PLINTH_ERROR_NOT_SUPPORTED if this card, MIG instance or machine does not report the reading;
///         PLINTH_ERROR_SYSTEM if NVML denies permission; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_utilization(device: i32, percent: *mut u32) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a valid pointer.
    guard(|| unsafe { read(device, Reading::Utilization, percent, "percent") })
}

/// Returns the percentage of time in which memory of a device was read or written, as torch.cuda.memory_usage; not the
/// fraction of memory in use.
///
/// @param device The device number; -1 for the current device.
/// @param percent Out: 0 to 100, over the card's last sample period.
/// @return The statuses of plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_usage(device: i32, percent: *mut u32) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a valid pointer.
    guard(|| unsafe { read(device, Reading::MemoryUsage, percent, "percent") })
}

/// Returns the current temperature of a device, as torch.cuda.temperature.
///
/// @param device The device number; -1 for the current device.
/// @param celsius Out: degrees Celsius.
/// @return The statuses of plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_temperature(device: i32, celsius: *mut u32) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a valid pointer.
    guard(|| unsafe { read(device, Reading::Temperature, celsius, "celsius") })
}

/// Returns the power draw of a device, as torch.cuda.power_draw. The card decides over which time it is averaged.
///
/// @param device The device number; -1 for the current device.
/// @param milliwatts Out: the power in milliwatts.
/// @return The statuses of plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_power_draw(device: i32, milliwatts: *mut u32) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a valid pointer.
    guard(|| unsafe { read(device, Reading::PowerDraw, milliwatts, "milliwatts") })
}

/// Returns the current clock rate of a device's multiprocessors, as torch.cuda.clock_rate.
///
/// @param device The device number; -1 for the current device.
/// @param megahertz Out: the clock rate in MHz.
/// @return The statuses of plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_clock_rate(device: i32, megahertz: *mut u32) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a valid pointer.
    guard(|| unsafe { read(device, Reading::ClockRate, megahertz, "megahertz") })
}

/// Returns how much memory of a device is in use by all processes and by the driver itself, as
/// torch.cuda.device_memory_used.
///
/// @param device The device number; -1 for the current device.
/// @param bytes Out: the number of bytes.
/// @return The statuses of plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_device_memory_used(device: i32, bytes: *mut u64) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a valid pointer.
    guard(|| unsafe { read(device, Reading::MemoryUsed, bytes, "bytes") })
}

/// Returns the energy that a device has used since its driver was loaded. Subtract two readings to measure a period.
///
/// @param device The device number; -1 for the current device.
/// @param millijoules Out: the energy in millijoules.
/// @return The statuses of plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_energy_used(device: i32, millijoules: *mut u64) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a valid pointer.
    guard(|| unsafe { read(device, Reading::Energy, millijoules, "millijoules") })
}

/// Returns the reasons why a device's clocks are below their maximum.
///
/// @param device The device number; -1 for the current device.
/// @param reasons Out: PLINTH_THROTTLE_ bits; 0 if the clocks are not reduced.
/// @return The statuses of plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_throttle_reasons(device: i32, reasons: *mut u64) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a valid pointer.
    guard(|| unsafe { read(device, Reading::ThrottleReasons, reasons, "reasons") })
}

/// Describes throttle reasons as text, separated by commas.
///
/// @param reasons PLINTH_THROTTLE_ bits.
/// @param text Out: the text; "none" for 0. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_throttle_reasons_text(reasons: u64, text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let text = unsafe { Output::new(text, "text") }?;
        let known = telemetry::THROTTLE_REASONS.iter().filter(|(bit, _)| reasons & bit != 0);
        let mut words: Vec<String> = known.map(|(_, word)| (*word).to_owned()).collect();
        let unknown = telemetry::THROTTLE_REASONS.iter().fold(reasons, |left, (bit, _)| left & !bit);
        if unknown != 0 {
            words.push(format!("others ({unknown:#x})"));
        }
        text.set(owned_text(&if words.is_empty() { "none".to_owned() } else { words.join(", ") })?);
        Ok(())
    })
}

/// Reads all available telemetry of a device in one call.
///
/// @param device The device number; -1 for the current device.
/// @param readings In: struct_size. Out: the readings; the bits of `valid` for unavailable readings are 0.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set;
///         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NVML_UNAVAILABLE; PLINTH_ERROR_SYSTEM;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_read_telemetry(device: i32, readings: *mut plinth_telemetry_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        let output = unsafe { StructOutput::new(readings, "readings") }?;
        output.set((&telemetry::read_all(device)?).into());
        Ok(())
    })
}

/// Lists the processes with a compute context on a device as text, as torch.cuda.list_gpu_processes does: one line per
/// process with its id and its memory in MiB (labelled MB). The first line names the card by its NVML index.
///
/// @param device The device number; -1 for the current device.
/// @param text Out: the text. The caller owns it and frees it with plinth_string_free.
/// @return The statuses of plinth_utilization, and PLINTH_ERROR_OUT_OF_MEMORY. Errors are returned as statuses; torch
///         writes some of them into the text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_list_gpu_processes(device: i32, text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let text = unsafe { Output::new(text, "text") }?;
        text.set(owned_text(&telemetry::list(device)?)?);
        Ok(())
    })
}

/// Passes the processes with a compute context on a device to a callback one by one.
///
/// @param device The device number; -1 for the current device.
/// @param callback Called for each process, in the calling thread; it may call the library.
/// @param context Passed to the callback; the library does not dereference it.
/// @return The statuses of plinth_utilization; PLINTH_ERROR_NULL_POINTER if the callback is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_gpu_processes_each(
    device: i32,
    callback: plinth_gpu_process_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        for process in telemetry::processes(device)? {
            let shown = plinth_gpu_process_t {
                struct_size: size_of::<plinth_gpu_process_t>(),
                memory_used: process.memory.unwrap_or(u64::MAX),
                pid: process.pid,
                reserved: 0,
            };
            // SAFETY: this is the caller's function, with the context that belongs to it; it does not unwind.
            call_program(|| unsafe { callback(&raw const shown, context) });
        }
        Ok(())
    })
}

/// Starts a thread that reads a device's telemetry at a fixed rate and keeps the latest readings. The thread runs until
/// plinth_telemetry_sampler_destroy. All readings together take less than a thousandth of one processor: slow readings
/// are taken less often, and are not valid in the samples in between. The times of the samples ascend, even if the
/// system's time is set; a thread that the system delays skips samples.
///
/// @param device The device number; -1 for the current device.
/// @param interval_ms Interval between samples in milliseconds, at least 1. NVML's own values change ten times per
///        second or less.
/// @param capacity The number of samples that are kept; when it is exceeded, the oldest are dropped.
/// @param made Out: the sampler. The caller owns it and destroys it with plinth_telemetry_sampler_destroy.
/// @return The statuses of plinth_read_telemetry, and PLINTH_ERROR_INVALID_VALUE for an interval or a capacity of 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_telemetry_sampler_create(
    device: i32,
    interval_ms: u32,
    capacity: usize,
    made: *mut plinth_telemetry_sampler_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let made = unsafe { Output::new(made, "made") }?;
        made.set(
            sampler::create(device, Duration::from_millis(interval_ms.into()), capacity)? as plinth_telemetry_sampler_t
        );
        Ok(())
    })
}

/// Removes the samples since the last call from a sampler, the oldest first, and returns them.
///
/// @param sampler The sampler.
/// @param readings In: struct_size of the first element. Out: up to `capacity` samples.
/// @param capacity The number of elements that `readings` has room for.
/// @param count Out: the number of samples that were written.
/// @param lost Out, unless NULL: the number of samples that were dropped since the last call because the capacity was
///        exceeded.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if struct_size was not
///         set. If the sampler's thread failed, its error is returned after all samples were taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_telemetry_sampler_take(
    sampler: plinth_telemetry_sampler_t,
    readings: *mut plinth_telemetry_t,
    capacity: usize,
    count: *mut usize,
    lost: *mut u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let count = unsafe { Output::new(count, "count") }?;
        if readings.is_null() && capacity > 0 {
            return Err(null("readings"));
        }
        // SAFETY: the caller passes `capacity` structs, of which the first begins with its size.
        let output = unsafe { StructOutputList::new(readings, capacity, "readings") }?;
        let (samples, gone) = sampler::take(handle(sampler, "sampler")?, capacity)?;
        output.set(samples.iter().map(plinth_telemetry_t::from));
        count.set(samples.len());
        if !lost.is_null() {
            // SAFETY: the caller passes NULL or a valid pointer.
            unsafe { lost.write(gone) };
        }
        Ok(())
    })
}

/// Stops a sampler's thread and destroys the sampler.
///
/// @param sampler The sampler; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_telemetry_sampler_destroy(sampler: plinth_telemetry_sampler_t) -> plinth_status_t {
    release(|| if sampler.is_null() { Ok(()) } else { sampler::destroy(sampler as u64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_the_cores() {
        let bits = [
            PLINTH_TELEMETRY_UTILIZATION,
            PLINTH_TELEMETRY_MEMORY_USAGE,
            PLINTH_TELEMETRY_TEMPERATURE,
            PLINTH_TELEMETRY_POWER_DRAW,
            PLINTH_TELEMETRY_CLOCK_RATE,
            PLINTH_TELEMETRY_MEMORY_CLOCK_RATE,
            PLINTH_TELEMETRY_MEMORY_USED,
            PLINTH_TELEMETRY_ENERGY,
            PLINTH_TELEMETRY_THROTTLE_REASONS,
        ];
        assert_eq!(bits, Reading::ALL.map(|reading| 1 << reading as u32));
        let reasons = [
            PLINTH_THROTTLE_IDLE,
            PLINTH_THROTTLE_APPLICATION_CLOCKS,
            PLINTH_THROTTLE_POWER_CAP,
            PLINTH_THROTTLE_HARDWARE,
            PLINTH_THROTTLE_SYNC_BOOST,
            PLINTH_THROTTLE_THERMAL,
            PLINTH_THROTTLE_HARDWARE_THERMAL,
            PLINTH_THROTTLE_POWER_BRAKE,
            PLINTH_THROTTLE_DISPLAY,
        ];
        assert_eq!(reasons, telemetry::THROTTLE_REASONS.map(|(bit, _)| bit));
    }
}
