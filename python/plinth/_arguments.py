"""Converts arguments of the Python layer to those of the C API, and results back."""

from __future__ import annotations

import operator
from ctypes import CFUNCTYPE, byref, c_char_p
from typing import Any, Callable, Protocol, Tuple, TypeVar, Union, runtime_checkable

from ._native import PLINTH_STREAM_CURRENT, PLINTH_STREAM_DEFAULT_OF, c_void_p, check, lib


@runtime_checkable
class SupportsIndex(Protocol):
    """An object with the attribute `index`, such as torch.device."""

    @property
    def index(self) -> Any: ...


@runtime_checkable
class SupportsCudaStream(Protocol):
    """An object with the protocol of cuda-python: a pair of the version 0 and the handle."""

    def __cuda_stream__(self) -> Tuple[int, int]: ...


class TorchStream(Protocol):
    """A torch.cuda.Stream, or another object with its attribute."""

    @property
    def cuda_stream(self) -> int: ...


class CuPyStream(Protocol):
    """A cupy.cuda.Stream, or another object with its attribute."""

    @property
    def ptr(self) -> int: ...


DeviceLike = Union[None, int, str, SupportsIndex]
StreamLike = Union[None, int, SupportsCudaStream, TorchStream, CuPyStream]


def device_index(device: DeviceLike) -> int:
    """Converts a device argument to a device index.

    Accepts None and "cuda" for the current device (-1), an integer, "cuda:1", and an object with an integer or None in
    `index`, such as torch.device. Raises ValueError for a device of another type, and TypeError for anything else. Does
    not check that the device exists.
    """
    if device is None:
        return -1
    if type(device) is int:
        return integer_argument(device, "the device", -(2**31), 2**31)
    if isinstance(device, str):
        kind, colon, number = device.partition(":")
        if kind != "cuda" or (colon and not (number.isascii() and number.isdigit())):
            raise ValueError(f'the device {device!r} is not "cuda" or "cuda:" and a number')
        return integer_argument(int(number), "the device", 0, 2**31) if colon else -1
    if getattr(device, "type", "cuda") != "cuda":
        raise ValueError(f"the device {device!r} is not a CUDA device")
    try:
        index: Any = getattr(device, "index", device)
        return -1 if index is None else integer_argument(index, "the device", -(2**31), 2**31)
    except TypeError:
        raise TypeError(
            f'a device must be None, an integer, "cuda:1" or an object with an index, not {type(device).__name__}'
        ) from None


def size_argument(size: int) -> int:
    """Converts a size in bytes to size_t. One that does not fit becomes the largest one, which no device has."""
    return min(size, 2**64 - 1)


def integer_argument(value: int, what: str, low: int, high: int) -> int:
    """Returns an integer; ctypes would wrap one that does not fit. Raises ValueError outside of low to high - 1."""
    value = operator.index(value)
    if not low <= value < high:
        raise ValueError(f"{what} {value} is not in {low} to {high - 1}")
    return value


def known_device(device: DeviceLike) -> int:
    """Converts a device argument to the index of a device; the current device for None."""
    from .device import current_device

    index = device_index(device)
    return current_device() if index < 0 else index


def stream_handle(stream: Any) -> int:
    """Converts a stream argument to what the C API takes.

    None is the calling thread's current stream on the device that the call is about. An integer is a handle, 0 for the
    default stream of that device. An object has `__cuda_stream__` (cuda-python's protocol), `cuda_stream` (torch) or
    `ptr` (CuPy). A stream of another library is registered with plinth; call ExternalStream.unregister before it is
    destroyed. Raises TypeError for anything else.
    """
    if stream is None:
        return int(PLINTH_STREAM_CURRENT)
    own = getattr(stream, "_argument", None)
    if own is not None:
        return int(own)
    if isinstance(stream, int):
        return stream
    handle, device = foreign_stream(stream)
    if handle <= 2:
        return handle if device < 0 else int(PLINTH_STREAM_DEFAULT_OF(device))
    registered = c_void_p()
    check(lib.plinth_stream_from_external(handle, device, byref(registered)))
    return handle


def foreign_stream(stream: Any) -> Tuple[int, int]:
    """Returns the handle and the device index (-1 if unknown) of a stream object of another library."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        pair = protocol() if callable(protocol) else protocol
        version, handle = pair
        if version != 0:
            raise TypeError(f"__cuda_stream__ of {type(stream).__name__} has version {version}; only 0 is known")
    elif hasattr(stream, "cuda_stream"):
        handle = stream.cuda_stream
    elif hasattr(stream, "ptr") and not hasattr(stream, "__dlpack__"):  # A buffer's address is no stream.
        handle = stream.ptr
    else:
        raise TypeError(
            f"a stream must be None, a handle, or an object with __cuda_stream__, not {type(stream).__name__}"
        )
    device = getattr(stream, "device", getattr(stream, "device_id", None))
    return operator.index(handle), -1 if device is None else device_index(device)


def take_text(function: Callable[..., int], *arguments: Any) -> str:
    """Calls a function whose last parameter is a `char **` that the caller frees, and returns the text."""
    text = c_char_p()
    check(function(*arguments, byref(text)))
    try:
        return (text.value or b"").decode(errors="replace")
    finally:
        lib.plinth_string_free(text)


Number = TypeVar("Number")


def result(kind: Callable[[], Any], function: Callable[..., int], *arguments: Any) -> Any:
    """Calls a function whose last parameter is a pointer to a number of a ctypes type, and returns the number."""
    value = kind()
    check(function(*arguments, byref(value)))
    return value.value


def call_and_report(function: Callable[[], object]) -> None:
    """Calls a function. Its exception goes to sys.unraisablehook, as that of any callback of ctypes."""
    CFUNCTYPE(None)(function)()
