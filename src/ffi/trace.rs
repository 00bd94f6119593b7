//! Allocation traces
//!
//! Writes every allocation and free of the process to files, which benches/replay can replay with different allocators.
//! One trace at a time is written; it covers all devices and threads.

use crate::{
    ffi::{guard::guard, path as path_of, status::plinth_status_t},
    memory,
};
use std::ffi::c_char;

/// Begins to write every allocation and free of the caching allocator to a file, on all devices and from all threads. What
/// is live already is written first. benches/replay replays such files. Thread-safe.
///
/// A file is a row of events of 16 bytes, little-endian: the block's number (32 bits), 0 for an allocation or 1 for a free
/// (16 bits), the number of its stream in order of first use, 0 in a free (16 bits), and the bytes that were asked for (64
/// bits). Device 0's file has the path that was given; for the other devices ".1", ".2" and so on follow it, and files
/// without an event are removed at the end.
///
/// @param path Where to write. What is there is overwritten.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE while there is a trace already;
///         PLINTH_ERROR_SYSTEM for a file that cannot be written; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_trace_start(path: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        let path = unsafe { path_of(path, "path") }?;
        memory::trace_start(&path)
    })
}

/// Ends the trace, and writes what is not written yet. Thread-safe.
///
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE without a trace; PLINTH_ERROR_SYSTEM if something could not be written: the
///         message tells after how many events the file ends; PLINTH_ERROR_NOT_SUPPORTED for more blocks or streams than
///         the format can number; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_trace_stop() -> plinth_status_t {
    guard(memory::trace_stop)
}
