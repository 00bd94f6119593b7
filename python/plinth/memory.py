"""Device memory: torch.cuda's allocator functions, statistics, snapshots, pools and settings.

Statistics, limits and settings hold for the whole process. A `device` argument is None for the current device. Sizes
are in bytes. Any thread may call any function.
"""

from __future__ import annotations

import atexit
import json
import os
import weakref
from contextlib import contextmanager
from ctypes import byref, c_bool, c_char_p, c_double, c_int32, c_size_t
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple, Union

from . import _dlpack, _native
from ._arguments import (
    DeviceLike,
    StreamLike,
    call_and_report,
    device_index,
    integer_argument,
    known_device,
    result,
    size_argument,
    stream_handle,
    take_text,
)
from ._native import c_void_p, check, lib
from ._release import release
from .device import mem_get_info
from .graph import CUDAGraph, PoolId, pool_id

__all__ = [
    "CUDAPluggableAllocator",
    "MemPool",
    "ShareInfo",
    "add_free_memory_callback",
    "attach_out_of_memory_observer",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "detach_out_of_memory_observer",
    "disable_sharing",
    "empty_cache",
    "enable_sharing",
    "get_allocator_backend",
    "get_allocator_settings",
    "get_per_process_memory_fraction",
    "host_empty_cache",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "list_gpu_processes",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "remove_free_memory_callback",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_allocator_settings",
    "set_per_process_memory_fraction",
    "share_info",
    "use_mem_pool",
]


def caching_allocator_alloc(size: int, device: DeviceLike = None, stream: StreamLike = None) -> int:
    """Allocates memory for work in a stream, and returns its address, aligned to 512 bytes; 0 for size 0.

    The caller owns it and frees it with caching_allocator_delete; `plinth.empty` returns memory that frees itself.
    Raises OutOfMemoryError, and ValueError for a negative size.
    """
    if size < 0:
        raise ValueError(f"the size {size} is negative")
    arguments = size_argument(size), device_index(device), stream_handle(stream)
    return result(c_void_p, lib.plinth_caching_allocator_alloc, *arguments) or 0


def caching_allocator_delete(mem_ptr: int) -> None:
    """Frees memory of caching_allocator_alloc, from any thread. 0 does nothing."""
    check(lib.plinth_caching_allocator_delete(mem_ptr))


def caching_allocator_enable(value: bool = True) -> None:
    """Enables or disables the cache, for the whole process. Without it requests go to the driver."""
    check(lib.plinth_caching_allocator_enable(value))


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """A context without the cache. Restores the previous state at its end."""
    enabled = result(c_bool, lib.plinth_caching_allocator_is_enabled)
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(enabled)


def empty_cache() -> None:
    """Releases the unused cached memory of every device to the driver. Waits at most one millisecond for streams."""
    _dlpack.collect()
    check(lib.plinth_empty_cache())


def host_empty_cache() -> None:
    """Releases the unused pinned host memory to the driver."""
    check(lib.plinth_host_empty_cache())


def get_allocator_backend() -> str:
    """Returns the name of the allocator in use."""
    name = c_char_p()
    check(lib.plinth_get_allocator_backend(byref(name)))
    return (name.value or b"").decode()


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limits what the allocator holds on a device to a fraction, 0 to 1, of the device's total memory."""
    check(lib.plinth_set_per_process_memory_fraction(fraction, device_index(device)))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """Returns the fraction of a device's memory that the allocator may hold."""
    return float(result(c_double, lib.plinth_get_per_process_memory_fraction, device_index(device)))


def memory_allocated(device: DeviceLike = None) -> int:
    """Returns the bytes that are allocated and not freed, each request rounded up to 512."""
    return int(result(c_size_t, lib.plinth_memory_allocated, device_index(device)))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Returns the peak of memory_allocated since the peaks were reset."""
    return int(result(c_size_t, lib.plinth_max_memory_allocated, device_index(device)))


def memory_reserved(device: DeviceLike = None) -> int:
    """Returns the bytes of memory that the allocator holds, in use or cached."""
    return int(result(c_size_t, lib.plinth_memory_reserved, device_index(device)))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Returns the peak of memory_reserved since the peaks were reset."""
    return int(result(c_size_t, lib.plinth_max_memory_reserved, device_index(device)))


def memory_cached(device: DeviceLike = None) -> int:
    """Returns memory_reserved: torch's former name."""
    return memory_reserved(device)


def max_memory_cached(device: DeviceLike = None) -> int:
    """Returns max_memory_reserved: torch's former name."""
    return max_memory_reserved(device)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Resets all peaks of a device's memory to the current values."""
    check(lib.plinth_reset_peak_memory_stats(device_index(device)))


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Resets all peaks: torch's former name."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """Resets all peaks: torch's former name."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Resets the accumulated statistics of a device's memory: what was allocated and freed, and counts of calls."""
    check(lib.plinth_reset_accumulated_memory_stats(device_index(device)))


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """Returns the statistics of a device with torch's flat keys, such as "allocated_bytes.all.peak", sorted."""
    stats: dict[str, int] = json.loads(take_text(lib.plinth_memory_stats_as_json, device_index(device), False))
    return stats


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """Returns the statistics of memory_stats as nested dictionaries."""
    stats: dict[str, Any] = json.loads(take_text(lib.plinth_memory_stats_as_json, device_index(device), True))
    return stats


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """Returns the statistics of a device as a table, in the layout of torch."""
    return take_text(lib.plinth_memory_summary, device_index(device), abbreviated)


def host_memory_stats() -> dict[str, int]:
    """Returns the statistics of pinned host memory with torch's flat keys. Times are in microseconds."""
    return json.loads(take_text(lib.plinth_host_memory_stats_as_json, False))  # type: ignore[no-any-return]


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Returns the statistics of host_memory_stats as nested dictionaries."""
    return json.loads(take_text(lib.plinth_host_memory_stats_as_json, True))  # type: ignore[no-any-return]


def reset_peak_host_memory_stats() -> None:
    """Resets the peaks of pinned host memory."""
    check(lib.plinth_reset_peak_host_memory_stats())


def reset_accumulated_host_memory_stats() -> None:
    """Resets the accumulated statistics of pinned host memory."""
    check(lib.plinth_reset_accumulated_host_memory_stats())


def memory_snapshot(
    mempool_id: "Union[None, PoolId, MemPool]" = None, include_traces: bool = True
) -> List[dict[str, Any]]:
    """Returns the allocator's segments with their blocks, of all devices, or of one pool."""
    return _read_snapshot(mempool_id, include_traces)["segments"]  # type: ignore[no-any-return]


def _read_snapshot(pool: "Union[None, PoolId, MemPool]", include_traces: bool) -> dict[str, Any]:
    if pool is None:
        text = take_text(lib.plinth_memory_snapshot, include_traces)
    else:
        text = take_text(lib.plinth_mem_pool_snapshot, pool_id(pool), include_traces)
    snapshot: dict[str, Any] = json.loads(text)
    stacks = snapshot.pop("stacks", [])

    def expand(entry: dict[str, Any]) -> None:
        if isinstance(entry.get("frames"), int):
            entry["frames"] = stacks[entry["frames"]]

    for segment in snapshot["segments"]:
        expand(segment)
        for block in segment["blocks"]:
            expand(block)
    for trace in snapshot.get("device_traces", []):
        for entry in trace:
            expand(entry)
    return snapshot


def _snapshot(device: DeviceLike = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Returns torch's dictionary of the allocator: segments, device_traces, allocator_settings, external_annotations.

    It covers all devices; `device` and `augment_with_fx_traces` are accepted as in torch and change nothing.
    """
    return _read_snapshot(None, True)


def _dump_snapshot(
    filename: Union[str, "os.PathLike[str]"] = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Writes a snapshot to a file: by its ending a pickle for torch's viewer, .html for any browser, or .json."""
    check(lib.plinth_dump_snapshot(os.fsencode(filename)))


_CONTEXTS = {None: 0, "state": 1, "alloc": 2, "all": 3}
_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
)


def _record_memory_history(
    enabled: Optional[str] = "all",
    context: Optional[str] = "all",
    stacks: str = "all",
    max_entries: int = 2**63 - 1,
    device: DeviceLike = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Optional[List[str]] = None,
) -> None:
    """Starts, changes or stops recording what the allocator does, on all devices.

    `enabled` is None to stop and discard, "state" for the stacks of live blocks, or "all" for every event. `context`
    says which events have a stack: None, "state", "alloc" or "all". The newest `max_entries` of a device are kept.
    `skip_actions` names actions that are not recorded. Stacks have the functions of C and C++; `stacks`, `device` and
    `compile_context` are accepted as in torch and change nothing. Raises ValueError for another value.
    """
    if enabled not in (None, "state", "all"):
        raise ValueError(f'enabled is {enabled!r}, not None, "state" or "all"')
    if context not in _CONTEXTS:
        raise ValueError(f'context is {context!r}, not None, "state", "alloc" or "all"')
    if stacks not in ("python", "all"):
        raise ValueError(f'stacks is {stacks!r}, not "python" or "all"')
    unknown = set(skip_actions or ()) - set(_ACTIONS)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} in skip_actions: the actions are {', '.join(_ACTIONS)}")
    options = _native.plinth_memory_history_options_t.init()
    options.enabled = {None: 0, "state": 1, "all": 2}[enabled]
    options.context = _CONTEXTS[context] if enabled else 0
    entries = integer_argument(max_entries, "max_entries", 1, 2**64)
    options.max_entries = 0 if entries >= 2**63 - 1 else entries
    options.clear_history = clear_history
    options.record_annotations = global_record_annotations
    options.skip_actions = sum(1 << _ACTIONS.index(action) for action in set(skip_actions or ()))
    check(lib.plinth_record_memory_history(byref(options)))


def _set_memory_metadata(metadata: str) -> None:
    """Sets the calling thread's tag, which its later entries in the history have; "" for none."""
    check(lib.plinth_set_memory_metadata(metadata.encode()))


def _get_memory_metadata() -> str:
    """Returns the calling thread's tag."""
    return take_text(lib.plinth_get_memory_metadata)


def set_allocator_settings(settings: str) -> None:
    """Changes settings of the allocator: "key:value,key:value", as in PLINTH_ALLOC_CONF. Either all change or none."""
    check(lib.plinth_set_allocator_settings(settings.encode()))


def get_allocator_settings() -> str:
    """Returns the settings as a text that set_allocator_settings accepts."""
    return take_text(lib.plinth_get_allocator_settings)


def _set_allocator_settings(env: str) -> None:
    """Changes settings of the allocator: torch's name of set_allocator_settings."""
    set_allocator_settings(env)


class CUDAPluggableAllocator:
    """An allocator from a shared library with the functions `void *alloc(ssize_t, int, cudaStream_t)` and `void
    free(void *, ssize_t, int, cudaStream_t)`, for MemPool or change_current_allocator.

    The object must live as long as memory comes from the allocator; it is never destroyed.
    """

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        self.handle = int(
            result(
                c_void_p,
                lib.plinth_pluggable_allocator_create,
                os.fsencode(path_to_so_file),
                alloc_fn_name.encode(),
                free_fn_name.encode(),
            )
        )


def change_current_allocator(allocator: CUDAPluggableAllocator) -> None:
    """Makes an allocator the process's allocator, before the first memory is allocated."""
    check(lib.plinth_change_current_allocator(allocator.handle))


Observer = Callable[[int, int, int, int], object]
_observers: List[Tuple[Observer, Any]] = []


FreeMemory = Callable[[int, int], bool]
_free_memory_callbacks: List[Tuple[FreeMemory, Any]] = []


@atexit.register
def _remove_callbacks() -> None:
    """Removes all callbacks at exit: C may run out of memory after the interpreter has ended."""
    while _observers:
        lib.plinth_detach_out_of_memory_observer(_observers.pop()[1], None)
    while _free_memory_callbacks:
        lib.plinth_remove_free_memory_callback(_free_memory_callbacks.pop()[1], None)


def add_free_memory_callback(function: FreeMemory) -> None:
    """Calls a function when a request cannot be met, before the allocator waits for the device and before it fails.

    Its arguments are the device index and the requested bytes. It frees memory that the program can spare, and returns
    whether it freed any; then the request is tried again. It runs in the thread of the request, may call plinth, and
    is not called recursively. Its exceptions go to sys.unraisablehook, and count as False.
    """

    def call(device: int, size: int, context: Any) -> bool:
        freed: List[bool] = []
        call_and_report(lambda: freed.append(bool(function(device, size))))
        return freed == [True]

    callback = _native.plinth_free_memory_callback_t(call)
    check(lib.plinth_add_free_memory_callback(callback, None))
    _free_memory_callbacks.append((function, callback))


def _remove(kept: List[Tuple[Any, Any]], function: Any, remove: Any, missing: str) -> None:
    """Removes the newest callback of a function, and the reference to it. `missing` says that there is none."""
    for i in reversed(range(len(kept))):
        if kept[i][0] == function:
            check(remove(kept[i][1], None))
            del kept[i]
            return
    raise ValueError(missing)


def remove_free_memory_callback(function: FreeMemory) -> None:
    """Removes a callback while no other thread's request is failing. Raises ValueError if it was not added."""
    _remove(_free_memory_callbacks, function, lib.plinth_remove_free_memory_callback, "the callback was not added")


def attach_out_of_memory_observer(observer: Observer) -> None:
    """Calls a function whenever a request fails because memory ran out, in the thread of the request.

    Its arguments are the device index, the requested, the total and the free bytes of the device. It may call plinth.
    Its exceptions go to sys.unraisablehook.
    """

    def call(device: int, requested: int, total: int, free: int, context: Any) -> None:
        observer(device, requested, total, free)

    callback = _native.plinth_out_of_memory_callback_t(call)
    check(lib.plinth_attach_out_of_memory_observer(callback, None))
    _observers.append((observer, callback))


def detach_out_of_memory_observer(observer: Observer) -> None:
    """Detaches an observer while no other thread's request is failing. Raises ValueError if it is not attached."""
    _remove(_observers, observer, lib.plinth_detach_out_of_memory_observer, "the observer is not attached")


class ShareInfo(NamedTuple):
    """The state of the sharing of a device. Sizes are in bytes."""

    processes: int
    """The number of processes that share the device, with this one; 0 if this one does not."""
    budget: int
    """The most that this process holds."""
    floor: int
    """What this process is not asked for."""
    held_by_others: int
    """What the other processes held when they last needed more memory or gave some back."""
    asked: int
    """How often this process asked another one."""
    answered: int
    """How often this process was asked."""
    given: int
    """What this process gave back."""


def enable_sharing(budget: int = 0, floor: int = 0, name: str = "", device: DeviceLike = None) -> None:
    """Begins to share a device with other processes of this user, or changes the budget and the floor.

    `budget` is the most that the allocator holds, in bytes; 0 for all of the device. A process that runs short asks the
    others for memory that they hold but do not use; they give back what is above their `floor`. Those with the same
    `name` share with each other. Raises InvalidArgumentError, a ValueError, for a floor above the budget, and PlinthError
    if the device is shared by another name.
    """
    options = _native.plinth_memory_share_options_t.init()
    options.budget = integer_argument(budget, "the budget", 0, 2**64)
    options.floor = integer_argument(floor, "the floor", 0, 2**64)
    options.name = name.encode()
    check(lib.plinth_memory_share_enable(device_index(device), byref(options)))


def disable_sharing(device: DeviceLike = None) -> None:
    """Ends the sharing of a device. The process keeps what it holds, and has no budget any more."""
    check(lib.plinth_memory_share_disable(device_index(device)))


def share_info(device: DeviceLike = None) -> ShareInfo:
    """Returns the state of the sharing of a device."""
    info = _native.plinth_memory_share_info_t.init()
    check(lib.plinth_memory_share_info(device_index(device), byref(info)))
    return ShareInfo(*(int(getattr(info, field)) for field in ShareInfo._fields))


class MemPool:
    """A pool: memory that is kept separate from all other memory, for use with use_mem_pool and graphs.

    With `use_on_oom` the default pool may use the pool's free memory when nothing else is left; with `no_split` free
    blocks are never split. `allocator` is one that provides the memory instead of the driver. Blocks stay valid when
    the object is collected; the pool's free memory goes to the driver.

    What others can use the memory for: with `fabric`, processes of other machines of the same NVLink fabric can import
    it, where the driver permits it; with `gpu_direct_rdma`, network adapters can access it by its address, where the
    device supports it; with `segments`, it has CUDA's handles of 64 bytes; with `nccl_window`, each block is in one
    physical allocation and can be a window of an NCCL communicator. plinth.registration.uses tells. Not together with
    `allocator`.
    """

    def __init__(
        self,
        allocator: Optional[CUDAPluggableAllocator] = None,
        use_on_oom: bool = False,
        no_split: bool = False,
        *,
        fabric: bool = False,
        gpu_direct_rdma: bool = False,
        segments: bool = False,
        nccl_window: bool = False,
    ) -> None:
        pool = _native.plinth_pool_id_t()
        if allocator is None:
            chosen = {
                _native.PLINTH_MEM_POOL_USE_ON_OOM: use_on_oom,
                _native.PLINTH_MEM_POOL_NO_SPLIT: no_split,
                _native.PLINTH_MEM_POOL_FABRIC: fabric,
                _native.PLINTH_MEM_POOL_GPU_DIRECT_RDMA: gpu_direct_rdma,
                _native.PLINTH_MEM_POOL_SEGMENTS: segments,
                _native.PLINTH_MEM_POOL_NCCL_WINDOW: nccl_window,
            }
            flags = sum(flag for flag, is_chosen in chosen.items() if is_chosen)
            check(lib.plinth_mem_pool_create_with_flags(flags, byref(pool)))
        elif fabric or gpu_direct_rdma or segments or nccl_window:
            raise ValueError("the memory of an allocator cannot be made for a purpose")
        else:
            check(lib.plinth_mem_pool_create_with_allocator(allocator.handle, use_on_oom, no_split, byref(pool)))
        self.id: PoolId = (pool.owner, pool.index)
        self.allocator = allocator
        weakref.finalize(self, release, lib.plinth_mem_pool_destroy, pool).atexit = False

    def use_count(self, device: DeviceLike = None) -> int:
        """Returns the number of references to the pool on a device: 1 for this object, and 1 for each use."""
        return int(result(c_int32, lib.plinth_mem_pool_use_count, pool_id(self), device_index(device)))

    def memory(self, device: DeviceLike = None) -> Tuple[int, int]:
        """Returns the allocated bytes and the bytes of physical memory on a device."""
        allocated, reserved = c_size_t(), c_size_t()
        check(lib.plinth_mem_pool_memory(pool_id(self), device_index(device), byref(allocated), byref(reserved)))
        return allocated.value, reserved.value

    def snapshot(self, include_traces: bool = True) -> List[dict[str, Any]]:
        """Returns the pool's segments with their blocks."""
        return memory_snapshot(self, include_traces)

    @property
    def budget(self) -> Optional[int]:
        """How much physical memory the pool may hold on each device; None, the default, is no limit. Settable."""
        size = int(result(c_size_t, lib.plinth_mem_pool_get_budget, pool_id(self)))
        return None if size == c_size_t(-1).value else size

    @budget.setter
    def budget(self, size: Optional[int]) -> None:
        limit = c_size_t(-1) if size is None else integer_argument(size, "the budget", 0, 2**64)
        check(lib.plinth_mem_pool_set_budget(pool_id(self), limit))

    @property
    def tag(self) -> Optional[str]:
        """The tag by which plinth.sleeping finds the pool; None, the default, is no tag. Settable, without a comma."""
        return take_text(lib.plinth_mem_pool_get_tag, pool_id(self)) or None

    @tag.setter
    def tag(self, tag: Optional[str]) -> None:
        check(lib.plinth_mem_pool_set_tag(pool_id(self), None if tag is None else tag.encode()))

    def __reduce__(self) -> Any:
        raise TypeError("a pool cannot be pickled or copied")


@contextmanager
def use_mem_pool(pool: "Union[MemPool, PoolId, CUDAGraph]", device: DeviceLike = None) -> Iterator[None]:
    """A context in which the calling thread allocates from a pool on a device. Contexts can be nested."""
    identifier, index = pool_id(pool), known_device(device)
    check(lib.plinth_begin_allocate_current_thread_to_pool(index, identifier))
    try:
        yield
    finally:
        check(lib.plinth_end_allocate_to_pool(index, identifier))
        check(lib.plinth_release_pool(index, identifier))


from .telemetry import list_gpu_processes  # noqa: E402
