"""Exports buffers as DLPack capsules.

A consumer may call a deleter from any thread, without the GIL, while an exception is being raised, or after the
interpreter has ended. So the deleter is a C function: a description is pinned memory with a name of its own, the
deleter is plinth_host_free, and `collect` finds the descriptions that lost their name. For the same reason capsules
have no destructor: `collect` also finds those that were dropped without a consumer.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import sys
import threading
from ctypes import c_char_p, c_void_p
from typing import TYPE_CHECKING, Any, Dict, List

from . import tensor
from ._arguments import call_and_report, result, take_text
from ._native import check, lib, plinth_free_memory_callback_t
from .errors import PlinthError

if TYPE_CHECKING:
    from .buffer import Buffer

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_NAMES = {False: b"dltensor", True: b"dltensor_versioned"}


class _Export:
    """A description that a consumer may hold, by its address and the name of its memory."""

    def __init__(self, address: int, name: str, buffer: "Buffer", capsule: Any) -> None:
        self.address = address
        self.name = name
        self.buffer = buffer
        self.capsule = [capsule]  # empty once the capsule is consumed


_exports: Dict[str, _Export] = {}  # by the name
_lock = threading.RLock()
_numbers = itertools.count(1)
_calls_left = 0  # of collect_sometimes, until it collects


def export(buffer: "Buffer", device: "tuple[int, int]", versioned: bool) -> Any:
    """Returns a capsule that describes a buffer. The buffer lives until the consumer calls the deleter."""
    collect_sometimes()
    _register()
    kind: Any = tensor.ManagedTensorVersioned if versioned else tensor.ManagedTensor
    ndim = len(buffer.shape)
    # Shape and strides follow the description.
    begin = ctypes.sizeof(kind)
    address = result(c_void_p, lib.plinth_host_alloc, begin + 16 * max(ndim, 1))
    name = f"DLPack export {next(_numbers)} of process {os.getpid()}"
    check(lib.plinth_memory_set_name(address, name.encode()))
    ctypes.memset(address, 0, begin)
    managed = kind.from_address(address)
    numbers = (ctypes.c_int64 * (2 * max(ndim, 1))).from_address(address + begin)
    step = 1
    for i in reversed(range(ndim)):
        numbers[i], numbers[ndim + i] = buffer.shape[i], step
        step *= buffer.shape[i]
    dl = managed.dl_tensor
    dl.data = buffer.ptr
    dl.device.device_type, dl.device.device_id = device
    dl.ndim = ndim
    dl.dtype = tensor.data_type(buffer.dtype)
    pointer = ctypes.POINTER(ctypes.c_int64)
    dl.shape = ctypes.cast(address + begin, pointer)
    dl.strides = ctypes.cast(address + begin + 8 * ndim, pointer)
    if versioned:
        managed.major, managed.minor = 1, 0
    managed.deleter = ctypes.cast(lib.plinth_host_free, c_void_p)
    capsule = _new_capsule(address, _NAMES[versioned], None)
    with _lock:
        _exports[name] = _Export(address, name, buffer, capsule)
        buffer._exports += 1
    return capsule


def _references(entry: _Export) -> int:
    return sys.getrefcount(entry.capsule[0])


# How many references are counted for a capsule that only its _Export holds.
_UNUSED = _references(_Export(0, "", None, _new_capsule(1, _NAMES[False], None)))  # type: ignore[arg-type]


def _is_released(entry: _Export) -> bool:
    """Reports whether the consumer called the deleter, or the capsule was dropped without a consumer."""
    if entry.capsule:
        if any(tensor._capsule_is_valid(entry.capsule[0], name) for name in _NAMES.values()):
            return _references(entry) <= _UNUSED
        entry.capsule.clear()
    try:
        return take_text(lib.plinth_memory_get_name, entry.address) != entry.name
    except PlinthError:
        return True


def collect() -> bool:
    """Frees the buffers that consumers no longer hold, and reports whether there were any.

    A finalizer or the handler of a signal may call it in the middle of a call. The one that removes an entry frees it.
    """
    global _calls_left
    is_any = False
    with _lock:
        for entry in list(_exports.values()):
            if _is_released(entry) and _exports.pop(entry.name, None) is not None:
                is_any = True
                entry.buffer._exports -= 1
                if entry.capsule:  # It had no consumer, who calls the deleter.
                    check(lib.plinth_host_free(entry.address))
        _calls_left = len(_exports)
    return is_any


def collect_sometimes() -> None:
    """Calls collect so rarely that a call looks at one export on average."""
    global _calls_left
    _calls_left -= 1
    if _exports and _calls_left <= 0:
        collect()


def _on_out_of_memory(device: int, size: int, context: Any) -> bool:
    freed: List[bool] = []
    call_and_report(lambda: freed.append(collect()))
    return freed == [True]


_callback = plinth_free_memory_callback_t(_on_out_of_memory)
_registered = False


def _register() -> None:
    """Lets the allocator ask for the memory of released exports before it is out of memory."""
    global _registered
    with _lock:
        if not _registered:
            check(lib.plinth_add_free_memory_callback(_callback, None))
            atexit.register(lib.plinth_remove_free_memory_callback, _callback, None)
            _registered = True


def _reset() -> None:
    """Forgets everything in a forked child, in which another thread of the parent may hold the lock."""
    global _lock
    _lock = threading.RLock()
    for entry in _exports.values():
        entry.buffer._exports = 0
    _exports.clear()


os.register_at_fork(after_in_child=_reset)
