"""Device memory that a Python object owns: `empty`, `zeros`, `to_device`, and pinned host memory: `empty_pinned`.

A Buffer has DLPack and `__cuda_array_interface__`, so that CuPy, numba, torch and others use its memory without a copy.
"""

from __future__ import annotations

import array
import ctypes
import operator
import struct
import sys
import weakref
from ctypes import byref
from typing import Any, Optional, Sequence, Tuple, Union

from . import _dlpack, tensor
from ._arguments import DeviceLike, StreamLike, known_device, result, size_argument, stream_handle, take_text
from ._native import PLINTH_STREAM_CURRENT, c_size_t, c_void_p, check, lib
from ._release import release
from .device import device as Device
from .device import device_kind
from .stream import Stream, _owners, current_stream

Shape = Union[int, Sequence[int]]


class Buffer:
    """Memory of a device with a shape and an element type, in row-major order.

    `ptr` is the address, `nbytes` the size in bytes, `size` the number of elements, `itemsize` the size of one. Freed
    memory is reused in `stream` at once. Call record_stream for every other stream that uses it. The memory is freed
    when the object is collected, or by free(). What a consumer of DLPack held is freed at a later call of `empty`,
    `empty_cache` or `__dlpack__`, or before a request runs out of memory. Any thread may use or collect a buffer.
    """

    ptr: int
    shape: Tuple[int, ...]
    dtype: str

    def __init__(self) -> None:
        raise TypeError("use plinth.empty, plinth.zeros or plinth.to_device to allocate a buffer")

    @classmethod
    def _make(
        cls, pointer: int, shape: Tuple[int, ...], dtype: str, device: int, stream: Any, owner: Any = None
    ) -> "Buffer":
        """Makes a buffer that frees the memory, or that keeps the memory's owner alive.

        `stream` is a Stream, or the handle of one without an owner.
        """
        buffer = object.__new__(cls)
        buffer.ptr = pointer
        buffer.shape = shape
        buffer.dtype = dtype
        buffer._stream = stream
        buffer._device = device
        buffer._owner = owner
        buffer._exports = 0
        buffer._own = 0 if owner is not None else pointer
        buffer._dl = None
        return buffer

    _device: int
    _stream: Any
    _owner: Any
    _exports: int
    _own: int  # the address to free, or 0
    _dl: Any  # the DLTensor, once it is used

    def __del__(self, delete: Any = lib.plinth_caching_allocator_delete) -> None:
        # An object that was not completed has no _own. The process's end frees what is left then.
        own = getattr(self, "_own", 0)
        if own and not sys.is_finalizing():
            self._own = 0
            release(delete, own)

    @property
    def stream(self) -> Stream:
        """The stream that the memory was allocated for."""
        return self._stream if isinstance(self._stream, Stream) else Stream._wrap(self._stream, self._device)

    @property
    def device(self) -> Device:
        """The device, as an object with `index`."""
        return Device(self._device)

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return tensor.item_size(self.dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return _product(self.shape)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a buffer without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<plinth.Buffer {self.dtype}{list(self.shape)} device={self._device} ptr={self.ptr:#x}>"

    def __array__(self, *_: Any, **__: Any) -> Any:
        # Without this, numpy makes an array of one object.
        raise TypeError(f"numpy cannot use a buffer on a device; copy it: copy_to(numpy.empty({self.shape}, ...))")

    def __reduce__(self) -> Any:
        raise TypeError("a buffer cannot be pickled; use tobytes(), or plinth.ipc to share its memory")

    def free(self) -> None:
        """Frees the memory now. Repeated calls do nothing. Raises BufferError while a consumer of DLPack holds it."""
        _dlpack.collect()
        if self._exports:
            raise BufferError("the buffer cannot be freed: a consumer of DLPack holds its memory")
        own, self._own = self._own, 0
        self._owner = self._dl = None
        self.ptr = 0
        self.shape = (0,)
        if own:
            check(lib.plinth_caching_allocator_delete(own))

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def record_stream(self, stream: StreamLike) -> None:
        """Records that work in a stream uses the memory: after the free it is not reused before that work is done."""
        if self.ptr:
            check(lib.plinth_record_stream(self.ptr, stream_handle(stream)))

    @property
    def name(self) -> str:
        """The name in reports of the sanitizer and in snapshots; settable."""
        return take_text(lib.plinth_memory_get_name, self.ptr)

    @name.setter
    def name(self, name: str) -> None:
        check(lib.plinth_memory_set_name(self.ptr, name.encode()))

    def copy_from(self, source: Any, non_blocking: bool = False) -> "Buffer":
        """Copies from another buffer, or from a tensor of another library or of the CPU, and returns this buffer.

        Bytes, such as `bytes`, are copied as they are if both sides are contiguous and have equal sizes in bytes, and the
        shapes differ or the other side is of float8. Otherwise elements are converted and broadcast, as torch.Tensor.copy_
        does. The copy runs in the current streams of the devices. A copy from the CPU is complete when the call returns;
        with `non_blocking` it may not be if the source is pinned memory (empty_pinned), which then must not change before
        the stream is done.
        """
        with tensor.view(source) as view, self._plinth_view() as own:
            _copy(own, view, non_blocking)
        return self

    def copy_to(self, destination: Any, non_blocking: bool = False) -> Any:
        """Copies to another buffer, or to a writable tensor of another library or of the CPU, and returns it.

        The rules are those of copy_from.
        """
        with tensor.view(destination, writable=True) as view, self._plinth_view() as own:
            _copy(view, own, non_blocking)
        return destination

    def tobytes(self) -> bytes:
        """Returns the contents, after the work of the current stream of the buffer's device."""
        data = bytearray(self.nbytes)
        if data:
            with tensor.view(data, writable=True) as view:
                check(lib.plinth_copy(view.pointer, self.ptr, len(data), False))
        return bytes(data)

    def tolist(self) -> Any:
        """Returns the elements as nested lists of Python numbers, after the work of the current stream of the device.

        Raises TypeError for float8, bfloat16 and complex numbers, which the standard library cannot unpack.
        """
        fmt = tensor.struct_format(self.dtype)
        if fmt is None:
            raise TypeError(f"elements of {self.dtype} have no format in Python; use tobytes()")
        if not self.size:
            return [] if len(self.shape) <= 1 else _empty_list(self.shape)
        contents = self.tobytes()
        if fmt == "e":  # Only new versions of memoryview know it.
            contents, fmt = array.array("f", struct.unpack(f"{self.size}e", contents)).tobytes(), "f"
        data: Any = memoryview(contents)
        return data.cast(fmt, self.shape).tolist() if self.shape else data.cast(fmt)[0]

    def fill_(self, value: Union[int, bytes], stream: StreamLike = None) -> "Buffer":
        """Fills the memory with a byte, or with a pattern of 1, 2 or 4 bytes, in a stream, and returns this buffer."""
        stream_argument = stream_handle(stream)
        if isinstance(value, bytes):
            check(lib.plinth_memset_pattern(self.ptr, value, len(value), self.nbytes, stream_argument))
        elif not 0 <= value <= 255:
            raise ValueError(f"the byte {value} is not in 0 to 255")
        else:
            check(lib.plinth_memset(self.ptr, value, self.nbytes, stream_argument))
        return self

    def zero_(self, stream: StreamLike = None) -> "Buffer":
        """Fills the memory with zeros in a stream, and returns this buffer."""
        return self.fill_(0, stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the interface. `stream` is the current stream of the device. There is no type for float8 and bfloat16."""
        typestr = tensor.typestr(self.dtype)
        if typestr is None:
            raise AttributeError(f"__cuda_array_interface__ has no type for {self.dtype}; use DLPack")
        return {
            "shape": self.shape,
            "typestr": typestr,
            "data": (self.ptr, False),
            "strides": None,
            "stream": current_stream(self._device).cuda_stream or 1,
            "version": 3,
        }

    def __dlpack_device__(self) -> Tuple[int, int]:
        """Returns DLPack's (kDLCUDA, index); on the host device (kDLCPU, 0), which its memory is to other libraries."""
        return (tensor.CPU, 0) if device_kind() == "host" else (tensor.CUDA, self._device)

    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """Returns a capsule of DLPack that holds the memory until its consumer is done.

        `stream`, the consumer's, waits for the work of the current stream of the buffer's device: None and 1 are the
        default stream, -1 waits for nothing. On the host device, whose consumers are on the CPU, the call itself waits.
        """
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(map(int, dl_device)) != device:
            raise BufferError(
                f"the buffer is on DLPack's device {device}, and cannot be exported to {tuple(dl_device)}"
            )
        if copy:
            raise BufferError("the buffer cannot be exported as a copy")
        current = current_stream(self._device)
        if device[0] == tensor.CPU:
            current.synchronize()
        elif stream != -1:
            number = 1 if stream is None else stream
            if number != (current.cuda_stream or 1):
                consumer = Stream._wrap(0, self._device)._argument if number <= 2 else number
                if number > 2:
                    check(lib.plinth_stream_from_external(number, self._device, byref(c_void_p())))
                check(lib.plinth_stream_wait_stream(consumer, current._argument))
        return _dlpack.export(self, device, max_version is not None and max_version[0] >= 1)

    def _plinth_view(self) -> tensor.TensorView:
        if self._dl is None:
            self._dl = tensor.describe(self.ptr, (tensor.CUDA, self._device), self.dtype, self.shape)
        return tensor.TensorView(self._dl, keep=self)


def _empty_list(shape: Sequence[int]) -> Any:
    return [_empty_list(shape[1:]) for _ in range(shape[0])] if shape else []


def _extents(shape: Shape) -> Tuple[int, ...]:
    """Converts a number or a sequence of numbers, which may be numpy's, to extents."""
    try:
        return (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        return tuple(operator.index(extent) for extent in shape)  # type: ignore[union-attr]


def _product(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


_FLOAT8 = {"float8_e4m3fn", "float8_e5m2"}


def _copy(destination: tensor.TensorView, source: tensor.TensorView, non_blocking: bool) -> None:
    dtypes = {source.dtype, destination.dtype}
    is_float8_and_bytes = "uint8" in dtypes and not dtypes.isdisjoint(_FLOAT8)
    raw = (
        not dtypes.isdisjoint(("uint8", "int8", "bool"))
        and source.nbytes == destination.nbytes
        and (source.shape != destination.shape or is_float8_and_bytes)
        and source.is_contiguous
        and destination.is_contiguous
    )
    if raw:
        check(lib.plinth_copy(destination.pointer, source.pointer, source.nbytes, non_blocking))
    else:
        check(lib.plinth_copy_tensor(byref(destination.dl), byref(source.dl), non_blocking))


def empty(shape: Shape, dtype: Any = "uint8", device: DeviceLike = None, stream: StreamLike = None) -> Buffer:
    """Allocates memory of a device from the caching allocator, with undefined contents.

    `shape` is a number of elements or a sequence of extents, `dtype` the name of an element type, or a type of Python,
    numpy or torch; by default the shape counts bytes. `stream` is the stream that will use the memory, by default the
    current stream. Raises OutOfMemoryError, ValueError for a negative extent, and TypeError for an unknown type.
    """
    extents = _extents(shape)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"the shape {extents} has a negative extent")
    name = tensor.dtype_name(dtype)
    index = known_device(device)
    _dlpack.collect_sometimes()
    handle = stream_handle(stream)
    used: Any = stream
    if handle == PLINTH_STREAM_CURRENT:
        handle = result(c_void_p, lib.plinth_current_stream, index) or 0
        used = _owners.get(handle, handle) if _owners else handle
    elif not isinstance(stream, Stream):
        used = handle if handle > 1 and handle >> 32 != 0x504C5300 else 0
    pointer = c_void_p()
    size = size_argument(_product(extents) * tensor.item_size(name))
    check(lib.plinth_caching_allocator_alloc(size, index, handle, byref(pointer)))
    return Buffer._make(pointer.value or 0, extents, name, index, used)


def zeros(shape: Shape, dtype: Any = "uint8", device: DeviceLike = None, stream: StreamLike = None) -> Buffer:
    """Allocates memory as `empty`, and fills it with zeros in the same stream."""
    buffer = empty(shape, dtype, device, stream)
    if buffer.ptr:
        buffer.zero_(buffer.stream)
    return buffer


def to_device(source: Any, device: DeviceLike = None) -> Buffer:
    """Copies anything with the buffer protocol, DLPack or `__cuda_array_interface__` to new memory of a device.

    The buffer has the shape and the element type of the source. The copy runs in the current streams; one from pageable
    memory of the CPU is complete when the call returns.
    """
    with tensor.view(source) as view:
        buffer = empty(view.shape, view.dtype, device)
        with buffer._plinth_view() as own:
            _copy(own, view, False)
    return buffer


def empty_pinned(shape: Shape, dtype: Any = "uint8") -> memoryview:
    """Allocates pinned host memory, with undefined contents, as a memoryview.

    Copies to and from it are asynchronous with `non_blocking=True`. The memory is freed when the last view is
    collected; it is not reused before the copies that plinth made are done. Raises TypeError for types that memoryviews
    lack: float8, bfloat16, complex numbers, and float16 before Python 3.12.
    """
    extents = _extents(shape)
    name = tensor.dtype_name(dtype)
    fmt = tensor.view_format(name)
    if fmt is None:
        raise TypeError(f"memoryviews of this Python have no format for {name}; allocate bytes")
    if any(extent < 1 for extent in extents):
        raise ValueError(f"the shape {extents} has an extent below 1")
    size = _product(extents) * tensor.item_size(name)
    pointer = result(c_void_p, lib.plinth_host_alloc, size_argument(size))
    data: Any = (ctypes.c_ubyte * size).from_address(pointer)
    weakref.finalize(data, release, lib.plinth_host_free, pointer).atexit = False
    data = memoryview(data).cast("B")
    return data.cast(fmt, extents)  # type: ignore[no-any-return]
