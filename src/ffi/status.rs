//! Statuses and errors
//!
//! Almost every function returns a plinth_status_t. The library also keeps, for each thread, a message and the driver's
//! code of that thread's last call. Read them in the same thread, before its next call that returns a status.
//!
//! All texts here belong to the library. None of these functions needs a device.

use crate::{
    driver::runtime_codes,
    ffi::guard,
    status::{STATUSES, Status},
};
use std::ffi::c_char;

/// The result of a call: PLINTH_OK, which is 0, or one of the PLINTH_ERROR_ constants. The numbers never change their
/// meaning. Newer versions of the library add more, so treat an unknown number as a failure.
#[allow(non_camel_case_types)]
pub type plinth_status_t = i32;

/// The call succeeded.
pub const PLINTH_OK: plinth_status_t = 0;
/// An argument is out of range or malformed.
pub const PLINTH_ERROR_INVALID_VALUE: plinth_status_t = 1;
/// A pointer that must not be NULL is NULL.
pub const PLINTH_ERROR_NULL_POINTER: plinth_status_t = 2;
/// There is no device with this number.
pub const PLINTH_ERROR_INVALID_DEVICE: plinth_status_t = 3;
/// The handle was never created, was destroyed, or is of another kind.
pub const PLINTH_ERROR_INVALID_HANDLE: plinth_status_t = 4;
/// The pointer does not belong to memory that the call accepts.
pub const PLINTH_ERROR_INVALID_POINTER: plinth_status_t = 5;
/// There is not enough free memory for the request.
pub const PLINTH_ERROR_OUT_OF_MEMORY: plinth_status_t = 6;
/// This machine has no CUDA driver, or no device that is visible to the process.
pub const PLINTH_ERROR_NO_DEVICE: plinth_status_t = 7;
/// The CUDA driver lacks a required function.
pub const PLINTH_ERROR_DRIVER_TOO_OLD: plinth_status_t = 8;
/// The libcuda that was found is the stub of the CUDA toolkit, not a driver.
pub const PLINTH_ERROR_STUB_LIBRARY: plinth_status_t = 9;
/// An environment variable has an invalid value.
pub const PLINTH_ERROR_INVALID_CONFIGURATION: plinth_status_t = 10;
/// The call must come before the library is initialized.
pub const PLINTH_ERROR_ALREADY_INITIALIZED: plinth_status_t = 11;
/// A process created by fork cannot use the devices of its parent.
pub const PLINTH_ERROR_FORKED_CHILD: plinth_status_t = 12;
/// The process is exiting, and the driver must not be called any more.
pub const PLINTH_ERROR_SHUTTING_DOWN: plinth_status_t = 13;
/// The device or its driver does not support this.
pub const PLINTH_ERROR_NOT_SUPPORTED: plinth_status_t = 14;
/// The objects belong to different devices.
pub const PLINTH_ERROR_DEVICE_MISMATCH: plinth_status_t = 15;
/// Both events must be created with PLINTH_EVENT_TIMING.
pub const PLINTH_ERROR_EVENT_TIMING_DISABLED: plinth_status_t = 16;
/// Both events must be recorded before the elapsed time can be read.
pub const PLINTH_ERROR_EVENT_NOT_RECORDED: plinth_status_t = 17;
/// Both events must be complete before the elapsed time can be read.
pub const PLINTH_ERROR_EVENT_NOT_COMPLETE: plinth_status_t = 18;
/// The call would wait for the device, and the sync debug mode forbids it.
pub const PLINTH_ERROR_WOULD_SYNCHRONIZE: plinth_status_t = 19;
/// The call is not permitted while a stream is capturing.
pub const PLINTH_ERROR_CAPTURE_FORBIDS: plinth_status_t = 20;
/// An earlier error made the capture invalid.
pub const PLINTH_ERROR_CAPTURE_INVALIDATED: plinth_status_t = 21;
/// The two devices cannot access each other's memory.
pub const PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED: plinth_status_t = 22;
/// Work on the device made an illegal memory access; the context is lost.
pub const PLINTH_ERROR_ILLEGAL_ADDRESS: plinth_status_t = 23;
/// A kernel failed on the device; the context is lost.
pub const PLINTH_ERROR_LAUNCH_FAILED: plinth_status_t = 24;
/// A driver call failed; plinth_last_driver_error returns its code.
pub const PLINTH_ERROR_DRIVER: plinth_status_t = 25;
/// A call to the operating system failed.
pub const PLINTH_ERROR_SYSTEM: plinth_status_t = 26;
/// An internal error (panic) in the library was caught.
pub const PLINTH_ERROR_PANIC: plinth_status_t = 27;
/// The generator is not registered with the graph that is being captured.
pub const PLINTH_ERROR_GENERATOR_NOT_REGISTERED: plinth_status_t = 28;
/// The graph already owns a capture; reset it, or create another graph, to capture again.
pub const PLINTH_ERROR_GRAPH_CAPTURED: plinth_status_t = 29;
/// The graph is being captured, and the call needs a finished capture.
pub const PLINTH_ERROR_GRAPH_CAPTURING: plinth_status_t = 30;
/// The graph is not being captured.
pub const PLINTH_ERROR_GRAPH_NOT_CAPTURING: plinth_status_t = 31;
/// The graph has no successful capture yet.
pub const PLINTH_ERROR_GRAPH_NOT_CAPTURED: plinth_status_t = 32;
/// A graph must be captured in a stream other than the default stream; it can be replayed in any.
pub const PLINTH_ERROR_GRAPH_DEFAULT_STREAM: plinth_status_t = 33;
/// A capture must end in the stream in which it began.
pub const PLINTH_ERROR_GRAPH_WRONG_STREAM: plinth_status_t = 34;
/// A capture that is not relaxed must end in the thread in which it began.
pub const PLINTH_ERROR_GRAPH_WRONG_THREAD: plinth_status_t = 35;
/// A stream that took part in the capture was not joined to the stream in which the capture began.
pub const PLINTH_ERROR_GRAPH_UNJOINED: plinth_status_t = 36;
/// Nothing was captured; this version does not return it, because an empty capture is a valid graph.
pub const PLINTH_ERROR_GRAPH_EMPTY: plinth_status_t = 37;
/// The graph's nodes are not available: it was created without keeping them.
pub const PLINTH_ERROR_GRAPH_NOT_KEPT: plinth_status_t = 38;
/// The graph's memory is suspended; wake it first.
pub const PLINTH_ERROR_GRAPH_ASLEEP: plinth_status_t = 39;
/// Memory of the pool is in use outside of its graphs.
pub const PLINTH_ERROR_GRAPH_MEMORY_IN_USE: plinth_status_t = 40;
/// Another replay of the pool's graphs is still running in another stream.
pub const PLINTH_ERROR_GRAPH_OVERLAP: plinth_status_t = 41;
/// The graphs differ in something that an update cannot change.
pub const PLINTH_ERROR_GRAPH_UPDATE_REFUSED: plinth_status_t = 42;
/// Guard bytes around an allocation were overwritten.
pub const PLINTH_ERROR_MEMORY_CORRUPTED: plinth_status_t = 43;
/// The memory was received from another process, and only its owner can share it.
pub const PLINTH_ERROR_IPC_REEXPORT: plinth_status_t = 44;
/// The process at the other end has ended, or has closed the connection.
pub const PLINTH_ERROR_IPC_PEER_GONE: plinth_status_t = 45;
/// Memory of this kind cannot be shared in this way.
pub const PLINTH_ERROR_IPC_NOT_SHAREABLE: plinth_status_t = 46;
/// A wait for other processes or ranks timed out.
pub const PLINTH_ERROR_TIMED_OUT: plinth_status_t = 47;
/// The process of another rank has ended, or has left the group.
pub const PLINTH_ERROR_PEER_LOST: plinth_status_t = 48;
/// The group was aborted, here or by another rank.
pub const PLINTH_ERROR_ABORTED: plinth_status_t = 49;
/// Collective mismatch: the ranks of a group made different calls.
pub const PLINTH_ERROR_RANK_MISMATCH: plinth_status_t = 50;
/// An NCCL call failed; the message names it.
pub const PLINTH_ERROR_NCCL: plinth_status_t = 51;
/// NCCL is required, but is not installed or too old.
pub const PLINTH_ERROR_NCCL_UNAVAILABLE: plinth_status_t = 52;
/// The initialization of the communicator is in progress.
pub const PLINTH_ERROR_COMMUNICATOR_NOT_READY: plinth_status_t = 53;
/// NVML, which reports the state of GPUs, is not installed or cannot be used.
pub const PLINTH_ERROR_NVML_UNAVAILABLE: plinth_status_t = 54;
/// A call to one of CUDA's libraries failed; the message names it.
pub const PLINTH_ERROR_LIBRARY: plinth_status_t = 55;
/// One of CUDA's libraries is required, but is not installed or too old.
pub const PLINTH_ERROR_LIBRARY_UNAVAILABLE: plinth_status_t = 56;
/// The stream sanitizer found that the call is not ordered after earlier work that it conflicts with.
pub const PLINTH_ERROR_RACE: plinth_status_t = 57;
/// A compiler is required, but is not installed or too old.
pub const PLINTH_ERROR_COMPILER_UNAVAILABLE: plinth_status_t = 58;
/// Compilation failed; the message contains the compiler's log.
pub const PLINTH_ERROR_COMPILATION_FAILED: plinth_status_t = 59;

/// Returns the name of a status, for example "PLINTH_ERROR_OUT_OF_MEMORY"; "PLINTH_ERROR_UNKNOWN" for an unknown
/// number.
///
/// Needs no device.
///
/// @param status The status.
/// @return A static string, never NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_status_name(status: plinth_status_t) -> *const c_char {
    guard::text(|| Status(status).info().map_or(c"PLINTH_ERROR_UNKNOWN".as_ptr(), |info| info.name.as_ptr().cast()))
}

/// Returns a one-sentence description of a status. plinth_last_error is more specific: it names the request.
///
/// Needs no device.
///
/// @param status The status.
/// @return A static string, never NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_status_string(status: plinth_status_t) -> *const c_char {
    guard::text(|| {
        Status(status)
            .info()
            .map_or(c"The number is not a status of this version.".as_ptr(), |info| info.text.as_ptr().cast())
    })
}

/// Returns the message of the calling thread's last call that returned a status: what was attempted and why it failed;
/// "" after a success.
///
/// The string belongs to the library and is valid until the thread's next call that returns a status. Needs no device.
///
/// @return A string, never NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_last_error() -> *const c_char {
    guard::text(guard::last_message)
}

/// Returns the CUresult of the driver call that made the calling thread's last call fail; 0 after a success, and after
/// an error that did not come from the driver.
///
/// @return The driver's error code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_last_driver_error() -> i32 {
    guard::value(0, guard::last_driver_code)
}

/// Converts an error code of the CUDA runtime to a status: torch.cuda.check_error.
///
/// Codes of the driver (CUresult) have the same numbers and meanings, as far as both have them. Needs no device.
///
/// @param code The cudaError_t.
/// @return PLINTH_OK for 0; otherwise the status that fits the code, PLINTH_ERROR_DRIVER if none does. The message has the
///         name and the meaning of the code, and plinth_last_driver_error returns the code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_check_error(code: i32) -> plinth_status_t {
    guard::convert(|| runtime_codes::error(code as u32).map_or(Ok(()), Err))
}

/// Returns the number of statuses: they are numbered from 0 without gaps.
///
/// @return The count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_status_count() -> i32 {
    guard::value(0, || STATUSES.len() as i32)
}
