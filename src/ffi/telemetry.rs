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
    ffi::{Output, guard::guard, null, owned_text, status::plinth_status_t},
    status::Status,
    telemetry::{self, Reading, Telemetry, sampler},
};
use std::{ffi::c_char, mem::offset_of, ptr, time::Duration};

/// In plinth_telemetry_t.valid: utilization is known.
pub const PLINTH_TELEMETRY_UTILIZATION: u32 = 1;
/// In plinth_telemetry_t.valid: memory_usage is known.
pub const PLINTH_TELEMETRY_MEMORY_USAGE: u32 = 2;
/// In plinth_telemetry_t.valid: temperature is known.
pub const PLINTH_TELEMETRY_TEMPERATURE: u32 = 4;
/// In plinth_telemetry_t.valid: power_draw is known.
pub const PLINTH_TELEMETRY_POWER_DRAW: u32 = 8;
/// In plinth_telemetry_t.valid: clock_rate is known.
pub const PLINTH_TELEMETRY_CLOCK_RATE: u32 = 16;
/// In plinth_telemetry_t.valid: memory_clock_rate is known.
pub const PLINTH_TELEMETRY_MEMORY_CLOCK_RATE: u32 = 32;
/// In plinth_telemetry_t.valid: memory_used is known.
pub const PLINTH_TELEMETRY_MEMORY_USED: u32 = 64;
/// In plinth_telemetry_t.valid: energy is known.
pub const PLINTH_TELEMETRY_ENERGY: u32 = 128;
/// In plinth_telemetry_t.valid: throttle_reasons is known.
pub const PLINTH_TELEMETRY_THROTTLE_REASONS: u32 = 256;

/// Why a clock is slower than it could be: there is nothing to do.
pub const PLINTH_THROTTLE_IDLE: u64 = 0x1;
/// Somebody set the clocks that applications get.
pub const PLINTH_THROTTLE_APPLICATION_CLOCKS: u64 = 0x2;
/// The card may not take more power.
pub const PLINTH_THROTTLE_POWER_CAP: u64 = 0x4;
/// The hardware slows down, for heat or for power.
pub const PLINTH_THROTTLE_HARDWARE: u64 = 0x8;
/// The card keeps in step with others.
pub const PLINTH_THROTTLE_SYNC_BOOST: u64 = 0x10;
/// It is too warm, the driver found.
pub const PLINTH_THROTTLE_THERMAL: u64 = 0x20;
/// It is too warm, the hardware found.
pub const PLINTH_THROTTLE_HARDWARE_THERMAL: u64 = 0x40;
/// The power supply asked for less.
pub const PLINTH_THROTTLE_POWER_BRAKE: u64 = 0x80;
/// A display needs this clock.
pub const PLINTH_THROTTLE_DISPLAY: u64 = 0x100;

/// All readings of a device at a moment. Which of them there are, `valid` tells; the others are 0.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct plinth_telemetry_t {
    /// In: sizeof(plinth_telemetry_t), so that later versions may add to it. No more than that is written.
    pub struct_size: usize,
    /// When they were read, in microseconds since 1970.
    pub time_us: u64,
    /// PLINTH_TELEMETRY_ bits: what is known.
    pub valid: u32,
    /// Per cent of the time in which at least one kernel ran. The card chooses the period, from 1/6 to 1 s.
    pub utilization: u32,
    /// Per cent of the time in which memory was read or written; not how much of it is in use.
    pub memory_usage: u32,
    /// Degrees Celsius.
    pub temperature: u32,
    /// Milliwatts.
    pub power_draw: u32,
    /// Megahertz of the multiprocessors.
    pub clock_rate: u32,
    /// Megahertz of the memory.
    pub memory_clock_rate: u32,
    /// Nothing yet.
    pub reserved: u32,
    /// Bytes that all processes have.
    pub memory_used: u64,
    /// Millijoules since the driver was loaded.
    pub energy: u64,
    /// PLINTH_THROTTLE_ bits.
    pub throttle_reasons: u64,
}

/// A process that computes on a device.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct plinth_gpu_process_t {
    /// The bytes of the device's memory that it has; UINT64_MAX where the driver does not tell.
    pub memory_used: u64,
    /// Its number.
    pub pid: u32,
    /// Nothing yet.
    pub reserved: u32,
}

/// What plinth_telemetry_sampler_t points at, never looked into.
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
    // SAFETY: the caller's promise.
    let output = unsafe { Output::new(output, name) }?;
    let value = telemetry::read(device, reading)?;
    output.set(T::try_from(value).map_err(|_| Error::new(Status::DRIVER, format!("a reading of {value}")))?);
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

/// Tells for how much of the time at least one kernel ran on a device, as torch.cuda.utilization. Of the host device: how
/// much of the processors' time was used, by whomever.
///
/// This and the calls below ask NVML, which is loaded at the first of them (libnvidia-ml.so.1; PLINTH_NVML_LIBRARY names
/// another file). A device is matched with its card by UUID or place on the bus, never by number. They take microseconds to
/// milliseconds, do not wait for the device, and are allowed while streams capture. Of the host device they tell what Linux
/// tells of the machine's processors. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param percent Out: 0 to 100, over the card's last period of 1/6 to 1 s.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NVML_UNAVAILABLE;
///         PLINTH_ERROR_NOT_SUPPORTED for what this card, this part of a card (MIG), or this machine does not tell;
///         PLINTH_ERROR_SYSTEM where NVML refuses; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_utilization(device: i32, percent: *mut u32) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a place for the number.
    guard(|| unsafe { read(device, Reading::Utilization, percent, "percent") })
}

/// Tells for how much of the time memory of a device was read or written, as torch.cuda.memory_usage: not how much of it is in
/// use. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param percent Out: 0 to 100, over the card's last period.
/// @return As plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_usage(device: i32, percent: *mut u32) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a place for the number.
    guard(|| unsafe { read(device, Reading::MemoryUsage, percent, "percent") })
}

/// Tells how warm a device is now, as torch.cuda.temperature. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param celsius Out: degrees Celsius.
/// @return As plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_temperature(device: i32, celsius: *mut u32) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a place for the number.
    guard(|| unsafe { read(device, Reading::Temperature, celsius, "celsius") })
}

/// Tells how much power a device takes, as torch.cuda.power_draw. Over which time that is a mean, the card decides.
/// Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param milliwatts Out: milliwatts.
/// @return As plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_power_draw(device: i32, milliwatts: *mut u32) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a place for the number.
    guard(|| unsafe { read(device, Reading::PowerDraw, milliwatts, "milliwatts") })
}

/// Tells the clock rate of a device's multiprocessors now, as torch.cuda.clock_rate. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param megahertz Out: megahertz.
/// @return As plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_clock_rate(device: i32, megahertz: *mut u32) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a place for the number.
    guard(|| unsafe { read(device, Reading::ClockRate, megahertz, "megahertz") })
}

/// Tells how much memory of a device is in use, by all processes and by the driver itself, as torch.cuda.device_memory_used.
/// Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param bytes Out: bytes.
/// @return As plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_device_memory_used(device: i32, bytes: *mut u64) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a place for the number.
    guard(|| unsafe { read(device, Reading::MemoryUsed, bytes, "bytes") })
}

/// Tells how much energy a device has used since its driver was loaded; the difference of two readings is what was used
/// between them. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param millijoules Out: millijoules.
/// @return As plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_energy_used(device: i32, millijoules: *mut u64) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a place for the number.
    guard(|| unsafe { read(device, Reading::Energy, millijoules, "millijoules") })
}

/// Tells why a device's clock is slower than it could be. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param reasons Out: PLINTH_THROTTLE_ bits; 0 for a clock at its best.
/// @return As plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_throttle_reasons(device: i32, reasons: *mut u64) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a place for the number.
    guard(|| unsafe { read(device, Reading::ThrottleReasons, reasons, "reasons") })
}

/// Puts such reasons in words, separated by commas. Thread-safe.
///
/// @param reasons PLINTH_THROTTLE_ bits.
/// @param text Out: the words; "none" for 0. The caller owns them and frees them with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_throttle_reasons_text(reasons: u64, text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
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

/// Reads all that a device tells in one call. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param readings In: its struct_size. Out: the readings; a reading that there is not leaves its bit of `valid` at 0.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a size that is too small for `valid`;
///         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NVML_UNAVAILABLE; PLINTH_ERROR_SYSTEM; PLINTH_ERROR_DRIVER; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_read_telemetry(device: i32, readings: *mut plinth_telemetry_t) -> plinth_status_t {
    guard(|| {
        if readings.is_null() {
            return Err(null("readings"));
        }
        // SAFETY: the caller passes a struct that begins with its size.
        let size = unsafe { ptr::addr_of!((*readings).struct_size).read() };
        if size < offset_of!(plinth_telemetry_t, valid) + size_of::<u32>() {
            return Err(Error::new(Status::INVALID_VALUE, format!("readings->struct_size is {size}")));
        }
        let all = plinth_telemetry_t { struct_size: size, ..plinth_telemetry_t::from(&telemetry::read_all(device)?) };
        let bytes = size.min(size_of::<plinth_telemetry_t>());
        // SAFETY: the caller's struct has `size` bytes, and ours has as many as are copied.
        unsafe { ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), readings.cast::<u8>(), bytes) };
        Ok(())
    })
}

/// Lists the processes that compute on a device, as torch.cuda.list_gpu_processes does: a line for each with its number and
/// its MiB, called MB. The first line names the card by NVML's number. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param text Out: the lines. The caller owns them and frees them with plinth_string_free.
/// @return As plinth_utilization, and PLINTH_ERROR_OUT_OF_MEMORY. Where torch puts an error into the text, this returns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_list_gpu_processes(device: i32, text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let text = unsafe { Output::new(text, "text") }?;
        text.set(owned_text(&telemetry::list(device)?)?);
        Ok(())
    })
}

/// Lists the same as structs. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param processes Out: as many as there are and fit; NULL to be told their number alone.
/// @param capacity How many fit.
/// @param count Out: how many there are, which may be more than were written.
/// @return As plinth_utilization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_gpu_processes(
    device: i32,
    processes: *mut plinth_gpu_process_t,
    capacity: usize,
    count: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let count = unsafe { Output::new(count, "count") }?;
        let found = telemetry::processes(device)?;
        let room = if processes.is_null() { 0 } else { capacity };
        for (index, process) in found.iter().take(room).enumerate() {
            let memory_used = process.memory.unwrap_or(u64::MAX);
            // SAFETY: the caller gave room for `capacity` of them, and the pointer is not NULL.
            unsafe { processes.add(index).write(plinth_gpu_process_t { memory_used, pid: process.pid, reserved: 0 }) };
        }
        count.set(found.len());
        Ok(())
    })
}

/// Begins to read a device's telemetry at a fixed rate, in a thread of its own, and to keep the last readings. The thread
/// lives until plinth_telemetry_sampler_destroy. All readings together take less than a thousandth of one processor: one that takes
/// long is read less often than the others, and is not valid in the samples between. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param interval_ms Milliseconds from one reading to the next, at least 1. NVML's own values change ten times a second
///        or less.
/// @param capacity How many readings are kept; when there are more, the oldest are lost.
/// @param made Out: the sampler. The caller owns it and destroys it.
/// @return As plinth_read_telemetry, and PLINTH_ERROR_INVALID_VALUE for an interval or a capacity of 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_telemetry_sampler_create(
    device: i32,
    interval_ms: u32,
    capacity: usize,
    made: *mut plinth_telemetry_sampler_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the sampler.
        let made = unsafe { Output::new(made, "made") }?;
        made.set(
            sampler::create(device, Duration::from_millis(interval_ms.into()), capacity)? as plinth_telemetry_sampler_t
        );
        Ok(())
    })
}

/// Takes the readings since the last call out of a sampler, the oldest first. Thread-safe.
///
/// @param sampler The sampler.
/// @param readings Out: as many as there are and fit. Their sizes are written, not read.
/// @param capacity How many fit.
/// @param count Out: how many were written.
/// @param lost Out, unless NULL: how many were lost since the last call because nobody took them.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; once everything is taken from a sampler that
///         could not go on: its error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_telemetry_sampler_take(
    sampler: plinth_telemetry_sampler_t,
    readings: *mut plinth_telemetry_t,
    capacity: usize,
    count: *mut usize,
    lost: *mut u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let count = unsafe { Output::new(count, "count") }?;
        if readings.is_null() && capacity > 0 {
            return Err(null("readings"));
        }
        let (samples, gone) = sampler::take(sampler as u64, capacity)?;
        for (index, sample) in samples.iter().enumerate() {
            // SAFETY: the caller gave room for `capacity` of them, which are no fewer than these.
            unsafe { readings.add(index).write(sample.into()) };
        }
        count.set(samples.len());
        if !lost.is_null() {
            // SAFETY: the caller passes NULL or a place for the number.
            unsafe { lost.write(gone) };
        }
        Ok(())
    })
}

/// Ends a sampler and its thread. Thread-safe.
///
/// @param sampler The sampler; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_telemetry_sampler_destroy(sampler: plinth_telemetry_sampler_t) -> plinth_status_t {
    guard(|| if sampler.is_null() { Ok(()) } else { sampler::destroy(sampler as u64) })
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
