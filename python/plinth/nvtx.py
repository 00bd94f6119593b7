"""NVTX: ranges and marks for NVIDIA's profilers: torch.cuda.nvtx. Without a profiler the calls do nothing."""

from __future__ import annotations

from contextlib import contextmanager
from ctypes import c_bool, c_int32, c_uint64
from typing import Any, Iterator

from ._arguments import StreamLike, result, stream_handle
from ._native import check, lib


def mark(msg: str) -> None:
    """Marks a moment."""
    check(lib.plinth_nvtx_mark(msg.encode()))


def range_push(msg: str) -> int:
    """Begins a range in the calling thread, and returns its depth, from 0."""
    return int(result(c_int32, lib.plinth_nvtx_range_push, msg.encode()))


def range_pop() -> int:
    """Ends the calling thread's innermost range, and returns its depth."""
    return int(result(c_int32, lib.plinth_nvtx_range_pop))


def range_start(msg: str) -> int:
    """Begins a range that any thread can end with range_end, and returns its id."""
    return int(result(c_uint64, lib.plinth_nvtx_range_start, msg.encode()))


def range_end(range_id: int) -> None:
    """Ends a range of range_start."""
    check(lib.plinth_nvtx_range_end(range_id))


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A context, and a decorator, for a range: `with range("step {}", 3): ...`. The arguments format the text."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


def device_range_start(msg: str, stream: StreamLike = None) -> int:
    """Begins a range when a stream reaches this point, and returns its id."""
    return int(result(c_uint64, lib.plinth_nvtx_device_range_start, msg.encode(), stream_handle(stream)))


def device_range_end(range_id: int, stream: StreamLike = None) -> None:
    """Ends a range of device_range_start when a stream reaches this point."""
    check(lib.plinth_nvtx_device_range_end(range_id, stream_handle(stream)))


def is_active() -> bool:
    """Reports whether a profiler receives ranges."""
    return bool(result(c_bool, lib.plinth_nvtx_is_active))


def annotate_calls(enabled: bool) -> None:
    """Makes each call of plinth a range, for the whole process."""
    check(lib.plinth_nvtx_annotate_calls(enabled))


def name_thread(name: str) -> None:
    """Names the calling thread in profilers."""
    check(lib.plinth_nvtx_name_thread(name.encode()))
