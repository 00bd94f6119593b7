//! Allocation traces
//!
//! Writes every allocation and free of the process to files, which benches/replay can replay with different allocators.
//! One trace at a time is written; it covers all devices and threads.

use crate::{
    ffi::{guard::guard, path as path_of, status::plinth_status_t},
    memory,
};
use std::ffi::c_char;

/// Starts a trace: writes every allocation and free of the caching allocator to a file, on all devices and from all
/// threads. Blocks that are allocated already are written first. benches/replay replays such files.
///
/// A file is a sequence of 16-byte events, little-endian: the block's number (32 bits); 0 for an allocation or 1 for a
/// free (16 bits); the number of its stream in order of first use, 0 in a free (16 bits); and the requested number of
/// bytes (64 bits). The trace of device 0 is written to the given path; ".1", ".2" and so on are appended for the other
/// devices. Files without events are removed at the end.
///
/// Call plinth_trace_stop to end the trace and to learn of failures. Otherwise the trace ends when the process exits: by
/// exit, or by a return from main. Events are written in blocks of 64 KiB, and a process that _exit or a signal ends
/// loses those of the last block.
///
/// @param path The path of the file. An existing file is overwritten.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if a trace is running already;
///         PLINTH_ERROR_SYSTEM for a file that cannot be written; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_trace_start(path: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let path = unsafe { path_of(path, "path") }?;
        memory::trace_start(&path)
    })
}

/// Stops the trace, and writes all buffered events.
///
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if no trace is running; PLINTH_ERROR_SYSTEM if something could not be
///         written (the message states after how many events the file ends); PLINTH_ERROR_NOT_SUPPORTED for more blocks
///         or streams than the format can number; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_trace_stop() -> plinth_status_t {
    guard(|| {
        memory::trace_stop()?;
        Ok(())
    })
}
