//! Status codes: the open set of integers that every call of the library returns.

/// The status of a call. 0 is success; other numbers are never reused, and newer versions add more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub i32);

/// An entry of the list of statuses.
#[derive(Debug)]
pub struct StatusInfo {
    /// The number.
    pub status: Status,
    /// The name in the C header, NUL-terminated.
    pub name: &'static str,
    /// A one-sentence description, NUL-terminated.
    pub text: &'static str,
}

macro_rules! statuses {
    ($( $number:literal $name:ident $c_name:literal $text:literal; )*) => {
        impl Status {
            $( #[doc = $text] pub const $name: Status = Status($number); )*
        }

        /// All statuses, in ascending order.
        pub const STATUSES: &[StatusInfo] = &[
            $( StatusInfo {
                status: Status::$name,
                name: concat!($c_name, "\0"),
                text: concat!($text, "\0"),
            }, )*
        ];
    };
}

statuses! {
    0 OK "PLINTH_OK" "The call succeeded.";
    1 INVALID_VALUE "PLINTH_ERROR_INVALID_VALUE" "An argument is out of range or malformed.";
    2 NULL_POINTER "PLINTH_ERROR_NULL_POINTER" "A pointer that must not be NULL is NULL.";
    3 INVALID_DEVICE "PLINTH_ERROR_INVALID_DEVICE" "There is no device with this number.";
    4 INVALID_HANDLE "PLINTH_ERROR_INVALID_HANDLE" "The handle was never created, was destroyed, or is of another kind.";
    5 INVALID_POINTER "PLINTH_ERROR_INVALID_POINTER" "The pointer does not belong to memory that the call accepts.";
    6 OUT_OF_MEMORY "PLINTH_ERROR_OUT_OF_MEMORY" "There is not enough free memory for the request.";
    7 NO_DEVICE "PLINTH_ERROR_NO_DEVICE" "This machine has no CUDA driver, or no device that is visible to the process.";
    8 DRIVER_TOO_OLD "PLINTH_ERROR_DRIVER_TOO_OLD" "The CUDA driver lacks a required function.";
    9 STUB_LIBRARY "PLINTH_ERROR_STUB_LIBRARY" "The libcuda that was found is the stub of the CUDA toolkit, not a driver.";
    10 INVALID_CONFIGURATION "PLINTH_ERROR_INVALID_CONFIGURATION" "An environment variable has an invalid value.";
    11 ALREADY_INITIALIZED "PLINTH_ERROR_ALREADY_INITIALIZED" "The call must come before the library is initialized.";
    12 FORKED_CHILD "PLINTH_ERROR_FORKED_CHILD" "A process created by fork cannot use the devices of its parent.";
    13 SHUTTING_DOWN "PLINTH_ERROR_SHUTTING_DOWN" "The process is exiting, and the driver must not be called any more.";
    14 NOT_SUPPORTED "PLINTH_ERROR_NOT_SUPPORTED" "The device or its driver does not support this.";
    15 DEVICE_MISMATCH "PLINTH_ERROR_DEVICE_MISMATCH" "The objects belong to different devices.";
    16 EVENT_TIMING_DISABLED "PLINTH_ERROR_EVENT_TIMING_DISABLED" "Both events must be created with PLINTH_EVENT_TIMING.";
    17 EVENT_NOT_RECORDED "PLINTH_ERROR_EVENT_NOT_RECORDED" "Both events must be recorded before the elapsed time can be read.";
    18 EVENT_NOT_COMPLETE "PLINTH_ERROR_EVENT_NOT_COMPLETE" "Both events must be complete before the elapsed time can be read.";
    19 WOULD_SYNCHRONIZE "PLINTH_ERROR_WOULD_SYNCHRONIZE" "The call would wait for the device, and the sync debug mode forbids it.";
    20 CAPTURE_FORBIDS "PLINTH_ERROR_CAPTURE_FORBIDS" "The call is not permitted while a stream is capturing.";
    21 CAPTURE_INVALIDATED "PLINTH_ERROR_CAPTURE_INVALIDATED" "An earlier error made the capture invalid.";
    22 PEER_ACCESS_UNSUPPORTED "PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED" "The two devices cannot access each other's memory.";
    23 ILLEGAL_ADDRESS "PLINTH_ERROR_ILLEGAL_ADDRESS" "Work on the device made an illegal memory access; the context is lost.";
    24 LAUNCH_FAILED "PLINTH_ERROR_LAUNCH_FAILED" "A kernel failed on the device; the context is lost.";
    25 DRIVER "PLINTH_ERROR_DRIVER" "A driver call failed; plinth_last_driver_error returns its code.";
    26 SYSTEM "PLINTH_ERROR_SYSTEM" "A call to the operating system failed.";
    27 PANIC "PLINTH_ERROR_PANIC" "An internal error (panic) in the library was caught.";
    28 GENERATOR_NOT_REGISTERED "PLINTH_ERROR_GENERATOR_NOT_REGISTERED" "The generator is not registered with the graph that is being captured.";
    29 GRAPH_CAPTURED "PLINTH_ERROR_GRAPH_CAPTURED" "The graph already owns a capture; reset it, or create another graph, to capture again.";
    30 GRAPH_CAPTURING "PLINTH_ERROR_GRAPH_CAPTURING" "The graph is being captured, and the call needs a finished capture.";
    31 GRAPH_NOT_CAPTURING "PLINTH_ERROR_GRAPH_NOT_CAPTURING" "The graph is not being captured.";
    32 GRAPH_NOT_CAPTURED "PLINTH_ERROR_GRAPH_NOT_CAPTURED" "The graph has no successful capture yet.";
    33 GRAPH_DEFAULT_STREAM "PLINTH_ERROR_GRAPH_DEFAULT_STREAM" "A graph must be captured in a stream other than the default stream; it can be replayed in any.";
    34 GRAPH_WRONG_STREAM "PLINTH_ERROR_GRAPH_WRONG_STREAM" "A capture must end in the stream in which it began.";
    35 GRAPH_WRONG_THREAD "PLINTH_ERROR_GRAPH_WRONG_THREAD" "A capture that is not relaxed must end in the thread in which it began.";
    36 GRAPH_UNJOINED "PLINTH_ERROR_GRAPH_UNJOINED" "A stream that took part in the capture was not joined to the stream in which the capture began.";
    37 GRAPH_EMPTY "PLINTH_ERROR_GRAPH_EMPTY" "Nothing was captured; this version does not return it, because an empty capture is a valid graph.";
    38 GRAPH_NOT_KEPT "PLINTH_ERROR_GRAPH_NOT_KEPT" "The graph's nodes are not available: it was created without keeping them.";
    39 GRAPH_ASLEEP "PLINTH_ERROR_GRAPH_ASLEEP" "The graph's memory is suspended; wake it first.";
    40 GRAPH_MEMORY_IN_USE "PLINTH_ERROR_GRAPH_MEMORY_IN_USE" "Memory of the pool is in use outside of its graphs.";
    41 GRAPH_OVERLAP "PLINTH_ERROR_GRAPH_OVERLAP" "Another replay of the pool's graphs is still running in another stream.";
    42 GRAPH_UPDATE_REFUSED "PLINTH_ERROR_GRAPH_UPDATE_REFUSED" "The graphs differ in something that an update cannot change.";
    43 MEMORY_CORRUPTED "PLINTH_ERROR_MEMORY_CORRUPTED" "Guard bytes around an allocation were overwritten.";
    44 IPC_REEXPORT "PLINTH_ERROR_IPC_REEXPORT" "The memory was received from another process, and only its owner can share it.";
    45 IPC_PEER_GONE "PLINTH_ERROR_IPC_PEER_GONE" "The process at the other end has ended, or has closed the connection.";
    46 IPC_NOT_SHAREABLE "PLINTH_ERROR_IPC_NOT_SHAREABLE" "Memory of this kind cannot be shared in this way.";
    47 TIMED_OUT "PLINTH_ERROR_TIMED_OUT" "A wait for other processes or ranks timed out.";
    48 PEER_LOST "PLINTH_ERROR_PEER_LOST" "The process of another rank has ended, or has left the group.";
    49 ABORTED "PLINTH_ERROR_ABORTED" "The group was aborted, here or by another rank.";
    50 RANK_MISMATCH "PLINTH_ERROR_RANK_MISMATCH" "Collective mismatch: the ranks of a group made different calls.";
    51 NCCL "PLINTH_ERROR_NCCL" "An NCCL call failed; the message names it.";
    52 NCCL_UNAVAILABLE "PLINTH_ERROR_NCCL_UNAVAILABLE" "NCCL is required, but is not installed or too old.";
    53 COMMUNICATOR_NOT_READY "PLINTH_ERROR_COMMUNICATOR_NOT_READY" "The initialization of the communicator is in progress.";
    54 NVML_UNAVAILABLE "PLINTH_ERROR_NVML_UNAVAILABLE" "NVML, which reports the state of GPUs, is not installed or cannot be used.";
    55 LIBRARY "PLINTH_ERROR_LIBRARY" "A call to one of CUDA's libraries failed; the message names it.";
    56 LIBRARY_UNAVAILABLE "PLINTH_ERROR_LIBRARY_UNAVAILABLE" "One of CUDA's libraries is required, but is not installed or too old.";
    57 RACE "PLINTH_ERROR_RACE" "The stream sanitizer found that the call is not ordered after earlier work that it conflicts with.";
    58 COMPILER_UNAVAILABLE "PLINTH_ERROR_COMPILER_UNAVAILABLE" "A compiler is required, but is not installed or too old.";
    59 COMPILATION_FAILED "PLINTH_ERROR_COMPILATION_FAILED" "Compilation failed; the message contains the compiler's log.";
}

impl Status {
    /// Returns the list entry of this status.
    pub fn info(self) -> Option<&'static StatusInfo> {
        STATUSES.iter().find(|info| info.status == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ascend_without_gaps() {
        for (index, info) in STATUSES.iter().enumerate() {
            assert_eq!(info.status.0 as usize, index, "{}", info.name);
        }
    }

    #[test]
    fn c_names_follow_the_rust_names() {
        assert_eq!(Status::OUT_OF_MEMORY.info().unwrap().name, "PLINTH_ERROR_OUT_OF_MEMORY\0");
        assert!(Status(9999).info().is_none());
    }
}
