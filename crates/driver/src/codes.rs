//! CUDA's error codes as open integers, with their names.

#![allow(missing_docs)]

use super::table::Code;

macro_rules! codes {
    ($( $name:ident = $number:literal : $text:literal, )*) => {
        $( pub const $name: Code = $number; )*

        const NAMES: &[(Code, &str, &str)] = &[
            $( ($name, concat!(stringify!($name), "\0"), concat!($text, "\0")), )*
        ];
    };
}

// The numbers are literals because CUDA adds codes in each version, and the declarations that this crate builds with
// cover only one version.
codes! {
    CUDA_SUCCESS = 0: "no error",
    CUDA_ERROR_INVALID_VALUE = 1: "an argument is out of range or wrong",
    CUDA_ERROR_OUT_OF_MEMORY = 2: "the device has not enough free memory",
    CUDA_ERROR_NOT_INITIALIZED = 3: "the driver has not been initialized",
    CUDA_ERROR_DEINITIALIZED = 4: "the driver is shutting down",
    CUDA_ERROR_PROFILER_DISABLED = 5: "the profiler is not initialized for this run",
    CUDA_ERROR_PROFILER_NOT_INITIALIZED = 6: "the profiler is not initialized",
    CUDA_ERROR_PROFILER_ALREADY_STARTED = 7: "the profiler is started already",
    CUDA_ERROR_PROFILER_ALREADY_STOPPED = 8: "the profiler is stopped already",
    CUDA_ERROR_STUB_LIBRARY = 34: "the loaded libcuda is the toolkit's stub, not a driver",
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36: "the call requires a newer driver",
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46: "the device is busy or unavailable",
    CUDA_ERROR_MULTICAST_RESOURCE_FULL = 47: "the device has no multicast objects left",
    CUDA_ERROR_NO_DEVICE = 100: "there is no CUDA device",
    CUDA_ERROR_INVALID_DEVICE = 101: "there is no device with this number",
    CUDA_ERROR_DEVICE_NOT_LICENSED = 102: "the device has no licence for compute work",
    CUDA_ERROR_INVALID_IMAGE = 200: "the module's image is not valid",
    CUDA_ERROR_INVALID_CONTEXT = 201: "no context is current, or it is not valid",
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT = 202: "the context is current already",
    CUDA_ERROR_MAP_FAILED = 205: "a mapping failed",
    CUDA_ERROR_UNMAP_FAILED = 206: "an unmapping failed",
    CUDA_ERROR_ARRAY_IS_MAPPED = 207: "the array is mapped and cannot be destroyed",
    CUDA_ERROR_ALREADY_MAPPED = 208: "the resource is mapped already",
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209: "the module has no code for this device",
    CUDA_ERROR_ALREADY_ACQUIRED = 210: "the resource is acquired already",
    CUDA_ERROR_NOT_MAPPED = 211: "the resource is not mapped",
    CUDA_ERROR_NOT_MAPPED_AS_ARRAY = 212: "the resource is not mapped as an array",
    CUDA_ERROR_NOT_MAPPED_AS_POINTER = 213: "the resource is not mapped as a pointer",
    CUDA_ERROR_ECC_UNCORRECTABLE = 214: "the device encountered an uncorrectable memory error",
    CUDA_ERROR_UNSUPPORTED_LIMIT = 215: "the limit is not supported",
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE = 216: "the context is in use by another thread",
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217: "the two devices cannot access each other",
    CUDA_ERROR_INVALID_PTX = 218: "the PTX does not compile",
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT = 219: "the graphics context is not valid",
    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220: "an uncorrectable NVLink error occurred",
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221: "the PTX compiler library was not found",
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222: "the PTX is newer than the driver",
    CUDA_ERROR_JIT_COMPILATION_DISABLED = 223: "PTX compilation is switched off",
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY = 224: "the execution affinity is not supported by the device",
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC = 225: "the code synchronizes on the device, which is not supported",
    CUDA_ERROR_CONTAINED = 226: "an uncorrectable error was contained; the process must end",
    CUDA_ERROR_INSUFFICIENT_LOADER_VERSION = 227: "the program loader is too old for the image",
    CUDA_ERROR_INVALID_SOURCE = 300: "the kernel's source is not valid",
    CUDA_ERROR_FILE_NOT_FOUND = 301: "a file was not found",
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = 302: "a shared object lacks a symbol",
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = 303: "a shared object could not be initialized",
    CUDA_ERROR_OPERATING_SYSTEM = 304: "a call to the operating system failed",
    CUDA_ERROR_INVALID_HANDLE = 400: "a handle is not valid",
    CUDA_ERROR_ILLEGAL_STATE = 401: "an object is in the wrong state",
    CUDA_ERROR_LOSSY_QUERY = 402: "the result would lose information",
    CUDA_ERROR_NOT_FOUND = 500: "the named object was not found",
    CUDA_ERROR_NOT_READY = 600: "the work has not finished",
    CUDA_ERROR_ILLEGAL_ADDRESS = 700: "the device accessed an illegal address",
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701: "the launch needs more resources than there are",
    CUDA_ERROR_LAUNCH_TIMEOUT = 702: "a kernel ran too long",
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING = 703: "the launch uses an incompatible texturing mode",
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704: "peer access is enabled already",
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705: "peer access is not enabled",
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708: "the primary context is active already",
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709: "the context was destroyed",
    CUDA_ERROR_ASSERT = 710: "a device-side assertion failed",
    CUDA_ERROR_TOO_MANY_PEERS = 711: "the limit of enabled peers is reached",
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712: "the host memory is registered already",
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713: "the host memory is not registered",
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714: "the device's call stack is corrupt",
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715: "the device encountered an illegal instruction",
    CUDA_ERROR_MISALIGNED_ADDRESS = 716: "the device used a misaligned address",
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717: "an instruction used an address in the wrong address space",
    CUDA_ERROR_INVALID_PC = 718: "the device's program counter left its address space",
    CUDA_ERROR_LAUNCH_FAILED = 719: "a kernel failed",
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720: "a cooperative launch has more blocks than can run at once",
    CUDA_ERROR_TENSOR_MEMORY_LEAK = 721: "a kernel ended without freeing its tensor memory",
    CUDA_ERROR_NOT_PERMITTED = 800: "the operation is not permitted",
    CUDA_ERROR_NOT_SUPPORTED = 801: "the operation is not supported here",
    CUDA_ERROR_SYSTEM_NOT_READY = 802: "the system's services are not ready",
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803: "the driver's parts are of different versions",
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804: "forward compatibility is not supported on this device",
    CUDA_ERROR_MPS_CONNECTION_FAILED = 805: "the connection to the MPS control daemon or server failed",
    CUDA_ERROR_MPS_RPC_FAILURE = 806: "a call between the MPS server and this client failed",
    CUDA_ERROR_MPS_SERVER_NOT_READY = 807: "the MPS server is not ready",
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED = 808: "the MPS server has reached its client limit",
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED = 809: "the MPS server has reached its connection limit",
    CUDA_ERROR_MPS_CLIENT_TERMINATED = 810: "the MPS server terminated this client",
    CUDA_ERROR_CDP_NOT_SUPPORTED = 811: "a kernel uses dynamic parallelism, which the device does not support",
    CUDA_ERROR_CDP_VERSION_MISMATCH = 812: "modules use incompatible versions of dynamic parallelism",
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900: "the operation is not permitted while a stream is capturing",
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901: "an earlier error made this capture invalid",
    CUDA_ERROR_STREAM_CAPTURE_MERGE = 902: "the operation would merge two captures",
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903: "the capture was not begun in this stream",
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904: "the capture has a fork that was not joined",
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905: "a dependency would cross the capture's border",
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906: "the default stream would depend on a capture",
    CUDA_ERROR_CAPTURED_EVENT = 907: "the event was last recorded in a capture",
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908: "the capture was begun in another thread",
    CUDA_ERROR_TIMEOUT = 909: "the operation timed out",
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910: "the executable graph cannot be updated to this graph",
    CUDA_ERROR_EXTERNAL_DEVICE = 911: "an external device failed",
    CUDA_ERROR_INVALID_CLUSTER_SIZE = 912: "the cluster size is not valid for this grid or device",
    CUDA_ERROR_FUNCTION_NOT_LOADED = 913: "the function is not loaded",
    CUDA_ERROR_INVALID_RESOURCE_TYPE = 914: "the resource is of another type",
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915: "the resources cannot be divided in this way",
    CUDA_ERROR_KEY_ROTATION = 916: "a key was rotated while confidential computing used it",
    CUDA_ERROR_STREAM_DETACHED = 917: "the stream is detached from its context",
    CUDA_ERROR_GRAPH_RECAPTURE_FAILURE = 918: "a graph could not be captured again",
    CUDA_ERROR_FABRIC_NOT_READY = 919: "the NVLink fabric is not ready",
    CUDA_ERROR_UNKNOWN = 999: "an unknown error",
}

/// The code of a call that was not made because it would have waited for the device, and the process forbids that. It is
/// not one of CUDA's.
pub const WAIT_REFUSED: Code = Code::MAX;

/// Returns the name of a code and one sentence about it, both NUL-terminated; `None` for a code that is not listed.
pub fn lookup(code: Code) -> Option<(&'static str, &'static str)> {
    NAMES.iter().find(|(known, ..)| *known == code).map(|(_, name, text)| (*name, *text))
}

/// Returns whether a code means that the context is lost: all its work has ended, and every later call reports the same.
pub fn is_context_lost(code: Code) -> bool {
    matches!(
        code,
        CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
    )
}

/// Formats a code as "CUDA_ERROR_OUT_OF_MEMORY (2)", or as "CUDA error 1234" if it is not listed.
pub fn describe(code: Code) -> String {
    match lookup(code) {
        Some((name, _)) => format!("{} ({code})", name.trim_end_matches('\0')),
        None => format!("CUDA error {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_match_cuda() {
        use cudarc::driver::sys::cudaError_enum as declared;
        assert_eq!(CUDA_ERROR_INVALID_CONTEXT, declared::CUDA_ERROR_INVALID_CONTEXT as Code);
        assert_eq!(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, declared::CUDA_ERROR_STREAM_CAPTURE_ISOLATION as Code);
        assert_eq!(CUDA_ERROR_UNKNOWN, declared::CUDA_ERROR_UNKNOWN as Code);
        assert_eq!(CUDA_ERROR_OUT_OF_MEMORY, 2);
        assert_eq!(CUDA_ERROR_NOT_READY, 600);
        assert_eq!(describe(900), "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)");
        assert_eq!(describe(912), "CUDA_ERROR_INVALID_CLUSTER_SIZE (912)");
        assert_eq!(describe(123_456), "CUDA error 123456");
    }

    #[test]
    fn codes_are_sorted_and_unique() {
        assert!(NAMES.is_sorted_by(|(one, ..), (next, ..)| one < next));
    }
}
