"""Events: torch.cuda.Event. An event marks a point in the work of a stream.

Any thread may use an Event object. A stream argument is None for the calling thread's current stream.
"""

from __future__ import annotations

import weakref
from ctypes import c_bool, c_float, c_int32, c_uint8
from typing import Any, Optional

from . import _native
from ._arguments import DeviceLike, StreamLike, known_device, result, stream_handle
from ._native import c_void_p, check, lib, wait
from ._release import release
from .device import device as Device


class Event:
    """A point in the work of a stream, to wait for or to measure with.

    `enable_timing` lets elapsed_time measure it; `blocking` makes synchronize sleep instead of spinning; `interprocess`
    lets another process use it, without timing; `external` makes a record or a wait in a capture a node of the graph
    that acts outside of it. The event is created on the device of the first stream that records it. It is destroyed
    when the object is collected; waits that were enqueued stay valid.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        flags = (
            (_native.PLINTH_EVENT_TIMING if enable_timing else 0)
            | (_native.PLINTH_EVENT_BLOCKING if blocking else 0)
            | (_native.PLINTH_EVENT_INTERPROCESS if interprocess else 0)
            | (_native.PLINTH_EVENT_EXTERNAL if external else 0)
        )
        self._own(result(c_void_p, lib.plinth_event_create, flags))

    def _own(self, handle: int) -> None:
        self._handle = handle
        weakref.finalize(self, release, lib.plinth_event_destroy, handle).atexit = False

    @classmethod
    def from_ipc_handle(cls, device: DeviceLike, handle: bytes) -> "Event":
        """Opens the event of another process, from its ipc_handle(). The other process must keep the event."""
        if len(handle) != _native.PLINTH_IPC_EVENT_HANDLE_SIZE:
            raise ValueError(f"an event's handle has {_native.PLINTH_IPC_EVENT_HANDLE_SIZE} bytes, not {len(handle)}")
        event = object.__new__(cls)
        data = (c_uint8 * len(handle)).from_buffer_copy(handle)
        event._own(result(c_void_p, lib.plinth_event_from_ipc_handle, known_device(device), data))
        return event

    def record(self, stream: StreamLike = None) -> None:
        """Records the event in a stream: it now marks the work that the stream holds."""
        check(lib.plinth_event_record(self._handle, stream_handle(stream)))

    def wait(self, stream: StreamLike = None) -> None:
        """Makes later work of a stream wait for the event. Does nothing if the event was never recorded."""
        check(lib.plinth_event_wait(self._handle, stream_handle(stream)))

    def query(self) -> bool:
        """Reports whether the work that the event marks is complete; True if the event was never recorded."""
        return bool(result(c_bool, lib.plinth_event_query, self._handle))

    def synchronize(self) -> None:
        """Waits until the work that the event marks is complete, and raises its errors.

        Releases the GIL, and ends on Ctrl-C in the main thread.
        """
        wait(self.query, lambda: check(lib.plinth_event_synchronize(self._handle)))

    def elapsed_time(self, end_event: "Event") -> float:
        """Returns the milliseconds from this event to another. Both need timing, and must be recorded and complete."""
        return float(result(c_float, lib.plinth_event_elapsed_time, self._handle, end_event._handle))

    def ipc_handle(self) -> bytes:
        """Returns the 64 bytes with which another process opens the event. Needs `interprocess`."""
        data = (c_uint8 * _native.PLINTH_IPC_EVENT_HANDLE_SIZE)()
        check(lib.plinth_event_ipc_handle(self._handle, data))
        return bytes(data)

    @property
    def device(self) -> Optional[Device]:
        """The event's device, as an object with `index`; None until the event is recorded."""
        index = int(result(c_int32, lib.plinth_event_device, self._handle))
        return Device(index) if index >= 0 else None

    @property
    def cuda_event(self) -> int:
        """The CUevent, which belongs to this object, for CUDA and other libraries; 0 until the event is recorded."""
        return result(c_void_p, lib.plinth_event_native, self._handle) or 0

    def __reduce__(self) -> Any:
        raise TypeError("an event cannot be pickled or copied; send its ipc_handle() to another process")
