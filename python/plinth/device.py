"""Devices: torch.cuda's device functions and the contexts `device` and `device_of`.

Each thread has its own current device, 0 at first. A `device` argument is None for the current device, an index,
"cuda:1", or an object with an `index`. Errors are `plinth.errors.PlinthError` and its subclasses.
"""

from __future__ import annotations

import atexit
import sys
import uuid
import warnings
from ctypes import byref, c_bool, c_char, c_int32, c_size_t
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from . import _native
from ._arguments import DeviceLike, device_index, known_device, result, take_text
from ._native import check, lib, wait


def init() -> None:
    """Initializes the library: loads the driver and checks that there is a device.

    Optional: every call that uses a device does it. Creates no context. Raises PlinthError if there is no device, with
    a message that says how to run without a GPU.
    """
    check(lib.plinth_init())


def is_initialized() -> bool:
    """Reports whether the library is initialized and usable; False in a forked child."""
    return bool(lib.plinth_is_initialized())


def is_available() -> bool:
    """Reports whether there is a device. Never raises, and does not initialize the driver."""
    return bool(lib.plinth_is_available())


def device_count() -> int:
    """Returns the number of devices; 0 without a driver. Does not initialize the driver."""
    return int(result(c_int32, lib.plinth_device_count))


def current_device() -> int:
    """Returns the index of the calling thread's current device."""
    return int(result(c_int32, lib.plinth_current_device))


def set_device(device: DeviceLike) -> None:
    """Sets the calling thread's current device, for plinth and for CUDA. None and a negative index do nothing."""
    check(lib.plinth_set_device(device_index(device)))


def device_kind() -> str:
    """Returns what devices are: "cuda" for GPUs, "host" for the built-in device that runs on the CPU."""
    kind = result(c_int32, lib.plinth_get_device_kind)
    return "host" if kind == _native.PLINTH_DEVICE_HOST else "cuda"


def set_device_kind(kind: str) -> None:
    """Selects the kind of device for the process, before the first use of a device.

    `kind` is "cuda", "host", or "auto" for GPUs if there are any. Takes precedence over the environment variable
    PLINTH_DEVICE. Raises ValueError for another name, and PlinthError if another kind is in use already.
    """
    kinds = {"cuda": _native.PLINTH_DEVICE_CUDA, "host": _native.PLINTH_DEVICE_HOST, "auto": _native.PLINTH_DEVICE_AUTO}
    if kind not in kinds:
        raise ValueError(f'the kind of device {kind!r} is not "cuda", "host" or "auto"')
    check(lib.plinth_set_device_kind(kinds[kind]))


class DeviceProperties(NamedTuple):
    """The fixed properties of a device, with torch's names. Sizes are in bytes, clock rates in kHz, widths in bits."""

    name: str
    uuid: uuid.UUID
    pci_bus_id_text: str
    total_memory: int
    l2_cache_size: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    major: int
    minor: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    max_threads_per_block: int
    warp_size: int
    regs_per_multiprocessor: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    pci_domain_id: int
    pci_bus_id: int
    pci_device_id: int
    is_integrated: bool
    is_multi_gpu_board: bool
    has_virtual_memory: bool


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Returns the properties of a device."""
    raw = _native.plinth_device_properties_t.init()
    check(lib.plinth_get_device_properties(device_index(device), byref(raw)))
    values: dict[str, Any] = {field: getattr(raw, field) for field in DeviceProperties._fields}
    for field in ("name", "pci_bus_id_text"):
        values[field] = values[field].decode(errors="replace")
    values["uuid"] = uuid.UUID(bytes=bytes(raw.uuid))
    for field in ("is_integrated", "is_multi_gpu_board", "has_virtual_memory"):
        values[field] = bool(values[field])
    return DeviceProperties(**values)


def get_device_name(device: DeviceLike = None) -> str:
    """Returns the name of a device, such as "NVIDIA H200"."""
    name = (c_char * 256)()
    check(lib.plinth_get_device_name(device_index(device), name, len(name)))
    return name.value.decode(errors="replace")


def get_device_capability(device: DeviceLike = None) -> Tuple[int, int]:
    """Returns the compute capability of a device: (9, 0) on an H200."""
    major, minor = c_int32(), c_int32()
    check(lib.plinth_get_device_capability(device_index(device), byref(major), byref(minor)))
    return major.value, minor.value


def mem_get_info(device: DeviceLike = None) -> Tuple[int, int]:
    """Returns the free and the total memory of a device in bytes, as the driver reports them for all processes."""
    free, total = c_size_t(), c_size_t()
    check(lib.plinth_mem_get_info(device_index(device), byref(free), byref(total)))
    return free.value, total.value


def synchronize(device: DeviceLike = None) -> None:
    """Waits until all work in all streams of a device is done, and raises the errors of that work.

    Releases the GIL, and ends on Ctrl-C in the main thread. Raises PlinthError if the sync debug mode forbids the wait,
    and GraphError while a stream of the device captures.
    """
    index = known_device(device)
    wait(None, lambda: check(lib.plinth_synchronize(index)))


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Reports whether a device can access the memory of another. False for one and the same device."""
    return bool(result(c_bool, lib.plinth_can_device_access_peer, device_index(device), device_index(peer_device)))


def enable_peer_access(device: DeviceLike, peer_device: DeviceLike) -> None:
    """Lets `device` access the memory of `peer_device`, for the whole process. Does nothing if it can already."""
    check(lib.plinth_enable_peer_access(device_index(device), device_index(peer_device)))


def disable_peer_access(device: DeviceLike, peer_device: DeviceLike) -> None:
    """Ends the access that enable_peer_access gave. Does nothing if there is none."""
    check(lib.plinth_disable_peer_access(device_index(device), device_index(peer_device)))


def get_arch_list() -> List[str]:
    """Returns the architectures for which the library's own kernels are compiled; empty without a device."""
    return take_text(lib.plinth_get_arch_list).split()


def get_gencode_flags() -> str:
    """Returns the compiler's flags for the architectures of get_arch_list."""
    return take_text(lib.plinth_get_gencode_flags)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Reports whether the current device computes with bfloat16, in hardware or, if included, by emulation."""
    return bool(result(c_bool, lib.plinth_is_bf16_supported, including_emulation))


def is_tf32_supported() -> bool:
    """Reports whether the current device computes with TF32."""
    return bool(result(c_bool, lib.plinth_is_tf32_supported))


def get_sync_debug_mode() -> int:
    """Returns what happens to calls that wait for a device: 0 nothing, 1 a warning, 2 an error."""
    return int(result(c_int32, lib.plinth_get_sync_debug_mode))


def _warn(message: bytes, context: Any) -> None:
    """Warns at the line of the program, not at one of this package."""
    frame: Any = sys._getframe()
    level = 1
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] == "plinth":
        frame, level = frame.f_back, level + 1
    warnings.warn(message.decode(errors="replace"), UserWarning, stacklevel=level)


_sync_debug_callback = _native.plinth_sync_debug_callback_t(_warn)
# C code may call the library after the interpreter has ended.
atexit.register(lib.plinth_set_sync_debug_callback, _native.plinth_sync_debug_callback_t(), None)


def set_sync_debug_mode(debug_mode: Union[int, str]) -> None:
    """Sets what happens to calls that wait for a device, for the whole process.

    0 or "default" allows them, 1 or "warn" makes a UserWarning of each, 2 or "error" makes them fail. Raises ValueError for
    another mode.
    """
    modes = {"default": 0, "warn": 1, "error": 2}
    mode = modes.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if mode is None:
        raise ValueError(f'the mode {debug_mode!r} is not "default", "warn" or "error"')
    if mode == _native.PLINTH_SYNC_DEBUG_WARN:
        check(lib.plinth_set_sync_debug_callback(_sync_debug_callback, None))
    check(lib.plinth_set_sync_debug_mode(mode))


def check_error(res: int) -> None:
    """Raises the exception for a cudaError_t or CUresult; does nothing for 0."""
    check(lib.plinth_check_error(int(res)))


class device:
    """A context that changes the calling thread's current device, and restores it at its end.

    `with plinth.device(1): ...`. None and a negative index change nothing. `index` is the device's index; two objects of
    one index are equal, and have one hash. The context must be left by the thread that entered it; one object may be
    entered again and again.
    """

    type = "cuda"

    def __init__(self, device: DeviceLike) -> None:
        self.index = device_index(device)
        self._previous: List[int] = []

    def __enter__(self) -> "device":
        self._previous.append(result(c_int32, lib.plinth_exchange_device, self.index))
        return self

    def __exit__(self, *_: object) -> None:
        result(c_int32, lib.plinth_maybe_exchange_device, self._previous.pop())

    def __eq__(self, other: object) -> bool:
        return self.index == other.index if isinstance(other, device) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.index)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.index})"


class device_of(device):
    """A context that makes the device current on which an object's memory is.

    The object has DLPack, `__cuda_array_interface__`, or a `device` with an `index`; anything else, also on the CPU,
    changes nothing.
    """

    def __init__(self, obj: object) -> None:
        super().__init__(_device_of(obj))


def _device_of(obj: Any) -> int:
    if hasattr(obj, "_plinth_view"):  # On the host device DLPack says that a buffer is on the CPU.
        return int(obj.device.index)
    interface: Optional[dict[str, Any]] = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        return int(result(c_int32, lib.plinth_device_of, interface["data"][0]))
    if hasattr(obj, "__dlpack_device__"):
        kind, index = obj.__dlpack_device__()
        return int(index) if kind == 2 else -1
    try:
        return device_index(obj.device)
    except (AttributeError, TypeError, ValueError):
        return -1
