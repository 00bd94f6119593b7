"""Communicators: collectives between ranks: devices of this process, or other processes, also on other machines.

Each rank makes the same calls in the same order. Work is enqueued in a stream, and the calls do not wait for it. A
tensor is a buffer, or has DLPack or `__cuda_array_interface__`, is contiguous, and must live until the work is done.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import contextmanager
from ctypes import byref, c_bool, c_char, c_int32, c_size_t, c_uint8, c_uint32
from typing import Any, Callable, Iterator, List, Optional, Sequence, TypeVar

from . import _native, tensor
from ._arguments import DeviceLike, StreamLike, integer_argument, known_device, result, stream_handle
from ._native import c_void_p, check, lib, wait
from ._release import Unpicklable, release
from .errors import InvalidArgumentError

T = TypeVar("T")

_ENGINES = {
    "auto": _native.PLINTH_ENGINE_AUTO,
    "nccl": _native.PLINTH_ENGINE_NCCL,
    "local": _native.PLINTH_ENGINE_LOCAL,
    "shared": _native.PLINTH_ENGINE_SHARED,
}
_OPERATIONS = {
    "sum": _native.PLINTH_REDUCE_SUM,
    "product": _native.PLINTH_REDUCE_PRODUCT,
    "max": _native.PLINTH_REDUCE_MAX,
    "min": _native.PLINTH_REDUCE_MIN,
    "average": _native.PLINTH_REDUCE_AVERAGE,
}


def _operation(op: Any) -> int:
    number = _OPERATIONS.get(op) if isinstance(op, str) else op
    if number is None:
        raise ValueError(f"the operation {op!r} is not one of {', '.join(_OPERATIONS)}")
    return int(number)


def milliseconds(timeout: Optional[float]) -> int:
    """Converts seconds to milliseconds; None to 0, the default of the C API. Raises ValueError for negative ones."""
    if timeout is None:
        return 0
    return max(1, integer_argument(round(timeout * 1000), "the timeout in milliseconds,", 0, 2**64))


def _options(timeout: Optional[float], engine: str, nonblocking: bool = False) -> Any:
    if engine not in _ENGINES:
        raise ValueError(f"the engine {engine!r} is not one of {', '.join(_ENGINES)}")
    options = _native.plinth_communicator_options_t.init()
    options.timeout_milliseconds = milliseconds(timeout)
    options.engine = _ENGINES[engine]
    options.flags = _native.PLINTH_COMMUNICATOR_NONBLOCKING if nonblocking else 0
    return options


class _Groups(threading.local):
    """The number of groups that the calling thread has open."""

    open = 0


_groups = _Groups()


def wait_outside_groups(block: Callable[[], T]) -> T:
    """Waits as `wait` does. In a group it calls `block` in the calling thread, whose group makes the library refuse it."""
    return block() if _groups.open else wait(None, block)


def unique_id() -> bytes:
    """Returns the 128 bytes by which the ranks of one group find each other: one rank makes them and sends them."""
    data = (c_uint8 * _native.PLINTH_UNIQUE_ID_SIZE)()
    check(lib.plinth_nccl_unique_id(data))
    return bytes(data)


def id_bytes(uid: bytes) -> Any:
    """Converts a unique id to an array of bytes."""
    if len(uid) != _native.PLINTH_UNIQUE_ID_SIZE:
        raise ValueError(f"a unique id has {_native.PLINTH_UNIQUE_ID_SIZE} bytes, not {len(uid)}")
    return (c_uint8 * len(uid)).from_buffer_copy(uid)


class Communicator:
    """One rank's communicator. Make it with init_rank, init_all, split or shrink.

    One thread at a time uses it, except for abort. It is destroyed by destroy() or when it is collected; synchronize
    its streams first. `timeout` arguments are in seconds.
    """

    def __init__(self) -> None:
        raise TypeError("use Communicator.init_rank or Communicator.init_all")

    @classmethod
    def _own(cls, handle: int) -> "Communicator":
        communicator = object.__new__(cls)
        communicator._handle = handle
        communicator._finalizer = weakref.finalize(communicator, release, lib.plinth_communicator_destroy, handle)
        communicator._finalizer.atexit = False
        return communicator

    _handle: int
    _finalizer: "weakref.finalize[Any, Any]"

    @classmethod
    def init_rank(
        cls,
        ranks: int,
        uid: bytes,
        rank: int,
        device: DeviceLike = None,
        timeout: Optional[float] = None,
        engine: str = "auto",
        nonblocking: bool = False,
    ) -> "Communicator":
        """Creates the communicator of one rank, and waits until all ranks are connected.

        Each rank makes this call in a thread or process of its own, with the same `uid` from unique_id or
        Store.unique_id, which serves one group only. `engine` is "auto", "nccl", "local" (devices of one process) or
        "shared" (processes of one machine). Ends on Ctrl-C in the main thread. Raises WaitTimeoutError if not all ranks
        join.
        """
        data, index, options = id_bytes(uid), known_device(device), _options(timeout, engine, nonblocking)

        def block() -> "Communicator":
            handle = c_void_p()
            check(lib.plinth_communicator_init_rank(ranks, data, rank, index, byref(options), byref(handle)))
            return cls._own(handle.value or 0)  # After Ctrl-C it is collected, and the other ranks do not wait for it.

        return wait_outside_groups(block)

    @classmethod
    def init_all(
        cls, devices: Sequence[DeviceLike], timeout: Optional[float] = None, engine: str = "auto"
    ) -> "List[Communicator]":
        """Creates the communicators of several devices of this process, one rank for each.

        One thread can use all of them, if it makes the calls of all ranks in a `group()`.
        """
        numbers = (c_int32 * max(len(devices), 1))(*(known_device(device) for device in devices))
        handles = (c_void_p * max(len(devices), 1))()
        options = _options(timeout, engine)
        check(lib.plinth_communicator_init_all(numbers, len(devices), byref(options), handles))
        return [cls._own(handles[i]) for i in range(len(devices))]

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        return int(result(c_int32, lib.plinth_communicator_rank, self._handle))

    @property
    def size(self) -> int:
        """The number of ranks."""
        return int(result(c_int32, lib.plinth_communicator_size, self._handle))

    @property
    def device(self) -> int:
        """The index of this rank's device."""
        return int(result(c_int32, lib.plinth_communicator_device, self._handle))

    @property
    def engine(self) -> str:
        """What moves the data: "nccl", "local" or "shared"."""
        number = result(c_uint32, lib.plinth_communicator_engine, self._handle)
        return next(name for name, value in _ENGINES.items() if value == number)

    def set_timeout(self, timeout: Optional[float]) -> None:
        """Sets how long later waits for other ranks may take; None for the default."""
        check(lib.plinth_communicator_set_timeout(self._handle, milliseconds(timeout)))

    def query(self) -> bool:
        """Reports whether all ranks are connected, for a communicator that init_rank made with `nonblocking`."""
        return bool(result(c_bool, lib.plinth_communicator_query, self._handle))

    def wait(self, timeout: Optional[float] = None, stream: StreamLike = None) -> None:
        """Waits until the communicator's work in a stream is done, and raises its errors. Ends on Ctrl-C."""
        handle = stream_handle(stream)
        if stream is None:
            from .stream import current_stream

            handle = current_stream(self.device)._argument
        wait_outside_groups(lambda: check(lib.plinth_communicator_wait(self._handle, milliseconds(timeout), handle)))

    def sleep(self) -> None:
        """Releases the device memory of all ranks, and keeps its addresses. Every rank makes this call.

        Until wake(), collectives and replays of graphs that captured some raise GraphError.
        """
        wait_outside_groups(lambda: check(lib.plinth_communicator_sleep(self._handle)))

    def wake(self) -> None:
        """Allocates the device memory of all ranks again, at the same addresses. Every rank makes this call."""
        wait_outside_groups(lambda: check(lib.plinth_communicator_wake(self._handle)))

    def abort(self) -> None:
        """Ends the communicator's work, whatever other ranks do. Calls that wait in other threads raise."""
        check(lib.plinth_communicator_abort(self._handle))

    def register(self, memory: Any) -> None:
        """Registers a tensor's memory with all ranks, each of which makes this call with as many bytes.

        Collectives then read and write it where it is. Keep the tensor until deregister() or destroy().
        """
        with tensor.view(memory, writable=True) as taken:
            size = taken.size * taken.dl.dtype.bits // 8
            check(lib.plinth_communicator_register(self._handle, taken.pointer, size))

    def deregister(self, memory: Any) -> None:
        """Ends this rank's registration of a tensor's memory, after this rank's work."""
        with tensor.view(memory, writable=True) as taken:
            check(lib.plinth_communicator_deregister(self._handle, taken.pointer))

    def destroy(self) -> None:
        """Destroys the communicator. Repeated calls do nothing."""
        self._finalizer()

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def split(self, color: int, key: int = 0) -> "Optional[Communicator]":
        """Splits the ranks: those of one color form a communicator, by key. None for color -1. Not in a group."""
        if _groups.open:
            raise InvalidArgumentError("a communicator cannot be split in a group, whose end would make the part")
        handle = c_void_p()
        check(lib.plinth_communicator_split(self._handle, color, key, byref(handle)))
        return self._own(handle.value) if handle.value else None

    def shrink(self, excluded: Sequence[int], abort: bool = False) -> "Communicator":
        """Makes a communicator of the ranks that are not excluded, which all make this call. Not in a group.

        With `abort`, also after an error such as a lost rank, this communicator and its work end first.
        """
        if _groups.open:
            raise InvalidArgumentError("a communicator cannot be shrunk in a group, whose end would make the part")
        ranks = (c_int32 * len(excluded))(*excluded)
        flags = _native.PLINTH_SHRINK_ABORT if abort else _native.PLINTH_SHRINK_DEFAULT
        handle = c_void_p()
        check(lib.plinth_communicator_shrink(self._handle, ranks, len(excluded), flags, byref(handle)))
        return self._own(handle.value or 0)

    def _call(
        self, function: Any, source: Any, target: Any, parts: int, arguments: Sequence[Any], stream: StreamLike
    ) -> None:
        """Calls a collective. `parts` > 0: the target has that many times the source; < 0: the source has more."""
        with tensor.view(source, stream=stream) as given, tensor.view(target, writable=True, stream=stream) as taken:
            _check_pair(given, taken, parts)
            if parts == 0 and given.size % self.size:
                raise ValueError(f"{given.size} elements cannot be divided among {self.size} ranks")
            count = min(given.size, taken.size) if parts else given.size // self.size
            check(
                function(
                    self._handle, given.pointer, taken.pointer, count, given.dl.dtype, *arguments, stream_handle(stream)
                )
            )

    def all_reduce(self, input: Any, output: Optional[T] = None, op: str = "sum", stream: StreamLike = None) -> Any:
        """Reduces the inputs of all ranks to the output of each, by default the input itself, and returns it.

        `op` is "sum", "product", "max", "min" or "average".
        """
        target = input if output is None else output
        self._call(lib.plinth_communicator_all_reduce, input, target, 1, (_operation(op),), stream)
        return target

    def reduce(self, input: Any, output: Any = None, root: int = 0, op: str = "sum", stream: StreamLike = None) -> Any:
        """Reduces the inputs of all ranks to the output of the root, by default its input. Returns the output."""
        target = input if output is None else output
        self._call(lib.plinth_communicator_reduce, input, target, 1, (_operation(op), root), stream)
        return target

    def broadcast(self, tensor: T, root: int = 0, stream: StreamLike = None) -> T:
        """Copies the root's tensor to the tensors of all ranks, and returns it."""
        self._call(lib.plinth_communicator_broadcast, tensor, tensor, 1, (root,), stream)
        return tensor

    def all_gather(self, input: Any, output: T, stream: StreamLike = None) -> T:
        """Gathers the inputs of all ranks in rank order in the output of each, and returns it."""
        self._call(lib.plinth_communicator_all_gather, input, output, self.size, (), stream)
        return output

    def reduce_scatter(self, input: Any, output: T, op: str = "sum", stream: StreamLike = None) -> T:
        """Reduces the inputs of all ranks, and gives each rank its part in rank order. Returns the output."""
        self._call(lib.plinth_communicator_reduce_scatter, input, output, -self.size, (_operation(op),), stream)
        return output

    def all_to_all(self, input: Any, output: T, stream: StreamLike = None) -> T:
        """Sends a part of the input to each rank, in rank order, and receives one from each. Returns the output."""
        self._call(lib.plinth_communicator_all_to_all, input, output, 0, (), stream)
        return output

    def send(self, tensor: Any, peer: int, stream: StreamLike = None) -> None:
        """Sends a tensor to a rank, which receives it. A rank that also receives makes both calls in a `group()`."""
        self._transfer(lib.plinth_communicator_send, tensor, False, peer, stream)

    def recv(self, tensor: T, peer: int, stream: StreamLike = None) -> T:
        """Receives a tensor that a rank sends, and returns it."""
        self._transfer(lib.plinth_communicator_recv, tensor, True, peer, stream)
        return tensor

    def _transfer(self, function: Any, obj: Any, writable: bool, peer: int, stream: StreamLike) -> None:
        with tensor.view(obj, writable=writable, stream=stream) as view:
            _check_tensor(view)
            check(function(self._handle, view.pointer, view.size, view.dl.dtype, peer, stream_handle(stream)))

    def __reduce__(self) -> Any:
        raise TypeError("a communicator cannot be pickled")


def _check_tensor(view: tensor.TensorView) -> None:
    if not view.is_contiguous:
        raise ValueError("a tensor of a communicator must be contiguous")
    if view.device < 0:
        raise ValueError("a tensor of a communicator must be on a device, not on the CPU")


def _check_pair(given: tensor.TensorView, taken: tensor.TensorView, parts: int) -> None:
    _check_tensor(given)
    _check_tensor(taken)
    if given.dtype != taken.dtype:
        raise ValueError(f"the input is {given.dtype}, and the output {taken.dtype}")
    wanted = given.size * parts if parts > 0 else taken.size
    if (parts < 0 and given.size != taken.size * -parts) or (parts > 0 and taken.size != wanted):
        raise ValueError(f"the input has {given.size} elements and the output {taken.size}, for {abs(parts)} ranks")
    if parts == 0 and given.size != taken.size:
        raise ValueError(f"the input has {given.size} elements, and the output {taken.size}")


@contextmanager
def group() -> Iterator[None]:
    """A context whose collectives start together at its end: for one thread that makes the calls of several ranks.

    If an exception leaves it, its calls are discarded. The other ranks are not told: see Communicator.abort.
    """
    check(lib.plinth_communicator_group_start())
    _groups.open += 1
    try:
        yield
    except BaseException:
        lib.plinth_communicator_group_cancel()
        raise
    finally:
        _groups.open -= 1
    check(lib.plinth_communicator_group_end())


class Store(Unpicklable):
    """A key-value store by which processes find each other, in a folder that all of them can access.

    `address` is the absolute path of the folder, such as "/shared/run-17", which is created if it does not exist. Each
    key is good for one value, so use a new folder for each run. `timeout` arguments are in seconds, None is five
    minutes. Waits end on Ctrl-C in the main thread. Processes that have another channel, such as MPI or torch's store,
    need no Store: they send each other the bytes of plinth.communicator.unique_id.
    """

    def __init__(self, address: "str | os.PathLike[str]") -> None:
        self._handle = result(c_void_p, lib.plinth_store_create, os.fsencode(address))
        self._finalizer = weakref.finalize(self, release, lib.plinth_store_destroy, self._handle)
        self._finalizer.atexit = False

    def set(self, name: str, value: bytes) -> None:
        """Sets the value of a key that has none: at most 1 MiB."""
        data = bytes(value)
        check(lib.plinth_store_set(self._handle, name.encode(), data, len(data)))

    def get(self, name: str, timeout: Optional[float] = None) -> bytes:
        """Waits until a key is set, and returns its value. Raises WaitTimeoutError."""
        buffer, size = (c_char * (1 << 20))(), c_size_t()
        limit = milliseconds(timeout)
        wait(
            None,
            lambda: check(
                lib.plinth_store_get(self._handle, name.encode(), limit, buffer, len(buffer), byref(size))
            ),
        )
        return buffer.raw[: size.value]

    def barrier(self, name: str, ranks: int, timeout: Optional[float] = None) -> None:
        """Waits until `ranks` processes have made this call with this key, which serves one barrier."""
        wait(None, lambda: check(lib.plinth_store_barrier(self._handle, name.encode(), ranks, milliseconds(timeout))))

    def unique_id(self, name: str, rank: int, ranks: int, timeout: Optional[float] = None) -> bytes:
        """Distributes a unique id from rank 0 to all ranks, for Communicator.init_rank."""
        data = (c_uint8 * _native.PLINTH_UNIQUE_ID_SIZE)()
        limit = milliseconds(timeout)
        wait(
            None,
            lambda: check(lib.plinth_store_unique_id(self._handle, name.encode(), rank, ranks, limit, data)),
        )
        return bytes(data)

    def close(self) -> None:
        """Destroys the store; the values stay in the folder. Repeated calls do nothing."""
        self._finalizer()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
