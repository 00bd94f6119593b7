"""Collectives between devices of this process with the names of torch.cuda.nccl. Other ranks: plinth.communicator.

Tensors are contiguous, of one type and size, each on its own device. The work is enqueued in the current streams of the
devices, or in `streams`, and the calls do not wait. `comms` are communicators, by default ones that the library caches.
"""

from __future__ import annotations

from contextlib import ExitStack
from ctypes import byref, c_int32, c_void_p
from typing import Any, Optional, Sequence, Tuple

from . import tensor
from ._arguments import result, stream_handle, take_text
from ._native import DLTensor, PLINTH_REDUCE_SUM, c_bool, check, lib
from .communicator import Communicator, _operation, id_bytes, milliseconds, unique_id, wait_outside_groups
from .errors import PlinthError

__all__ = [
    "SUM",
    "all_gather",
    "all_reduce",
    "broadcast",
    "init_rank",
    "is_available",
    "reduce",
    "reduce_scatter",
    "report",
    "unique_id",
    "version",
]

SUM = PLINTH_REDUCE_SUM


def version() -> Tuple[int, int, int]:
    """Returns the version of NCCL. Raises UnavailableError if it is not installed."""
    major, minor, patch = c_int32(), c_int32(), c_int32()
    check(lib.plinth_nccl_version(byref(major), byref(minor), byref(patch)))
    return major.value, minor.value, patch.value


def report(timeout: float = 15.0) -> str:
    """Returns NCCL's own report of the running job: its processes and communicators, ranks that do not answer, and the
    numbers of collectives that they have launched, where these differ.

    NCCL 2.24 and newer make it while a process of this machine uses a communicator of NCCL. `timeout` is in seconds."""
    return take_text(lib.plinth_nccl_report, milliseconds(timeout))


def is_available(tensors: Sequence[Any]) -> bool:
    """Reports whether the collectives accept these tensors: contiguous, of one type and size, on different devices."""
    try:
        with ExitStack() as stack:
            raw = _array(stack, tensors)
            return bool(result(c_bool, lib.plinth_nccl_is_available, raw, len(tensors)))
    except (TypeError, PlinthError):
        return False


def init_rank(num_ranks: int, uid: bytes, rank: int) -> Communicator:
    """Creates the communicator of one rank through NCCL, on the current device. Waits for all ranks."""
    from .device import current_device, device

    data, index = id_bytes(uid), current_device()

    def block() -> Communicator:
        with device(index):
            return Communicator._own(result(c_void_p, lib.plinth_nccl_init_rank, num_ranks, data, rank) or 0)

    return wait_outside_groups(block)


def _array(stack: ExitStack, tensors: Sequence[Any], writable: bool = False) -> Any:
    views = [stack.enter_context(tensor.view(item, writable=writable)) for item in tensors]
    return (DLTensor * max(len(views), 1))(*(view.dl for view in views))


def _handles(items: Optional[Sequence[Any]], count: int, convert: Any) -> Any:
    if items is None:
        return None
    if len(items) != count:
        raise ValueError(f"{len(items)} streams or communicators for {count} tensors")
    return (c_void_p * max(count, 1))(*(convert(item) for item in items))


def _call(
    function: Any,
    inputs: Sequence[Any],
    outputs: Optional[Sequence[Any]],
    arguments: Sequence[Any],
    streams: Optional[Sequence[Any]],
    comms: Optional[Sequence[Communicator]],
    same: bool = True,
) -> None:
    count = len(inputs)
    if same and outputs is not None and len(outputs) != count:
        raise ValueError(f"{len(outputs)} outputs for {count} inputs")
    with ExitStack() as stack:
        raw = [_array(stack, inputs, writable=outputs is None)]
        if outputs is not None:
            raw.append(_array(stack, outputs, writable=True))
        check(
            function(
                *raw,
                *([None] if outputs is None and function is not lib.plinth_nccl_broadcast else []),
                count,
                *arguments,
                _handles(streams, count, stream_handle),
                _handles(comms, count, lambda comm: comm._handle),
            )
        )


def all_reduce(
    inputs: Sequence[Any],
    outputs: Optional[Sequence[Any]] = None,
    op: Any = SUM,
    streams: Optional[Sequence[Any]] = None,
    comms: Optional[Sequence[Communicator]] = None,
) -> None:
    """Reduces the inputs to all outputs, by default the inputs themselves. `op` is SUM or a name, such as "max"."""
    _call(lib.plinth_nccl_all_reduce, inputs, outputs, (_operation(op),), streams, comms)


def reduce(
    inputs: Sequence[Any],
    output: Any = None,
    root: int = 0,
    op: Any = SUM,
    streams: Optional[Sequence[Any]] = None,
    comms: Optional[Sequence[Communicator]] = None,
) -> None:
    """Reduces the inputs to one output on the device of input `root`, by default that input itself."""
    outputs = None if output is None else [output]
    _call(lib.plinth_nccl_reduce, inputs, outputs, (root, _operation(op)), streams, comms, same=False)


def broadcast(
    inputs: Sequence[Any],
    root: int = 0,
    streams: Optional[Sequence[Any]] = None,
    comms: Optional[Sequence[Communicator]] = None,
) -> None:
    """Copies tensor `root` to all others."""
    _call(lib.plinth_nccl_broadcast, inputs, None, (root,), streams, comms)


def all_gather(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    streams: Optional[Sequence[Any]] = None,
    comms: Optional[Sequence[Communicator]] = None,
) -> None:
    """Concatenates the inputs in every output."""
    _call(lib.plinth_nccl_all_gather, inputs, outputs, (), streams, comms)


def reduce_scatter(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    op: Any = SUM,
    streams: Optional[Sequence[Any]] = None,
    comms: Optional[Sequence[Communicator]] = None,
) -> None:
    """Reduces the inputs, and writes one part to each output."""
    _call(lib.plinth_nccl_reduce_scatter, inputs, outputs, (_operation(op),), streams, comms)
