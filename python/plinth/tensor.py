"""Views of other libraries' tensors: DLPack, `__cuda_array_interface__`, and Python's buffer protocol.

`view` describes an object's memory as a DLTensor, which the calls of plinth take. A view borrows: it keeps the object's
memory alive until it is closed, and takes no ownership. A capsule of DLPack is not renamed, so its own destructor calls
the producer's deleter, once, when the view is closed.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int64, c_ssize_t, c_uint32, c_uint64
from typing import Any, Optional, Sequence, Tuple

from ._arguments import result, stream_handle
from ._native import (
    PLINTH_STREAM_CURRENT,
    PLINTH_STREAM_DEFAULT_OF,
    DLDataType,
    DLDevice,
    DLTensor,
    c_int32,
    c_void_p,
    check,
    lib,
)
from .device import device_kind

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
READ_ONLY, IS_COPIED = 1, 2  # flags of a versioned tensor

# The name of an element type: DLDataType's code and bits, the array interface's type, the format of struct.
_TYPES = {
    "bool": (6, 8, "|b1", "?"),
    "uint8": (1, 8, "|u1", "B"),
    "uint16": (1, 16, "<u2", "H"),
    "uint32": (1, 32, "<u4", "I"),
    "uint64": (1, 64, "<u8", "Q"),
    "int8": (0, 8, "|i1", "b"),
    "int16": (0, 16, "<i2", "h"),
    "int32": (0, 32, "<i4", "i"),
    "int64": (0, 64, "<i8", "q"),
    "float16": (2, 16, "<f2", "e"),
    "bfloat16": (4, 16, None, None),
    "float8_e4m3fn": (10, 8, None, None),
    "float8_e5m2": (12, 8, None, None),
    "float32": (2, 32, "<f4", "f"),
    "float64": (2, 64, "<f8", "d"),
    "complex64": (5, 64, "<c8", None),
    "complex128": (5, 128, "<c16", None),
}
_BY_CODE = {(code, bits): name for name, (code, bits, _, _) in _TYPES.items()}
_BY_TYPESTR = {typestr: name for name, (_, _, typestr, _) in _TYPES.items() if typestr}
_BY_FORMAT = {fmt: name for name, (_, _, _, fmt) in _TYPES.items() if fmt}
_BY_FORMAT.update(
    {"c": "uint8", "l": "int64", "L": "uint64", "n": "int64", "N": "uint64", "Zf": "complex64", "Zd": "complex128"}
)
_ALIASES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int64",
    "long": "int64",
    "bytes": "uint8",
}


class ManagedTensor(Structure):
    """DLPack's DLManagedTensor."""

    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p)]


class ManagedTensorVersioned(Structure):
    """DLPack's DLManagedTensorVersioned."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    ]


class _PyBuffer(Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", ctypes.py_object),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_FULL, _FULL_RO = 0x11D, 0x11C  # PyBUF_FULL, PyBUF_FULL_RO
_get_buffer = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, POINTER(_PyBuffer), c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)
_release_buffer = ctypes.PYFUNCTYPE(None, POINTER(_PyBuffer))(("PyBuffer_Release", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_capsule_is_valid = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))


def dtype_name(dtype: Any) -> str:
    """Returns the name of an element type: of "float32", numpy.float32, numpy.dtype("f4"), torch.float32 or float.

    Python's float has 64 bits, as in numpy and torch; the name "float" is torch's, with 32.
    """
    if type(dtype) is str and dtype in _TYPES:
        return dtype
    name = (
        dtype
        if isinstance(dtype, str)
        else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    )
    name = str(name).rpartition(".")[2]
    name = "float64" if dtype is float else "complex128" if dtype is complex else _ALIASES.get(name, name)
    if name not in _TYPES or not getattr(dtype, "isnative", True):
        raise TypeError(f"{dtype!r} is not an element type; the types are {', '.join(_TYPES)}")
    return name


def data_type(name: str) -> Any:
    """Returns the DLDataType of a name."""
    code, bits, _, _ = _TYPES[name]
    return DLDataType(code, bits, 1)


def item_size(name: str) -> int:
    """Returns the size of an element in bytes."""
    return _TYPES[name][1] // 8


def typestr(name: str) -> Optional[str]:
    """Returns the type of `__cuda_array_interface__`; None if it has none."""
    return _TYPES[name][2]


def struct_format(name: str) -> Optional[str]:
    """Returns the format of the module struct; None if there is none."""
    return _TYPES[name][3]


def view_format(name: str) -> Optional[str]:
    """Returns the format of a memoryview; None if there is none, as for float16 before Python 3.12."""
    fmt: Any = _TYPES[name][3]
    try:
        memoryview(bytes(item_size(name))).cast(fmt)
    except (TypeError, ValueError):
        return None
    return str(fmt)


def name_of(dtype: Any) -> str:
    """Returns the name of a DLDataType. Raises TypeError for a type without a name."""
    name = _BY_CODE.get((dtype.code, dtype.bits)) if dtype.lanes == 1 else None
    if name is None:
        raise TypeError(
            f"elements of DLPack's type {dtype.code} with {dtype.bits} bits and {dtype.lanes} lanes are unknown"
        )
    return name


def describe(
    pointer: int, device: Tuple[int, int], name: str, shape: Sequence[int], strides: Optional[Sequence[int]] = None
) -> Any:
    """Makes a DLTensor. The result keeps the arrays of its shape and strides (in elements) alive."""
    extents = (c_int64 * max(len(shape), 1))(*shape)
    steps = None if strides is None else (c_int64 * max(len(strides), 1))(*strides)
    return DLTensor(pointer, DLDevice(*device), len(shape), data_type(name), extents, steps, 0)


class TensorView:
    """A DLTensor that describes an object's memory, valid until close() or the end of its `with` block.

    `dl` is the DLTensor and `read_only` says whether the object forbids writes.
    """

    def __init__(self, dl: Any, read_only: bool = False, keep: Any = None, buffer: Any = None) -> None:
        self.dl = dl
        self.read_only = read_only
        self._keep = keep
        self._buffer = buffer

    def close(self) -> None:
        """Releases the object."""
        self._keep = None
        if self._buffer is not None:
            _release_buffer(byref(self._buffer))
            self._buffer = None

    def __enter__(self) -> "TensorView":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def device(self) -> int:
        """The device index; -1 for memory of the CPU."""
        return int(self.dl.device.device_id) if self.dl.device.device_type in (CUDA, CUDA_MANAGED) else -1

    @property
    def shape(self) -> Tuple[int, ...]:
        """The extents."""
        return tuple(self.dl.shape[i] for i in range(self.dl.ndim))

    @property
    def strides(self) -> Tuple[int, ...]:
        """The distances between elements, in elements."""
        if self.dl.strides:
            return tuple(self.dl.strides[i] for i in range(self.dl.ndim))
        steps, step = [], 1
        for extent in reversed(self.shape):
            steps.append(step)
            step *= extent
        return tuple(reversed(steps))

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        return name_of(self.dl.dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return self.size * int((self.dl.dtype.bits * self.dl.dtype.lanes + 7) // 8)

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return (self.dl.data or 0) + int(self.dl.byte_offset)

    @property
    def span(self) -> Tuple[int, int]:
        """The address of the first byte of all elements, and that behind the last; equal if there are none."""
        begin = end = self.pointer
        if self.size:
            item = self.nbytes // self.size
            reaches = [(extent - 1) * stride * item for extent, stride in zip(self.shape, self.strides)]
            begin += sum(reach for reach in reaches if reach < 0)
            end += sum(reach for reach in reaches if reach > 0) + item
        return begin, end

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements fill their memory in row-major order."""
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent != 1 and stride != step:
                return self.size == 0
            step *= extent
        return True


def view(obj: Any, *, writable: bool = False, stream: Any = None) -> TensorView:
    """Describes the memory of an object as a DLTensor, without a copy.

    The object is a plinth.Buffer, or has DLPack, `__cuda_array_interface__` or the buffer protocol. For memory of a
    device, `stream`, which by default is the calling thread's current stream on that device, waits for the producer's
    pending work. Raises TypeError for another object, and BufferError for memory that forbids writes if `writable`.
    """
    found = _find(obj, writable, stream)
    if found.dl.device.device_type == CPU and device_kind() == "host":
        # The host device's memory is the CPU's, and other libraries know it as that.
        index = result(c_int32, lib.plinth_device_of, found.pointer)
        if index >= 0:
            found = TensorView(
                describe(found.pointer, (CUDA, index), found.dtype, found.shape, found.strides), found.read_only, found
            )
    if writable and found.read_only:
        found.close()
        raise BufferError(f"the memory of the {type(obj).__name__} is read-only")
    return found


def _find(obj: Any, writable: bool, stream: Any) -> TensorView:
    if isinstance(obj, TensorView):
        return TensorView(obj.dl, obj.read_only, obj)
    own = getattr(obj, "_plinth_view", None)
    if own is not None:
        found: TensorView = own()
        return found
    device = getattr(obj, "__dlpack_device__", None)
    if device is not None and device()[0] != CPU:
        return _from_dlpack(obj, device(), stream)
    if hasattr(obj, "__cuda_array_interface__"):
        return _from_array_interface(obj, stream)
    found_buffer = _from_buffer(obj, writable)
    if found_buffer is not None:
        return found_buffer
    if device is not None:
        return _from_dlpack(obj, device(), None)
    raise TypeError(
        f"a tensor must have DLPack, __cuda_array_interface__ or the buffer protocol, which {type(obj).__name__} lacks"
    )


def consumer_stream(stream: Any, device: int) -> int:
    """Returns the name of a stream in DLPack and the array interface: its handle, 1 for the default stream."""
    handle = stream_handle(stream)
    if handle == PLINTH_STREAM_CURRENT:
        handle = result(c_void_p, lib.plinth_current_stream, device) or 0
    return int(handle) if 0 < handle and handle >> 32 != 0x504C5300 else 1


def _from_dlpack(obj: Any, device: Tuple[Any, int], stream: Any) -> TensorView:
    arguments = {"stream": consumer_stream(stream, device[1])} if device[0] in (CUDA, CUDA_MANAGED) else {}
    try:
        capsule = obj.__dlpack__(max_version=(1, 0), **arguments)
    except TypeError:
        capsule = obj.__dlpack__(**arguments)
    return from_capsule(capsule)


def from_capsule(capsule: Any) -> TensorView:
    """Describes the tensor of a DLPack capsule, which is borrowed and can still be consumed when the view is closed."""
    if _capsule_is_valid(capsule, b"dltensor_versioned"):
        versioned = ManagedTensorVersioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise BufferError(f"the capsule has version {versioned.major} of DLPack; only version 1 is known")
        return TensorView(versioned.dl_tensor, bool(versioned.flags & (READ_ONLY | IS_COPIED)), capsule)
    if _capsule_is_valid(capsule, b"dltensor"):
        return TensorView(ManagedTensor.from_address(_capsule_pointer(capsule, b"dltensor")).dl_tensor, False, capsule)
    raise TypeError("the object is not a capsule of DLPack, or was consumed already")


def _from_array_interface(obj: Any, stream: Any) -> TensorView:
    interface = obj.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise TypeError("__cuda_array_interface__ has a mask, which is not supported")
    name = _BY_TYPESTR.get(interface["typestr"])
    if name is None:
        raise TypeError(f"the type {interface['typestr']!r} of __cuda_array_interface__ is not supported")
    pointer, read_only = interface["data"]
    strides = interface.get("strides")
    size = item_size(name)
    if strides is not None:
        if any(stride % size for stride in strides):
            raise TypeError(
                f"the strides {strides} of __cuda_array_interface__ are not multiples of the element's {size} bytes"
            )
        strides = [stride // size for stride in strides]
    shape = interface["shape"]
    device = result(c_int32, lib.plinth_device_of, pointer) if pointer else 0
    producer = interface.get("stream")
    if producer is not None and producer != consumer_stream(stream, device):
        _wait_for(stream, producer, device)
    return TensorView(
        describe(pointer or 0, (CUDA, max(device, 0)), name, shape, strides), bool(read_only), (obj, interface)
    )


def _wait_for(stream: Any, producer: int, device: int) -> None:
    """Makes a stream of ours wait for the producer's stream, which may be unknown to plinth."""
    if producer > 2:
        check(lib.plinth_stream_from_external(producer, device, byref(c_void_p())))
    consumer = stream_handle(stream)
    if consumer == PLINTH_STREAM_CURRENT:
        consumer = result(c_void_p, lib.plinth_current_stream, device) or 0
    check(
        lib.plinth_stream_wait_stream(
            consumer or PLINTH_STREAM_DEFAULT_OF(device), producer if producer > 2 else PLINTH_STREAM_DEFAULT_OF(device)
        )
    )


def _from_buffer(obj: Any, writable: bool) -> Optional[TensorView]:
    buffer = _PyBuffer()
    try:
        _get_buffer(obj, byref(buffer), _FULL if writable else _FULL_RO)
    except (TypeError, ValueError, BufferError):
        if not writable:
            return None
        try:
            memoryview(obj).release()
        except TypeError:
            return None
        raise BufferError(f"the memory of the {type(obj).__name__} is read-only") from None
    found = TensorView(None, bool(buffer.readonly), obj, buffer)
    fmt = (buffer.format or b"B").decode()
    name = _BY_FORMAT.get(fmt.lstrip("@=<" if len(fmt) > 1 else ""))
    if (
        name is None
        or item_size(name) != buffer.itemsize
        or any(buffer.suboffsets[i] >= 0 for i in range(buffer.ndim if buffer.suboffsets else 0))
    ):
        found.close()
        raise TypeError(f"the format {fmt!r} of the {type(obj).__name__}'s buffer is not supported")
    shape = [buffer.shape[i] for i in range(buffer.ndim)]
    strides = None
    if buffer.strides:
        if any(buffer.strides[i] % buffer.itemsize for i in range(buffer.ndim)):
            found.close()
            raise TypeError("the strides of the buffer are not multiples of the element's size")
        strides = [buffer.strides[i] // buffer.itemsize for i in range(buffer.ndim)]
    found.dl = describe(buffer.buf or 0, (CPU, 0), name, shape, strides)
    return found
