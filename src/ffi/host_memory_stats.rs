//! The figures of cached pinned host memory, as C sees them.

use crate::{
    error::Error,
    ffi::{Output, guard::guard, owned_text, properties::write_growable, status::plinth_status_t},
    memory::{
        self,
        pinned::stats::{DurationStats, HostStats},
        stats::Stat,
    },
    status::Status,
};
use std::{
    ffi::{CString, c_char, c_void},
    mem,
};

/// A quantity that goes up and down.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_host_stat_t {
    /// What it is.
    pub current: u64,
    /// The most that it was, since the peaks were reset.
    pub peak: u64,
    /// The sum of all increases, since the sums were reset.
    pub allocated: u64,
    /// The sum of all decreases, since the sums were reset.
    pub freed: u64,
}

/// How long calls of the driver took, in microseconds.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_host_time_t {
    /// All of them together, since the sums were reset.
    pub total: u64,
    /// The longest, since the peaks or the sums were reset.
    pub max: u64,
    /// The shortest, since then.
    pub min: u64,
    /// How many there were, since the sums were reset.
    pub count: u64,
    /// Their mean: total / count, rounded down; 0 where there was none.
    pub avg: u64,
}

/// The figures of pinned memory, by the names of torch.cuda.host_memory_stats. They are right where torch 2.11's are not:
/// active_requests and active_bytes go down with every block that may be given out again, by its own size.
///
/// The struct grows at its end in newer versions; set struct_size to sizeof(plinth_host_memory_stats_t) before the call.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_host_memory_stats_t {
    /// In: the size that the caller knows. Out: how much of it was filled.
    pub struct_size: usize,
    /// Pieces of memory that the driver gave, each of one block or many.
    pub allocations: plinth_host_stat_t,
    /// Blocks in the callers' hands, and freed ones that streams or graphs may still use.
    pub active_requests: plinth_host_stat_t,
    /// Bytes that the driver gave.
    pub allocated_bytes: plinth_host_stat_t,
    /// Bytes of the active blocks, each as large as it was rounded up to.
    pub active_bytes: plinth_host_stat_t,
    /// How often the driver was asked for pinned memory and gave it, since the sums were reset.
    pub num_host_alloc: u64,
    /// How often it was given back, since the sums were reset.
    pub num_host_free: u64,
    /// What the former took.
    pub host_alloc_time: plinth_host_time_t,
    /// What the latter took.
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

/// Tells the figures of the pinned memory of plinth_host_alloc. Thread-safe: while other threads allocate, each figure is
/// right for a moment of the call.
///
/// @param stats In: struct_size. Out: the figures.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that is too small; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_memory_stats(stats: *mut plinth_host_memory_stats_t) -> plinth_status_t {
    guard(|| {
        let figures = memory::host_memory_stats()?;
        // SAFETY: the caller passes a struct whose first field says its size; ours is plain data that begins likewise.
        unsafe { write_growable(stats, figures.into(), "stats") }
    })
}

/// Is told of a figure. The key is valid during the call only.
#[allow(non_camel_case_types)]
pub type plinth_host_memory_stats_visitor_t =
    Option<unsafe extern "C" fn(key: *const c_char, value: u64, context: *mut c_void)>;

/// Tells the same figures one by one, under the keys of torch.cuda.host_memory_stats ("active_bytes.current"), in the order
/// of their bytes: 28 of them. Thread-safe.
///
/// @param visitor Is called for each, in the calling thread; not NULL. It may call the library.
/// @param context Is passed to the visitor.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_memory_stats_each(
    visitor: plinth_host_memory_stats_visitor_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let visitor = visitor.ok_or_else(|| Error::new(Status::NULL_POINTER, "visitor is NULL"))?;
        for (key, part, value) in memory::host_memory_stats()?.entries() {
            let dot = if part.is_empty() { "" } else { "." };
            let key = CString::new(format!("{key}{dot}{part}"))
                .map_err(|_| Error::new(Status::PANIC, "a key of the library's holds a NUL"))?;
            // SAFETY: the caller's function takes a text, a number and its own context, and does not unwind.
            unsafe { visitor(key.as_ptr(), value, context) };
        }
        Ok(())
    })
}

/// Gives the same figures as a JSON object with the keys of torch.cuda.host_memory_stats: {"active_bytes.current": 0, ...}.
/// Thread-safe.
///
/// @param text Out: the object. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_memory_stats_json(text: *mut *mut c_char) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a place for the pointer.
    guard(|| unsafe { put_json(text, false) })
}

/// Gives the same figures as a JSON object of objects, as torch.cuda.host_memory_stats_as_nested_dict:
/// {"active_bytes": {"current": 0, ...}, ...}. Thread-safe.
///
/// @param text Out: the object. The caller owns it and frees it with plinth_string_free.
/// @return As plinth_host_memory_stats_json.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_memory_stats_as_nested_dict(text: *mut *mut c_char) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a place for the pointer.
    guard(|| unsafe { put_json(text, true) })
}

/// # Safety
/// `text` is NULL, or a pointer may be written through it.
unsafe fn put_json(text: *mut *mut c_char, nested: bool) -> crate::error::Result<()> {
    // SAFETY: the caller's promise is the same.
    let text = unsafe { Output::new(text, "text") }?;
    text.set(owned_text(&memory::host_memory_stats()?.json(nested))?);
    Ok(())
}

/// Lets all peaks of pinned memory begin again at what is now, and the longest and shortest times with the next call of the
/// driver. Thread-safe.
///
/// @return PLINTH_OK; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_peak_host_memory_stats() -> plinth_status_t {
    guard(memory::reset_peak_host_memory_stats)
}

/// Sets all sums of pinned memory to 0: allocated and freed of each quantity, the counts of driver calls, and their times.
/// Thread-safe.
///
/// @return PLINTH_OK; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_accumulated_host_memory_stats() -> plinth_status_t {
    guard(memory::reset_accumulated_host_memory_stats)
}
