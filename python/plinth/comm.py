"""Collectives between the devices of this process: torch.cuda.comm. Communicators are in plinth.communicator.

Tensors are buffers, or have DLPack, `__cuda_array_interface__` or, on the CPU, the buffer protocol. The work is ordered
on the current streams of all devices that take part; the CPU does not wait, except for pageable memory. New outputs are
buffers. Results are bitwise identical in every run.
"""

from __future__ import annotations

from contextlib import ExitStack
from ctypes import byref, c_int32, c_int64, c_void_p
from typing import Any, List, Optional, Sequence, Tuple

from . import tensor
from ._arguments import DeviceLike, integer_argument, known_device, stream_handle
from ._native import DLDevice, DLTensor, check, lib
from .buffer import Buffer
from .stream import current_stream

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _created(device: int, ndim: int) -> Any:
    """Describes an output that the call allocates."""
    return DLTensor(
        None, DLDevice(tensor.CUDA, device), ndim, tensor.data_type("uint8"), (c_int64 * max(ndim, 1))(), None, 0
    )


def _adopt(dl: Any, sources: Sequence[Tuple[Any, tensor.TensorView]]) -> Any:
    """Returns a created output: a source itself, a buffer that keeps the source of a part alive, or a new buffer."""
    shape = tuple(dl.shape[i] for i in range(dl.ndim))
    device = int(dl.device.device_id)
    pointer = (dl.data or 0) + int(dl.byte_offset)
    owner = None
    for source, view in sources:
        begin, end = view.span
        if view.device == device and pointer and begin <= pointer < max(end, begin + 1):
            if pointer == view.pointer and shape == view.shape:
                return source
            owner = source
            break
    return Buffer._make(pointer, shape, tensor.name_of(dl.dtype), device, current_stream(device), owner)


def _views(stack: ExitStack, tensors: Sequence[Any], writable: bool = False) -> List[tensor.TensorView]:
    views = [stack.enter_context(tensor.view(item, writable=writable)) for item in tensors]
    for view in views:
        view.dtype  # an output of a type without a name could not be returned
    return views


def _array(views: Sequence[Any]) -> Any:
    return (DLTensor * max(len(views), 1))(*views)


def broadcast(
    tensor: Any, devices: Optional[Sequence[DeviceLike]] = None, *, out: Optional[Sequence[Any]] = None
) -> Any:
    """Copies a tensor to devices, or to the tensors of `out`, and returns the copies as a tuple.

    The output on the tensor's own device is the tensor itself. Raises ValueError unless exactly one of `devices` and
    `out` is given.
    """
    if (devices is None) == (out is None):
        raise ValueError("broadcast: pass either devices or out")
    with ExitStack() as stack:
        (source,) = _views(stack, [tensor])
        if out is not None:
            views = _views(stack, out, True)
            check(lib.plinth_comm_broadcast(byref(source.dl), _array([view.dl for view in views]), len(views)))
            return tuple(out)
        outputs = [_created(known_device(device), source.dl.ndim) for device in devices or ()]
        raw = _array(outputs)
        check(lib.plinth_comm_broadcast(byref(source.dl), raw, len(outputs)))
        return tuple(_adopt(raw[i], [(tensor, source)]) for i in range(len(outputs)))


def broadcast_coalesced(tensors: Sequence[Any], devices: Sequence[DeviceLike], buffer_size: int = 10485760) -> Any:
    """Copies tensors of the first device to all devices, with a few launches; returns a list of them for each device.

    `buffer_size` is accepted as in torch, and has no effect.
    """
    numbers = [known_device(device) for device in devices]
    with ExitStack() as stack:
        views = _views(stack, tensors)
        raw = _array([_created(device, view.dl.ndim) for device in numbers for view in views])
        devices_array = (c_int32 * max(len(numbers), 1))(*numbers)
        check(
            lib.plinth_comm_broadcast_coalesced(
                _array([view.dl for view in views]), len(views), devices_array, len(numbers), buffer_size, raw
            )
        )
        pairs = list(zip(tensors, views))
        count = len(views)
        return [
            [_adopt(raw[d * count + t], pairs[t : t + 1] if d == 0 else ()) for t in range(count)]
            for d in range(len(numbers))
        ]


def reduce_add(inputs: Sequence[Any], destination: DeviceLike = None) -> Any:
    """Adds tensors of several devices, and returns the sum on `destination`, by default the current device.

    One of the inputs must be on that device. The sum of a single input is that input itself.
    """
    device = known_device(destination)
    with ExitStack() as stack:
        views = _views(stack, inputs)
        output = _created(device, views[0].dl.ndim if views else 0)
        check(lib.plinth_comm_reduce_add(_array([view.dl for view in views]), len(views), byref(output)))
        return _adopt(output, list(zip(inputs, views)))


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Any]], destination: DeviceLike = None, buffer_size: int = 10485760
) -> Any:
    """Adds lists of tensors, one list for each device, and returns the sums on `destination` as a tuple.

    `buffer_size` is accepted as in torch, and has no effect.
    """
    device = known_device(destination)
    count = len(inputs[0]) if inputs else 0
    if any(len(items) != count for items in inputs):
        raise ValueError("reduce_add_coalesced: the lists have different lengths")
    with ExitStack() as stack:
        flat = [item for items in inputs for item in items]
        views = _views(stack, flat)
        outputs = _array([_created(device, view.dl.ndim) for view in views[:count]])
        check(
            lib.plinth_comm_reduce_add_coalesced(
                _array([view.dl for view in views]), count, len(inputs), buffer_size, outputs
            )
        )
        return tuple(_adopt(outputs[i], list(zip(flat, views))) for i in range(count))


def scatter(
    tensor: Any,
    devices: Optional[Sequence[DeviceLike]] = None,
    chunk_sizes: Optional[Sequence[int]] = None,
    dim: int = 0,
    streams: Optional[Sequence[Any]] = None,
    *,
    out: Optional[Sequence[Any]] = None,
) -> Any:
    """Splits a tensor along a dimension into a part for each device, or each tensor of `out`, and returns the parts.

    Without `chunk_sizes` the parts are equal, except that the last may be smaller. A part on the tensor's own device
    may be a view of it. `streams` has for each part a stream, or None, of its device. Raises ValueError unless exactly
    one of `devices` and `out` is given.
    """
    if (devices is None) == (out is None):
        raise ValueError("scatter: pass either devices or out")
    if out is not None and chunk_sizes is not None:
        raise ValueError("scatter: chunk_sizes needs devices; the shapes of out determine the sizes")
    with ExitStack() as stack:
        (source,) = _views(stack, [tensor])
        if out is not None:
            raw = _array([view.dl for view in _views(stack, out, True)])
            count = len(out)
        else:
            numbers = [known_device(device) for device in devices or ()]
            raw = _array([_created(device, source.dl.ndim) for device in numbers])
            count = len(numbers)
        if chunk_sizes is not None and len(chunk_sizes) != count:
            raise ValueError(f"scatter: {len(chunk_sizes)} chunk sizes for {count} devices")
        if streams is not None and len(streams) != count:
            raise ValueError(f"scatter: {len(streams)} streams for {count} parts")
        sizes = None
        if chunk_sizes is not None:
            numbers = [integer_argument(size, "the chunk size", -(2**63), 2**63) for size in chunk_sizes]
            sizes = (c_int64 * max(count, 1))(*numbers)
        handles = (
            None if streams is None else (c_void_p * max(count, 1))(*(stream_handle(stream) for stream in streams))
        )
        check(lib.plinth_comm_scatter(byref(source.dl), raw, count, sizes, dim, handles))
        if out is not None:
            return tuple(out)
        return tuple(_adopt(raw[i], [(tensor, source)]) for i in range(count))


def gather(tensors: Sequence[Any], dim: int = 0, destination: DeviceLike = None, *, out: Any = None) -> Any:
    """Concatenates tensors of several devices along a dimension, on `destination` or in `out`, and returns the result.

    The destination is by default the current device. "cpu", a torch.device of that type, and -1 are memory of the CPU:
    the result is a memoryview with the shape, and complete when the call returns.
    """
    with ExitStack() as stack:
        views = _views(stack, tensors)
        inputs = _array([view.dl for view in views])
        if out is None and (destination in ("cpu", -1) or getattr(destination, "type", None) == "cpu"):
            out = _host_output(views, dim)
        if out is not None:
            (target,) = _views(stack, [out], True)
            check(lib.plinth_comm_gather(inputs, len(views), dim, byref(target.dl)))
            return out
        output = _created(known_device(destination), views[0].dl.ndim if views else 0)
        check(lib.plinth_comm_gather(inputs, len(views), dim, byref(output)))
        return _adopt(output, ())


def _host_output(views: Sequence[tensor.TensorView], dim: int) -> Any:
    fmt = tensor.view_format(views[0].dtype) if views else None
    if fmt is None:
        raise TypeError("gather: pass out for no tensors, and for elements that memoryviews of this Python lack")
    shape = list(views[0].shape)
    if not -len(shape) <= dim < len(shape):
        raise ValueError(f"gather: tensors of {len(shape)} dimensions have no dimension {dim}")
    shape[dim] = sum(view.shape[dim] if view.dl.ndim == len(shape) else 0 for view in views)
    size = tensor.item_size(views[0].dtype)
    for extent in shape:
        size *= extent
    data: Any = memoryview(bytearray(size))
    return data.cast(fmt, shape) if size else data.cast(fmt)
