"""Kernels from CUDA C++ source: torch.cuda._compile_kernel."""

from __future__ import annotations

import atexit
import ctypes
import numbers
import os
import time
import traceback
import weakref
from ctypes import byref, c_char_p
from typing import Any, Callable, List, Optional, Sequence, Tuple

from . import _native, tensor
from ._arguments import DeviceLike, StreamLike, device_index, integer_argument, stream_handle
from ._native import c_void_p, check, lib
from ._release import Unpicklable, begin_exit, call_in_driver_thread, check_exit, release
from .device import device_count, device_kind

_SCALARS = {
    ctypes.c_bool: _native.PLINTH_ARGUMENT_BOOL,
    ctypes.c_int32: _native.PLINTH_ARGUMENT_INT32,
    ctypes.c_uint32: _native.PLINTH_ARGUMENT_INT32,
    ctypes.c_int64: _native.PLINTH_ARGUMENT_INT64,
    ctypes.c_uint64: _native.PLINTH_ARGUMENT_INT64,
    ctypes.c_float: _native.PLINTH_ARGUMENT_FLOAT32,
    ctypes.c_double: _native.PLINTH_ARGUMENT_FLOAT64,
    ctypes.c_void_p: _native.PLINTH_ARGUMENT_POINTER,
}


class Kernel(Unpicklable):
    """A kernel of a device. Make it with compile_kernel. It is unloaded when the object is collected."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        weakref.finalize(self, release, lib.plinth_kernel_destroy, handle).atexit = False

    def __call__(
        self,
        grid: Tuple[int, int, int] = (1, 1, 1),
        block: Tuple[int, int, int] = (1, 1, 1),
        args: Optional[Sequence[Any]] = None,
        shared_mem: int = 0,
        stream: StreamLike = None,
    ) -> None:
        """Launches the kernel in a stream, by default the current one, asynchronously.

        An argument is a tensor on the device or in pinned memory (its address is passed), a ctypes value, an int (a C
        int), a float (a C float), a bool, or a number of another library, such as numpy.int64. `shared_mem` is in bytes.
        Tensors must live until the work is done. Raises ValueError for extents that are not three or below 1 and
        (InvalidArgumentError) for arguments that do not match the kernel's parameters, and TypeError for other objects.
        """
        args = () if args is None else args
        raw = (_native.plinth_kernel_argument_t * max(len(args), 1))()
        keep = [_argument(raw[i], item, stream) for i, item in enumerate(args)]
        launch = _native.plinth_kernel_launch_t.init()
        launch.grid[:] = _extents(grid, "grid")
        launch.block[:] = _extents(block, "block")
        launch.shared_bytes = integer_argument(shared_mem, "shared_mem", 0, 2**32)
        _launches.append(self)
        try:
            if _host_kernels:
                check_exit("launching a kernel")
            check(lib.plinth_kernel_launch(self._handle, byref(launch), raw, len(args), stream_handle(stream)))
        finally:
            _launches.pop()
        del keep

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Sets the limit of dynamic shared memory in bytes."""
        check(lib.plinth_kernel_set_shared_memory_config(self._handle, shared_mem_bytes))

    def symbol(self, name: str) -> Tuple[int, int]:
        """Returns the address in device memory and the size in bytes of a variable of the kernel's module, `__constant__` or
        `__device__`, by its name in the image. Raises ValueError (InvalidArgumentError) if there is none.
        """
        address, size = c_void_p(), ctypes.c_size_t()
        check(lib.plinth_kernel_symbol(self._handle, name.encode(), byref(address), byref(size)))
        return address.value or 0, size.value


def _extents(extents: Sequence[int], what: str) -> List[int]:
    if len(extents) != 3:
        raise ValueError(f"the {what} {extents} does not have three extents")
    return [integer_argument(extent, f"an extent of the {what},", 1, 2**32) for extent in extents]


def _argument(raw: Any, item: Any, stream: StreamLike) -> Any:
    """Describes an argument, and returns what must live during the launch."""
    raw.struct_size = ctypes.sizeof(raw)
    if isinstance(item, bool):
        item = ctypes.c_bool(item)
    elif isinstance(item, int):
        if not -(2**31) <= item < 2**31:
            raise OverflowError(f"{item} does not fit in a C int; pass ctypes.c_int64({item})")
        item = ctypes.c_int32(item)
    elif isinstance(item, float):
        item = ctypes.c_float(item)
    if isinstance(item, (ctypes._SimpleCData, ctypes.Structure)):
        raw.kind = _SCALARS.get(type(item), _native.PLINTH_ARGUMENT_BYTES)
        raw.bytes = ctypes.sizeof(item) if raw.kind == _native.PLINTH_ARGUMENT_BYTES else 0
        raw.value = ctypes.addressof(item)
        return item
    view = tensor.view(item, stream=stream)
    if isinstance(item, numbers.Number):
        raw.kind, raw.bytes, raw.value = _native.PLINTH_ARGUMENT_BYTES, view.nbytes, view.pointer
        return view
    if view.dl.device.device_type == tensor.CPU and _is_pinned(view.pointer):
        pinned = tensor.describe(view.pointer, (tensor.CUDA_HOST, 0), view.dtype, view.shape, view.strides)
        view = tensor.TensorView(pinned, view.read_only, view)
    raw.kind = _native.PLINTH_ARGUMENT_TENSOR
    raw.value = ctypes.addressof(view.dl)
    return view


def _is_pinned(pointer: int) -> bool:
    attributes = _native.plinth_pointer_attributes_t.init()
    check(lib.plinth_pointer_attributes(pointer, byref(attributes)))
    return bool(attributes.kind == _native.PLINTH_MEMORY_HOST)


def _texts(items: Optional[Sequence[str]]) -> Any:
    """Converts texts to a list that ends with NULL."""
    return None if items is None else (c_char_p * (len(items) + 1))(*(item.encode() for item in items), None)


def compile_kernel(
    kernel_source: str,
    kernel_name: str,
    compute_capability: Optional[str] = None,
    cuda_include_dirs: Optional[List[str]] = None,
    nvcc_options: Optional[List[str]] = None,
    device: DeviceLike = None,
) -> Kernel:
    """Compiles a kernel of CUDA C++ source, and loads it on a device.

    NVRTC compiles for a GPU, the machine's C++ compiler for the host device. The parameters are those of
    torch.cuda._compile_kernel. Raises CompilationError with the compiler's log, UnavailableError without a compiler, and
    ValueError (InvalidArgumentError) for an option that names an architecture, or that the host device does not know.
    """
    kernel = c_void_p()
    check(
        lib.plinth_compile_kernel(
            kernel_source.encode(),
            kernel_name.encode(),
            None if compute_capability is None else compute_capability.encode(),
            _texts(cuda_include_dirs),
            _texts(nvcc_options),
            device_index(device),
            byref(kernel),
        )
    )
    return Kernel(kernel.value or 0)


def register_host_kernel(name: str, parameters: Sequence[Any], function: Optional[Callable[..., object]]) -> None:
    """Gives a kernel a function that runs on the host device in its place, when it is compiled or found from now on.

    For kernels that the machine's compiler cannot compile. `parameters` are the ctypes types of the kernel's parameters.
    A thread of the library calls `function(launch, *values)` for all blocks of a launch; `launch` has grid, block,
    shared_bytes and device, and pointers are addresses of memory that ctypes can use. The function must not call CUDA. A
    launch fails if it raises an exception, which is printed. None removes the function. On a GPU the call has no effect.
    """
    if function is None:
        check(lib.plinth_host_kernel_register(name.encode(), None, 0, _native.plinth_host_kernel_callback_t(), None))
        return

    def run(launch: Any, _context: Any) -> int:
        status = -1

        def call() -> None:
            nonlocal status
            described = launch.contents
            try:
                function(described, *(_value(kind, described.parameters[i]) for i, kind in enumerate(parameters)))
                status = 0
            except BaseException:
                traceback.print_exc()

        call_in_driver_thread(call)
        return status

    callback = _native.plinth_host_kernel_callback_t(run)
    # A kernel that was found with the function may be launched as long as the process lives.
    _host_kernels.append(callback)
    sizes = (ctypes.c_size_t * max(len(parameters), 1))(*(ctypes.sizeof(kind) for kind in parameters))
    check(lib.plinth_host_kernel_register(name.encode(), sizes, len(parameters), callback, None))


_host_kernels: List[Any] = []
_launches: List[Kernel] = []  # an entry for each launch that is being made
os.register_at_fork(after_in_child=_launches.clear)


@atexit.register
def _finish_host_kernels() -> None:
    """Waits at exit until no thread of the host device will call Python any more."""
    begin_exit()
    while _host_kernels and _launches:
        time.sleep(0.001)
    if _host_kernels and lib.plinth_is_initialized() and device_kind() == "host":
        lib.plinth_set_sync_debug_mode(_native.PLINTH_SYNC_DEBUG_DEFAULT)
        for device in range(device_count()):
            lib.plinth_synchronize(device)


def _value(kind: Any, address: int) -> Any:
    """Returns a copy of a parameter: a number for a simple type, else the structure."""
    copied = kind.from_buffer_copy(ctypes.string_at(address, ctypes.sizeof(kind)))
    return copied.value if isinstance(copied, ctypes._SimpleCData) else copied


_compile_kernel = compile_kernel
