"""Sleeping memory: pools with a tag release their physical memory to the driver, and get it back at the same addresses.

    from plinth import sleeping

    with sleeping.pool("weights"):
        weights = plinth.zeros((1 << 30,), "float32")
    sleeping.sleep_memory("weights")              # a copy stays in pinned host memory
    sleeping.wake_memory("weights")               # `weights` has its address and its contents again

Blocks in sleeping memory stay allocated, and can be freed. Nothing may access them until they are awake: no kernel, no
copy and no replay of a graph. Tags hold for the whole process and all devices.

An argument `tags` is None for every pool that has a tag, one tag, or a sequence of tags. Functions that take it raise
InvalidArgumentError, a ValueError, for a tag that no pool has, and ValueError for an empty sequence, an empty tag and a
tag with a comma. To sleep and to wake have no effect on pools that already are in that state. Sizes are in bytes. Any
thread may call any function. A call that failed can be repeated.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from ctypes import byref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Union

from . import _native, errors
from ._arguments import DeviceLike, StreamLike, device_index, stream_handle
from ._native import check, lib
from .memory import MemPool, use_mem_pool

__all__ = [
    "SleepInfo",
    "allocation_device",
    "known_tags",
    "pool",
    "free_backup",
    "alloc_backup",
    "sleep",
    "sleep_info",
    "sleep_memory",
    "wait_awake",
    "wake",
    "wake_memory",
]

Tags = Union[None, str, Sequence[str]]
Folder = Union[None, str, "os.PathLike[str]"]

_BACKUPS = {
    "none": _native.PLINTH_BACKUP_NONE,
    "pinned": _native.PLINTH_BACKUP_PINNED,
    "pageable": _native.PLINTH_BACKUP_PAGEABLE,
    "file": _native.PLINTH_BACKUP_FILE,
}

# The pools of `pool` that no context uses, by tag. The entries stay, and pop and append are atomic.
_idle: Dict[str, List[MemPool]] = {}


class SleepInfo(NamedTuple):
    """The state of the pools that have a tag. Sizes are in bytes, of all devices."""

    pools: int
    pools_asleep: int
    mapped_bytes: int  # physical memory that the pools hold
    asleep_bytes: int  # physical memory that waking allocates
    saved_bytes: int  # sleeping memory whose contents are in a backup
    backup_bytes: int  # memory or disk space of all backups, including reserved ones


def _torch() -> Any:
    """Returns the module torch if plinth is its allocator, else None."""
    bridge = sys.modules.get(f"{__package__}.torch")
    return sys.modules.get("torch") if bridge is not None and bridge.is_enabled() else None


def _check_tag(tag: str) -> str:
    if not tag or "," in tag:
        raise ValueError(f"the tag {tag!r} is empty or has a comma")
    return tag


def _text(tags: Tags) -> Optional[bytes]:
    """Converts tags to the text of the C API."""
    if tags is None:
        return None
    names = [tags] if isinstance(tags, str) else list(tags)
    if not names:
        raise ValueError("the sequence of tags is empty; pass None for every pool that has a tag")
    return ",".join(map(_check_tag, names)).encode()


def _options(backup: str, folder: Folder, flags: int = 0) -> Any:
    if backup not in _BACKUPS:
        raise ValueError(f"the backup {backup!r} is not one of {', '.join(_BACKUPS)}")
    if folder is not None and backup != "file":
        raise ValueError(f'a folder is for the backup "file", not {backup!r}')
    options = _native.plinth_sleep_options_t.init()
    options.backup = _BACKUPS[backup]
    options.flags = flags
    options.folder = None if folder is None else os.fsencode(folder)
    return byref(options)


def allocation_device(device: DeviceLike = None) -> int:
    """Converts a device argument to an index; for None that of PyTorch's current device if plinth is its allocator."""
    index, torch = device_index(device), _torch()
    # plinth's current device does not follow torch.cuda.set_device.
    return int(torch.cuda.current_device()) if index < 0 and torch is not None else index


@contextmanager
def pool(tag: str, device: DeviceLike = None) -> Iterator[None]:
    """A context in which the calling thread allocates from a pool with a tag, on one device.

    `device` is by default the current device, that of PyTorch if plinth is its allocator. Contexts can be nested, and
    several threads can use a tag at the same time. The pools stay for further contexts until the process ends.

    PyTorch's tensors are allocated here too if plinth.torch is enabled. Within torch.cuda.use_mem_pool and
    torch.cuda.graph they are allocated in the pool of that context instead. Memory cannot sleep while a context with
    its tag is open, and a context cannot be entered while its memory sleeps: a GraphError.
    """
    _check_tag(tag)
    index = allocation_device(device)
    try:
        memory = _idle[tag].pop()
    except (KeyError, IndexError):
        memory = MemPool()
        memory.tag = tag
        _idle.setdefault(tag, [])
    try:
        with use_mem_pool(memory, index):
            yield
    finally:
        _idle[tag].append(memory)


def known_tags() -> List[str]:
    """Returns the tags that `pool` was called with, in the order of the first calls."""
    return list(_idle)


def sleep_memory(
    tags: Tags = None,
    backup: str = "pinned",
    folder: Folder = None,
    wait: bool = True,
    release_registrations: bool = False,
    release_workspaces: bool = False,
) -> None:
    """Releases the physical memory of pools to the driver, after a wait for the devices.

    `backup` says where the contents are kept: "pinned" for pinned host memory, "pageable" for other host memory, "file"
    for a file in `folder` (by default the system's temporary folder), "none" to lose them. Only allocated blocks are
    copied, before the call returns. For None, memory that is cached in other pools is released too; with
    `release_workspaces` always, and the workspaces of cuBLAS with it: call plinth.blas.current_blas_handle again before the
    next use of a handle.

    Raises a GraphError if a context of `pool` with the tag is open, if another process holds the memory, if it is
    registered (plinth.registration; with `release_registrations` the registrations end first), and with `wait=False`,
    instead of waiting, if a device has work; that needs CUDA 12.5. Raises OutOfMemoryError if a backup in host memory does
    not fit, and a PlinthError for a file that cannot be written; then nothing changes.
    """
    flags = 0 if wait else _native.PLINTH_SLEEP_NO_WAIT
    flags |= _native.PLINTH_SLEEP_RELEASE_REGISTRATIONS if release_registrations else 0
    flags |= _native.PLINTH_SLEEP_RELEASE_WORKSPACES if release_workspaces else 0
    check(lib.plinth_memory_sleep(_text(tags), _options(backup, folder, flags)))


def wake_memory(tags: Tags = None, wait: bool = True) -> None:
    """Allocates the physical memory of pools at their addresses, in the order of the tags, and restores the contents.

    Without a backup the contents are undefined. If a device has no room, an OutOfMemoryError is raised: that pool and
    those behind it sleep on, and nothing is lost. `wait=False` returns when the memory is mapped, while copies from
    pinned memory still run on the device: call wait_awake for each stream that uses the memory.
    """
    check((lib.plinth_memory_wake if wait else lib.plinth_memory_wake_async)(_text(tags)))


def wait_awake(tags: Tags = None, stream: StreamLike = None) -> None:
    """Makes a stream wait until the contents of pools are restored, without blocking the CPU.

    It waits for the contents on its device. `stream` is by default the current stream, that of PyTorch if plinth is its
    allocator. Raises a GraphError for a pool that sleeps.
    """
    torch = _torch()
    if stream is None and torch is not None:
        stream = torch.cuda.current_stream()
    check(lib.plinth_memory_wake_wait(_text(tags), stream_handle(stream)))


def alloc_backup(tags: Tags = None, backup: str = "pinned", folder: Folder = None) -> None:
    """Allocates backups for the memory that pools hold now, and keeps them when the pools wake.

    Sleeping then only copies; pinning memory takes longer than that. Pass the same backup and folder to sleep_memory.
    "none" is not permitted. Raises a GraphError for a pool that sleeps, and OutOfMemoryError.
    """
    check(lib.plinth_memory_alloc_backup(_text(tags), _options(backup, folder)))


def free_backup(tags: Tags = None) -> None:
    """Releases the backups that alloc_backup allocated. Raises a GraphError for a pool that sleeps."""
    check(lib.plinth_memory_free_backup(_text(tags)))


def sleep_info(tags: Tags = None) -> SleepInfo:
    """Returns the state of pools."""
    info = _native.plinth_sleep_info_t.init()
    check(lib.plinth_memory_sleep_info(_text(tags), byref(info)))
    return SleepInfo(*(getattr(info, name) for name in SleepInfo._fields))


def sleep(level: int = 1) -> None:
    """Lets all pools that have a tag sleep, with vLLM's levels.

    With level 1 the tag "weights" has a backup in pinned host memory, and all others lose their contents. With level 2
    all lose their contents. If it fails, some pools may be asleep: call wake. Raises ValueError for another level.
    """
    if level not in (1, 2):
        raise ValueError(f"the level {level!r} is not 1 or 2")
    if level == 1:
        try:
            sleep_memory("weights")
        except errors.InvalidArgumentError:
            pass  # No pool has the tag.
    sleep_memory(backup="none")


def wake(tags: Tags = None) -> None:
    """Wakes pools as wake_memory does: the counterpart of sleep."""
    wake_memory(tags)
