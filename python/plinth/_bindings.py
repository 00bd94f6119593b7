"""The C API of plinth for ctypes: types, constants and functions by their C names.

Written by python/generate.py from include/plinth/*.h; changes made here are lost. `make bindings` writes it anew.

- A handle, a stream and any `void *` is a c_void_p, and a text a c_char_p. A stream may be an integer; None is NULL.
- A struct with a PLINTH_..._INIT macro has a class method init(), which returns a struct with the macro's values. It is
  INIT() where the struct has a field `init`.
- The type of a callback is called with a Python function. Keep the result for as long as C may call it. Without an
  argument, as in plinth_log_callback_t(), it is NULL.
- PROTOTYPES maps a function's name to its result and the types of its parameters.
"""

from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64,
    c_size_t, c_ssize_t, c_uint16, c_uint32, c_uint64, c_uint8, c_void_p, sizeof,
)

PLINTH_STREAM_CURRENT = 5786090885024317440
PLINTH_OK = 0
PLINTH_ERROR_INVALID_VALUE = 1
PLINTH_ERROR_NULL_POINTER = 2
PLINTH_ERROR_INVALID_DEVICE = 3
PLINTH_ERROR_INVALID_HANDLE = 4
PLINTH_ERROR_INVALID_POINTER = 5
PLINTH_ERROR_OUT_OF_MEMORY = 6
PLINTH_ERROR_NO_DEVICE = 7
PLINTH_ERROR_DRIVER_TOO_OLD = 8
PLINTH_ERROR_STUB_LIBRARY = 9
PLINTH_ERROR_INVALID_CONFIGURATION = 10
PLINTH_ERROR_ALREADY_INITIALIZED = 11
PLINTH_ERROR_FORKED_CHILD = 12
PLINTH_ERROR_SHUTTING_DOWN = 13
PLINTH_ERROR_NOT_SUPPORTED = 14
PLINTH_ERROR_DEVICE_MISMATCH = 15
PLINTH_ERROR_EVENT_TIMING_DISABLED = 16
PLINTH_ERROR_EVENT_NOT_RECORDED = 17
PLINTH_ERROR_EVENT_NOT_COMPLETE = 18
PLINTH_ERROR_WOULD_SYNCHRONIZE = 19
PLINTH_ERROR_CAPTURE_FORBIDS = 20
PLINTH_ERROR_CAPTURE_INVALIDATED = 21
PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED = 22
PLINTH_ERROR_ILLEGAL_ADDRESS = 23
PLINTH_ERROR_LAUNCH_FAILED = 24
PLINTH_ERROR_DRIVER = 25
PLINTH_ERROR_SYSTEM = 26
PLINTH_ERROR_PANIC = 27
PLINTH_ERROR_GENERATOR_NOT_REGISTERED = 28
PLINTH_ERROR_GRAPH_CAPTURED = 29
PLINTH_ERROR_GRAPH_CAPTURING = 30
PLINTH_ERROR_GRAPH_NOT_CAPTURING = 31
PLINTH_ERROR_GRAPH_NOT_CAPTURED = 32
PLINTH_ERROR_GRAPH_DEFAULT_STREAM = 33
PLINTH_ERROR_GRAPH_WRONG_STREAM = 34
PLINTH_ERROR_GRAPH_WRONG_THREAD = 35
PLINTH_ERROR_GRAPH_UNJOINED = 36
PLINTH_ERROR_GRAPH_EMPTY = 37
PLINTH_ERROR_GRAPH_NOT_KEPT = 38
PLINTH_ERROR_GRAPH_ASLEEP = 39
PLINTH_ERROR_GRAPH_MEMORY_IN_USE = 40
PLINTH_ERROR_GRAPH_OVERLAP = 41
PLINTH_ERROR_GRAPH_UPDATE_REFUSED = 42
PLINTH_ERROR_MEMORY_CORRUPTED = 43
PLINTH_ERROR_IPC_REEXPORT = 44
PLINTH_ERROR_IPC_PEER_GONE = 45
PLINTH_ERROR_IPC_NOT_SHAREABLE = 46
PLINTH_ERROR_TIMED_OUT = 47
PLINTH_ERROR_PEER_LOST = 48
PLINTH_ERROR_ABORTED = 49
PLINTH_ERROR_RANK_MISMATCH = 50
PLINTH_ERROR_NCCL = 51
PLINTH_ERROR_NCCL_UNAVAILABLE = 52
PLINTH_ERROR_COMMUNICATOR_NOT_READY = 53
PLINTH_ERROR_NVML_UNAVAILABLE = 54
PLINTH_ERROR_LIBRARY = 55
PLINTH_ERROR_LIBRARY_UNAVAILABLE = 56
PLINTH_ERROR_RACE = 57
PLINTH_ERROR_COMPILER_UNAVAILABLE = 58
PLINTH_ERROR_COMPILATION_FAILED = 59
PLINTH_VERSION_MAJOR = 0
PLINTH_VERSION_MINOR = 2
PLINTH_VERSION_PATCH = 0
PLINTH_DEVICE_CUDA = 0
PLINTH_DEVICE_HOST = 1
PLINTH_DEVICE_AUTO = 2
PLINTH_LOG_DEBUG = 0
PLINTH_LOG_INFO = 1
PLINTH_LOG_WARNING = 2
PLINTH_LOG_ERROR = 3
PLINTH_SYNC_DEBUG_DEFAULT = 0
PLINTH_SYNC_DEBUG_WARN = 1
PLINTH_SYNC_DEBUG_ERROR = 2
PLINTH_EVENT_TIMING = 1
PLINTH_EVENT_BLOCKING = 2
PLINTH_EVENT_INTERPROCESS = 4
PLINTH_EVENT_EXTERNAL = 8
PLINTH_IPC_EVENT_HANDLE_SIZE = 64
PLINTH_MEM_POOL_USE_ON_OOM = 1
PLINTH_MEM_POOL_NO_SPLIT = 2
PLINTH_MEM_POOL_FABRIC = 4
PLINTH_MEM_POOL_GPU_DIRECT_RDMA = 8
PLINTH_MEM_POOL_SEGMENTS = 16
PLINTH_MEM_POOL_NCCL_WINDOW = 32
PLINTH_MEMORY_UNREGISTERED = 0
PLINTH_MEMORY_HOST = 1
PLINTH_MEMORY_DEVICE = 2
PLINTH_MEMORY_MANAGED = 3
PLINTH_OWNER_NONE = 0
PLINTH_OWNER_PROGRAM = 1
PLINTH_OWNER_CACHING_ALLOCATOR = 2
PLINTH_OWNER_HOST_ALLOCATOR = 3
PLINTH_HOST_REGISTER_PORTABLE = 1
PLINTH_HOST_REGISTER_MAPPED = 2
PLINTH_HOST_REGISTER_IO_MEMORY = 4
PLINTH_HOST_REGISTER_READ_ONLY = 8
PLINTH_SLEEP_NO_WAIT = 1
PLINTH_SLEEP_RELEASE_REGISTRATIONS = 2
PLINTH_SLEEP_RELEASE_WORKSPACES = 4
PLINTH_BACKUP_NONE = 0
PLINTH_BACKUP_PINNED = 1
PLINTH_BACKUP_PAGEABLE = 2
PLINTH_BACKUP_FILE = 3
PLINTH_MEMORY_USE_COUNT = 7
PLINTH_FABRIC_HANDLE_SIZE = 64
PLINTH_MEMORY_USE_IPC = 0
PLINTH_MEMORY_USE_IPC_HANDLE = 1
PLINTH_MEMORY_USE_FABRIC = 2
PLINTH_MEMORY_USE_DMA_BUF = 3
PLINTH_MEMORY_USE_GPU_DIRECT_RDMA = 4
PLINTH_MEMORY_USE_NCCL = 5
PLINTH_MEMORY_USE_NCCL_WINDOW = 6
PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR = 1
PLINTH_MEMORY_HANDLE_FABRIC = 8
PLINTH_MEMORY_HISTORY_OFF = 0
PLINTH_MEMORY_HISTORY_STATE = 1
PLINTH_MEMORY_HISTORY_ALL = 2
PLINTH_MEMORY_CONTEXT_NONE = 0
PLINTH_MEMORY_CONTEXT_STATE = 1
PLINTH_MEMORY_CONTEXT_ALLOC = 2
PLINTH_MEMORY_CONTEXT_ALL = 3
PLINTH_MEMORY_ACTION_ALLOC = 0
PLINTH_MEMORY_ACTION_FREE_REQUESTED = 1
PLINTH_MEMORY_ACTION_FREE_COMPLETED = 2
PLINTH_MEMORY_ACTION_SEGMENT_ALLOC = 3
PLINTH_MEMORY_ACTION_SEGMENT_FREE = 4
PLINTH_MEMORY_ACTION_SEGMENT_MAP = 5
PLINTH_MEMORY_ACTION_SEGMENT_UNMAP = 6
PLINTH_MEMORY_ACTION_SNAPSHOT = 7
PLINTH_MEMORY_ACTION_OOM = 8
PLINTH_BLOCK_INACTIVE = 0
PLINTH_BLOCK_PENDING_FREE = 1
PLINTH_BLOCK_ALLOCATED = 2
PLINTH_IPC_MEM_HANDLE_SIZE = 64
PLINTH_RNG_STATE_SIZE = 16
PLINTH_RANDOM_TO_LARGEST = -9223372036854775808
PLINTH_GRAPH_KEEP_GRAPH = 1
PLINTH_CAPTURE_GLOBAL = 0
PLINTH_CAPTURE_THREAD_LOCAL = 1
PLINTH_CAPTURE_RELAXED = 2
PLINTH_GRAPH_OVERLAP_ORDER = 0
PLINTH_GRAPH_OVERLAP_REFUSE = 1
PLINTH_GRAPH_NODE_KERNEL = 0
PLINTH_GRAPH_NODE_MEMCPY = 1
PLINTH_GRAPH_NODE_MEMSET = 2
PLINTH_GRAPH_NODE_HOST = 3
PLINTH_GRAPH_NODE_GRAPH = 4
PLINTH_GRAPH_NODE_EMPTY = 5
PLINTH_GRAPH_NODE_WAIT_EVENT = 6
PLINTH_GRAPH_NODE_EVENT_RECORD = 7
PLINTH_GRAPH_NODE_CONDITIONAL = 13
PLINTH_CALLABLE_WARMUPS = 3
PLINTH_CALLABLE_WARMUPS_DDP = 11
PLINTH_ARGUMENT_TENSOR = 0
PLINTH_ARGUMENT_POINTER = 1
PLINTH_ARGUMENT_BOOL = 2
PLINTH_ARGUMENT_INT32 = 3
PLINTH_ARGUMENT_INT64 = 4
PLINTH_ARGUMENT_FLOAT32 = 5
PLINTH_ARGUMENT_FLOAT64 = 6
PLINTH_ARGUMENT_BYTES = 7
PLINTH_LAUNCH_COOPERATIVE = 1
PLINTH_JIT_MAX_TENSORS = 8
PLINTH_JIT_MAX_SCALARS = 16
PLINTH_JIT_BOOL = 0
PLINTH_JIT_INT = 1
PLINTH_JIT_FLOAT = 2
PLINTH_JIT_COMPLEX = 3
PLINTH_COMM_ORDER_LIST = 0
PLINTH_COMM_ORDER_TORCH = 1
PLINTH_COMM_BROADCAST_SPLIT = 0
PLINTH_COMM_REDUCE_SPLIT = 1
PLINTH_COMM_EXCHANGE_SPLIT = 2
PLINTH_COMM_COPY_ENGINE = 3
PLINTH_UNIQUE_ID_SIZE = 128
PLINTH_ENGINE_AUTO = 0
PLINTH_ENGINE_NCCL = 1
PLINTH_ENGINE_LOCAL = 2
PLINTH_ENGINE_SHARED = 3
PLINTH_COMMUNICATOR_NONBLOCKING = 1
PLINTH_COMMUNICATOR_UNLIMITED = 2
PLINTH_SHRINK_DEFAULT = 0
PLINTH_SHRINK_ABORT = 1
PLINTH_REDUCE_SUM = 0
PLINTH_REDUCE_PRODUCT = 1
PLINTH_REDUCE_MAX = 2
PLINTH_REDUCE_MIN = 3
PLINTH_REDUCE_AVERAGE = 4
PLINTH_MATMUL_PRECISION_HIGHEST = 0
PLINTH_MATMUL_PRECISION_HIGH = 1
PLINTH_MATMUL_PRECISION_MEDIUM = 2
PLINTH_BLAS_LIBRARY_DEFAULT = 0
PLINTH_BLAS_LIBRARY_CUBLAS = 1
PLINTH_BLAS_LIBRARY_CUBLASLT = 2
PLINTH_LINALG_LIBRARY_DEFAULT = 0
PLINTH_LINALG_LIBRARY_CUSOLVER = 1
PLINTH_LINALG_LIBRARY_MAGMA = 2
PLINTH_CUFFT_C2C = 0
PLINTH_CUFFT_R2C = 1
PLINTH_CUFFT_C2R = 2
PLINTH_CUFFT_FORWARD = -1
PLINTH_CUFFT_INVERSE = 1
PLINTH_TELEMETRY_UTILIZATION = 1
PLINTH_TELEMETRY_MEMORY_USAGE = 2
PLINTH_TELEMETRY_TEMPERATURE = 4
PLINTH_TELEMETRY_POWER_DRAW = 8
PLINTH_TELEMETRY_CLOCK_RATE = 16
PLINTH_TELEMETRY_MEMORY_CLOCK_RATE = 32
PLINTH_TELEMETRY_MEMORY_USED = 64
PLINTH_TELEMETRY_ENERGY = 128
PLINTH_TELEMETRY_THROTTLE_REASONS = 256
PLINTH_THROTTLE_IDLE = 1
PLINTH_THROTTLE_APPLICATION_CLOCKS = 2
PLINTH_THROTTLE_POWER_CAP = 4
PLINTH_THROTTLE_HARDWARE = 8
PLINTH_THROTTLE_SYNC_BOOST = 16
PLINTH_THROTTLE_THERMAL = 32
PLINTH_THROTTLE_HARDWARE_THERMAL = 64
PLINTH_THROTTLE_POWER_BRAKE = 128
PLINTH_THROTTLE_DISPLAY = 256
PLINTH_SANITIZER_OFF = 0
PLINTH_SANITIZER_COLLECT = 1
PLINTH_SANITIZER_WARN = 2
PLINTH_SANITIZER_ERROR = 3
PLINTH_SANITIZER_READ = 1
PLINTH_SANITIZER_WRITE = 2
PLINTH_SANITIZER_RACE = 0
PLINTH_SANITIZER_REUSE = 1
PLINTH_SANITIZER_USE_AFTER_FREE = 2
PLINTH_SANITIZER_OUT_OF_BOUNDS = 3
PLINTH_SANITIZER_USE_WHILE_ASLEEP = 4
PLINTH_SANITIZER_MISSING_WAIT = 0
PLINTH_SANITIZER_MISSING_LATER_WAIT = 1
PLINTH_SANITIZER_MISSING_RECORD_STREAM = 2
PLINTH_SANITIZER_MISSING_LATER_FREE = 3
PLINTH_SANITIZER_MISSING_LARGER_BLOCK = 4
PLINTH_SANITIZER_MISSING_WAKE = 5


def PLINTH_STREAM_DEFAULT_OF(device):
    """Returns the name of a device's default stream."""
    return 0x504c530000000000 | (device & 0xFFFFFFFF)


plinth_stream_t = c_void_p
plinth_status_t = c_int32
plinth_log_callback_t = CFUNCTYPE(None, c_int32, c_char_p, c_void_p)


class DLDevice(Structure):
    _fields_ = [
        ("device_type", c_int32),
        ("device_id", c_int32),
    ]


class DLDataType(Structure):
    _fields_ = [
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
    ]


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class plinth_device_properties_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char * 256),
        ("uuid", c_uint8 * 16),
        ("pci_bus_id_text", c_char * 32),
        ("total_memory", c_uint64),
        ("l2_cache_size", c_uint64),
        ("shared_memory_per_block", c_uint64),
        ("shared_memory_per_block_optin", c_uint64),
        ("shared_memory_per_multiprocessor", c_uint64),
        ("major", c_int32),
        ("minor", c_int32),
        ("multi_processor_count", c_int32),
        ("max_threads_per_multi_processor", c_int32),
        ("max_threads_per_block", c_int32),
        ("warp_size", c_int32),
        ("regs_per_multiprocessor", c_int32),
        ("clock_rate", c_int32),
        ("memory_clock_rate", c_int32),
        ("memory_bus_width", c_int32),
        ("pci_domain_id", c_int32),
        ("pci_bus_id", c_int32),
        ("pci_device_id", c_int32),
        ("is_integrated", c_int32),
        ("is_multi_gpu_board", c_int32),
        ("has_virtual_memory", c_int32),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_sync_debug_callback_t = CFUNCTYPE(None, c_char_p, c_void_p)


class plinth_stream_context_t(Structure):
    _fields_ = [
        ("device", c_int32),
        ("entered_device", c_int32),
        ("stream", c_void_p),
        ("entered_stream", c_void_p),
    ]


plinth_host_function_callback_t = CFUNCTYPE(None, c_void_p)
plinth_green_context_t = c_void_p
plinth_event_t = c_void_p
plinth_free_memory_callback_t = CFUNCTYPE(c_bool, c_int32, c_size_t, c_void_p)
plinth_out_of_memory_callback_t = CFUNCTYPE(None, c_int32, c_size_t, c_size_t, c_size_t, c_void_p)


class plinth_pool_id_t(Structure):
    _fields_ = [
        ("owner", c_uint64),
        ("index", c_uint64),
    ]


plinth_pool_checkpoint_t = c_void_p
plinth_pool_checkpoint_callback_t = CFUNCTYPE(None, c_void_p, c_size_t, c_bool, c_void_p)
plinth_pluggable_allocator_t = c_void_p


class plinth_allocator_hooks_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("init", CFUNCTYPE(None, c_int)),
        ("reset", CFUNCTYPE(None)),
        ("memory_fraction", CFUNCTYPE(None, c_double, c_int)),
        ("base_alloc", CFUNCTYPE(c_void_p, c_void_p, POINTER(c_size_t))),
        ("record_stream", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("begin_allocate_to_pool", CFUNCTYPE(None, c_int, plinth_pool_id_t, c_void_p)),
        ("end_allocate_to_pool", CFUNCTYPE(None, c_int, plinth_pool_id_t)),
        ("release_pool", CFUNCTYPE(None, c_int, plinth_pool_id_t)),
    ]

    @classmethod
    def INIT(cls):
        return cls(struct_size=sizeof(cls))


class plinth_pointer_attributes_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("device", c_int32),
        ("owner", c_int32),
        ("is_virtual", c_int32),
        ("device_pointer", c_void_p),
        ("host_pointer", c_void_p),
        ("base", c_void_p),
        ("size", c_size_t),
        ("range_base", c_void_p),
        ("range_size", c_size_t),
        ("pool", plinth_pool_id_t),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_host_stat_t(Structure):
    _fields_ = [
        ("current", c_uint64),
        ("peak", c_uint64),
        ("allocated", c_uint64),
        ("freed", c_uint64),
    ]


class plinth_host_time_t(Structure):
    _fields_ = [
        ("total", c_uint64),
        ("max", c_uint64),
        ("min", c_uint64),
        ("count", c_uint64),
        ("avg", c_uint64),
    ]


class plinth_host_memory_stats_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("allocations", plinth_host_stat_t),
        ("active_requests", plinth_host_stat_t),
        ("allocated_bytes", plinth_host_stat_t),
        ("active_bytes", plinth_host_stat_t),
        ("num_host_alloc", c_uint64),
        ("num_host_free", c_uint64),
        ("host_alloc_time", plinth_host_time_t),
        ("host_free_time", plinth_host_time_t),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_host_memory_stats_callback_t = CFUNCTYPE(None, c_char_p, c_uint64, c_void_p)
plinth_backup_t = c_int32


class plinth_sleep_options_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backup", plinth_backup_t),
        ("flags", c_uint32),
        ("folder", c_char_p),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_sleep_info_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("pools", c_uint32),
        ("pools_asleep", c_uint32),
        ("mapped_bytes", c_uint64),
        ("asleep_bytes", c_uint64),
        ("saved_bytes", c_uint64),
        ("backup_bytes", c_uint64),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_memory_uses_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("block", c_void_p),
        ("size", c_size_t),
        ("device", c_int32),
        ("parts", c_uint32),
        ("registrations", c_uint32),
        ("supported", c_uint32),
        ("reasons", c_char_p * 7),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_memory_release_callback_t = CFUNCTYPE(None, c_void_p)


class plinth_memory_registration_options_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("release", plinth_memory_release_callback_t),
        ("context", c_void_p),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_memory_registration_t = c_void_p


class plinth_memory_registration_info_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("pointer", c_void_p),
        ("size", c_size_t),
        ("device", c_int32),
        ("parts", c_uint32),
        ("is_released", c_int32),
        ("reserved", c_int32),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_memory_handle_type_t = c_int32


class plinth_memory_part_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("pointer", c_void_p),
        ("size", c_size_t),
        ("descriptor", c_int32),
        ("reserved", c_int32),
        ("fabric", c_uint8 * 64),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls), descriptor=-1)


plinth_memory_use_t = c_int32


class plinth_memory_share_options_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("budget", c_size_t),
        ("floor", c_size_t),
        ("name", c_char_p),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_memory_share_info_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("processes", c_uint32),
        ("reserved", c_uint32),
        ("budget", c_uint64),
        ("floor", c_uint64),
        ("held_by_others", c_uint64),
        ("asked", c_uint64),
        ("answered", c_uint64),
        ("given", c_uint64),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_memory_stat_t(Structure):
    _fields_ = [
        ("current", c_int64),
        ("peak", c_int64),
        ("allocated", c_int64),
        ("freed", c_int64),
    ]


class plinth_memory_stat_by_pool_t(Structure):
    _fields_ = [
        ("all", plinth_memory_stat_t),
        ("small_pool", plinth_memory_stat_t),
        ("large_pool", plinth_memory_stat_t),
    ]


class plinth_memory_stats_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("allocation", plinth_memory_stat_by_pool_t),
        ("segment", plinth_memory_stat_by_pool_t),
        ("active", plinth_memory_stat_by_pool_t),
        ("inactive_split", plinth_memory_stat_by_pool_t),
        ("allocated_bytes", plinth_memory_stat_by_pool_t),
        ("reserved_bytes", plinth_memory_stat_by_pool_t),
        ("active_bytes", plinth_memory_stat_by_pool_t),
        ("inactive_split_bytes", plinth_memory_stat_by_pool_t),
        ("requested_bytes", plinth_memory_stat_by_pool_t),
        ("oversize_allocations", plinth_memory_stat_t),
        ("oversize_segments", plinth_memory_stat_t),
        ("num_alloc_retries", c_int64),
        ("num_ooms", c_int64),
        ("max_split_size", c_int64),
        ("num_sync_all_streams", c_int64),
        ("num_device_alloc", c_int64),
        ("num_device_free", c_int64),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_memory_stats_callback_t = CFUNCTYPE(None, c_char_p, c_int64, c_void_p)


class plinth_memory_history_options_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("enabled", c_int32),
        ("context", c_int32),
        ("max_entries", c_uint64),
        ("clear_history", c_int32),
        ("record_annotations", c_int32),
        ("skip_actions", c_uint32),
        ("reserved", c_uint32),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls), enabled=2, context=3)


class plinth_memory_history_entry_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("action", c_int32),
        ("device", c_int32),
        ("address", c_uint64),
        ("size", c_uint64),
        ("stream", c_void_p),
        ("pool", plinth_pool_id_t),
        ("time_us", c_uint64),
        ("thread", c_uint64),
        ("metadata", c_char_p),
        ("stack", c_uint32),
        ("reserved", c_uint32),
        ("name", c_char_p),
        ("stream_name", c_char_p),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_memory_history_callback_t = CFUNCTYPE(None, POINTER(plinth_memory_history_entry_t), c_void_p)
plinth_memory_frame_callback_t = CFUNCTYPE(None, c_char_p, c_char_p, c_uint32, c_void_p)
plinth_memory_annotation_callback_t = CFUNCTYPE(None, c_int32, c_uint64, c_char_p, c_bool, c_void_p)


class plinth_memory_segment_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("address", c_uint64),
        ("total_size", c_uint64),
        ("allocated_size", c_uint64),
        ("active_size", c_uint64),
        ("requested_size", c_uint64),
        ("asleep_size", c_uint64),
        ("stream", c_uint64),
        ("pool", plinth_pool_id_t),
        ("block_count", c_size_t),
        ("device", c_int32),
        ("is_large", c_bool),
        ("is_expandable", c_bool),
        ("stream_name", c_char_p),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_block_state_t = c_int32


class plinth_memory_block_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("address", c_uint64),
        ("size", c_uint64),
        ("requested_size", c_uint64),
        ("state", plinth_block_state_t),
        ("reserved", c_int32),
        ("name", c_char_p),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_memory_snapshot_callback_t = CFUNCTYPE(c_bool, POINTER(plinth_memory_segment_t), POINTER(plinth_memory_block_t), c_void_p)


class plinth_ipc_memory_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("pointer", c_void_p),
        ("size", c_size_t),
        ("offset", c_size_t),
        ("device", c_int32),
        ("reserved", c_int32),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_ipc_export_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("bytes", POINTER(c_uint8)),
        ("size", c_size_t),
        ("descriptors", POINTER(c_int32)),
        ("descriptor_count", c_size_t),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_philox_state_t(Structure):
    _fields_ = [
        ("seed", c_uint64),
        ("offset", c_uint64),
        ("graph_offset", c_uint64),
        ("captured", c_uint32),
        ("reserved", c_uint32),
    ]


plinth_generator_t = c_void_p
plinth_graph_node_t = c_void_p
plinth_graph_t = c_void_p


class plinth_graph_context_t(Structure):
    _fields_ = [
        ("graph", c_void_p),
        ("streams", plinth_stream_context_t),
    ]


class plinth_node_time_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("node", c_void_p),
        ("node_type", c_uint32),
        ("reserved", c_uint32),
        ("microseconds", c_double),
        ("what", c_char * 128),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_graph_kernel_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("function", c_void_p),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("shared_bytes", c_uint32),
        ("parameters", POINTER(c_void_p)),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls), grid=(1, 1, 1), block=(1, 1, 1))


plinth_graph_condition_t = c_uint64
plinth_callable_callback_t = CFUNCTYPE(plinth_status_t, POINTER(DLTensor), c_size_t, POINTER(DLTensor), c_size_t, c_void_p, c_void_p)


class plinth_callable_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("forward", plinth_callable_callback_t),
        ("backward", plinth_callable_callback_t),
        ("context", c_void_p),
        ("inputs", POINTER(DLTensor)),
        ("input_count", c_size_t),
        ("outputs", POINTER(DLTensor)),
        ("output_count", c_size_t),
        ("differentiable", POINTER(c_bool)),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_graphed_callable_t = c_void_p
plinth_kernel_t = c_void_p
plinth_kernel_module_t = c_void_p


class plinth_kernel_attributes_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("registers", c_int32),
        ("shared_bytes", c_int32),
        ("max_dynamic_shared_bytes", c_int32),
        ("local_bytes", c_int32),
        ("const_bytes", c_int32),
        ("max_threads_per_block", c_int32),
        ("ptx_version", c_int32),
        ("binary_version", c_int32),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_kernel_launch_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("cluster", c_uint32 * 3),
        ("shared_bytes", c_uint32),
        ("flags", c_uint32),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls), grid=(1, 1, 1), block=(1, 1, 1))


class plinth_kernel_argument_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("value", c_void_p),
        ("bytes", c_size_t),
        ("kind", c_int32),
        ("access", c_uint32),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_host_launch_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("shared_bytes", c_uint32),
        ("device", c_int32),
        ("parameters", POINTER(c_void_p)),
        ("count", c_size_t),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls), grid=(1, 1, 1), block=(1, 1, 1))


plinth_host_kernel_callback_t = CFUNCTYPE(c_int32, POINTER(plinth_host_launch_t), c_void_p)


class plinth_jit_scalar_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("kind", c_int32),
        ("reserved", c_int32),
        ("integer", c_int64),
        ("real", c_double),
        ("imaginary", c_double),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_jit_function_t = c_void_p
plinth_store_t = c_void_p


class plinth_communicator_options_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("timeout_milliseconds", c_uint64),
        ("engine", c_uint32),
        ("flags", c_uint32),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_communicator_t = c_void_p


class plinth_cufft_params_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rank", c_int32),
        ("transform", c_int32),
        ("number", DLDataType),
        ("sizes", c_int64 * 4),
        ("input_strides", c_int64 * 4),
        ("output_strides", c_int64 * 4),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_cufft_plan_t = c_void_p


class plinth_telemetry_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("time_us", c_uint64),
        ("valid", c_uint32),
        ("utilization", c_uint32),
        ("memory_usage", c_uint32),
        ("temperature", c_uint32),
        ("power_draw", c_uint32),
        ("clock_rate", c_uint32),
        ("memory_clock_rate", c_uint32),
        ("reserved", c_uint32),
        ("memory_used", c_uint64),
        ("energy", c_uint64),
        ("throttle_reasons", c_uint64),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_gpu_process_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("memory_used", c_uint64),
        ("pid", c_uint32),
        ("reserved", c_uint32),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_gpu_process_callback_t = CFUNCTYPE(None, POINTER(plinth_gpu_process_t), c_void_p)
plinth_telemetry_sampler_t = c_void_p
plinth_nvtx_domain_t = c_void_p


class plinth_nvtx_event_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("message", c_char_p),
        ("category", c_uint32),
        ("color", c_uint32),
        ("payload", c_int64),
        ("has_color", c_bool),
        ("has_payload", c_bool),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_sanitizer_side_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("operation", c_uint64),
        ("stream", c_void_p),
        ("device", c_int32),
        ("kind", c_uint32),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_sanitizer_report_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("missing", c_int32),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("times", c_uint64),
        ("access", POINTER(plinth_sanitizer_side_t)),
        ("previous", POINTER(plinth_sanitizer_side_t)),
        ("text", c_char_p),
        ("json", c_char_p),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


plinth_sanitizer_callback_t = CFUNCTYPE(None, POINTER(plinth_sanitizer_report_t), c_void_p)


class plinth_sanitizer_access_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("pointer", c_void_p),
        ("bytes", c_size_t),
        ("kind", c_uint32),
        ("reserved", c_uint32),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


class plinth_host_usage_t(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device_bytes", c_uint64),
        ("pinned_bytes", c_uint64),
        ("streams", c_uint64),
        ("events", c_uint64),
        ("graphs", c_uint64),
        ("executable_graphs", c_uint64),
        ("modules", c_uint64),
        ("memory_handles", c_uint64),
        ("mappings", c_uint64),
        ("reservations", c_uint64),
        ("threads", c_uint64),
    ]

    @classmethod
    def init(cls):
        return cls(struct_size=sizeof(cls))


PROTOTYPES = {
    "plinth_status_name": (c_char_p, (plinth_status_t,)),  # status
    "plinth_status_string": (c_char_p, (plinth_status_t,)),  # status
    "plinth_last_error": (c_char_p, ()),
    "plinth_last_driver_error": (c_int32, ()),
    "plinth_check_error": (plinth_status_t, (c_int32,)),  # code
    "plinth_status_count": (c_int32, ()),
    "plinth_version": (c_int32, ()),
    "plinth_version_string": (c_char_p, ()),
    "plinth_driver_version": (plinth_status_t, (POINTER(c_int32),)),  # version
    "plinth_set_device_kind": (plinth_status_t, (c_int32,)),  # kind
    "plinth_get_device_kind": (plinth_status_t, (POINTER(c_int32),)),  # kind
    "plinth_set_log_callback": (plinth_status_t, (c_int32, plinth_log_callback_t, c_void_p)),  # level, callback, context
    "plinth_init": (plinth_status_t, ()),
    "plinth_is_available": (c_bool, ()),
    "plinth_is_initialized": (c_bool, ()),
    "plinth_device_count": (plinth_status_t, (POINTER(c_int32),)),  # count
    "plinth_current_device": (plinth_status_t, (POINTER(c_int32),)),  # device
    "plinth_set_device": (plinth_status_t, (c_int32,)),  # device
    "plinth_device_of": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # pointer, device
    "plinth_get_device_name": (plinth_status_t, (c_int32, c_char_p, c_size_t)),  # device, name, capacity
    "plinth_get_device_capability": (plinth_status_t, (c_int32, POINTER(c_int32), POINTER(c_int32))),  # device, major, minor
    "plinth_can_device_access_peer": (plinth_status_t, (c_int32, c_int32, POINTER(c_bool))),  # device, peer, can_access
    "plinth_enable_peer_access": (plinth_status_t, (c_int32, c_int32)),  # device, peer
    "plinth_disable_peer_access": (plinth_status_t, (c_int32, c_int32)),  # device, peer
    "plinth_synchronize": (plinth_status_t, (c_int32,)),  # device
    "plinth_mem_get_info": (plinth_status_t, (c_int32, POINTER(c_size_t), POINTER(c_size_t))),  # device, free_bytes, total_bytes
    "plinth_get_arch_list": (plinth_status_t, (POINTER(c_char_p),)),  # text
    "plinth_get_gencode_flags": (plinth_status_t, (POINTER(c_char_p),)),  # text
    "plinth_string_free": (None, (c_char_p,)),  # text
    "plinth_exchange_device": (plinth_status_t, (c_int32, POINTER(c_int32))),  # device, previous
    "plinth_maybe_exchange_device": (plinth_status_t, (c_int32, POINTER(c_int32))),  # device, previous
    "plinth_exchange_device_of": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # pointer, previous
    "plinth_is_bf16_supported": (plinth_status_t, (c_bool, POINTER(c_bool))),  # including_emulation, supported
    "plinth_is_tf32_supported": (plinth_status_t, (POINTER(c_bool),)),  # supported
    "plinth_get_device_properties": (plinth_status_t, (c_int32, POINTER(plinth_device_properties_t))),  # device, properties
    "plinth_set_sync_debug_mode": (plinth_status_t, (c_int32,)),  # mode
    "plinth_get_sync_debug_mode": (plinth_status_t, (POINTER(c_int32),)),  # mode
    "plinth_set_sync_debug_callback": (plinth_status_t, (plinth_sync_debug_callback_t, c_void_p)),  # callback, context
    "plinth_sync_debug_warnings": (plinth_status_t, (POINTER(c_uint64),)),  # count
    "plinth_stream_create": (plinth_status_t, (c_int32, c_int32, POINTER(c_void_p))),  # device, priority, stream
    "plinth_stream_create_dedicated": (plinth_status_t, (c_int32, c_int32, POINTER(c_void_p))),  # device, priority, stream
    "plinth_stream_destroy": (plinth_status_t, (c_void_p,)),  # stream
    "plinth_stream_unregister": (plinth_status_t, (c_void_p,)),  # stream
    "plinth_stream_from_external": (plinth_status_t, (c_void_p, c_int32, POINTER(c_void_p))),  # native, device, stream
    "plinth_current_stream": (plinth_status_t, (c_int32, POINTER(c_void_p))),  # device, stream
    "plinth_default_stream": (plinth_status_t, (c_int32, POINTER(c_void_p))),  # device, stream
    "plinth_set_stream": (plinth_status_t, (c_void_p,)),  # stream
    "plinth_set_stream_of": (plinth_status_t, (c_int32, c_void_p)),  # device, stream
    "plinth_stream_context_enter": (plinth_status_t, (c_void_p, POINTER(plinth_stream_context_t))),  # stream, saved
    "plinth_stream_context_exit": (plinth_status_t, (POINTER(plinth_stream_context_t),)),  # saved
    "plinth_stream_query": (plinth_status_t, (c_void_p, POINTER(c_bool))),  # stream, done
    "plinth_stream_synchronize": (plinth_status_t, (c_void_p,)),  # stream
    "plinth_stream_wait_stream": (plinth_status_t, (c_void_p, c_void_p)),  # stream, other
    "plinth_stream_priority_range": (plinth_status_t, (c_int32, POINTER(c_int32), POINTER(c_int32))),  # device, least, greatest
    "plinth_stream_priority": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # stream, priority
    "plinth_stream_id": (plinth_status_t, (c_void_p, POINTER(c_uint64))),  # stream, id
    "plinth_stream_device": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # stream, device
    "plinth_stream_is_capturing": (plinth_status_t, (c_void_p, POINTER(c_bool))),  # stream, capturing
    "plinth_is_current_stream_capturing": (plinth_status_t, (POINTER(c_bool),)),  # capturing
    "plinth_launch_host_function": (plinth_status_t, (c_void_p, plinth_host_function_callback_t, c_void_p)),  # stream, function, context
    "plinth_sleep": (plinth_status_t, (c_uint64, c_void_p)),  # cycles, stream
    "plinth_green_context_create": (plinth_status_t, (c_int32, c_int32, POINTER(c_void_p))),  # num_sms, device, context
    "plinth_green_context_split": (plinth_status_t, (c_int32, c_size_t, c_int32, POINTER(c_void_p), POINTER(c_void_p))),  # num_sms, count, device, contexts, rest
    "plinth_green_context_destroy": (plinth_status_t, (c_void_p,)),  # context
    "plinth_green_context_set_context": (plinth_status_t, (c_void_p,)),  # context
    "plinth_green_context_pop_context": (plinth_status_t, (c_void_p,)),  # context
    "plinth_green_context_stream": (plinth_status_t, (c_void_p, POINTER(c_void_p))),  # context, stream
    "plinth_green_context_num_sms": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # context, num_sms
    "plinth_green_context_device": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # context, device
    "plinth_green_context_native": (plinth_status_t, (c_void_p, POINTER(c_void_p), POINTER(c_void_p))),  # context, native, as_context
    "plinth_event_create": (plinth_status_t, (c_uint32, POINTER(c_void_p))),  # flags, event
    "plinth_event_destroy": (plinth_status_t, (c_void_p,)),  # event
    "plinth_event_record": (plinth_status_t, (c_void_p, c_void_p)),  # event, stream
    "plinth_event_wait": (plinth_status_t, (c_void_p, c_void_p)),  # event, stream
    "plinth_stream_wait_event": (plinth_status_t, (c_void_p, c_void_p)),  # stream, event
    "plinth_stream_record_event": (plinth_status_t, (c_void_p, c_void_p)),  # stream, event
    "plinth_event_query": (plinth_status_t, (c_void_p, POINTER(c_bool))),  # event, done
    "plinth_event_synchronize": (plinth_status_t, (c_void_p,)),  # event
    "plinth_event_elapsed_time": (plinth_status_t, (c_void_p, c_void_p, POINTER(c_float))),  # start, end, milliseconds
    "plinth_event_device": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # event, device
    "plinth_event_native": (plinth_status_t, (c_void_p, POINTER(c_void_p))),  # event, native
    "plinth_event_ipc_handle": (plinth_status_t, (c_void_p, POINTER(c_uint8))),  # event, ipc_handle
    "plinth_event_from_ipc_handle": (plinth_status_t, (c_int32, POINTER(c_uint8), POINTER(c_void_p))),  # device, ipc_handle, event
    "plinth_caching_allocator_alloc": (plinth_status_t, (c_size_t, c_int32, c_void_p, POINTER(c_void_p))),  # size, device, stream, pointer
    "plinth_caching_allocator_delete": (plinth_status_t, (c_void_p,)),  # pointer
    "plinth_record_stream": (plinth_status_t, (c_void_p, c_void_p)),  # pointer, stream
    "plinth_empty_cache": (plinth_status_t, ()),
    "plinth_memory_allocated": (plinth_status_t, (c_int32, POINTER(c_size_t))),  # device, bytes
    "plinth_max_memory_allocated": (plinth_status_t, (c_int32, POINTER(c_size_t))),  # device, bytes
    "plinth_memory_reserved": (plinth_status_t, (c_int32, POINTER(c_size_t))),  # device, bytes
    "plinth_max_memory_reserved": (plinth_status_t, (c_int32, POINTER(c_size_t))),  # device, bytes
    "plinth_reset_peak_memory_stats": (plinth_status_t, (c_int32,)),  # device
    "plinth_memory_summary": (plinth_status_t, (c_int32, c_bool, POINTER(c_char_p))),  # device, abbreviated, text
    "plinth_set_per_process_memory_fraction": (plinth_status_t, (c_double, c_int32)),  # fraction, device
    "plinth_get_per_process_memory_fraction": (plinth_status_t, (c_int32, POINTER(c_double))),  # device, fraction
    "plinth_set_allocator_settings": (plinth_status_t, (c_char_p,)),  # settings
    "plinth_get_allocator_settings": (plinth_status_t, (POINTER(c_char_p),)),  # settings
    "plinth_add_free_memory_callback": (plinth_status_t, (plinth_free_memory_callback_t, c_void_p)),  # callback, context
    "plinth_remove_free_memory_callback": (plinth_status_t, (plinth_free_memory_callback_t, c_void_p)),  # callback, context
    "plinth_attach_out_of_memory_observer": (plinth_status_t, (plinth_out_of_memory_callback_t, c_void_p)),  # observer, context
    "plinth_detach_out_of_memory_observer": (plinth_status_t, (plinth_out_of_memory_callback_t, c_void_p)),  # observer, context
    "plinth_mem_pool_create": (plinth_status_t, (c_bool, c_bool, POINTER(plinth_pool_id_t))),  # use_on_oom, no_split, pool
    "plinth_mem_pool_create_with_flags": (plinth_status_t, (c_uint32, POINTER(plinth_pool_id_t))),  # flags, pool
    "plinth_mem_pool_destroy": (plinth_status_t, (plinth_pool_id_t,)),  # pool
    "plinth_mem_pool_set_budget": (plinth_status_t, (plinth_pool_id_t, c_size_t)),  # pool, bytes
    "plinth_mem_pool_get_budget": (plinth_status_t, (plinth_pool_id_t, POINTER(c_size_t))),  # pool, bytes
    "plinth_mem_pool_set_use_on_oom": (plinth_status_t, (plinth_pool_id_t, c_bool)),  # pool, use_on_oom
    "plinth_mem_pool_use_count": (plinth_status_t, (plinth_pool_id_t, c_int32, POINTER(c_int32))),  # pool, device, count
    "plinth_mem_pool_memory": (plinth_status_t, (plinth_pool_id_t, c_int32, POINTER(c_size_t), POINTER(c_size_t))),  # pool, device, allocated, reserved
    "plinth_begin_allocate_to_pool": (plinth_status_t, (c_int32, plinth_pool_id_t)),  # device, pool
    "plinth_begin_allocate_current_thread_to_pool": (plinth_status_t, (c_int32, plinth_pool_id_t)),  # device, pool
    "plinth_begin_allocate_current_stream_to_pool": (plinth_status_t, (c_int32, c_void_p, plinth_pool_id_t)),  # device, stream, pool
    "plinth_end_allocate_to_pool": (plinth_status_t, (c_int32, plinth_pool_id_t)),  # device, pool
    "plinth_release_pool": (plinth_status_t, (c_int32, plinth_pool_id_t)),  # device, pool
    "plinth_pool_checkpoint_create": (plinth_status_t, (c_int32, plinth_pool_id_t, POINTER(c_void_p))),  # device, pool, checkpoint
    "plinth_pool_checkpoint_restore": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, plinth_pool_checkpoint_callback_t, c_void_p)),  # checkpoint, stale, count, callback, context
    "plinth_pool_checkpoint_destroy": (plinth_status_t, (c_void_p,)),  # checkpoint
    "plinth_pool_check_live_allocations": (plinth_status_t, (c_int32, plinth_pool_id_t, POINTER(c_void_p), c_size_t, POINTER(c_bool))),  # device, pool, pointers, count, equal
    "plinth_pluggable_allocator_create": (plinth_status_t, (c_char_p, c_char_p, c_char_p, POINTER(c_void_p))),  # path, alloc_name, free_name, allocator
    "plinth_pluggable_allocator_set_hooks": (plinth_status_t, (c_void_p, POINTER(plinth_allocator_hooks_t))),  # allocator, hooks
    "plinth_pluggable_allocator_destroy": (plinth_status_t, (c_void_p,)),  # allocator
    "plinth_mem_pool_create_with_allocator": (plinth_status_t, (c_void_p, c_bool, c_bool, POINTER(plinth_pool_id_t))),  # allocator, use_on_oom, no_split, pool
    "plinth_change_current_allocator": (plinth_status_t, (c_void_p,)),  # allocator
    "plinth_get_allocator_backend": (plinth_status_t, (POINTER(c_char_p),)),  # backend
    "plinth_caching_allocator_enable": (plinth_status_t, (c_bool,)),  # enable
    "plinth_caching_allocator_is_enabled": (plinth_status_t, (POINTER(c_bool),)),  # enabled
    "plinth_alloc": (c_void_p, (c_ssize_t, c_int, c_void_p)),  # size, device, stream
    "plinth_free": (None, (c_void_p, c_ssize_t, c_int, c_void_p)),  # pointer, size, device, stream
    "plinth_pluggable_init": (None, (c_int,)),  # device_count
    "plinth_pluggable_reset": (None, ()),
    "plinth_pluggable_memory_fraction": (None, (c_double, c_int)),  # fraction, device
    "plinth_pluggable_base_alloc": (c_void_p, (c_void_p, POINTER(c_size_t))),  # pointer, size
    "plinth_pluggable_record_stream": (None, (c_void_p, c_void_p)),  # pointer, stream
    "plinth_pluggable_begin_allocate_to_pool": (None, (c_int, plinth_pool_id_t, c_void_p)),  # device, pool, filter
    "plinth_pluggable_end_allocate_to_pool": (None, (c_int, plinth_pool_id_t)),  # device, pool
    "plinth_pluggable_release_pool": (None, (c_int, plinth_pool_id_t)),  # device, pool
    "plinth_cupy_malloc": (c_void_p, (c_void_p, c_size_t, c_int)),  # param, size, device
    "plinth_cupy_free": (None, (c_void_p, c_void_p, c_int)),  # param, pointer, device
    "plinth_rmm_allocate": (c_void_p, (c_size_t, c_void_p, c_void_p)),  # bytes, stream, arg
    "plinth_rmm_deallocate": (None, (c_void_p, c_size_t, c_void_p, c_void_p)),  # pointer, bytes, stream, arg
    "plinth_device_malloc": (plinth_status_t, (c_size_t, c_int32, POINTER(c_void_p))),  # size, device, pointer
    "plinth_device_free": (plinth_status_t, (c_void_p,)),  # pointer
    "plinth_pinned_malloc": (plinth_status_t, (c_size_t, POINTER(c_void_p))),  # size, pointer
    "plinth_pinned_free": (plinth_status_t, (c_void_p,)),  # pointer
    "plinth_memcpy": (plinth_status_t, (c_void_p, c_void_p, c_size_t, c_void_p)),  # destination, source, bytes, stream
    "plinth_copy": (plinth_status_t, (c_void_p, c_void_p, c_size_t, c_bool)),  # destination, source, bytes, non_blocking
    "plinth_memcpy_2d": (plinth_status_t, (c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_void_p)),  # destination, destination_pitch, source, source_pitch, width_bytes, height, stream
    "plinth_copy_tensor": (plinth_status_t, (POINTER(DLTensor), POINTER(DLTensor), c_bool)),  # destination, source, non_blocking
    "plinth_memset": (plinth_status_t, (c_void_p, c_uint8, c_size_t, c_void_p)),  # destination, value, bytes, stream
    "plinth_memset_pattern": (plinth_status_t, (c_void_p, c_void_p, c_size_t, c_size_t, c_void_p)),  # destination, pattern, pattern_size, bytes, stream
    "plinth_pointer_attributes": (plinth_status_t, (c_void_p, POINTER(plinth_pointer_attributes_t))),  # pointer, attributes
    "plinth_managed_malloc": (plinth_status_t, (c_size_t, c_int32, POINTER(c_void_p))),  # size, device, pointer
    "plinth_managed_free": (plinth_status_t, (c_void_p,)),  # pointer
    "plinth_stream_set_name": (plinth_status_t, (c_void_p, c_char_p)),  # stream, name
    "plinth_stream_get_name": (plinth_status_t, (c_void_p, POINTER(c_char_p))),  # stream, name
    "plinth_memory_set_name": (plinth_status_t, (c_void_p, c_char_p)),  # pointer, name
    "plinth_memory_get_name": (plinth_status_t, (c_void_p, POINTER(c_char_p))),  # pointer, name
    "plinth_host_alloc": (plinth_status_t, (c_size_t, POINTER(c_void_p))),  # size, pointer
    "plinth_host_free": (plinth_status_t, (c_void_p,)),  # pointer
    "plinth_host_record_stream": (plinth_status_t, (c_void_p, c_void_p)),  # pointer, stream
    "plinth_host_empty_cache": (plinth_status_t, ()),
    "plinth_is_pinned": (plinth_status_t, (c_void_p, POINTER(c_bool))),  # pointer, pinned
    "plinth_host_register": (plinth_status_t, (c_void_p, c_size_t, c_uint32)),  # pointer, bytes, flags
    "plinth_host_unregister": (plinth_status_t, (c_void_p,)),  # pointer
    "plinth_host_memory_stats": (plinth_status_t, (POINTER(plinth_host_memory_stats_t),)),  # stats
    "plinth_host_memory_stats_each": (plinth_status_t, (plinth_host_memory_stats_callback_t, c_void_p)),  # callback, context
    "plinth_host_memory_stats_as_json": (plinth_status_t, (c_bool, POINTER(c_char_p))),  # nested, text
    "plinth_reset_peak_host_memory_stats": (plinth_status_t, ()),
    "plinth_reset_accumulated_host_memory_stats": (plinth_status_t, ()),
    "plinth_mem_pool_set_tag": (plinth_status_t, (plinth_pool_id_t, c_char_p)),  # pool, tag
    "plinth_mem_pool_get_tag": (plinth_status_t, (plinth_pool_id_t, POINTER(c_char_p))),  # pool, tag
    "plinth_memory_sleep": (plinth_status_t, (c_char_p, POINTER(plinth_sleep_options_t))),  # tags, options
    "plinth_memory_wake": (plinth_status_t, (c_char_p,)),  # tags
    "plinth_memory_wake_async": (plinth_status_t, (c_char_p,)),  # tags
    "plinth_memory_wake_wait": (plinth_status_t, (c_char_p, c_void_p)),  # tags, stream
    "plinth_memory_alloc_backup": (plinth_status_t, (c_char_p, POINTER(plinth_sleep_options_t))),  # tags, options
    "plinth_memory_free_backup": (plinth_status_t, (c_char_p,)),  # tags
    "plinth_memory_sleep_info": (plinth_status_t, (c_char_p, POINTER(plinth_sleep_info_t))),  # tags, info
    "plinth_memory_uses": (plinth_status_t, (c_void_p, POINTER(plinth_memory_uses_t))),  # pointer, result
    "plinth_memory_registration_create": (plinth_status_t, (c_void_p, c_size_t, POINTER(plinth_memory_registration_options_t), POINTER(c_void_p))),  # pointer, size, options, registration
    "plinth_memory_registration_destroy": (plinth_status_t, (c_void_p,)),  # registration
    "plinth_memory_registration_info": (plinth_status_t, (c_void_p, POINTER(plinth_memory_registration_info_t))),  # registration, result
    "plinth_memory_registration_dma_buf": (plinth_status_t, (c_void_p, POINTER(c_int32), POINTER(c_size_t), POINTER(c_size_t))),  # registration, descriptor, offset, size
    "plinth_memory_registration_part": (plinth_status_t, (c_void_p, c_uint32, plinth_memory_handle_type_t, POINTER(plinth_memory_part_t))),  # registration, index, handle_type, part
    "plinth_memory_share_enable": (plinth_status_t, (c_int32, POINTER(plinth_memory_share_options_t))),  # device, options
    "plinth_memory_share_disable": (plinth_status_t, (c_int32,)),  # device
    "plinth_memory_share_info": (plinth_status_t, (c_int32, POINTER(plinth_memory_share_info_t))),  # device, result
    "plinth_memory_stats": (plinth_status_t, (c_int32, POINTER(plinth_memory_stats_t))),  # device, stats
    "plinth_mem_pool_stats": (plinth_status_t, (plinth_pool_id_t, c_int32, POINTER(plinth_memory_stats_t))),  # pool, device, stats
    "plinth_stream_memory_stats": (plinth_status_t, (c_void_p, POINTER(plinth_memory_stats_t))),  # stream, stats
    "plinth_memory_stats_each": (plinth_status_t, (c_int32, plinth_memory_stats_callback_t, c_void_p)),  # device, callback, context
    "plinth_memory_stats_as_json": (plinth_status_t, (c_int32, c_bool, POINTER(c_char_p))),  # device, nested, text
    "plinth_reset_accumulated_memory_stats": (plinth_status_t, (c_int32,)),  # device
    "plinth_memory_cached": (plinth_status_t, (c_int32, POINTER(c_size_t))),  # device, bytes
    "plinth_max_memory_cached": (plinth_status_t, (c_int32, POINTER(c_size_t))),  # device, bytes
    "plinth_reset_max_memory_allocated": (plinth_status_t, (c_int32,)),  # device
    "plinth_reset_max_memory_cached": (plinth_status_t, (c_int32,)),  # device
    "plinth_record_memory_history": (plinth_status_t, (POINTER(plinth_memory_history_options_t),)),  # options
    "plinth_memory_history_is_enabled": (plinth_status_t, (POINTER(c_bool),)),  # enabled
    "plinth_memory_history_each": (plinth_status_t, (c_int32, plinth_memory_history_callback_t, c_void_p)),  # device, callback, context
    "plinth_memory_stack_each": (plinth_status_t, (c_uint32, plinth_memory_frame_callback_t, c_void_p)),  # stack, callback, context
    "plinth_memory_action_name": (c_char_p, (c_int32,)),  # action
    "plinth_set_memory_metadata": (plinth_status_t, (c_char_p,)),  # text
    "plinth_get_memory_metadata": (plinth_status_t, (POINTER(c_char_p),)),  # text
    "plinth_memory_annotation_begin": (plinth_status_t, (c_char_p,)),  # name
    "plinth_memory_annotation_end": (plinth_status_t, (c_char_p,)),  # name
    "plinth_memory_annotations_each": (plinth_status_t, (plinth_memory_annotation_callback_t, c_void_p)),  # callback, context
    "plinth_attach_allocator_trace_tracker": (plinth_status_t, (plinth_memory_history_callback_t, c_void_p)),  # tracker, context
    "plinth_detach_allocator_trace_tracker": (plinth_status_t, (plinth_memory_history_callback_t, c_void_p)),  # tracker, context
    "plinth_trace_start": (plinth_status_t, (c_char_p,)),  # path
    "plinth_trace_stop": (plinth_status_t, ()),
    "plinth_dump_snapshot": (plinth_status_t, (c_char_p,)),  # path
    "plinth_memory_snapshot": (plinth_status_t, (c_bool, POINTER(c_char_p))),  # include_traces, json
    "plinth_mem_pool_snapshot": (plinth_status_t, (plinth_pool_id_t, c_bool, POINTER(c_char_p))),  # pool, include_traces, json
    "plinth_memory_snapshot_each": (plinth_status_t, (plinth_memory_snapshot_callback_t, c_void_p)),  # callback, context
    "plinth_ipc_send": (plinth_status_t, (c_int32, c_void_p)),  # socket, pointer
    "plinth_ipc_receive": (plinth_status_t, (c_int32, c_int32, POINTER(plinth_ipc_memory_t))),  # socket, device, memory
    "plinth_ipc_export": (plinth_status_t, (c_void_p, POINTER(plinth_ipc_export_t))),  # pointer, message
    "plinth_ipc_export_free": (plinth_status_t, (POINTER(plinth_ipc_export_t),)),  # message
    "plinth_ipc_import": (plinth_status_t, (POINTER(c_uint8), c_size_t, POINTER(c_int32), c_size_t, c_int32, POINTER(plinth_ipc_memory_t))),  # bytes, size, descriptors, descriptor_count, device, memory
    "plinth_ipc_close": (plinth_status_t, (c_void_p,)),  # pointer
    "plinth_ipc_collect": (plinth_status_t, ()),
    "plinth_ipc_mem_handle": (plinth_status_t, (c_void_p, POINTER(c_uint8), POINTER(c_size_t))),  # pointer, ipc_handle, offset
    "plinth_ipc_open_mem_handle": (plinth_status_t, (c_int32, POINTER(c_uint8), POINTER(c_void_p))),  # device, ipc_handle, pointer
    "plinth_ipc_close_mem_handle": (plinth_status_t, (c_void_p,)),  # pointer
    "plinth_manual_seed": (plinth_status_t, (c_uint64,)),  # seed
    "plinth_manual_seed_all": (plinth_status_t, (c_uint64,)),  # seed
    "plinth_seed": (plinth_status_t, ()),
    "plinth_seed_all": (plinth_status_t, ()),
    "plinth_initial_seed": (plinth_status_t, (POINTER(c_uint64),)),  # seed
    "plinth_get_rng_state": (plinth_status_t, (c_int32, POINTER(c_uint8))),  # device, state
    "plinth_set_rng_state": (plinth_status_t, (c_int32, POINTER(c_uint8))),  # device, state
    "plinth_get_rng_state_all": (plinth_status_t, (POINTER(c_uint8), c_int32)),  # states, count
    "plinth_set_rng_state_all": (plinth_status_t, (POINTER(c_uint8), c_int32)),  # states, count
    "plinth_default_generator": (plinth_status_t, (c_int32, POINTER(c_void_p))),  # device, generator
    "plinth_generator_create": (plinth_status_t, (c_int32, POINTER(c_void_p))),  # device, generator
    "plinth_generator_destroy": (plinth_status_t, (c_void_p,)),  # generator
    "plinth_generator_clone": (plinth_status_t, (c_void_p, POINTER(c_void_p))),  # generator, clone
    "plinth_generator_graphsafe_get_state": (plinth_status_t, (c_void_p, POINTER(c_void_p))),  # generator, shared
    "plinth_generator_graphsafe_set_state": (plinth_status_t, (c_void_p, c_void_p)),  # generator, shared
    "plinth_generator_device": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # generator, device
    "plinth_generator_manual_seed": (plinth_status_t, (c_void_p, c_uint64)),  # generator, seed
    "plinth_generator_seed": (plinth_status_t, (c_void_p, POINTER(c_uint64))),  # generator, seed
    "plinth_generator_initial_seed": (plinth_status_t, (c_void_p, POINTER(c_uint64))),  # generator, seed
    "plinth_generator_get_state": (plinth_status_t, (c_void_p, POINTER(c_uint8))),  # generator, state
    "plinth_generator_set_state": (plinth_status_t, (c_void_p, POINTER(c_uint8), c_size_t)),  # generator, state, size
    "plinth_generator_get_offset": (plinth_status_t, (c_void_p, POINTER(c_uint64))),  # generator, offset
    "plinth_generator_set_offset": (plinth_status_t, (c_void_p, c_uint64)),  # generator, offset
    "plinth_generator_philox_state": (plinth_status_t, (c_void_p, c_uint64, POINTER(plinth_philox_state_t))),  # generator, increment, state
    "plinth_uniform": (plinth_status_t, (POINTER(DLTensor), c_double, c_double, c_void_p, c_void_p)),  # tensor, low, high, generator, stream
    "plinth_normal": (plinth_status_t, (POINTER(DLTensor), c_double, c_double, c_void_p, c_void_p)),  # tensor, mean, std, generator, stream
    "plinth_log_normal": (plinth_status_t, (POINTER(DLTensor), c_double, c_double, c_void_p, c_void_p)),  # tensor, mean, std, generator, stream
    "plinth_exponential": (plinth_status_t, (POINTER(DLTensor), c_double, c_void_p, c_void_p)),  # tensor, lambda, generator, stream
    "plinth_cauchy": (plinth_status_t, (POINTER(DLTensor), c_double, c_double, c_void_p, c_void_p)),  # tensor, median, sigma, generator, stream
    "plinth_geometric": (plinth_status_t, (POINTER(DLTensor), c_double, c_void_p, c_void_p)),  # tensor, p, generator, stream
    "plinth_bernoulli": (plinth_status_t, (POINTER(DLTensor), c_double, c_void_p, c_void_p)),  # tensor, p, generator, stream
    "plinth_bernoulli_tensor": (plinth_status_t, (POINTER(DLTensor), POINTER(DLTensor), c_void_p, c_void_p)),  # tensor, p, generator, stream
    "plinth_random": (plinth_status_t, (POINTER(DLTensor), c_void_p, c_void_p)),  # tensor, generator, stream
    "plinth_random_range": (plinth_status_t, (POINTER(DLTensor), c_int64, c_int64, c_void_p, c_void_p)),  # tensor, low, high, generator, stream
    "plinth_randperm": (plinth_status_t, (POINTER(DLTensor), c_void_p, c_void_p)),  # tensor, generator, stream
    "plinth_graph_create": (plinth_status_t, (POINTER(c_void_p),)),  # graph
    "plinth_graph_set_flags": (plinth_status_t, (c_void_p, c_uint32)),  # graph, flags
    "plinth_graph_destroy": (plinth_status_t, (c_void_p,)),  # graph
    "plinth_graph_reset": (plinth_status_t, (c_void_p,)),  # graph
    "plinth_graph_capture_begin": (plinth_status_t, (c_void_p, POINTER(plinth_pool_id_t), c_int32)),  # graph, pool, mode
    "plinth_graph_capture_end": (plinth_status_t, (c_void_p,)),  # graph
    "plinth_graph_instantiate": (plinth_status_t, (c_void_p,)),  # graph
    "plinth_graph_upload": (plinth_status_t, (c_void_p,)),  # graph
    "plinth_graph_replay": (plinth_status_t, (c_void_p,)),  # graph
    "plinth_graph_set_overlap_policy": (plinth_status_t, (c_void_p, c_int32)),  # graph, policy
    "plinth_graph_register_generator_state": (plinth_status_t, (c_void_p, c_void_p)),  # graph, generator
    "plinth_graph_pool_handle": (plinth_status_t, (POINTER(plinth_pool_id_t),)),  # pool
    "plinth_graph_pool": (plinth_status_t, (c_void_p, POINTER(plinth_pool_id_t))),  # graph, pool
    "plinth_graph_memory": (plinth_status_t, (c_void_p, POINTER(c_size_t), POINTER(c_size_t))),  # graph, allocated, held
    "plinth_graph_sleep": (plinth_status_t, (c_void_p,)),  # graph
    "plinth_graph_wake": (plinth_status_t, (c_void_p,)),  # graph
    "plinth_graph_is_asleep": (plinth_status_t, (c_void_p, POINTER(c_bool))),  # graph, asleep
    "plinth_graph_enable_debug_mode": (plinth_status_t, (c_void_p,)),  # graph
    "plinth_graph_debug_dump": (plinth_status_t, (c_void_p, c_char_p)),  # graph, path
    "plinth_graph_summary": (plinth_status_t, (c_void_p, POINTER(c_char_p))),  # graph, text
    "plinth_graph_native": (plinth_status_t, (c_void_p, POINTER(c_void_p))),  # graph, native
    "plinth_graph_exec_native": (plinth_status_t, (c_void_p, POINTER(c_void_p))),  # graph, native
    "plinth_graph_update": (plinth_status_t, (c_void_p, c_void_p)),  # graph, other
    "plinth_graph_update_native": (plinth_status_t, (c_void_p, c_void_p)),  # graph, native
    "plinth_graph_clone": (plinth_status_t, (c_void_p, POINTER(c_void_p))),  # graph, copy
    "plinth_graph_begin": (plinth_status_t, (c_void_p, POINTER(plinth_pool_id_t), c_void_p, c_int32, POINTER(plinth_graph_context_t))),  # graph, pool, stream, mode, context
    "plinth_graph_end": (plinth_status_t, (POINTER(plinth_graph_context_t), plinth_status_t)),  # context, body
    "plinth_graph_node_times": (plinth_status_t, (c_void_p, c_uint32, POINTER(plinth_node_time_t), c_size_t, POINTER(c_size_t))),  # graph, repeats, times, capacity, count
    "plinth_graph_time_table": (plinth_status_t, (c_void_p, c_uint32, POINTER(c_char_p))),  # graph, repeats, text
    "plinth_graph_create_empty": (plinth_status_t, (c_int32, POINTER(c_void_p))),  # device, graph
    "plinth_graph_add_kernel": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, POINTER(plinth_graph_kernel_t), POINTER(c_void_p))),  # graph, dependencies, count, kernel, node
    "plinth_graph_add_copy": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, c_void_p, c_void_p, c_size_t, POINTER(c_void_p))),  # graph, dependencies, count, destination, source, bytes, node
    "plinth_graph_add_fill": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, c_void_p, c_uint32, c_size_t, c_size_t, POINTER(c_void_p))),  # graph, dependencies, count, pointer, value, element_size, elements, node
    "plinth_graph_add_host": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, plinth_host_function_callback_t, c_void_p, POINTER(c_void_p))),  # graph, dependencies, count, function, context, node
    "plinth_graph_add_child": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, c_void_p, POINTER(c_void_p))),  # graph, dependencies, count, child, node
    "plinth_graph_add_empty": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, POINTER(c_void_p))),  # graph, dependencies, count, node
    "plinth_graph_add_event_record": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, c_void_p, POINTER(c_void_p))),  # graph, dependencies, count, event, node
    "plinth_graph_add_event_wait": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, c_void_p, POINTER(c_void_p))),  # graph, dependencies, count, event, node
    "plinth_graph_add_dependency": (plinth_status_t, (c_void_p, c_void_p, c_void_p)),  # graph, from, to
    "plinth_graph_nodes": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, POINTER(c_size_t))),  # graph, nodes, capacity, count
    "plinth_graph_node_type": (plinth_status_t, (c_void_p, c_void_p, POINTER(c_uint32))),  # graph, node, node_type
    "plinth_graph_node_get_kernel": (plinth_status_t, (c_void_p, c_void_p, POINTER(plinth_graph_kernel_t))),  # graph, node, kernel
    "plinth_graph_node_set_kernel": (plinth_status_t, (c_void_p, c_void_p, POINTER(plinth_graph_kernel_t))),  # graph, node, kernel
    "plinth_graph_node_set_enabled": (plinth_status_t, (c_void_p, c_void_p, c_bool)),  # graph, node, enabled
    "plinth_graph_node_get_enabled": (plinth_status_t, (c_void_p, c_void_p, POINTER(c_bool))),  # graph, node, enabled
    "plinth_graph_condition_create": (plinth_status_t, (c_void_p, c_uint32, POINTER(plinth_graph_condition_t))),  # graph, default_value, condition
    "plinth_graph_add_if": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, plinth_graph_condition_t, POINTER(c_void_p), POINTER(c_void_p))),  # graph, dependencies, count, condition, body, node
    "plinth_graph_add_if_else": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, plinth_graph_condition_t, POINTER(c_void_p), POINTER(c_void_p), POINTER(c_void_p))),  # graph, dependencies, count, condition, then_body, else_body, node
    "plinth_graph_add_while": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, plinth_graph_condition_t, POINTER(c_void_p), POINTER(c_void_p))),  # graph, dependencies, count, condition, body, node
    "plinth_graph_add_switch": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, plinth_graph_condition_t, POINTER(c_void_p), c_size_t, POINTER(c_void_p))),  # graph, dependencies, count, condition, bodies, body_count, node
    "plinth_graph_add_condition_set": (plinth_status_t, (c_void_p, POINTER(c_void_p), c_size_t, plinth_graph_condition_t, c_void_p, POINTER(c_void_p))),  # graph, dependencies, count, condition, value, node
    "plinth_graph_condition_set_from": (plinth_status_t, (plinth_graph_condition_t, c_void_p, c_void_p)),  # condition, value, stream
    "plinth_make_graphed_callables": (plinth_status_t, (POINTER(plinth_callable_t), c_size_t, POINTER(plinth_pool_id_t), c_uint32, POINTER(c_void_p))),  # callables, count, pool, warmup_count, graphed
    "plinth_graphed_callable_call": (plinth_status_t, (c_void_p, POINTER(DLTensor), c_size_t, POINTER(DLTensor), c_size_t)),  # callable, inputs, input_count, outputs, output_count
    "plinth_graphed_callable_backward": (plinth_status_t, (c_void_p, POINTER(DLTensor), c_size_t, POINTER(DLTensor), c_size_t)),  # callable, output_gradients, output_count, input_gradients, input_count
    "plinth_graphed_callable_pool": (plinth_status_t, (c_void_p, POINTER(plinth_pool_id_t))),  # callable, pool
    "plinth_graphed_callable_reset": (plinth_status_t, (c_void_p,)),  # callable
    "plinth_graphed_callable_destroy": (plinth_status_t, (c_void_p,)),  # callable
    "plinth_nvrtc_compile": (plinth_status_t, (c_char_p, c_char_p, c_char_p, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_void_p), POINTER(c_size_t), POINTER(c_char_p))),  # kernel_source, kernel_name, compute_capability, cuda_include_dirs, nvcc_options, image, bytes, lowered_name
    "plinth_compile_kernel": (plinth_status_t, (c_char_p, c_char_p, c_char_p, POINTER(c_char_p), POINTER(c_char_p), c_int32, POINTER(c_void_p))),  # kernel_source, kernel_name, compute_capability, cuda_include_dirs, nvcc_options, device, kernel
    "plinth_kernel_module_load": (plinth_status_t, (c_void_p, c_size_t, c_int32, POINTER(c_void_p))),  # image, bytes, device, module
    "plinth_kernel_module_get_kernel": (plinth_status_t, (c_void_p, c_char_p, POINTER(c_void_p))),  # module, name, kernel
    "plinth_kernel_symbol": (plinth_status_t, (c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t))),  # kernel, name, address, bytes
    "plinth_kernel_module_symbol": (plinth_status_t, (c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t))),  # module, name, address, bytes
    "plinth_kernel_module_destroy": (plinth_status_t, (c_void_p,)),  # module
    "plinth_kernel_destroy": (plinth_status_t, (c_void_p,)),  # kernel
    "plinth_kernel_attributes": (plinth_status_t, (c_void_p, POINTER(plinth_kernel_attributes_t))),  # kernel, attributes
    "plinth_kernel_occupancy": (plinth_status_t, (c_void_p, c_uint32, c_uint32, POINTER(c_int32))),  # kernel, threads, shared_bytes, blocks
    "plinth_kernel_set_shared_memory_config": (plinth_status_t, (c_void_p, c_uint32)),  # kernel, shared_bytes
    "plinth_kernel_launch": (plinth_status_t, (c_void_p, POINTER(plinth_kernel_launch_t), POINTER(plinth_kernel_argument_t), c_size_t, c_void_p)),  # kernel, launch, arguments, count, stream
    "plinth_host_kernel_register": (plinth_status_t, (c_char_p, POINTER(c_size_t), c_size_t, plinth_host_kernel_callback_t, c_void_p)),  # name, parameter_bytes, count, function, context
    "plinth_jiterator_create_jit_fn": (plinth_status_t, (c_char_p, POINTER(plinth_jit_scalar_t), c_size_t, POINTER(c_void_p))),  # code, scalars, count, function
    "plinth_jiterator_create_multi_output_jit_fn": (plinth_status_t, (c_char_p, c_int32, POINTER(plinth_jit_scalar_t), c_size_t, POINTER(c_void_p))),  # code, num_outputs, scalars, count, function
    "plinth_jiterator_destroy_jit_fn": (plinth_status_t, (c_void_p,)),  # function
    "plinth_jiterator_result": (plinth_status_t, (c_void_p, POINTER(POINTER(DLTensor)), c_size_t, POINTER(DLDataType), POINTER(c_int32), POINTER(c_int64))),  # function, inputs, num_inputs, dtype, ndim, shape
    "plinth_jiterator_call": (plinth_status_t, (c_void_p, POINTER(POINTER(DLTensor)), c_size_t, POINTER(POINTER(DLTensor)), c_size_t, POINTER(plinth_jit_scalar_t), c_size_t, c_void_p)),  # function, inputs, num_inputs, outputs, num_outputs, scalars, num_scalars, stream
    "plinth_comm_broadcast": (plinth_status_t, (POINTER(DLTensor), POINTER(DLTensor), c_size_t)),  # tensor, outputs, count
    "plinth_comm_broadcast_coalesced": (plinth_status_t, (POINTER(DLTensor), c_size_t, POINTER(c_int32), c_size_t, c_size_t, POINTER(DLTensor))),  # tensors, count, devices, device_count, buffer_size, outputs
    "plinth_comm_reduce_add": (plinth_status_t, (POINTER(DLTensor), c_size_t, POINTER(DLTensor))),  # inputs, count, output
    "plinth_comm_reduce_add_coalesced": (plinth_status_t, (POINTER(DLTensor), c_size_t, c_size_t, c_size_t, POINTER(DLTensor))),  # inputs, count, device_count, buffer_size, outputs
    "plinth_comm_scatter": (plinth_status_t, (POINTER(DLTensor), POINTER(DLTensor), c_size_t, POINTER(c_int64), c_int32, POINTER(c_void_p))),  # tensor, outputs, count, chunk_sizes, dim, streams
    "plinth_comm_gather": (plinth_status_t, (POINTER(DLTensor), c_size_t, c_int32, POINTER(DLTensor))),  # inputs, count, dim, output
    "plinth_comm_set_reduction_order": (plinth_status_t, (c_int32,)),  # order
    "plinth_comm_get_reduction_order": (plinth_status_t, (POINTER(c_int32),)),  # order
    "plinth_comm_set_threshold": (plinth_status_t, (c_int32, c_size_t)),  # which, bytes
    "plinth_comm_get_threshold": (plinth_status_t, (c_int32, POINTER(c_size_t))),  # which, bytes
    "plinth_store_create": (plinth_status_t, (c_char_p, POINTER(c_void_p))),  # address, store
    "plinth_store_destroy": (plinth_status_t, (c_void_p,)),  # store
    "plinth_store_set": (plinth_status_t, (c_void_p, c_char_p, c_void_p, c_size_t)),  # store, name, value, bytes
    "plinth_store_get": (plinth_status_t, (c_void_p, c_char_p, c_uint64, c_void_p, c_size_t, POINTER(c_size_t))),  # store, name, timeout_milliseconds, value, capacity, bytes
    "plinth_store_barrier": (plinth_status_t, (c_void_p, c_char_p, c_int32, c_uint64)),  # store, name, ranks, timeout_milliseconds
    "plinth_store_unique_id": (plinth_status_t, (c_void_p, c_char_p, c_int32, c_int32, c_uint64, POINTER(c_uint8))),  # store, name, rank, ranks, timeout_milliseconds, id
    "plinth_communicator_init_rank": (plinth_status_t, (c_int32, POINTER(c_uint8), c_int32, c_int32, POINTER(plinth_communicator_options_t), POINTER(c_void_p))),  # ranks, id, rank, device, options, communicator
    "plinth_communicator_init_all": (plinth_status_t, (POINTER(c_int32), c_size_t, POINTER(plinth_communicator_options_t), POINTER(c_void_p))),  # devices, count, options, communicators
    "plinth_communicator_destroy": (plinth_status_t, (c_void_p,)),  # communicator
    "plinth_communicator_abort": (plinth_status_t, (c_void_p,)),  # communicator
    "plinth_communicator_register": (plinth_status_t, (c_void_p, c_void_p, c_size_t)),  # communicator, pointer, bytes
    "plinth_communicator_deregister": (plinth_status_t, (c_void_p, c_void_p)),  # communicator, pointer
    "plinth_communicator_rank": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # communicator, rank
    "plinth_communicator_size": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # communicator, size
    "plinth_communicator_device": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # communicator, device
    "plinth_communicator_engine": (plinth_status_t, (c_void_p, POINTER(c_uint32))),  # communicator, engine
    "plinth_communicator_set_timeout": (plinth_status_t, (c_void_p, c_uint64)),  # communicator, timeout_milliseconds
    "plinth_communicator_query": (plinth_status_t, (c_void_p, POINTER(c_bool))),  # communicator, ready
    "plinth_communicator_wait": (plinth_status_t, (c_void_p, c_uint64, c_void_p)),  # communicator, timeout_milliseconds, stream
    "plinth_communicator_sleep": (plinth_status_t, (c_void_p,)),  # communicator
    "plinth_communicator_wake": (plinth_status_t, (c_void_p,)),  # communicator
    "plinth_communicator_split": (plinth_status_t, (c_void_p, c_int32, c_int32, POINTER(c_void_p))),  # communicator, color, key, part
    "plinth_communicator_shrink": (plinth_status_t, (c_void_p, POINTER(c_int32), c_size_t, c_uint32, POINTER(c_void_p))),  # communicator, excluded, count, flags, part
    "plinth_communicator_group_start": (plinth_status_t, ()),
    "plinth_communicator_group_end": (plinth_status_t, ()),
    "plinth_communicator_group_cancel": (plinth_status_t, ()),
    "plinth_communicator_all_reduce": (plinth_status_t, (c_void_p, c_void_p, c_void_p, c_size_t, DLDataType, c_int32, c_void_p)),  # communicator, from, to, count, element, op, stream
    "plinth_communicator_reduce": (plinth_status_t, (c_void_p, c_void_p, c_void_p, c_size_t, DLDataType, c_int32, c_int32, c_void_p)),  # communicator, from, to, count, element, op, root, stream
    "plinth_communicator_broadcast": (plinth_status_t, (c_void_p, c_void_p, c_void_p, c_size_t, DLDataType, c_int32, c_void_p)),  # communicator, from, to, count, element, root, stream
    "plinth_communicator_all_gather": (plinth_status_t, (c_void_p, c_void_p, c_void_p, c_size_t, DLDataType, c_void_p)),  # communicator, from, to, count, element, stream
    "plinth_communicator_reduce_scatter": (plinth_status_t, (c_void_p, c_void_p, c_void_p, c_size_t, DLDataType, c_int32, c_void_p)),  # communicator, from, to, count, element, op, stream
    "plinth_communicator_all_to_all": (plinth_status_t, (c_void_p, c_void_p, c_void_p, c_size_t, DLDataType, c_void_p)),  # communicator, from, to, count, element, stream
    "plinth_communicator_send": (plinth_status_t, (c_void_p, c_void_p, c_size_t, DLDataType, c_int32, c_void_p)),  # communicator, from, count, element, peer, stream
    "plinth_communicator_recv": (plinth_status_t, (c_void_p, c_void_p, c_size_t, DLDataType, c_int32, c_void_p)),  # communicator, to, count, element, peer, stream
    "plinth_nccl_version": (plinth_status_t, (POINTER(c_int32), POINTER(c_int32), POINTER(c_int32))),  # major, minor, patch
    "plinth_nccl_report": (plinth_status_t, (c_uint64, POINTER(c_char_p))),  # timeout_milliseconds, text
    "plinth_nccl_is_available": (plinth_status_t, (POINTER(DLTensor), c_size_t, POINTER(c_bool))),  # tensors, count, available
    "plinth_nccl_unique_id": (plinth_status_t, (POINTER(c_uint8),)),  # id
    "plinth_nccl_init_rank": (plinth_status_t, (c_int32, POINTER(c_uint8), c_int32, POINTER(c_void_p))),  # ranks, id, rank, communicator
    "plinth_nccl_all_reduce": (plinth_status_t, (POINTER(DLTensor), POINTER(DLTensor), c_size_t, c_int32, POINTER(c_void_p), POINTER(c_void_p))),  # inputs, outputs, count, op, streams, communicators
    "plinth_nccl_reduce": (plinth_status_t, (POINTER(DLTensor), POINTER(DLTensor), c_size_t, c_int32, c_int32, POINTER(c_void_p), POINTER(c_void_p))),  # inputs, output, count, root, op, streams, communicators
    "plinth_nccl_broadcast": (plinth_status_t, (POINTER(DLTensor), c_size_t, c_int32, POINTER(c_void_p), POINTER(c_void_p))),  # tensors, count, root, streams, communicators
    "plinth_nccl_all_gather": (plinth_status_t, (POINTER(DLTensor), POINTER(DLTensor), c_size_t, POINTER(c_void_p), POINTER(c_void_p))),  # inputs, outputs, count, streams, communicators
    "plinth_nccl_reduce_scatter": (plinth_status_t, (POINTER(DLTensor), POINTER(DLTensor), c_size_t, c_int32, POINTER(c_void_p), POINTER(c_void_p))),  # inputs, outputs, count, op, streams, communicators
    "plinth_current_blas_handle": (plinth_status_t, (POINTER(c_void_p),)),  # handle
    "plinth_current_blaslt_handle": (plinth_status_t, (POINTER(c_void_p),)),  # handle
    "plinth_current_blaslt_workspace": (plinth_status_t, (POINTER(c_void_p), POINTER(c_size_t))),  # workspace, bytes
    "plinth_clear_blas_workspaces": (plinth_status_t, ()),
    "plinth_current_solver_handle": (plinth_status_t, (POINTER(c_void_p),)),  # handle
    "plinth_set_matmul_allow_tf32": (plinth_status_t, (c_bool,)),  # allow
    "plinth_get_matmul_allow_tf32": (plinth_status_t, (POINTER(c_bool),)),  # allow
    "plinth_set_matmul_allow_fp16_reduced_precision_reduction": (plinth_status_t, (c_bool,)),  # allow
    "plinth_get_matmul_allow_fp16_reduced_precision_reduction": (plinth_status_t, (POINTER(c_bool),)),  # allow
    "plinth_set_matmul_allow_bf16_reduced_precision_reduction": (plinth_status_t, (c_bool,)),  # allow
    "plinth_get_matmul_allow_bf16_reduced_precision_reduction": (plinth_status_t, (POINTER(c_bool),)),  # allow
    "plinth_set_float32_matmul_precision": (plinth_status_t, (c_int32,)),  # precision
    "plinth_get_float32_matmul_precision": (plinth_status_t, (POINTER(c_int32),)),  # precision
    "plinth_set_preferred_blas_library": (plinth_status_t, (c_int32,)),  # library
    "plinth_get_preferred_blas_library": (plinth_status_t, (POINTER(c_int32),)),  # library
    "plinth_set_preferred_linalg_library": (plinth_status_t, (c_int32,)),  # library
    "plinth_get_preferred_linalg_library": (plinth_status_t, (POINTER(c_int32),)),  # library
    "plinth_cufft_plan_create": (plinth_status_t, (POINTER(plinth_cufft_params_t), c_int32, POINTER(c_void_p))),  # params, device, plan
    "plinth_cufft_execute": (plinth_status_t, (c_void_p, c_void_p, c_void_p, c_int32)),  # plan, input, output, direction
    "plinth_cufft_plan_acquire": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # plan, native
    "plinth_cufft_plan_release": (plinth_status_t, (c_void_p,)),  # plan
    "plinth_cufft_plan_destroy": (plinth_status_t, (c_void_p,)),  # plan
    "plinth_cufft_plan_cache_get_max_size": (plinth_status_t, (c_int32, POINTER(c_int64))),  # device, max_size
    "plinth_cufft_plan_cache_set_max_size": (plinth_status_t, (c_int32, c_int64)),  # device, max_size
    "plinth_cufft_plan_cache_size": (plinth_status_t, (c_int32, POINTER(c_int64))),  # device, size
    "plinth_cufft_plan_cache_clear": (plinth_status_t, (c_int32,)),  # device
    "plinth_utilization": (plinth_status_t, (c_int32, POINTER(c_uint32))),  # device, percent
    "plinth_memory_usage": (plinth_status_t, (c_int32, POINTER(c_uint32))),  # device, percent
    "plinth_temperature": (plinth_status_t, (c_int32, POINTER(c_uint32))),  # device, celsius
    "plinth_power_draw": (plinth_status_t, (c_int32, POINTER(c_uint32))),  # device, milliwatts
    "plinth_clock_rate": (plinth_status_t, (c_int32, POINTER(c_uint32))),  # device, megahertz
    "plinth_device_memory_used": (plinth_status_t, (c_int32, POINTER(c_uint64))),  # device, bytes
    "plinth_energy_used": (plinth_status_t, (c_int32, POINTER(c_uint64))),  # device, millijoules
    "plinth_throttle_reasons": (plinth_status_t, (c_int32, POINTER(c_uint64))),  # device, reasons
    "plinth_throttle_reasons_text": (plinth_status_t, (c_uint64, POINTER(c_char_p))),  # reasons, text
    "plinth_read_telemetry": (plinth_status_t, (c_int32, POINTER(plinth_telemetry_t))),  # device, readings
    "plinth_list_gpu_processes": (plinth_status_t, (c_int32, POINTER(c_char_p))),  # device, text
    "plinth_gpu_processes_each": (plinth_status_t, (c_int32, plinth_gpu_process_callback_t, c_void_p)),  # device, callback, context
    "plinth_telemetry_sampler_create": (plinth_status_t, (c_int32, c_uint32, c_size_t, POINTER(c_void_p))),  # device, interval_ms, capacity, made
    "plinth_telemetry_sampler_take": (plinth_status_t, (c_void_p, POINTER(plinth_telemetry_t), c_size_t, POINTER(c_size_t), POINTER(c_uint64))),  # sampler, readings, capacity, count, lost
    "plinth_telemetry_sampler_destroy": (plinth_status_t, (c_void_p,)),  # sampler
    "plinth_nvtx_mark": (plinth_status_t, (c_char_p,)),  # message
    "plinth_nvtx_range_push": (plinth_status_t, (c_char_p, POINTER(c_int32))),  # message, depth
    "plinth_nvtx_range_pop": (plinth_status_t, (POINTER(c_int32),)),  # depth
    "plinth_nvtx_range_start": (plinth_status_t, (c_char_p, POINTER(c_uint64))),  # message, range
    "plinth_nvtx_range_end": (plinth_status_t, (c_uint64,)),  # range
    "plinth_nvtx_device_range_start": (plinth_status_t, (c_char_p, c_void_p, POINTER(c_uint64))),  # message, stream, range
    "plinth_nvtx_device_range_end": (plinth_status_t, (c_uint64, c_void_p)),  # range, stream
    "plinth_profiler_start": (plinth_status_t, ()),
    "plinth_profiler_stop": (plinth_status_t, ()),
    "plinth_nvtx_is_active": (plinth_status_t, (POINTER(c_bool),)),  # active
    "plinth_nvtx_annotate_calls": (plinth_status_t, (c_bool,)),  # on
    "plinth_nvtx_name_thread": (plinth_status_t, (c_char_p,)),  # name
    "plinth_nvtx_domain_create": (plinth_status_t, (c_char_p, POINTER(c_void_p))),  # name, made
    "plinth_nvtx_domain_destroy": (plinth_status_t, (c_void_p,)),  # domain
    "plinth_nvtx_name_category": (plinth_status_t, (c_void_p, c_uint32, c_char_p)),  # domain, category, name
    "plinth_nvtx_domain_mark": (plinth_status_t, (c_void_p, POINTER(plinth_nvtx_event_t))),  # domain, event
    "plinth_nvtx_domain_range_push": (plinth_status_t, (c_void_p, POINTER(plinth_nvtx_event_t), POINTER(c_int32))),  # domain, event, depth
    "plinth_nvtx_domain_range_pop": (plinth_status_t, (c_void_p, POINTER(c_int32))),  # domain, depth
    "plinth_nvtx_domain_range_start": (plinth_status_t, (c_void_p, POINTER(plinth_nvtx_event_t), POINTER(c_uint64))),  # domain, event, range
    "plinth_nvtx_domain_range_end": (plinth_status_t, (c_void_p, c_uint64)),  # domain, range
    "plinth_sanitizer_enable": (plinth_status_t, (c_int32,)),  # mode
    "plinth_sanitizer_disable": (plinth_status_t, ()),
    "plinth_sanitizer_mode": (plinth_status_t, (POINTER(c_int32),)),  # mode
    "plinth_sanitizer_set_callback": (plinth_status_t, (plinth_sanitizer_callback_t, c_void_p)),  # callback, context
    "plinth_sanitizer_access": (plinth_status_t, (c_void_p, c_size_t, c_uint32, c_void_p)),  # pointer, bytes, kind, stream
    "plinth_sanitizer_operation": (plinth_status_t, (c_char_p, POINTER(plinth_sanitizer_access_t), c_size_t, c_void_p)),  # name, accesses, access_count, stream
    "plinth_sanitizer_host_operation": (plinth_status_t, (c_char_p, POINTER(plinth_sanitizer_access_t), c_size_t)),  # name, accesses, access_count
    "plinth_sanitizer_graph_operation": (plinth_status_t, (c_void_p, c_void_p, c_char_p, POINTER(plinth_sanitizer_access_t), c_size_t)),  # graph, node, name, accesses, access_count
    "plinth_sanitizer_wait_stream": (plinth_status_t, (c_void_p, c_void_p)),  # stream, other
    "plinth_sanitizer_stream_done": (plinth_status_t, (c_void_p,)),  # stream
    "plinth_sanitizer_count": (plinth_status_t, (POINTER(c_size_t), POINTER(c_uint64))),  # reports, findings
    "plinth_sanitizer_each": (plinth_status_t, (plinth_sanitizer_callback_t, c_void_p)),  # callback, context
    "plinth_sanitizer_text": (plinth_status_t, (POINTER(c_char_p),)),  # text
    "plinth_sanitizer_json": (plinth_status_t, (POINTER(c_char_p),)),  # json
    "plinth_sanitizer_clear": (plinth_status_t, ()),
    "plinth_enable_fault_injection": (plinth_status_t, ()),
    "plinth_inject_fault": (plinth_status_t, (c_uint64, c_int32)),  # nth, driver_code
    "plinth_tripped_fault": (c_char_p, ()),
    "plinth_driver_call_count": (plinth_status_t, (c_char_p, POINTER(c_uint64))),  # name, count
    "plinth_driver_call_cost": (plinth_status_t, (c_char_p, POINTER(c_uint64))),  # name, nanoseconds
    "plinth_driver_entry_point": (plinth_status_t, (c_char_p, POINTER(c_void_p))),  # name, function
    "plinth_driver_entry_point_by_version": (plinth_status_t, (c_char_p, c_int32, c_uint64, POINTER(c_void_p))),  # name, cuda_version, flags, function
    "plinth_host_usage": (plinth_status_t, (POINTER(plinth_host_usage_t),)),  # usage
    "plinth_driver_calls": (plinth_status_t, (POINTER(c_char_p),)),  # text
    "plinth_testing_check_allocator": (plinth_status_t, ()),
}
