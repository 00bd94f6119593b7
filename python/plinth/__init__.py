"""plinth: torch.cuda without torch.

Devices, streams, events, graphs, a caching allocator, random numbers, collectives, telemetry, NVTX, the jiterator and a
stream sanitizer, with torch.cuda's names: `torch.cuda.X.y` is `plinth.X.y`. Without a GPU, PLINTH_DEVICE=host in the
environment runs everything on the CPU.

    import plinth

    x = plinth.empty((1024, 1024), "float32")
    plinth.random.normal_(x)
    side = plinth.Stream()
    side.wait_stream(plinth.current_stream())
    with plinth.stream(side):
        host = x.tobytes()

Importing plinth loads libplinth.so, and uses no device. Errors are exceptions of plinth.errors.
"""

import typing as _typing

from . import comm, communicator, errors, green_contexts, ipc, jiterator, memory, nccl, nvtx, profiler, random
from . import registration, sanitizer, sleeping, telemetry
from ._native import lib as _lib
from .blas import current_blas_handle, current_solver_handle
from .buffer import Buffer, empty, empty_pinned, to_device, zeros
from .communicator import Communicator, Store
from .device import (
    DeviceProperties, can_device_access_peer, check_error, current_device, device, device_count, device_kind, device_of,
    disable_peer_access, enable_peer_access, get_arch_list, get_device_capability, get_device_name,
    get_device_properties, get_gencode_flags, get_sync_debug_mode, init, is_available, is_bf16_supported,
    is_initialized, is_tf32_supported, mem_get_info, set_device, set_device_kind, set_sync_debug_mode, synchronize,
)
from .errors import OutOfMemoryError, PlinthError
from .event import Event
from .graph import CUDAGraph, graph, graph_pool_handle
from .green_contexts import GreenContext
from .ipc import ipc_collect
from .kernel import Kernel, _compile_kernel, compile_kernel
from .memory import (
    CUDAPluggableAllocator, MemPool, caching_allocator_alloc, caching_allocator_delete, caching_allocator_disabled,
    caching_allocator_enable, change_current_allocator, empty_cache, get_allocator_backend, get_allocator_settings,
    get_per_process_memory_fraction, host_empty_cache, host_memory_stats, host_memory_stats_as_nested_dict,
    max_memory_allocated, max_memory_cached, max_memory_reserved, memory_allocated, memory_cached, memory_reserved,
    memory_snapshot, memory_stats, memory_stats_as_nested_dict, memory_summary, reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats, reset_max_memory_allocated, reset_max_memory_cached,
    reset_peak_host_memory_stats, reset_peak_memory_stats, set_allocator_settings, set_per_process_memory_fraction,
    use_mem_pool,
)
from .random import (
    Generator, get_rng_state, get_rng_state_all, initial_seed, manual_seed, manual_seed_all, seed, seed_all,
    set_rng_state, set_rng_state_all,
)
from .stream import (
    ExternalStream, Stream, StreamContext, _sleep, current_stream, default_stream, get_stream_from_external,
    is_current_stream_capturing, set_stream, stream,
)
from .sleeping import pool, sleep, wake
from .telemetry import (
    clock_rate, device_memory_used, list_gpu_processes, memory_usage, power_draw, temperature, utilization,
)

__all__ = [
    "AcceleratorError", "Buffer", "CUDAGraph", "CUDAPluggableAllocator", "Communicator", "CudaError",
    "DeviceProperties", "Event", "ExternalStream", "Generator", "GreenContext", "Kernel", "MemPool", "OutOfMemoryError",
    "PlinthError", "Store", "Stream", "StreamContext", "caching_allocator_alloc", "caching_allocator_delete",
    "caching_allocator_disabled", "caching_allocator_enable", "can_device_access_peer", "change_current_allocator",
    "check_error", "clock_rate", "comm", "communicator", "compile_kernel", "current_blas_handle", "current_device",
    "current_solver_handle", "current_stream", "default_stream", "device", "device_count", "device_kind", "device_memory_used", "device_of",
    "disable_peer_access", "empty", "empty_cache", "empty_pinned", "enable_peer_access", "errors",
    "get_allocator_backend", "get_allocator_settings", "get_arch_list", "get_device_capability", "get_device_name",
    "get_device_properties", "get_gencode_flags", "get_per_process_memory_fraction", "get_rng_state",
    "get_rng_state_all", "get_stream_from_external", "get_sync_debug_mode", "graph", "graph_pool_handle",
    "green_contexts", "host_empty_cache", "host_memory_stats", "host_memory_stats_as_nested_dict", "init",
    "initial_seed", "ipc", "ipc_collect", "is_available", "is_bf16_supported", "is_current_stream_capturing",
    "is_initialized", "is_tf32_supported", "jiterator", "list_gpu_processes", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory", "memory_allocated",
    "memory_cached", "memory_reserved", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict",
    "memory_summary", "memory_usage", "nccl", "nvtx", "pool", "power_draw", "profiler", "random",
    "registration", "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_peak_host_memory_stats", "reset_peak_memory_stats", "sanitizer", "seed",
    "seed_all", "set_allocator_settings", "set_device", "set_device_kind", "set_per_process_memory_fraction",
    "set_rng_state", "set_rng_state_all", "set_stream", "set_sync_debug_mode", "sleep", "sleeping", "stream",
    "synchronize", "telemetry", "temperature", "to_device", "use_mem_pool", "utilization", "wake", "zeros",
]

__version__: str = _lib.plinth_version_string().decode()

CudaError = PlinthError
AcceleratorError = PlinthError
_sanitizer = sanitizer


if _typing.TYPE_CHECKING:
    default_generators: _typing.Tuple[Generator, ...]
else:

    def __getattr__(name):
        # torch's tuple exists after its initialization; here it is made when it is read, because it needs a device.
        if name == "default_generators":
            return random.default_generators()
        raise AttributeError(f"module 'plinth' has no attribute {name!r}")
