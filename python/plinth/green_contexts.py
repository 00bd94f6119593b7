"""Green contexts: a part of a device's multiprocessors: torch.cuda.green_contexts."""

from __future__ import annotations

import weakref
from ctypes import c_int32
from typing import Any, List

from ._arguments import DeviceLike, known_device, result
from ._native import c_void_p, check, lib
from ._release import Unpicklable, release
from .stream import Stream


class GreenContext(Unpicklable):
    """A part of a device's multiprocessors, and the streams whose work runs on that part only.

    Make it with create. It is destroyed when the object is collected, after its streams are no longer used.
    """

    def __init__(self) -> None:
        raise TypeError("use GreenContext.create")

    _handle: int

    @staticmethod
    def create(num_sms: int, device_id: DeviceLike = 0) -> "GreenContext":
        """Creates a green context with at least `num_sms` multiprocessors; the driver rounds up.

        Raises NotSupportedError if the driver lacks green contexts.
        """
        context = object.__new__(GreenContext)
        context._handle = result(c_void_p, lib.plinth_green_context_create, num_sms, known_device(device_id))
        weakref.finalize(context, release, lib.plinth_green_context_destroy, context._handle).atexit = False
        return context

    def set_context(self) -> None:
        """Makes the green context current for the calling thread. This object lives until the thread pops it."""
        check(lib.plinth_green_context_set_context(self._handle))
        _set.append(self)

    def pop_context(self) -> None:
        """Restores what was current before set_context, in the same thread."""
        check(lib.plinth_green_context_pop_context(self._handle))
        _set.remove(self)

    def Stream(self) -> Stream:
        """Returns the green context's stream, which belongs to it and keeps this object alive."""
        stream = Stream._wrap(result(c_void_p, lib.plinth_green_context_stream, self._handle), self.device)
        owned: Any = stream
        owned._green_context = self
        return stream

    @property
    def num_sms(self) -> int:
        """The number of multiprocessors."""
        return int(result(c_int32, lib.plinth_green_context_num_sms, self._handle))

    @property
    def device(self) -> int:
        """The index of the device."""
        return int(result(c_int32, lib.plinth_green_context_device, self._handle))


# The green contexts that threads have set.
_set: List[GreenContext] = []
