"""Memory that others register: network adapters, drivers of other devices, communication libraries.

    from plinth import registration

    registration.uses(buffer)                        # what its memory can be used for, and why not
    with registration.MemoryRegistration(buffer) as held:
        dma_buf = held.dma_buf()                     # for ibv_reg_dmabuf_mr, for example
        ...
        os.close(dma_buf.descriptor)

While memory is registered it keeps its physical place: a free waits, and its pool is not put to sleep.
"""

from __future__ import annotations

import operator
import os
import weakref
from ctypes import byref, c_int32, c_size_t
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Union

from . import _native, _release
from ._arguments import call_and_report
from ._native import c_void_p, check, lib
from .buffer import Buffer
from .errors import PlinthError

__all__ = ["DmaBuf", "MemoryPart", "MemoryRegistration", "uses"]

_USES = {
    "ipc": _native.PLINTH_MEMORY_USE_IPC,
    "ipc_handle": _native.PLINTH_MEMORY_USE_IPC_HANDLE,
    "fabric": _native.PLINTH_MEMORY_USE_FABRIC,
    "dma_buf": _native.PLINTH_MEMORY_USE_DMA_BUF,
    "gpu_direct_rdma": _native.PLINTH_MEMORY_USE_GPU_DIRECT_RDMA,
    "nccl": _native.PLINTH_MEMORY_USE_NCCL,
    "nccl_window": _native.PLINTH_MEMORY_USE_NCCL_WINDOW,
}


class DmaBuf(NamedTuple):
    """A DMA-BUF that contains registered memory."""

    descriptor: int
    """The file descriptor, which the caller closes."""
    offset: int
    """The offset of the first registered byte, in bytes."""
    size: int
    """The size of the DMA-BUF in bytes."""


class MemoryPart(NamedTuple):
    """A physical allocation under registered memory."""

    pointer: int
    """The address at which it is mapped, which may be before the first registered one."""
    size: int
    """Its size in bytes."""
    handle: Union[int, bytes]
    """A file descriptor, which the caller closes, or the 64 bytes of a fabric handle."""


def _address(memory: Any) -> int:
    return int(memory.ptr) if isinstance(memory, Buffer) else operator.index(memory)


def uses(memory: Union[Buffer, int]) -> Dict[str, Optional[str]]:
    """Returns for each use the reason why memory cannot be put to it; None if it can.

    `memory` is a buffer, or an address in memory of the caching allocator. The uses are "ipc", "ipc_handle" (CUDA's
    handles of 64 bytes), "fabric", "dma_buf", "gpu_direct_rdma" (by the address), "nccl" (ncclCommRegister) and
    "nccl_window" (ncclCommWindowRegister). Raises InvalidArgumentError, a ValueError, for other memory.
    """
    found = _native.plinth_memory_uses_t.init()
    check(lib.plinth_memory_uses(_address(memory), byref(found)))
    return {name: text and text.decode() for name, text in ((name, found.reasons[use]) for name, use in _USES.items())}


class MemoryRegistration(_release.Unpicklable):
    """Keeps memory in its physical place until `end`, the end of its context, or its collection.

    `memory` is a buffer, all of which is registered, or an address; then `size` is the number of bytes, which lie in one
    block. `name` is for messages. `release` is called, from any thread, before the memory is put to sleep with
    `release_registrations`: it ends the use of the memory by others. Without it such a sleep fails. Raises
    InvalidArgumentError, a ValueError, for memory that is not allocated, and PlinthError for memory that sleeps.
    """

    def __init__(
        self,
        memory: Union[Buffer, int],
        size: Optional[int] = None,
        name: str = "",
        release: Optional[Callable[[], object]] = None,
    ) -> None:
        if size is None:
            if not isinstance(memory, Buffer):
                raise TypeError("the size is missing, which an address does not have")
            size = memory.nbytes

        def call(_: Any) -> None:
            if release is not None:
                call_and_report(release)

        self._callback = _native.plinth_memory_release_callback_t(call)
        options = _native.plinth_memory_registration_options_t.init()
        options.name = name.encode()
        if release is not None:
            options.release = self._callback
        handle = c_void_p()
        check(lib.plinth_memory_registration_create(_address(memory), size, byref(options), byref(handle)))
        self._handle = handle
        self._finalizer = weakref.finalize(self, _release.release, _destroy, handle, self._callback)
        # C code may put memory to sleep after the interpreter has ended, when it must not call the callback.
        self._finalizer.atexit = release is not None

    def end(self) -> None:
        """Ends the registration, after the others have ended their use of the memory. A second call does nothing."""
        self._finalizer()

    def __enter__(self) -> "MemoryRegistration":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _info(self) -> Any:
        info = _native.plinth_memory_registration_info_t.init()
        check(lib.plinth_memory_registration_info(self._handle, byref(info)))
        return info

    @property
    def is_released(self) -> bool:
        """Whether the registration was ended because the memory was put to sleep."""
        return bool(self._info().is_released)

    def dma_buf(self) -> DmaBuf:
        """Exports the memory as one DMA-BUF. Raises NotSupportedError, with the reason, if that is impossible."""
        descriptor, offset, size = c_int32(), c_size_t(), c_size_t()
        check(lib.plinth_memory_registration_dma_buf(self._handle, byref(descriptor), byref(offset), byref(size)))
        return DmaBuf(descriptor.value, offset.value, size.value)

    def parts(self, fabric: bool = False) -> List[MemoryPart]:
        """Exports the physical allocations under the memory, by file descriptors or by fabric handles, for
        cuMemImportFromShareableHandle. Raises NotSupportedError, with the reason, if that is impossible."""
        kind = _native.PLINTH_MEMORY_HANDLE_FABRIC if fabric else _native.PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR
        found: List[MemoryPart] = []
        try:
            for index in range(self._info().parts):
                part = _native.plinth_memory_part_t.init()
                check(lib.plinth_memory_registration_part(self._handle, index, kind, byref(part)))
                handle = bytes(part.fabric) if fabric else part.descriptor
                found.append(MemoryPart(part.pointer or 0, part.size, handle))
        except PlinthError:
            for made in found:
                if isinstance(made.handle, int):
                    os.close(made.handle)
            raise
        return found


def _destroy(handle: Any, _callback: Any) -> int:
    return int(lib.plinth_memory_registration_destroy(handle))
