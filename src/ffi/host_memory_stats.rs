//! Statistics of pinned host memory
//!
//! The statistics of the memory of plinth_host_alloc, as torch.cuda.host_memory_stats returns them. They count for the
//! whole process. The caller provides the struct; a text that a function returns is the caller's, who frees it with
//! plinth_string_free.

use crate::{
    ffi::{
        guard::guard,
        null,
        stats::{visit, write_json},
        status::plinth_status_t,
        structs::StructOutput,
    },
    memory::{
        self,
        pinned::stats::{DurationStats, HostStats},
        stats::Stat,
    },
};
use std::{
    ffi::{c_char, c_void},
    mem,
};

/// A counter of pinned memory that goes up and down.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_host_stat_t {
    /// The current value.
    pub current: u64,
    /// The highest value since the peaks were reset. After threads have allocated at the same time, it can be too low by
    /// a 64th, and 64 blocks or 256 KiB for each thread of at most 32; it is never too high.
    pub peak: u64,
    /// The sum of all increases since the accumulated statistics were reset.
    pub allocated: u64,
    /// The sum of all decreases since the accumulated statistics were reset.
    pub freed: u64,
}

/// Durations of driver calls, in microseconds.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_host_time_t {
    /// The total since the accumulated statistics were reset.
    pub total: u64,
    /// The longest call since the peaks or the accumulated statistics were reset.
    pub max: u64,
    /// The shortest call since the peaks or the accumulated statistics were reset.
    pub min: u64,
    /// The number of calls since the accumulated statistics were reset.
    pub count: u64,
    /// The mean: total / count, rounded down; 0 if there was no call.
    pub avg: u64,
}

/// Statistics of pinned host memory, with the names of torch.cuda.host_memory_stats. torch 2.11 counts two of them
/// wrong: here active_requests and active_bytes decrease whenever a block becomes reusable, by the block's own size.
///
/// The struct grows at its end in newer versions; set struct_size to sizeof(plinth_host_memory_stats_t) before the
/// call.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_host_memory_stats_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// Driver allocations; each holds one block or many.
    pub allocations: plinth_host_stat_t,
    /// Blocks in use by the program, and freed blocks that streams or graphs may still use.
    pub active_requests: plinth_host_stat_t,
    /// Bytes of all driver allocations.
    pub allocated_bytes: plinth_host_stat_t,
    /// Bytes of the active blocks, with rounded sizes.
    pub active_bytes: plinth_host_stat_t,
    /// Number of successful driver allocations since the accumulated statistics were reset.
    pub num_host_alloc: u64,
    /// Number of driver frees since the accumulated statistics were reset.
    pub num_host_free: u64,
    /// Durations of the driver allocations.
    pub host_alloc_time: plinth_host_time_t,
    /// Durations of the driver frees.
    pub host_free_time: plinth_host_time_t,
}

impl From<Stat> for plinth_host_stat_t {
    fn from(from: Stat) -> Self {
        let Stat { current, peak, allocated, freed } = from;
        plinth_host_stat_t { current, peak, allocated, freed }
    }
}

impl From<DurationStats> for plinth_host_time_t {
    fn from(from: DurationStats) -> Self {
        let DurationStats { total, max, min, count } = from;
        plinth_host_time_t { total, max, min, count, avg: from.average() }
    }
}

impl From<HostStats> for plinth_host_memory_stats_t {
    fn from(from: HostStats) -> Self {
        plinth_host_memory_stats_t {
            struct_size: mem::size_of::<Self>(),
            allocations: from.allocations.into(),
            active_requests: from.active_requests.into(),
            allocated_bytes: from.allocated_bytes.into(),
            active_bytes: from.active_bytes.into(),
            num_host_alloc: from.num_host_alloc,
            num_host_free: from.num_host_free,
            host_alloc_time: from.host_alloc_time.into(),
            host_free_time: from.host_free_time.into(),
        }
    }
}

/// Reads the statistics of the pinned memory of plinth_host_alloc. They are not one atomic snapshot: while other
/// threads allocate, each value is correct for some moment of the call.
///
/// @param stats In: struct_size. Out: the statistics.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size is too small; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_memory_stats(stats: *mut plinth_host_memory_stats_t) -> plinth_status_t {
    guard(|| {
        let figures = memory::host_memory_stats()?;
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        unsafe { StructOutput::new(stats, "stats") }?.set(figures.into());
        Ok(())
    })
}

/// Receives one value of the statistics: its key, the value and the context. The key is valid only during the call.
/// It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_host_memory_stats_callback_t =
    Option<unsafe extern "C" fn(key: *const c_char, value: u64, context: *mut c_void)>;

/// Passes the same statistics to a callback one by one, with the keys of torch.cuda.host_memory_stats
/// ("active_bytes.current"), sorted by the bytes of the keys: 28 values.
///
/// @param callback Called for each value, in the calling thread; not NULL. It may call the library.
/// @param context Passed to the callback; the library does not dereference it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_memory_stats_each(
    callback: plinth_host_memory_stats_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        let stats = memory::host_memory_stats()?;
        // SAFETY: this is the caller's function, with the context that belongs to it. No value is negative.
        unsafe { visit(&stats, callback, context, |value| value as u64) };
        Ok(())
    })
}

/// Returns the same statistics as a JSON object: with the keys of torch.cuda.host_memory_stats,
/// {"active_bytes.current": 0, ...}, or nested as torch.cuda.host_memory_stats_as_nested_dict, {"active_bytes":
/// {"current": 0, ...}, ...}.
///
/// @param nested Whether the objects are nested.
/// @param text Out: the JSON text. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_memory_stats_as_json(nested: bool, text: *mut *mut c_char) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a valid pointer.
    guard(|| unsafe { write_json(text, nested, memory::host_memory_stats) })
}

/// Resets the peak statistics of pinned memory: peaks restart at the current values, the longest and shortest durations
/// with the next driver call.
///
/// @return PLINTH_OK; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_peak_host_memory_stats() -> plinth_status_t {
    guard(|| {
        memory::reset_peak_host_memory_stats()?;
        Ok(())
    })
}

/// Resets the accumulated statistics of pinned memory to 0: allocated and freed of each counter, the numbers of driver
/// calls, and their durations.
///
/// @return PLINTH_OK; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_accumulated_host_memory_stats() -> plinth_status_t {
    guard(|| {
        memory::reset_accumulated_host_memory_stats()?;
        Ok(())
    })
}
