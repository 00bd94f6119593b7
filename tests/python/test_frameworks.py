"""Tests of plinth.cupy and plinth.rmm. Stand-ins call plinth's functions as CuPy and RMM do, on the host device."""

import sys
import types
import unittest
from unittest import mock

import ctypes

from plinth import _native, errors

GIB = 1 << 30


def allocated(device=0):
    value = ctypes.c_size_t()
    _native.check(_native.lib.plinth_memory_allocated(device, ctypes.byref(value)))
    return value.value


class Stream:
    """A stream as CuPy and RMM have it."""

    def __init__(self, handle):
        self.ptr = handle or 0

    def __cuda_stream__(self):
        return (0, self.ptr)


def make_cupy(stream):
    """A module with the parts of CuPy that plinth.cupy uses."""
    cupy = types.ModuleType("cupy")
    cupy.cuda = types.SimpleNamespace(memory=types.SimpleNamespace(), get_current_stream=lambda: stream)

    class OutOfMemoryError(MemoryError):
        def __init__(self, size, total, limit=0):
            super().__init__(f"Out of memory allocating {size} bytes (allocated so far: {total} bytes).")

    class PythonFunctionAllocator:
        def __init__(self, malloc, free):
            self.functions = malloc, free

        def malloc(self, size):
            pointer = self.functions[0](size, 0)
            return pointer, lambda: self.functions[1](pointer, 0)

    class CFunctionAllocator:
        def __init__(self, parameter, malloc, free, owner):
            self.owner, self.parameter = owner, parameter
            self.functions = (ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(malloc),
                              ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(free))

        def malloc(self, size):
            pointer = self.functions[0](self.parameter, size, 0)
            return pointer, lambda: self.functions[1](self.parameter, pointer, 0)

    cupy.cuda.memory.OutOfMemoryError = OutOfMemoryError
    cupy.cuda.memory.PythonFunctionAllocator = PythonFunctionAllocator
    cupy.cuda.memory.CFunctionAllocator = CFunctionAllocator
    cupy.cuda.set_allocator = lambda function: setattr(cupy, "allocator", function)
    cupy.get_default_memory_pool = lambda: types.SimpleNamespace(malloc="pool")
    return cupy


class Cupy(unittest.TestCase):
    def test_allocates_and_frees(self):
        import plinth.cupy

        stream = ctypes.c_void_p()
        _native.check(_native.lib.plinth_stream_create(0, 0, ctypes.byref(stream)))
        for current in (True, False):
            cupy = make_cupy(Stream(stream.value))
            with mock.patch.dict(sys.modules, cupy=cupy):
                plinth.cupy.enable(current_stream=current)
                before = allocated()
                pointer, free = cupy.allocator(1000)
                self.assertEqual(allocated(), before + 1024)
                stats = _native.plinth_memory_stats_t(struct_size=ctypes.sizeof(_native.plinth_memory_stats_t))
                _native.check(_native.lib.plinth_stream_memory_stats(stream, ctypes.byref(stats)))
                self.assertEqual(stats.allocation.all.current, 1 if current else 0)
                free()
                self.assertEqual(allocated(), before)
                plinth.cupy.disable()
                self.assertEqual(cupy.allocator, "pool")

    def test_record_stream(self):
        import plinth.cupy

        other = ctypes.c_void_p()
        _native.check(_native.lib.plinth_stream_create(0, 0, ctypes.byref(other)))
        cupy = make_cupy(Stream(0))
        with mock.patch.dict(sys.modules, cupy=cupy):
            plinth.cupy.enable()
            pointer, free = cupy.allocator(3 << 20)
            array = types.SimpleNamespace(data=types.SimpleNamespace(mem=types.SimpleNamespace(ptr=pointer)))
            _native.check(_native.lib.plinth_sleep(400_000_000, other))
            plinth.cupy.record_stream(array, Stream(other.value))
            free()
            again, free_again = cupy.allocator(3 << 20)
            self.assertNotEqual(again, pointer)
            free_again()
            _native.check(_native.lib.plinth_synchronize(0))
            array.data.mem.ptr = ctypes.addressof(other)
            with self.assertRaises(errors.PlinthError):
                plinth.cupy.record_stream(array, Stream(other.value))

    def test_out_of_memory(self):
        import plinth.cupy

        cupy = make_cupy(Stream(0))
        with mock.patch.dict(sys.modules, cupy=cupy):
            plinth.cupy.enable()
            with self.assertRaises(cupy.cuda.memory.OutOfMemoryError) as raised:
                cupy.allocator(10_000 * GIB)
            self.assertIsInstance(raised.exception.__cause__, errors.OutOfMemoryError)
            self.assertIn("out of memory: tried to allocate", str(raised.exception.__cause__))


class Rmm(unittest.TestCase):
    def enable(self):
        import plinth.rmm

        rmm = types.ModuleType("rmm")
        resources = {}
        rmm.mr = types.SimpleNamespace(CallbackMemoryResource=lambda allocate, free: (allocate, free),
                                       set_per_device_resource=resources.__setitem__)
        with mock.patch.dict(sys.modules, rmm=rmm):
            plinth.rmm.enable()
        return resources

    def test_every_device(self):
        resources = self.enable()
        count = ctypes.c_int32()
        _native.check(_native.lib.plinth_device_count(ctypes.byref(count)))
        self.assertEqual(sorted(resources), list(range(count.value)))
        for device, (allocate, free) in resources.items():
            before = allocated(device)
            pointer = allocate(1000, Stream(0))
            self.assertEqual(allocated(device), before + 1024)
            free(pointer, 1000, Stream(0))
            # The order of later versions.
            pointer = allocate(Stream(0), 1000, 256)
            self.assertEqual(allocated(device), before + 1024)
            free(Stream(0), pointer, 1000, 256)
            self.assertEqual(allocated(device), before)

    def test_nothing_and_too_much(self):
        allocate, free = self.enable()[0]
        free(allocate(0, Stream(0)), 0, Stream(0))
        with self.assertRaises(MemoryError) as raised:
            allocate(10_000 * GIB, Stream(0))
        self.assertIn("out of memory", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
