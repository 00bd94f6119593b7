//! The driver's types, as cudarc declares them, and its constants as the plain integers that the table takes.

#![allow(missing_docs)]

pub use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUhostFn,
    CUipcEventHandle, CUipcMemHandle, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle,
    CUmemLocation, CUmodule, CUstream, CUuuid,
};

macro_rules! constants {
    ($( $name:ident = $kind:ident ;)*) => {
        $( pub const $name: std::ffi::c_uint = cudarc::driver::sys::$kind::$name as std::ffi::c_uint; )*
    };
}

constants! {
    CU_STREAM_DEFAULT = CUstream_flags_enum;
    CU_STREAM_NON_BLOCKING = CUstream_flags_enum;
    CU_EVENT_DEFAULT = CUevent_flags_enum;
    CU_EVENT_BLOCKING_SYNC = CUevent_flags_enum;
    CU_EVENT_DISABLE_TIMING = CUevent_flags_enum;
    CU_EVENT_INTERPROCESS = CUevent_flags_enum;
    CU_EVENT_RECORD_DEFAULT = CUevent_record_flags_enum;
    CU_EVENT_RECORD_EXTERNAL = CUevent_record_flags_enum;
    CU_EVENT_WAIT_DEFAULT = CUevent_wait_flags_enum;
    CU_EVENT_WAIT_EXTERNAL = CUevent_wait_flags_enum;
    CU_STREAM_CAPTURE_MODE_GLOBAL = CUstreamCaptureMode_enum;
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = CUstreamCaptureMode_enum;
    CU_STREAM_CAPTURE_MODE_RELAXED = CUstreamCaptureMode_enum;
    CU_STREAM_CAPTURE_STATUS_NONE = CUstreamCaptureStatus_enum;
    CU_STREAM_CAPTURE_STATUS_ACTIVE = CUstreamCaptureStatus_enum;
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = CUstreamCaptureStatus_enum;
    CU_POINTER_ATTRIBUTE_CONTEXT = CUpointer_attribute_enum;
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = CUpointer_attribute_enum;
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER = CUpointer_attribute_enum;
    CU_POINTER_ATTRIBUTE_HOST_POINTER = CUpointer_attribute_enum;
    CU_POINTER_ATTRIBUTE_BUFFER_ID = CUpointer_attribute_enum;
    CU_POINTER_ATTRIBUTE_IS_MANAGED = CUpointer_attribute_enum;
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = CUpointer_attribute_enum;
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = CUpointer_attribute_enum;
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = CUpointer_attribute_enum;
    CU_POINTER_ATTRIBUTE_MAPPED = CUpointer_attribute_enum;
    CU_MEMORYTYPE_HOST = CUmemorytype_enum;
    CU_MEMORYTYPE_DEVICE = CUmemorytype_enum;
    CU_MEM_LOCATION_TYPE_DEVICE = CUmemLocationType_enum;
    CU_MEM_LOCATION_TYPE_HOST = CUmemLocationType_enum;
    CU_MEM_ALLOCATION_TYPE_PINNED = CUmemAllocationType_enum;
    CU_MEM_ACCESS_FLAGS_PROT_NONE = CUmemAccess_flags_enum;
    CU_MEM_ACCESS_FLAGS_PROT_READ = CUmemAccess_flags_enum;
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = CUmemAccess_flags_enum;
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = CUmemAllocationGranularity_flags_enum;
    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = CUmemAllocationGranularity_flags_enum;
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = CUipcMem_flags_enum;
    CU_GRAPH_NODE_TYPE_KERNEL = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_MEMCPY = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_MEMSET = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_HOST = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_EMPTY = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_WAIT_EVENT = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_EVENT_RECORD = CUgraphNodeType_enum;
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_INTEGRATED = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = CUdevice_attribute_enum;
}

/// Physical memory that is not shared with other processes.
pub const CU_MEM_HANDLE_TYPE_NONE: std::ffi::c_uint = 0;
/// Physical memory that travels to other processes as a file descriptor.
pub const CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: std::ffi::c_uint = 1;

/// The flags of pinned memory: preprocessor constants in CUDA's header.
pub const CU_MEMHOSTALLOC_PORTABLE: std::ffi::c_uint = 1;
/// Mapped into the devices' address space: on by default where addressing is unified.
pub const CU_MEMHOSTALLOC_DEVICEMAP: std::ffi::c_uint = 2;
/// Visible to every context of the process.
pub const CU_MEMHOSTREGISTER_PORTABLE: std::ffi::c_uint = 1;

/// The special stream handles that need no creation, as CUDA defines them.
pub const CU_STREAM_LEGACY: usize = 1;
/// The per-thread default stream.
pub const CU_STREAM_PER_THREAD: usize = 2;
