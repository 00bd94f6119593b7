"""CuPy on plinth's memory: `plinth.cupy.enable()`."""

from typing import Any

from . import _native, errors

__all__ = ["disable", "enable", "record_stream"]

_kept = None  # CuPy holds only the addresses of the functions


def _failure(size):
    """Returns the exception for a request that returned NULL: CuPy's own if memory ran out."""
    import ctypes

    import cupy

    message = (_native.lib.plinth_last_error() or b"").decode(errors="replace")
    if not message.startswith("out of memory"):
        return errors.PlinthError(f"allocating {size} bytes for CuPy: {message}")
    reserved = ctypes.c_size_t()
    _native.lib.plinth_memory_reserved(-1, ctypes.byref(reserved))
    failure = cupy.cuda.memory.OutOfMemoryError(size, reserved.value)
    failure.__cause__ = errors.OutOfMemoryError(message, _native.PLINTH_ERROR_OUT_OF_MEMORY, "PLINTH_ERROR_OUT_OF_MEMORY")
    return failure


def _python_functions(cupy):
    lib = _native.lib

    def allocate(size, device):
        pointer = lib.plinth_alloc(size, device, cupy.cuda.get_current_stream().ptr or None)
        if size and not pointer:
            raise _failure(size)
        return pointer or 0

    def free(pointer, device):
        # The block's stream is known by its address.
        lib.plinth_caching_allocator_delete(pointer)

    return cupy.cuda.memory.PythonFunctionAllocator(allocate, free)


def _c_functions(cupy):
    import ctypes

    address = [ctypes.cast(getattr(_native.lib, name), ctypes.c_void_p).value
               for name in ("plinth_cupy_malloc", "plinth_cupy_free")]
    return cupy.cuda.memory.CFunctionAllocator(0, *address, _native.lib)


def enable(*, current_stream: bool = True) -> None:
    """Makes plinth the allocator of CuPy's arrays in this process, from now on. Arrays that exist stay where they are.

    With current_stream=True memory is allocated for CuPy's current stream, at the cost of a call through Python. With
    False, CuPy calls C functions, which know no stream: memory is for plinth's current stream of the thread and device,
    so the program must use CuPy's default stream only, or call plinth.set_stream at each change.

    Call record_stream for every other stream that uses an array, and keep the stream objects: CuPy destroys a
    stream with its object, while plinth caches memory for it.

    A request that does not fit raises cupy.cuda.memory.OutOfMemoryError, caused by plinth's OutOfMemoryError, which has
    the reasons; with current_stream=False CuPy does not check the result. cupy.get_default_memory_pool() is then unused.
    """
    global _kept
    import cupy

    _kept = (_python_functions if current_stream else _c_functions)(cupy)
    cupy.cuda.set_allocator(_kept.malloc)


def record_stream(array: Any, stream: Any) -> None:
    """Keeps an array's memory from being reused, once it is freed, before the present work of a CuPy stream is done.

    Call it for every stream that uses an array besides the one that was current when the array was made. Raises
    PlinthError if the array's memory is not plinth's.
    """
    _native.lib.plinth_pluggable_record_stream(array.data.mem.ptr, stream.ptr or None)
    message = _native.lib.plinth_last_error()
    if message:
        raise errors.PlinthError(message.decode(errors="replace"))


def disable() -> None:
    """Gives CuPy its own memory pool back. Arrays in plinth's memory stay valid."""
    import cupy

    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
