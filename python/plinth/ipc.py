"""Memory that processes share: sent and received through Unix sockets, without a copy.

The receiver's stream waits for the sender's work; afterwards the two processes order their accesses themselves.
"""

from __future__ import annotations

import math
import operator
import socket
import weakref
from ctypes import byref, c_int32, c_uint8, string_at
from typing import Any, List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

from . import _native, tensor
from ._arguments import DeviceLike, device_index, result
from ._native import c_size_t, c_void_p, check, lib, wait
from ._release import release
from .buffer import Buffer, _extents, _product
from .stream import current_stream


class HasFileno(Protocol):
    """A socket, or anything else with a file descriptor."""

    def fileno(self) -> int:
        """Returns the descriptor."""
        ...


def _descriptor(sock: Union[int, HasFileno]) -> int:
    return sock if isinstance(sock, int) else sock.fileno()


def _pointer(memory: Any) -> int:
    return int(memory.ptr) if isinstance(memory, Buffer) else operator.index(memory)


def send(sock: Union[int, HasFileno], memory: Union[Buffer, int]) -> None:
    """Sends memory of the caching allocator, a buffer or an address in it, through a connected Unix stream socket.

    The memory may be freed at once: it is not reused before the receiver has closed it or has ended. The message has no
    shape; send it separately. Raises PlinthError for memory that cannot be shared, and if the receiver is gone.
    """
    descriptor = _descriptor(sock)
    check(lib.plinth_ipc_send(descriptor, _pointer(memory)))


def receive(
    sock: Union[int, HasFileno],
    shape: Optional[Union[int, Sequence[int]]] = None,
    dtype: Any = "uint8",
    device: DeviceLike = None,
) -> Buffer:
    """Receives memory that another process sent, as a buffer that closes it when it is collected or freed.

    By default the buffer has all bytes of the block from the sent address on. `device` is a further device that is to
    access the memory. Waits for the message without a limit unless the socket has one; ends on Ctrl-C in the main
    thread if the socket is a Python socket. Call Buffer.record_stream for other streams that use the memory. Raises
    ValueError for a shape that does not fit, PlinthError if the sender is gone, and TimeoutError when the timeout of a
    Python socket passes.
    """
    name = tensor.dtype_name(dtype)
    if isinstance(sock, socket.socket):
        _wait_readable(sock)
    memory = _native.plinth_ipc_memory_t.init()
    check(lib.plinth_ipc_receive(_descriptor(sock), device_index(device), byref(memory)))
    return _buffer(memory, shape, name)


def _wait_readable(sock: socket.socket) -> None:
    import select

    timeout = sock.gettimeout()
    if timeout != 0:
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        if not poll.poll(None if timeout is None else math.ceil(timeout * 1000)):
            raise TimeoutError(f"receiving memory: no message arrived within the socket's timeout of {timeout} s")


def _buffer(memory: Any, shape: Optional[Union[int, Sequence[int]]], name: str) -> Buffer:
    owner = _Received(memory.pointer)
    size = tensor.item_size(name)
    if shape is None:
        extents: Tuple[int, ...] = (memory.size // size,)
    else:
        extents = _extents(shape)
    if _product(extents) * size > memory.size:
        raise ValueError(
            f"a shape of {extents} {name} needs {_product(extents) * size} bytes; {memory.size} were received"
        )
    return Buffer._make(memory.pointer, extents, name, memory.device, current_stream(memory.device), owner)


class _Received:
    """Memory of another process, which is closed when this object is collected."""

    def __init__(self, pointer: int) -> None:
        weakref.finalize(self, release, lib.plinth_ipc_close, pointer).atexit = False


class Message(NamedTuple):
    """What `export` returns: bytes, and file descriptors that belong to the caller, who closes them."""

    data: bytes
    descriptors: List[int]


def export(memory: Union[Buffer, int]) -> Message:
    """Makes the message that `send` would send, for a program with a channel of its own.

    Pass the bytes and the descriptors (socket.send_fds) to one receiver, then close the descriptors: as long as they
    are open, the memory is held.
    """
    import os

    message = _native.plinth_ipc_export_t.init()
    check(lib.plinth_ipc_export(_pointer(memory), byref(message)))
    descriptors: List[int] = []
    try:
        for i in range(message.descriptor_count):
            descriptors.append(os.dup(message.descriptors[i]))
        return Message(string_at(message.bytes, message.size), descriptors)
    except OSError:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    finally:
        check(lib.plinth_ipc_export_free(byref(message)))


def import_(
    data: bytes,
    descriptors: Sequence[int],
    shape: Optional[Union[int, Sequence[int]]] = None,
    dtype: Any = "uint8",
    device: DeviceLike = None,
) -> Buffer:
    """Maps the memory of a message of `export`, as `receive`. The caller closes the descriptors afterwards."""
    name = tensor.dtype_name(dtype)
    memory = _native.plinth_ipc_memory_t.init()
    numbers = (c_int32 * max(len(descriptors), 1))(*descriptors)
    raw = (c_uint8 * len(data)).from_buffer_copy(data)
    check(lib.plinth_ipc_import(raw, len(data), numbers, len(descriptors), device_index(device), byref(memory)))
    return _buffer(memory, shape, name)


def ipc_collect() -> None:
    """Frees the blocks that were freed while other processes held them, and that none holds any more."""
    check(lib.plinth_ipc_collect())


def mem_handle(memory: Union[Buffer, int]) -> Tuple[bytes, int]:
    """Returns the cudaIpcMemHandle_t of memory and its offset in bytes, for receivers that do not use plinth.

    Only for memory without expandable segments. The memory must not be freed before every process has closed it.
    """
    data = (c_uint8 * _native.PLINTH_IPC_MEM_HANDLE_SIZE)()
    offset = result(c_size_t, lib.plinth_ipc_mem_handle, _pointer(memory), data)
    return bytes(data), offset


def open_mem_handle(handle: bytes, device: DeviceLike = None) -> int:
    """Opens memory of another process by its cudaIpcMemHandle_t; returns an address for close_mem_handle."""
    if len(handle) != _native.PLINTH_IPC_MEM_HANDLE_SIZE:
        raise ValueError(f"a handle has {_native.PLINTH_IPC_MEM_HANDLE_SIZE} bytes, not {len(handle)}")
    data = (c_uint8 * len(handle)).from_buffer_copy(handle)
    return int(result(c_void_p, lib.plinth_ipc_open_mem_handle, device_index(device), data))


def close_mem_handle(pointer: int) -> None:
    """Closes memory of open_mem_handle, after a wait for all work of its device."""
    wait(None, lambda: check(lib.plinth_ipc_close_mem_handle(pointer)))
