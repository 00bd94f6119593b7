//! Statistics of the allocator
//!
//! What the caching allocator counts for each device, pool or stream: torch.cuda.memory_stats.
//!
//! The caller provides the struct; a text that a function returns is the caller's, who frees it with
//! plinth_string_free. Counters hold for the whole process, whichever thread allocated. A callback is called by the
//! calling thread, before the function returns.

use crate::{
    ffi::{
        Output, guard::guard, null, owned_text, plinth_stream_t, pool::plinth_pool_id_t, properties::write_growable,
        status::plinth_status_t,
    },
    memory::{
        self, figures,
        stats::{ByPool, Stat, Stats},
    },
    runtime, stream,
};
use std::{
    ffi::{CString, c_char, c_void},
    mem,
};

/// A quantity that goes up and down.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_memory_stat_t {
    /// What it is.
    pub current: i64,
    /// The most that it was, since the peaks were reset.
    pub peak: i64,
    /// The sum of all increases, since the sums were reset.
    pub allocated: i64,
    /// The sum of all decreases, since the sums were reset.
    pub freed: i64,
}

/// A quantity of the whole, and of requests up to 1 MiB and above.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_memory_stat_by_pool_t {
    /// The whole.
    pub all: plinth_memory_stat_t,
    /// Small blocks.
    pub small_pool: plinth_memory_stat_t,
    /// Large blocks.
    pub large_pool: plinth_memory_stat_t,
}

/// All that the allocator counts; the names are those of torch.cuda.memory_stats.
///
/// The struct grows at its end in newer versions, and programs compiled against older ones go on working: set struct_size to
/// sizeof(plinth_memory_stats_t) before the call.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_memory_stats_t {
    /// In: the size that the caller knows. Out: how much of it was filled.
    pub struct_size: usize,
    /// Blocks in the program's hands.
    pub allocation: plinth_memory_stat_by_pool_t,
    /// Pieces of memory that the driver gave.
    pub segment: plinth_memory_stat_by_pool_t,
    /// Blocks in the program's hands, and freed ones that a stream may still be using.
    pub active: plinth_memory_stat_by_pool_t,
    /// Free blocks in pieces that are partly in use, and so cannot go back to the driver. They are counted when somebody
    /// asks, so peak and sums are those of what was told.
    pub inactive_split: plinth_memory_stat_by_pool_t,
    /// Bytes in the program's hands, each request rounded up to 512.
    pub allocated_bytes: plinth_memory_stat_by_pool_t,
    /// Bytes that the driver gave.
    pub reserved_bytes: plinth_memory_stat_by_pool_t,
    /// Bytes of the active blocks.
    pub active_bytes: plinth_memory_stat_by_pool_t,
    /// Bytes of the free blocks that cannot go back to the driver, counted as those.
    pub inactive_split_bytes: plinth_memory_stat_by_pool_t,
    /// Bytes that the program asked for, before rounding.
    pub requested_bytes: plinth_memory_stat_by_pool_t,
    /// Blocks in the program's hands of at least max_split_size.
    pub oversize_allocations: plinth_memory_stat_t,
    /// Pieces of memory from the driver of at least max_split_size.
    pub oversize_segments: plinth_memory_stat_t,
    /// Requests that were met only after the device was waited for.
    pub num_alloc_retries: i64,
    /// Requests that failed for want of memory.
    pub num_ooms: i64,
    /// Blocks of this size and above are not split; -1 where every block may be.
    pub max_split_size: i64,
    /// Times that every stream was waited for.
    pub num_sync_all_streams: i64,
    /// Driver calls that brought memory.
    pub num_device_alloc: i64,
    /// Driver calls that gave memory back.
    pub num_device_free: i64,
}

/// Hears of a figure: torch's key for it, which is valid during the call, its value, and the context.
#[allow(non_camel_case_types)]
pub type plinth_memory_stats_callback_t =
    Option<unsafe extern "C" fn(name: *const c_char, value: i64, context: *mut c_void)>;

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl From<Stat> for plinth_memory_stat_t {
    fn from(from: Stat) -> Self {
        plinth_memory_stat_t {
            current: number(from.current),
            peak: number(from.peak),
            allocated: number(from.allocated),
            freed: number(from.freed),
        }
    }
}

impl From<ByPool> for plinth_memory_stat_by_pool_t {
    fn from(from: ByPool) -> Self {
        plinth_memory_stat_by_pool_t {
            all: from.all.into(),
            small_pool: from.small.into(),
            large_pool: from.large.into(),
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
            num_alloc_retries: number(from.num_alloc_retries),
            num_ooms: number(from.num_ooms),
            max_split_size: from.max_split_size.map_or(-1, number),
            num_sync_all_streams: number(from.num_sync_all_streams),
            num_device_alloc: number(from.num_device_alloc),
            num_device_free: number(from.num_device_free),
        }
    }
}

/// Tells all that the allocator counts of a device, as torch.cuda.memory_stats does. Counting costs requests nothing that could
/// be measured; to ask walks over all blocks. Thread-safe.
///
/// The peaks of all allocated and of all reserved bytes are exact. Every other peak of a whole is the sum of the peaks of its
/// parts, small and large blocks, one stream and another, and so the most that it can have been.
///
/// @param device The device's number; -1 for the current one.
/// @param stats In: struct_size. Out: the figures, as far as struct_size reaches, and in struct_size how far they were
///        filled.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set;
///         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_stats(device: i32, stats: *mut plinth_memory_stats_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes a struct whose first field says its size; ours is plain data that begins likewise.
        unsafe { write_growable(stats, memory::stats(device)?.into(), "stats") }
    })
}

/// Tells all that the allocator counts of a pool on a device. What only the device counts is 0: retries, failures, waits and
/// driver calls. Thread-safe.
///
/// @param pool The pool; {0, 0} for the default one. A pool without memory has zeros.
/// @param device The device's number; -1 for the current one.
/// @param stats As for plinth_memory_stats.
/// @return As plinth_memory_stats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_stats(
    pool: plinth_pool_id_t,
    device: i32,
    stats: *mut plinth_memory_stats_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: as in plinth_memory_stats.
        unsafe { write_growable(stats, memory::pool_stats(pool.into(), device)?.into(), "stats") }
    })
}

/// Tells all that the allocator counts of what was allocated for a stream, in every pool. What only the device counts is 0,
/// as for plinth_mem_pool_stats. Thread-safe.
///
/// @param stream The stream; NULL for the current device's default stream. For a thread's own default stream what the calling
///        thread has.
/// @param stats As for plinth_memory_stats.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set;
///         PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_memory_stats(
    stream: plinth_stream_t,
    stats: *mut plinth_memory_stats_t,
) -> plinth_status_t {
    guard(|| {
        let stream = stream::resolve(runtime::ready()?, stream as usize)?;
        // SAFETY: as in plinth_memory_stats.
        unsafe { write_growable(stats, memory::stream_stats(&stream)?.into(), "stats") }
    })
}

/// Calls a callback for each figure of a device: with the 122 keys of torch.cuda.memory_stats, in their order. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param callback What is called, in this thread, with no lock of the library's held; it may call the library.
/// @param context What it is called with; never looked into.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback; PLINTH_ERROR_INVALID_DEVICE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_stats_each(
    device: i32,
    callback: plinth_memory_stats_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        for (key, value) in memory::stats(device)?.entries() {
            // No key has a NUL inside.
            let key = CString::new(key).unwrap_or_default();
            // SAFETY: the caller's function, which takes a string, a number and the context that belongs to it.
            unsafe { callback(key.as_ptr(), value, context) };
        }
        Ok(())
    })
}

/// Gives the figures of a device in JSON: {"active.all.allocated": 0, ...} or, nested, {"active": {"all": {"allocated": 0,
/// ...}, ...}, ...} as torch.cuda.memory_stats_as_nested_dict has them. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param nested Whether there are objects in objects.
/// @param text Out: the text. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_stats_as_json(
    device: i32,
    nested: bool,
    text: *mut *mut c_char,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let text = unsafe { Output::new(text, "text") }?;
        text.set(owned_text(&figures::json(&memory::stats(device)?, nested))?);
        Ok(())
    })
}

/// Lets all sums of a device's memory begin again at 0, what was allocated and freed, and all counts: of retries, failures,
/// waits and driver calls. Peaks stay, and so does what is. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_accumulated_memory_stats(device: i32) -> plinth_status_t {
    guard(|| memory::reset_accumulated_stats(device))
}

/// As plinth_memory_reserved: its old name, as torch.cuda.memory_cached is. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param bytes Out: bytes.
/// @return As plinth_memory_allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_cached(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the bytes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::reserved(device)?.0 as usize);
        Ok(())
    })
}

/// As plinth_max_memory_reserved: its old name, as torch.cuda.max_memory_cached is. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param bytes Out: bytes.
/// @return As plinth_memory_allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_max_memory_cached(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the bytes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::reserved(device)?.1 as usize);
        Ok(())
    })
}

/// As plinth_reset_peak_memory_stats: its old name, as torch.cuda.reset_max_memory_allocated is; it resets all peaks.
/// Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @return As plinth_reset_peak_memory_stats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_max_memory_allocated(device: i32) -> plinth_status_t {
    guard(|| memory::reset_peak_stats(device))
}

/// As plinth_reset_peak_memory_stats: its old name, as torch.cuda.reset_max_memory_cached is; it resets all peaks.
/// Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @return As plinth_reset_peak_memory_stats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_max_memory_cached(device: i32) -> plinth_status_t {
    guard(|| memory::reset_peak_stats(device))
}
