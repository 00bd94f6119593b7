"""Tests kernels and green contexts. On the host device kernels need a C++ compiler."""

import array
import copy
import ctypes
import numbers
import pickle
import struct
import unittest

import support
import plinth
from plinth import _native, kernel


@numbers.Number.register
class Number(array.array):
    """A number of another library, which has the buffer protocol as those of numpy."""


class Kernels(unittest.TestCase):
    def compile(self, *arguments, **options):
        try:
            return plinth._compile_kernel(*arguments, **options)
        except plinth.errors.UnavailableError as error:
            self.skipTest(str(error))

    def test_launch(self):
        source = """
            template <typename T> __global__ void scale(T *data, T by, int count) {
              const int at = blockIdx.x * blockDim.x + threadIdx.x;
              if (at < count) data[at] *= by;
            }
        """
        scale = self.compile(source, "scale<float>", nvcc_options=["-DUNUSED=1"])
        buffer = plinth.zeros(1000, "float32")
        buffer.fill_(struct.pack("f", 2))
        scale((8, 1, 1), (128, 1, 1), (buffer, Number("f", [3.0]), 999))
        values = memoryview(buffer.tobytes()).cast("f")
        self.assertEqual(set(values[:999]), {6.0})
        self.assertEqual(values[999], 2.0)
        with self.assertRaises(ValueError):
            scale((1, 1, 1), (1, 1, 1), (buffer,))
        for options in ({"grid": (2**32 + 1, 1, 1)}, {"grid": (0, 1, 1)}, {"block": (1, 2**32 + 1, 1)},
                        {"shared_mem": 2**32}, {"args": (buffer, Number("d", [3.0]), 1)}):
            with self.assertRaises(ValueError):
                scale(**{"args": (buffer, 3.0, 1), **options})
        with self.assertRaisesRegex(ValueError, "the grid .8, 1. does not have three extents"):
            scale((8, 1), args=(buffer, 3.0, 1))
        self.assertEqual(memoryview(buffer.tobytes()).cast("f")[0], 6.0)
        with self.assertRaises(ctypes.ArgumentError):
            scale.set_shared_memory_config(2**32)

    def test_pinned_memory(self):
        add = self.compile("__global__ void add(int *to) { *to += 1; }", "add")
        pinned = plinth.empty_pinned(2, "int32")
        pinned[1] = 5
        add(args=(pinned[1:],))
        plinth.synchronize()
        self.assertEqual(pinned[1], 6)
        with self.assertRaises(ValueError):
            add(args=(bytearray(4),))

    @support.host_device
    def test_errors(self):
        self.compile("__global__ void f() {}", "f")
        with self.assertRaises(plinth.errors.CompilationError) as raised:
            plinth._compile_kernel("__global__ void f() { nothing; }", "f")
        self.assertIn("kernel.cu:1", str(raised.exception))
        with self.assertRaises(ValueError):
            plinth._compile_kernel("__global__ void f() {}", "f", nvcc_options=["--no-such-option"])

    @support.host_device
    def test_assertion(self):
        code = """
            import plinth
            stream = plinth.Stream(dedicated=True)
            fail = plinth.compile_kernel("#include <cassert>\\n__global__ void f() { assert(false); }", "f")
            fail()
            try:
                plinth.synchronize()
            except plinth.errors.DeviceLostError as error:
                print(error.driver_code)
            del stream  # No message of a destruction that is impossible.
        """
        self.compile("__global__ void f() {}", "f")
        self.assertEqual(support.run_python(code), (0, "710\n"))

    def test_a_kernel_is_not_copied(self):
        made = self.compile("__global__ void f() {}", "f")
        for duplicate in copy.copy, pickle.dumps:
            with self.assertRaises(TypeError):
                duplicate(made)

    def test_arguments(self):
        buffer = plinth.zeros(4, "float32")
        raw = (_native.plinth_kernel_argument_t * 6)()
        items = [buffer, 3, 2.5, True, ctypes.c_int64(1 << 40), DLDevice(2, 1)]
        keep = [kernel._argument(raw[i], item, None) for i, item in enumerate(items)]
        self.assertEqual([argument.kind for argument in raw], [
            _native.PLINTH_ARGUMENT_TENSOR, _native.PLINTH_ARGUMENT_INT32, _native.PLINTH_ARGUMENT_FLOAT32,
            _native.PLINTH_ARGUMENT_BOOL, _native.PLINTH_ARGUMENT_INT64, _native.PLINTH_ARGUMENT_BYTES])
        self.assertEqual(_native.DLTensor.from_address(raw[0].value).data, buffer.ptr)
        self.assertEqual(ctypes.c_int32.from_address(raw[1].value).value, 3)
        self.assertEqual(ctypes.c_int64.from_address(raw[4].value).value, 1 << 40)
        self.assertEqual((raw[5].bytes, raw[4].bytes), (8, 0))
        number = Number("q", [1 << 40])
        keep.append(kernel._argument(raw[4], number, None))
        self.assertEqual((raw[4].kind, raw[4].bytes, ctypes.c_int64.from_address(raw[4].value).value),
                         (_native.PLINTH_ARGUMENT_BYTES, 8, 1 << 40))
        with self.assertRaises(OverflowError):
            kernel._argument(raw[0], 1 << 31, None)
        with self.assertRaises(TypeError):
            kernel._argument(raw[0], 1j, None)
        with self.assertRaises(TypeError):
            kernel._argument(raw[0], "text", None)
        self.assertEqual(len(keep), 7)

    def test_symbols(self):
        source = "__constant__ float by[2]; __global__ void scale(float *at) { *at *= by[1]; }"
        scale = self.compile(source, "scale")
        address, size = scale.symbol("by")
        self.assertEqual(size, 8)
        values = (ctypes.c_float * 2)(2, 3)
        _native.check(_native.lib.plinth_copy(address, ctypes.addressof(values), size, False))
        buffer = plinth.zeros(1, "float32")
        buffer.fill_(struct.pack("f", 5))
        scale(args=(buffer,))
        self.assertEqual(memoryview(buffer.tobytes()).cast("f")[0], 15)
        with self.assertRaises(ValueError):
            scale.symbol("nothing")

    def test_host_kernels(self):
        # Inline PTX: only a GPU's compiler knows it.
        source = """extern "C" __global__ void add(int *to, int by) {
            asm("add.s32 %0, %1, %2;" : "=r"(*to) : "r"(*to), "r"(by)); }"""
        launches = []

        def add(launch, to, by):
            if by < 0:
                raise ValueError("negative")
            launches.append(tuple(launch.grid))
            ctypes.c_int32.from_address(to).value += by

        kernel.register_host_kernel("add", [ctypes.c_void_p, ctypes.c_int32], add)
        run = self.compile(source, "add")
        kernel.register_host_kernel("add", [], None)
        buffer = plinth.zeros(1, "int32")
        run(args=(buffer, 5))
        self.assertEqual(memoryview(buffer.tobytes()).cast("i")[0], 5)
        self.assertEqual(launches, [(1, 1, 1)] if plinth.device_kind() == "host" else [])
        with self.assertRaises(ValueError):
            kernel.register_host_kernel("plinth_add", [], add)

    @support.host_device
    def test_exit_waits_for_host_kernels(self):
        code = """
            import time, plinth
            from plinth import kernel
            kernel.register_host_kernel("f", [], lambda launch: time.sleep(0.01))
            run = plinth.compile_kernel('extern "C" __global__ void f() {}', "f")
            for _ in range(50):
                run()
            print("end")
        """
        self.compile("__global__ void f() {}", "f")
        self.assertEqual(support.run_python(code), (0, "end\n"))
        code = code.replace("time.sleep(0.01)", "None").replace('print("end")', """
            import threading
            def launch():
                while True:
                    run()
            threading.Thread(target=launch, daemon=True).start()
            time.sleep(0.1)
        """)
        self.assertEqual(support.run_python(code)[0], 0)

    def test_green_contexts(self):
        with self.assertRaises(TypeError):
            plinth.GreenContext()
        try:
            context = plinth.GreenContext.create(8)
        except plinth.errors.NotSupportedError:
            self.skipTest("the device has no green contexts")
        self.assertGreaterEqual(context.sm_count, 8)
        stream = context.Stream()
        buffer = plinth.empty(16, stream=stream).fill_(3, stream)
        stream.synchronize()
        self.assertEqual(buffer.tobytes(), b"\3" * 16)
        context.set_context()
        context.pop_context()

    def test_green_contexts_that_do_not_overlap(self):
        whole = plinth.get_device_properties().multi_processor_count
        try:
            parts = plinth.GreenContext.split(num_sms=(16, 16), remainder=True)
        except plinth.errors.NotSupportedError:
            self.skipTest("the device has no green contexts")
        self.assertEqual(sum(part.sm_count for part in parts), whole)
        self.assertEqual(len(plinth.GreenContext.split(num_sms=16)), 1)
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            plinth.GreenContext.split(num_sms=())
        with self.assertRaisesRegex(plinth.errors.NotSupportedError, "different sizes"):
            plinth.GreenContext.split(num_sms=(16, 32))

    @support.host_device
    def test_green_context_lives_while_it_is_set(self):
        code = """
            import threading, plinth
            def use():
                plinth.GreenContext.create(8).set_context()
                print(plinth.current_stream() == plinth.default_stream())
            use()
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
        """
        self.assertEqual(support.run_python(code), (0, "False\nFalse\n"))

    @support.host_device
    def test_libraries(self):
        with self.assertRaises(plinth.PlinthError):
            plinth.current_blas_handle()


DLDevice = _native.DLDevice

if __name__ == "__main__":
    unittest.main()
