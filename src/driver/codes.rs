//! CUDA's error codes as open integers, with their names.

#![allow(missing_docs)]

use super::table::Code;

macro_rules! codes {
    ($( $name:ident : $text:literal, )*) => {
        $( pub const $name: Code = cudarc::driver::sys::cudaError_enum::$name as Code; )*

        const NAMES: &[(Code, &str, &str)] = &[
            $( ($name, concat!(stringify!($name), "\0"), concat!($text, "\0")), )*
        ];
    };
}

codes! {
    CUDA_SUCCESS: "no error",
    CUDA_ERROR_INVALID_VALUE: "an argument is out of range or wrong",
    CUDA_ERROR_OUT_OF_MEMORY: "the device has no memory left for this",
    CUDA_ERROR_NOT_INITIALIZED: "the driver has not been initialised",
    CUDA_ERROR_DEINITIALIZED: "the driver is shutting down",
    CUDA_ERROR_STUB_LIBRARY: "the loaded libcuda is the toolkit's stub, not a driver",
    CUDA_ERROR_DEVICE_UNAVAILABLE: "the device is busy or unavailable",
    CUDA_ERROR_NO_DEVICE: "there is no CUDA device",
    CUDA_ERROR_INVALID_DEVICE: "there is no device with this number",
    CUDA_ERROR_INVALID_IMAGE: "the module's image is not valid",
    CUDA_ERROR_INVALID_CONTEXT: "no context is current, or it is not valid",
    CUDA_ERROR_MAP_FAILED: "a mapping failed",
    CUDA_ERROR_UNMAP_FAILED: "an unmapping failed",
    CUDA_ERROR_ALREADY_MAPPED: "it is mapped already",
    CUDA_ERROR_NO_BINARY_FOR_GPU: "the module has no code for this device",
    CUDA_ERROR_NOT_MAPPED: "it is not mapped",
    CUDA_ERROR_ECC_UNCORRECTABLE: "the device met an uncorrectable memory error",
    CUDA_ERROR_UNSUPPORTED_LIMIT: "the limit is not supported",
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: "the two devices cannot access each other",
    CUDA_ERROR_INVALID_PTX: "the PTX does not compile",
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION: "the PTX is newer than the driver",
    CUDA_ERROR_INVALID_SOURCE: "the kernel's source is not valid",
    CUDA_ERROR_FILE_NOT_FOUND: "a file was not found",
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: "a shared object lacks a symbol",
    CUDA_ERROR_OPERATING_SYSTEM: "a call to the operating system failed",
    CUDA_ERROR_INVALID_HANDLE: "a handle is not valid",
    CUDA_ERROR_ILLEGAL_STATE: "an object is in the wrong state",
    CUDA_ERROR_NOT_FOUND: "the named thing was not found",
    CUDA_ERROR_NOT_READY: "the work has not finished",
    CUDA_ERROR_ILLEGAL_ADDRESS: "the device touched memory that it may not",
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: "the launch needs more resources than there are",
    CUDA_ERROR_LAUNCH_TIMEOUT: "a kernel ran too long",
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: "peer access is enabled already",
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: "peer access is not enabled",
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE: "the primary context is active already",
    CUDA_ERROR_CONTEXT_IS_DESTROYED: "the context was destroyed",
    CUDA_ERROR_ASSERT: "a device-side assertion failed",
    CUDA_ERROR_TOO_MANY_PEERS: "no more peers can be enabled",
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: "the host memory is registered already",
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: "the host memory is not registered",
    CUDA_ERROR_HARDWARE_STACK_ERROR: "the device's call stack is corrupt",
    CUDA_ERROR_ILLEGAL_INSTRUCTION: "the device met an illegal instruction",
    CUDA_ERROR_MISALIGNED_ADDRESS: "the device used a misaligned address",
    CUDA_ERROR_LAUNCH_FAILED: "a kernel failed",
    CUDA_ERROR_NOT_PERMITTED: "the operation is not permitted",
    CUDA_ERROR_NOT_SUPPORTED: "the operation is not supported here",
    CUDA_ERROR_SYSTEM_NOT_READY: "the system's services are not ready",
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: "the driver's parts are of different versions",
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: "forward compatibility is not supported on this device",
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: "the operation is not permitted while a stream is capturing",
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: "an earlier error made this capture invalid",
    CUDA_ERROR_STREAM_CAPTURE_MERGE: "the operation would merge two captures",
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: "the capture was not begun in this stream",
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED: "the capture has a fork that was not joined",
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION: "a dependency would cross the capture's border",
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: "the default stream would depend on a capture",
    CUDA_ERROR_CAPTURED_EVENT: "the event was last recorded in a capture",
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: "the capture was begun in another thread",
    CUDA_ERROR_TIMEOUT: "the operation timed out",
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: "the graph cannot be updated to this",
    CUDA_ERROR_INVALID_RESOURCE_TYPE: "the resource is of another type",
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: "the resources cannot be divided so",
    CUDA_ERROR_EXTERNAL_DEVICE: "an external device failed",
    CUDA_ERROR_UNKNOWN: "an unknown error",
}

/// The name of a code and one sentence about it, both ending in a NUL; `None` for a code that is not listed.
pub fn lookup(code: Code) -> Option<(&'static str, &'static str)> {
    NAMES.iter().find(|(known, ..)| *known == code).map(|(_, name, text)| (*name, *text))
}

/// "CUDA_ERROR_OUT_OF_MEMORY (2)", or "CUDA error 1234" for a code that is not listed.
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
    fn codes_have_cudas_numbers() {
        assert_eq!(CUDA_ERROR_OUT_OF_MEMORY, 2);
        assert_eq!(CUDA_ERROR_NOT_READY, 600);
        assert_eq!(describe(900), "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)");
        assert_eq!(describe(123_456), "CUDA error 123456");
    }
}
