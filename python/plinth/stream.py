"""Streams: torch.cuda.Stream, the current stream of each thread, and the context `stream`.

A stream is a queue of work of one device. Any thread may use a Stream object. Each thread has its own current stream on
each device, which is the default stream until the thread sets another.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
import weakref
from ctypes import byref, c_bool, c_int32, c_uint64
from typing import Any, Callable, Generic, List, Optional, Tuple, TypeVar, cast

from . import _native
from ._arguments import (
    DeviceLike,
    StreamLike,
    device_index,
    foreign_stream,
    integer_argument,
    known_device,
    result,
    stream_handle,
    take_text,
)
from ._native import PLINTH_STREAM_DEFAULT_OF, c_void_p, check, lib, wait
from ._release import begin_exit, call_in_driver_thread, check_exit, release
from .device import current_device, device as Device
from .errors import DeviceLostError, GraphError, PlinthError
from .event import Event

S = TypeVar("S", bound=StreamLike)

# Live streams that own their handle, so that current_stream() returns the owner.
_owners: "weakref.WeakValueDictionary[int, Stream]" = weakref.WeakValueDictionary()


class _Current(threading.local):
    """Keeps the calling thread's current streams alive, by device."""

    def __init__(self) -> None:
        self.streams: dict[int, StreamLike] = {}


_current = _Current()


class Stream:
    """A stream of a device.

    Without `dedicated` the stream comes from a pool of 32 for each priority of a device, in rotation, and belongs to
    the library: the 33rd has the handle of the first. A dedicated stream is this object's alone; it is destroyed when
    the object is collected, its queued work still runs, and nothing else may use its handle afterwards.

    `priority`: lower numbers are more urgent; see priority_range. Two objects of one stream are equal and have one
    hash.
    """

    cuda_stream: int
    device_index: int

    def __new__(
        cls, device: DeviceLike = None, priority: int = 0, *, dedicated: bool = False, **kwargs: Any
    ) -> "Stream":
        if kwargs:
            return cls._wrap(*_from_torch_arguments(**{"device_index": device, **kwargs}))
        create = lib.plinth_stream_create_dedicated if dedicated else lib.plinth_stream_create
        index = known_device(device)
        stream = cls._wrap(result(c_void_p, create, index, priority) or 0, index)
        if dedicated:
            _owners[stream.cuda_stream] = stream
            finalizer = weakref.finalize(stream, release, lib.plinth_stream_destroy, stream.cuda_stream)
            finalizer.atexit = False
        return stream

    @classmethod
    def _wrap(cls, handle: int, device: int) -> "Stream":
        """Makes an object of a handle. A stream with an owner is the owner."""
        owner = _owners.get(handle) if handle else None
        if owner is not None and owner.device_index == device:
            return owner
        stream = object.__new__(cls)
        stream.cuda_stream = handle
        stream.device_index = device
        return stream

    @property
    def _argument(self) -> int:
        """The stream as an argument of the C API: the default stream is named with its device."""
        return self.cuda_stream or PLINTH_STREAM_DEFAULT_OF(self.device_index)

    def __cuda_stream__(self) -> Tuple[int, int]:
        """Returns (0, handle), cuda-python's protocol for streams."""
        return 0, self.cuda_stream

    @property
    def device(self) -> Device:
        """The stream's device, as an object with `index`."""
        return Device(self.device_index)

    @property
    def stream_id(self) -> int:
        """torch's number of the stream, unique for each device: 0 for the default stream."""
        return int(result(c_uint64, lib.plinth_stream_id, self._argument))

    @property
    def priority(self) -> int:
        """The priority; lower numbers are more urgent."""
        return int(result(c_int32, lib.plinth_stream_priority, self._argument))

    @staticmethod
    def priority_range(device: DeviceLike = None) -> Tuple[int, int]:
        """Returns the least and the most urgent priority of a device: (0, -5) on an H200."""
        least, greatest = c_int32(), c_int32()
        check(lib.plinth_stream_priority_range(device_index(device), byref(least), byref(greatest)))
        return least.value, greatest.value

    def query(self) -> bool:
        """Reports whether all work of the stream is complete. Raises the errors of that work."""
        return bool(result(c_bool, lib.plinth_stream_query, self._argument))

    def synchronize(self) -> None:
        """Waits until all work of the stream is complete, and raises its errors.

        Releases the GIL, and ends on Ctrl-C in the main thread; the work itself goes on.
        """
        argument = self._argument
        wait(self.query, lambda: check(lib.plinth_stream_synchronize(argument)))

    def wait_event(self, event: Event) -> None:
        """Makes later work of the stream wait for an event. The CPU does not wait."""
        event.wait(self)

    def wait_stream(self, stream: StreamLike) -> None:
        """Makes later work of this stream wait for the work that another stream holds now. The CPU does not wait."""
        check(lib.plinth_stream_wait_stream(self._argument, stream_handle(stream)))

    def record_event(self, event: Optional[Event] = None) -> Event:
        """Records an event, by default a new one without timing, in the stream, and returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        """Reports whether the stream is capturing into a graph."""
        return bool(result(c_bool, lib.plinth_stream_is_capturing, self._argument))

    def launch_host_function(self, function: Callable[[], object]) -> None:
        """Calls a Python function when the stream's earlier work is complete; later work waits until it returns.

        The function runs in a thread of the driver, and must not use a device, neither through plinth nor otherwise.
        Its exception goes to sys.unraisablehook. It must not be called in a capture, where it raises GraphError.
        """
        if self.is_capturing():
            raise GraphError(
                "launch_host_function: the stream is capturing, and a graph would call the function again and again; "
                "call it outside of the capture",
                _native.PLINTH_ERROR_CAPTURE_FORBIDS,
                "PLINTH_ERROR_CAPTURE_FORBIDS",
            )
        number = next(_host_function_numbers)
        _host_functions[number] = function, self
        try:
            check_exit("launch_host_function")
            check(lib.plinth_launch_host_function(self._argument, _host_function_callback, number))
        except BaseException:
            _host_functions.pop(number, None)
            raise

    @property
    def name(self) -> str:
        """The name in reports of the sanitizer, in snapshots and profilers; settable."""
        return take_text(lib.plinth_stream_get_name, self._argument)

    @name.setter
    def name(self, name: str) -> None:
        check(lib.plinth_stream_set_name(self._argument, name.encode()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self.device_index, self.cuda_stream) == (other.device_index, other.cuda_stream)

    def __hash__(self) -> int:
        return hash((self.device_index, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<plinth.Stream device={self.device_index} handle={self.cuda_stream:#x}>"

    def __reduce__(self) -> Any:
        raise TypeError("a stream cannot be pickled or copied: it exists in its process only")


class ExternalStream(Stream):
    """A stream that the program created with CUDA or another library, whose owner it remains.

    `stream_ptr` is the handle, or an object with `__cuda_stream__`. The stream must live as long as plinth uses it, and
    the handle is not checked. Call unregister() before the stream is destroyed: plinth keeps memory for it.
    """

    def __new__(cls, stream_ptr: StreamLike, device: DeviceLike = None, **kwargs: Any) -> "ExternalStream":
        handle = stream_ptr
        if not isinstance(stream_ptr, int):
            handle, found = foreign_stream(stream_ptr)
            device = found if device is None and found >= 0 else device
        index = known_device(device)
        check(lib.plinth_stream_from_external(handle, index, byref(c_void_p())))
        stream = object.__new__(cls)
        stream.cuda_stream = cast(int, handle)
        stream.device_index = index
        return stream

    def unregister(self) -> None:
        """Hands over the memory that plinth keeps for the stream, before its owner destroys it."""
        check(lib.plinth_stream_unregister(self.cuda_stream))


def _from_torch_arguments(
    stream_id: Optional[int] = None,
    device_index: DeviceLike = None,
    device_type: int = 1,
    stream_ptr: Optional[int] = None,
) -> Tuple[int, int]:
    """Handles torch's undocumented keywords: only a stream_ptr names a stream here."""
    if stream_ptr is None:
        raise TypeError("Stream: a stream_id does not name a stream of plinth; pass stream_ptr, the handle")
    return ExternalStream(stream_ptr, device_index).cuda_stream, known_device(device_index)


# Host functions that are waiting to run, and their streams, by their number.
_host_functions: dict[int, Tuple[Callable[[], object], Stream]] = {}
_host_function_numbers = itertools.count(1)


def _run_host_function(number: int) -> None:
    def run() -> None:
        try:
            _host_functions[number][0]()
        finally:
            del _host_functions[number]

    call_in_driver_thread(run)


_host_function_callback = _native.plinth_host_function_callback_t(_run_host_function)


def _finish_host_functions() -> None:
    """Waits at exit until no thread of the driver will call Python any more. A device that failed calls none."""
    begin_exit()
    while _host_functions:
        for number, (_, stream) in list(_host_functions.items()):
            try:
                stream.query()
            except DeviceLostError:
                _host_functions.pop(number, None)
            except PlinthError:
                pass
        time.sleep(0.001)


atexit.register(_finish_host_functions)
os.register_at_fork(after_in_child=_host_functions.clear)


class StreamContext(Generic[S]):
    """A context in which a stream is the calling thread's current stream, and its device the current device.

    It may be a stream of another library. None changes nothing. Contexts can be nested; each must be left by the thread
    that entered it.
    """

    def __init__(self, stream: S) -> None:
        self.stream = stream
        self._saved: List[Tuple[Any, StreamLike]] = []

    def __enter__(self) -> S:
        stream = self.stream
        if stream is None:
            return stream
        saved = _native.plinth_stream_context_t()
        check(lib.plinth_stream_context_enter(stream_handle(stream), byref(saved)))
        self._saved.append((saved, _current.streams.get(saved.entered_device)))
        _current.streams[saved.entered_device] = stream
        return stream

    def __exit__(self, *_: object) -> None:
        if self.stream is None:
            return
        saved, previous = self._saved.pop()
        check(lib.plinth_stream_context_exit(byref(saved)))
        if previous is None:
            _current.streams.pop(saved.entered_device, None)
        else:
            _current.streams[saved.entered_device] = previous


def stream(stream: S) -> StreamContext[S]:
    """Returns a context that makes a stream current: `with plinth.stream(s): ...`. None changes nothing."""
    return StreamContext(stream)


def set_stream(stream: StreamLike) -> None:
    """Makes a stream the calling thread's current stream, and its device the current device. None does nothing."""
    if stream is None:
        return
    check(lib.plinth_set_stream(stream_handle(stream)))
    _current.streams[current_device()] = stream


def current_stream(device: DeviceLike = None) -> Stream:
    """Returns the calling thread's current stream on a device."""
    index = known_device(device)
    return Stream._wrap(result(c_void_p, lib.plinth_current_stream, index) or 0, index)


def default_stream(device: DeviceLike = None) -> Stream:
    """Returns the default stream of a device, whose handle is 0 on every device."""
    index = known_device(device)
    return Stream._wrap(result(c_void_p, lib.plinth_default_stream, index) or 0, index)


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> ExternalStream:
    """Returns an ExternalStream of a handle."""
    return ExternalStream(data_ptr, device)


def is_current_stream_capturing() -> bool:
    """Reports whether the calling thread's current stream captures. Creates no context."""
    return bool(result(c_bool, lib.plinth_is_current_stream_capturing))


def _sleep(cycles: int, stream: StreamLike = None) -> None:
    """Enqueues a kernel that runs for a number of clock cycles of the device, by default in the current stream."""
    check(lib.plinth_sleep(integer_argument(cycles, "cycles", 0, 2**64), stream_handle(stream)))
