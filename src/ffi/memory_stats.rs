//! Statistics of the allocator
//!
//! What the caching allocator counts for each device, pool or stream: torch.cuda.memory_stats.
//!
//! The caller provides the struct; a text that a function returns is the caller's, who frees it with
//! plinth_string_free. Counters hold for the whole process, whichever thread allocated. A callback is called by the
//! calling thread, before the function returns.

use crate::{
    ffi::{
        Output,
        guard::guard,
        null, plinth_stream_t,
        pool::plinth_pool_id_t,
        stats::{visit, write_json},
        status::plinth_status_t,
        structs::StructOutput,
    },
    memory::{
        self,
        stats::{ByPool, Stat, Stats, as_value},
    },
    runtime, stream,
};
use std::{
    ffi::{c_char, c_void},
    mem,
};

/// A counter of the allocator that goes up and down.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_memory_stat_t {
    /// The current value.
    pub current: i64,
    /// The highest value since the peaks were reset.
    pub peak: i64,
    /// The sum of all increases since the accumulated statistics were reset.
    pub allocated: i64,
    /// The sum of all decreases since the accumulated statistics were reset.
    pub freed: i64,
}

/// A counter for all blocks, and separately for requests of up to 1 MiB and above 1 MiB.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_memory_stat_by_pool_t {
    /// All blocks.
    pub all: plinth_memory_stat_t,
    /// Blocks of requests up to 1 MiB.
    pub small_pool: plinth_memory_stat_t,
    /// Blocks of requests above 1 MiB.
    pub large_pool: plinth_memory_stat_t,
}

/// The statistics of the allocator; the names are those of torch.cuda.memory_stats.
///
/// The struct grows at its end in newer versions, and programs that were compiled against older versions keep working:
/// set struct_size to sizeof(plinth_memory_stats_t) before the call.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_memory_stats_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// Allocated blocks.
    pub allocation: plinth_memory_stat_by_pool_t,
    /// Segments that were allocated from the driver.
    pub segment: plinth_memory_stat_by_pool_t,
    /// Allocated blocks, and freed blocks that a stream may still use.
    pub active: plinth_memory_stat_by_pool_t,
    /// Free blocks in segments that are partly in use and therefore cannot be released to the driver. They are counted
    /// when statistics are read, so peak, allocated and freed cover only the values that were read.
    pub inactive_split: plinth_memory_stat_by_pool_t,
    /// Bytes of allocated blocks, each request rounded up to 512.
    pub allocated_bytes: plinth_memory_stat_by_pool_t,
    /// Bytes of the segments.
    pub reserved_bytes: plinth_memory_stat_by_pool_t,
    /// Bytes of the active blocks.
    pub active_bytes: plinth_memory_stat_by_pool_t,
    /// Bytes of the blocks of inactive_split, counted in the same way.
    pub inactive_split_bytes: plinth_memory_stat_by_pool_t,
    /// Bytes that the program requested for the active blocks, before rounding.
    pub requested_bytes: plinth_memory_stat_by_pool_t,
    /// Allocated blocks of at least max_split_size, counted when statistics are read, as inactive_split is. 0 if that is not
    /// set, and for memory of expandable segments, which it does not limit.
    pub oversize_allocations: plinth_memory_stat_t,
    /// Segments of at least max_split_size, counted in the same way.
    pub oversize_segments: plinth_memory_stat_t,
    /// Requests that succeeded only after a wait for the device.
    pub num_alloc_retries: i64,
    /// Requests that failed because memory ran out.
    pub num_ooms: i64,
    /// Blocks of at least this size are not split; -1 if every block may be split.
    pub max_split_size: i64,
    /// Number of times that the allocator waited for all streams: for a request, or to empty the cache.
    pub num_sync_all_streams: i64,
    /// Driver calls that allocated memory.
    pub num_device_alloc: i64,
    /// Driver calls that freed memory.
    pub num_device_free: i64,
}

/// Receives one value of the statistics: torch's key, which is valid during the call, the value, and the context.
/// It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_memory_stats_callback_t =
    Option<unsafe extern "C" fn(name: *const c_char, value: i64, context: *mut c_void)>;

impl From<Stat> for plinth_memory_stat_t {
    fn from(from: Stat) -> Self {
        plinth_memory_stat_t {
            current: as_value(from.current),
            peak: as_value(from.peak),
            allocated: as_value(from.allocated),
            freed: as_value(from.freed),
        }
    }
}

impl From<ByPool> for plinth_memory_stat_by_pool_t {
    fn from(from: ByPool) -> Self {
        plinth_memory_stat_by_pool_t {
            all: from.all.into(),
            small_pool: from.small_pool.into(),
            large_pool: from.large_pool.into(),
        }
    }
}

impl From<Stats> for plinth_memory_stats_t {
    fn from(from: Stats) -> Self {
        plinth_memory_stats_t {
            struct_size: mem::size_of::<Self>(),
            allocation: from.allocation.into(),
            segment: from.segment.into(),
            active: from.active.into(),
            inactive_split: from.inactive_split.into(),
            allocated_bytes: from.allocated_bytes.into(),
            reserved_bytes: from.reserved_bytes.into(),
            active_bytes: from.active_bytes.into(),
            inactive_split_bytes: from.inactive_split_bytes.into(),
            requested_bytes: from.requested_bytes.into(),
            oversize_allocations: from.oversize_allocations.into(),
            oversize_segments: from.oversize_segments.into(),
            num_alloc_retries: as_value(from.num_alloc_retries),
            num_ooms: as_value(from.num_ooms),
            max_split_size: from.max_split_size.map_or(-1, as_value),
            num_sync_all_streams: as_value(from.num_sync_all_streams),
            num_device_alloc: as_value(from.num_device_alloc),
            num_device_free: as_value(from.num_device_free),
        }
    }
}

/// Reads the statistics of a device's allocator, as torch.cuda.memory_stats does. The counters cost requests no
/// measurable time; this call visits all blocks.
///
/// The values are those of one moment, whatever other threads do, so they agree with each other: `all` is the sum of both
/// pools, no current value exceeds its peak, and allocated_bytes and requested_bytes are at most active_bytes, which are at
/// most reserved_bytes. Three values do not follow: reserved_bytes.all also includes memory that a call is just creating or
/// releasing, inactive_split is counted shortly before, and memory of a pool that is asleep is active but not reserved.
///
/// The peaks are those of the device: the most that was in use at one moment, over all streams, pools and threads. They
/// are never too high. Those of all allocated bytes, of all reserved bytes and of segments are exact while one thread
/// allocates at a time, and the others are too low by at most a 64th. If several threads allocate at the same time, a peak may
/// be too low by at most an eighth, or by 4 MiB (1024 blocks, for a count) for each stream with memory in each pool if that
/// is more. The peaks of segment and of all reserved bytes are exact even then.
///
/// @param device The device number; -1 for the current device.
/// @param stats In: struct_size. Out: the statistics, as far as struct_size reaches; struct_size is set to the number
///        of bytes that were filled.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set;
///         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_stats(device: i32, stats: *mut plinth_memory_stats_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        unsafe { StructOutput::new(stats, "stats") }?.set(memory::stats(device)?.into());
        Ok(())
    })
}

/// Reads the statistics of a pool on a device. Counters that exist only per device are 0: retries, failures, waits and
/// driver calls. If several streams have memory in the pool, its peaks are the sums of the peaks of the streams, and
/// therefore upper bounds.
///
/// @param pool The pool; {0, 0} for the default pool. All values of a pool without memory are 0.
/// @param device The device number; -1 for the current device.
/// @param stats As in plinth_memory_stats.
/// @return The statuses of plinth_memory_stats; PLINTH_ERROR_INVALID_HANDLE as for plinth_mem_pool_memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_stats(
    pool: plinth_pool_id_t,
    device: i32,
    stats: *mut plinth_memory_stats_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: as in plinth_memory_stats.
        unsafe { StructOutput::new(stats, "stats") }?.set(memory::pool_stats(pool.into(), device)?.into());
        Ok(())
    })
}

/// Reads the statistics of the memory that was allocated for a stream, in all pools. Counters that exist only per
/// device are 0, as in plinth_mem_pool_stats. If the stream has memory in several pools, its peaks are the sums of the
/// peaks in these pools, and therefore upper bounds.
///
/// @param stream The stream; NULL for the current device's default stream. CUDA's per-thread default stream stands for
///        that of the calling thread, which may have taken over the memory, and its counts, of a thread that ended.
/// @param stats As in plinth_memory_stats.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set;
///         PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_memory_stats(
    stream: plinth_stream_t,
    stats: *mut plinth_memory_stats_t,
) -> plinth_status_t {
    guard(|| {
        let stream = stream::resolve(runtime::ready()?, stream as usize)?;
        // SAFETY: as in plinth_memory_stats.
        unsafe { StructOutput::new(stats, "stats") }?.set(memory::stream_stats(&stream)?.into());
        Ok(())
    })
}

/// Passes the statistics of a device to a callback, value by value: the 122 keys of torch.cuda.memory_stats, in the
/// same order.
///
/// @param device The device number; -1 for the current device.
/// @param callback Called for each value, in the calling thread, without any lock of the library held; it may call the
///        library.
/// @param context Passed to the callback; the library does not dereference it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the callback is NULL; PLINTH_ERROR_INVALID_DEVICE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_stats_each(
    device: i32,
    callback: plinth_memory_stats_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        let stats = memory::stats(device)?;
        // SAFETY: this is the caller's function, with the context that belongs to it.
        unsafe { visit(&stats, callback, context, |value| value) };
        Ok(())
    })
}

/// Returns the statistics of a device as JSON: {"active.all.allocated": 0, ...} or, nested, {"active": {"all":
/// {"allocated": 0, ...}, ...}, ...} as in torch.cuda.memory_stats_as_nested_dict.
///
/// @param device The device number; -1 for the current device.
/// @param nested Whether the keys are split into nested objects.
/// @param text Out: the JSON text. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_stats_as_json(
    device: i32,
    nested: bool,
    text: *mut *mut c_char,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        unsafe { write_json(text, nested, || memory::stats(device)) }
    })
}

/// Resets the accumulated statistics of a device's memory to 0: allocated and freed of every counter, and the counts of
/// retries, failures, waits and driver calls. Current values and peaks are kept.
///
/// @param device The device number; -1 for the current device.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_accumulated_memory_stats(device: i32) -> plinth_status_t {
    guard(|| memory::reset_accumulated_stats(device))
}

/// Returns the same as plinth_memory_reserved: its former name, as torch.cuda.memory_cached.
///
/// @param device The device number; -1 for the current device.
/// @param bytes Out: the number of bytes.
/// @return The statuses of plinth_memory_allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_cached(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::reserved(device)?.0 as usize);
        Ok(())
    })
}

/// Returns the same as plinth_max_memory_reserved: its former name, as torch.cuda.max_memory_cached.
///
/// @param device The device number; -1 for the current device.
/// @param bytes Out: the number of bytes.
/// @return The statuses of plinth_memory_allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_max_memory_cached(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::reserved(device)?.1 as usize);
        Ok(())
    })
}

/// Resets all peaks, as plinth_reset_peak_memory_stats: a former name, as torch.cuda.reset_max_memory_allocated.
///
/// @param device The device number; -1 for the current device.
/// @return The statuses of plinth_reset_peak_memory_stats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_max_memory_allocated(device: i32) -> plinth_status_t {
    guard(|| memory::reset_peak_stats(device))
}

/// Resets all peaks, as plinth_reset_peak_memory_stats: a former name, as torch.cuda.reset_max_memory_cached.
///
/// @param device The device number; -1 for the current device.
/// @return The statuses of plinth_reset_peak_memory_stats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_max_memory_cached(device: i32) -> plinth_status_t {
    guard(|| memory::reset_peak_stats(device))
}
