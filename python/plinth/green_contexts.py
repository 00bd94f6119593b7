"""Green contexts: a part of a device's multiprocessors: torch.cuda.green_contexts."""

from __future__ import annotations

import weakref
from ctypes import byref, c_int32
from typing import Any, List, Sequence, Tuple, Union

from ._arguments import DeviceLike, known_device, result
from ._native import c_void_p, check, lib
from ._release import Unpicklable, release
from .errors import NotSupportedError
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
        return GreenContext._own(result(c_void_p, lib.plinth_green_context_create, num_sms, known_device(device_id)))

    @staticmethod
    def split(*, num_sms: Union[int, Sequence[int]], device_id: DeviceLike = 0,
              remainder: bool = False) -> "Tuple[GreenContext, ...]":
        """Divides a device into green contexts that do not overlap.

        `num_sms` is the least number of multiprocessors of one, or a sequence of such numbers, which must be equal; the
        driver rounds up. With `remainder` the last green context has the multiprocessors that are left, if any are.
        Raises NotSupportedError for numbers that differ, and if the driver lacks green contexts.
        """
        sizes = [num_sms] if isinstance(num_sms, int) else list(num_sms)
        if len(set(sizes)) > 1:
            raise NotSupportedError(f"splitting a device into green contexts of different sizes, {sizes}: the driver's call "
                                    "makes partitions of one size; use remainder for one of another size")
        made, rest = (c_void_p * max(1, len(sizes)))(), c_void_p()
        check(lib.plinth_green_context_split(sizes[0] if sizes else 0, len(sizes), known_device(device_id), made,
                                             byref(rest) if remainder else None))
        return tuple(GreenContext._own(int(handle)) for handle in [*made, rest.value] if handle)

    @staticmethod
    def _own(handle: int) -> "GreenContext":
        context = object.__new__(GreenContext)
        context._handle = handle
        weakref.finalize(context, release, lib.plinth_green_context_destroy, handle).atexit = False
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
        stream = Stream._wrap(result(c_void_p, lib.plinth_green_context_stream, self._handle), self.device_id)
        owned: Any = stream
        owned._green_context = self
        return stream

    @property
    def sm_count(self) -> int:
        """The number of multiprocessors."""
        return int(result(c_int32, lib.plinth_green_context_num_sms, self._handle))

    @property
    def device_id(self) -> int:
        """The index of the device."""
        return int(result(c_int32, lib.plinth_green_context_device, self._handle))


# The green contexts that threads have set.
_set: List[GreenContext] = []
