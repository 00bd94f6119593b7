//! The driver's types, as cudarc declares them, and its constants as the plain integers that the table uses.

#![allow(missing_docs)]

pub use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdevResourceDesc, CUdevice,
    CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphConditionalHandle, CUgraphEdgeData, CUgraphExec, CUgraphNode,
    CUgreenCtx, CUhostFn, CUipcEventHandle, CUipcMemHandle, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig,
    CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemoryPool, CUmodule,
    CUstream, CUuserObject, CUuuid,
};

macro_rules! constants {
    ($( $name:ident = $kind:ident ;)*) => {
        $( pub const $name: std::ffi::c_uint = cudarc::driver::sys::$kind::$name as std::ffi::c_uint; )*
    };
}

constants! {
    CU_GET_PROC_ADDRESS_SUCCESS = CUdriverProcAddressQueryResult_enum;
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = CUdriverProcAddressQueryResult_enum;
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = CUdriverProcAddressQueryResult_enum;
    CU_STREAM_DEFAULT = CUstream_flags_enum;
    CU_STREAM_NON_BLOCKING = CUstream_flags_enum;
    CU_STREAM_MEM_OP_WRITE_VALUE_64 = CUstreamBatchMemOpType_enum;
    CU_STREAM_WRITE_VALUE_DEFAULT = CUstreamWriteValue_flags_enum;
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
    CU_MEMORYTYPE_UNIFIED = CUmemorytype_enum;
    CU_MEM_LOCATION_TYPE_DEVICE = CUmemLocationType_enum;
    CU_MEM_LOCATION_TYPE_HOST = CUmemLocationType_enum;
    CU_MEM_ALLOCATION_TYPE_PINNED = CUmemAllocationType_enum;
    CU_MEM_ACCESS_FLAGS_PROT_NONE = CUmemAccess_flags_enum;
    CU_MEM_ACCESS_FLAGS_PROT_READ = CUmemAccess_flags_enum;
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = CUmemAccess_flags_enum;
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = CUmemAllocationGranularity_flags_enum;
    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = CUmemAllocationGranularity_flags_enum;
    CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES = CUmemPool_attribute_enum;
    CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = CUmemPool_attribute_enum;
    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = CUmemPool_attribute_enum;
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = CUmemPool_attribute_enum;
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = CUmemPool_attribute_enum;
    CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = CUmemPool_attribute_enum;
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT = CUmemPool_attribute_enum;
    CU_MEMPOOL_ATTR_USED_MEM_HIGH = CUmemPool_attribute_enum;
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = CUdevice_attribute_enum;
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = CUipcMem_flags_enum;
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = CUfunction_attribute_enum;
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = CUfunction_attribute_enum;
    CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = CUfunction_attribute_enum;
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = CUfunction_attribute_enum;
    CU_FUNC_ATTRIBUTE_NUM_REGS = CUfunction_attribute_enum;
    CU_FUNC_ATTRIBUTE_PTX_VERSION = CUfunction_attribute_enum;
    CU_FUNC_ATTRIBUTE_BINARY_VERSION = CUfunction_attribute_enum;
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = CUfunction_attribute_enum;
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = CUfunction_attribute_enum;
    CU_JIT_ERROR_LOG_BUFFER = CUjit_option_enum;
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = CUjit_option_enum;
    CU_GRAPH_NODE_TYPE_KERNEL = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_MEMCPY = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_MEMSET = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_HOST = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_GRAPH = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_EMPTY = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_WAIT_EVENT = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_EVENT_RECORD = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_MEM_ALLOC = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_MEM_FREE = CUgraphNodeType_enum;
    CU_GRAPH_NODE_TYPE_CONDITIONAL = CUgraphNodeType_enum;
    CU_GRAPH_COND_TYPE_IF = CUgraphConditionalNodeType_enum;
    CU_GRAPH_COND_TYPE_WHILE = CUgraphConditionalNodeType_enum;
    CU_GRAPH_COND_TYPE_SWITCH = CUgraphConditionalNodeType_enum;
    CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE = CUgraphDebugDot_flags_enum;
    CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS = CUgraphDebugDot_flags_enum;
    CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS = CUgraphDebugDot_flags_enum;
    CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS = CUgraphDebugDot_flags_enum;
    CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS = CUgraphDebugDot_flags_enum;
    CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS = CUgraphDebugDot_flags_enum;
    CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES = CUgraphDebugDot_flags_enum;
    CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO = CUgraphDebugDot_flags_enum;
    CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS = CUgraphDebugDot_flags_enum;
    CU_GRAPH_EXEC_UPDATE_SUCCESS = CUgraphExecUpdateResult_enum;
    CU_GRAPH_EXEC_UPDATE_ERROR = CUgraphExecUpdateResult_enum;
    CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = CUgraphExecUpdateResult_enum;
    CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED = CUgraphExecUpdateResult_enum;
    CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED = CUgraphExecUpdateResult_enum;
    CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED = CUgraphExecUpdateResult_enum;
    CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED = CUgraphExecUpdateResult_enum;
    CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE = CUgraphExecUpdateResult_enum;
    CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED = CUgraphExecUpdateResult_enum;
    CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = CUuserObject_flags_enum;
    CU_GRAPH_USER_OBJECT_MOVE = CUuserObjectRetain_flags_enum;
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
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED = CUdevice_attribute_enum;
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = CUdevice_attribute_enum;
}

/// Physical memory that cannot be shared with other processes.
pub const CU_MEM_HANDLE_TYPE_NONE: std::ffi::c_uint = 0;
/// Physical memory that is shared with other processes as a file descriptor.
pub const CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: std::ffi::c_uint = 1;
/// Physical memory that is shared with processes of the same NVLink fabric, also on other machines.
pub const CU_MEM_HANDLE_TYPE_FABRIC: std::ffi::c_uint = 8;
/// A range of addresses as a DMA-BUF.
pub const CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD: std::ffi::c_uint = 1;

/// Flags of pinned memory. They are preprocessor constants in CUDA's header.
pub const CU_MEMHOSTALLOC_PORTABLE: std::ffi::c_uint = 1;
/// Mapped into the devices' address space: the default with unified addressing.
pub const CU_MEMHOSTALLOC_DEVICEMAP: std::ffi::c_uint = 2;
/// Visible to every context of the process.
pub const CU_MEMHOSTREGISTER_PORTABLE: std::ffi::c_uint = 1;
/// Managed memory that every device may access.
pub const CU_MEM_ATTACH_GLOBAL: std::ffi::c_uint = 1;
/// Managed memory that no device may access until it is attached to a stream.
pub const CU_MEM_ATTACH_HOST: std::ffi::c_uint = 2;

/// Graph instantiation flag: memory that the graph allocates is freed when it is launched again.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH: std::ffi::c_ulonglong = 1;
/// Graph instantiation flag: the graph is uploaded to the device immediately.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD: std::ffi::c_ulonglong = 2;
/// Graph instantiation flag: kernels can launch the graph.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH: std::ffi::c_ulonglong = 4;
/// Graph instantiation flag: nodes run with their own priorities.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY: std::ffi::c_ulonglong = 8;

/// The condition of a graph is set to its default value at each launch. This is a preprocessor constant in CUDA's
/// header.
pub const CU_GRAPH_COND_ASSIGN_DEFAULT: std::ffi::c_uint = 1;

/// CUDA's `CUstreamBatchMemOpParams` for an operation that writes a number.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct StreamWrite {
    pub operation: std::ffi::c_uint,
    pub address: CUdeviceptr,
    pub value: u64,
    pub flags: std::ffi::c_uint,
    pub alias: CUdeviceptr,
    pub reserved: u64,
}

const _: () = assert!(size_of::<StreamWrite>() == size_of::<cudarc::driver::sys::CUstreamBatchMemOpParams>());

/// CUDA's `CUDA_MEMCPY2D`, with its enumerations as plain integers.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Memcpy2d {
    pub source_x: usize,
    pub source_y: usize,
    pub source_type: std::ffi::c_uint,
    pub source_host: *const std::ffi::c_void,
    pub source_device: CUdeviceptr,
    pub source_array: *mut std::ffi::c_void,
    pub source_pitch: usize,
    pub destination_x: usize,
    pub destination_y: usize,
    pub destination_type: std::ffi::c_uint,
    pub destination_host: *mut std::ffi::c_void,
    pub destination_device: CUdeviceptr,
    pub destination_array: *mut std::ffi::c_void,
    pub destination_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// CUDA's `CUDA_MEMCPY3D`, with its enumerations as plain integers.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct MemcpyNodeParams {
    pub source_x: usize,
    pub source_y: usize,
    pub source_z: usize,
    pub source_lod: usize,
    pub source_type: std::ffi::c_uint,
    pub source_host: *const std::ffi::c_void,
    pub source_device: CUdeviceptr,
    pub source_array: *mut std::ffi::c_void,
    pub reserved0: *mut std::ffi::c_void,
    pub source_pitch: usize,
    pub source_height: usize,
    pub destination_x: usize,
    pub destination_y: usize,
    pub destination_z: usize,
    pub destination_lod: usize,
    pub destination_type: std::ffi::c_uint,
    pub destination_host: *mut std::ffi::c_void,
    pub destination_device: CUdeviceptr,
    pub destination_array: *mut std::ffi::c_void,
    pub reserved1: *mut std::ffi::c_void,
    pub destination_pitch: usize,
    pub destination_height: usize,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

impl MemcpyNodeParams {
    /// An empty copy of one row, with null addresses.
    pub const ROW: MemcpyNodeParams = MemcpyNodeParams {
        source_x: 0,
        source_y: 0,
        source_z: 0,
        source_lod: 0,
        source_type: CU_MEMORYTYPE_UNIFIED,
        source_host: std::ptr::null(),
        source_device: 0,
        source_array: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        source_pitch: 0,
        source_height: 0,
        destination_x: 0,
        destination_y: 0,
        destination_z: 0,
        destination_lod: 0,
        destination_type: CU_MEMORYTYPE_UNIFIED,
        destination_host: std::ptr::null_mut(),
        destination_device: 0,
        destination_array: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        destination_pitch: 0,
        destination_height: 0,
        width: 0,
        height: 1,
        depth: 1,
    };
}

/// The resource type of streaming multiprocessors.
pub const CU_DEV_RESOURCE_TYPE_SM: std::ffi::c_uint = 1;
/// The green context has its own default stream. This is the only flag, and it is required.
pub const CU_GREEN_CTX_DEFAULT_STREAM: std::ffi::c_uint = 1;

/// CUDA's `CUdevResource` for multiprocessors, with its enumeration as a plain integer. Drivers before CUDA 13 set only
/// the count.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DevResource {
    pub kind: std::ffi::c_uint,
    /// Reserved for the driver; the host device stores the device number here.
    pub hidden: [std::ffi::c_uint; 23],
    pub count: std::ffi::c_uint,
    pub least_partition: std::ffi::c_uint,
    pub alignment: std::ffi::c_uint,
    /// The rest of the union, which other resource types use, and fields that newer drivers append.
    pub unused: [std::ffi::c_uint; 5],
    pub more: [u64; 2],
}

impl DevResource {
    /// An empty output value.
    pub const NOTHING: DevResource = DevResource {
        kind: 0,
        hidden: [0; 23],
        count: 0,
        least_partition: 0,
        alignment: 0,
        unused: [0; 5],
        more: [0; 2],
    };
}

/// CUDA's `CUgraphExecUpdateResultInfo`, with its enumeration as a plain integer.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ExecUpdateInfo {
    pub result: std::ffi::c_uint,
    pub error_node: CUgraphNode,
    pub error_from_node: CUgraphNode,
}

/// CUDA's `CUgraphNodeParams` for a conditional node, with its enumerations as plain integers.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ConditionalNodeParams {
    pub node_type: std::ffi::c_uint,
    pub reserved0: [std::ffi::c_int; 3],
    pub handle: CUgraphConditionalHandle,
    pub kind: std::ffi::c_uint,
    pub size: std::ffi::c_uint,
    pub bodies: *mut CUgraph,
    pub context: CUcontext,
    /// The rest of the union, which other node types use. Must be zero.
    pub unused: [u64; 25],
    pub reserved2: u64,
}

const _: () = {
    use cudarc::driver::sys;
    use std::mem::offset_of;
    assert!(size_of::<Memcpy2d>() == size_of::<sys::CUDA_MEMCPY2D>());
    assert!(offset_of!(Memcpy2d, destination_x) == offset_of!(sys::CUDA_MEMCPY2D, dstXInBytes));
    assert!(offset_of!(Memcpy2d, width) == offset_of!(sys::CUDA_MEMCPY2D, WidthInBytes));
    assert!(size_of::<MemcpyNodeParams>() == size_of::<sys::CUDA_MEMCPY3D>());
    assert!(offset_of!(MemcpyNodeParams, destination_x) == offset_of!(sys::CUDA_MEMCPY3D, dstXInBytes));
    assert!(offset_of!(MemcpyNodeParams, width) == offset_of!(sys::CUDA_MEMCPY3D, WidthInBytes));
    assert!(size_of::<DevResource>() == size_of::<sys::CUdevResource>());
    assert!(offset_of!(DevResource, count) == offset_of!(sys::CUdevResource, __bindgen_anon_1));
    assert!(size_of::<ExecUpdateInfo>() == size_of::<sys::CUgraphExecUpdateResultInfo>());
    assert!(size_of::<ConditionalNodeParams>() == size_of::<sys::CUgraphNodeParams>());
    assert!(offset_of!(ConditionalNodeParams, handle) == offset_of!(sys::CUgraphNodeParams, __bindgen_anon_1));
    assert!(offset_of!(ConditionalNodeParams, reserved2) == offset_of!(sys::CUgraphNodeParams, reserved2));
    assert!(
        offset_of!(ConditionalNodeParams, bodies) - offset_of!(ConditionalNodeParams, handle)
            == offset_of!(sys::CUDA_CONDITIONAL_NODE_PARAMS, phGraph_out)
    );
};

/// CUDA's special stream handles, which need no creation.
pub const CU_STREAM_LEGACY: usize = 1;
/// The per-thread default stream.
pub const CU_STREAM_PER_THREAD: usize = 2;
