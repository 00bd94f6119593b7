"""RMM on plinth's memory: `plinth.rmm.enable()`, for cuDF, cuML and other users of RMM in Python."""

import ctypes

from . import _native, errors

__all__ = ["enable"]


def _stream_of(stream):
    """Returns the cudaStream_t of a stream as RMM passes it."""
    if hasattr(stream, "__cuda_stream__"):
        return stream.__cuda_stream__()[1] or None
    return stream.value() or None


def _size_and_stream(first, second):
    """RMM 26.10 passes the size and then the stream; later versions the stream and then the size."""
    return (first, second) if isinstance(first, int) else (second, first)


def _resource(rmm, device):
    """Returns a memory resource of a device."""
    lib = _native.lib

    def allocate(first, second, *alignment):
        size, stream = _size_and_stream(first, second)
        pointer = lib.plinth_alloc(size, device, _stream_of(stream))
        if size and not pointer:
            message = (lib.plinth_last_error() or b"").decode(errors="replace")
            if message.startswith("out of memory"):
                raise errors.OutOfMemoryError(message, _native.PLINTH_ERROR_OUT_OF_MEMORY, "PLINTH_ERROR_OUT_OF_MEMORY")
            raise errors.PlinthError(f"allocating {size} bytes for RMM: {message}")
        return pointer or 0

    def deallocate(*arguments):
        # (pointer, size, stream), in later versions (stream, pointer, size, alignment).
        pointer = arguments[0] if isinstance(arguments[0], int) else arguments[1]
        lib.plinth_caching_allocator_delete(pointer or None)

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


def enable() -> None:
    """Makes plinth the memory resource of every device in RMM, from now on. Memory that exists stays where it is.

    Memory is allocated for the stream that RMM passes. RMM asks for an alignment of 256 bytes; plinth has 512. A
    request that does not fit raises plinth.OutOfMemoryError, which is a MemoryError. Each allocation calls Python; a
    C++ program should use plinth_rmm_allocate, which does not.
    """
    import rmm

    count = ctypes.c_int32()
    _native.check(_native.lib.plinth_device_count(ctypes.byref(count)))
    for device in range(count.value):
        rmm.mr.set_per_device_resource(device, _resource(rmm, device))
