"""Tests what can be seen of kernels and green contexts without a GPU: arguments, and errors on the host device."""

import ctypes
import unittest

import support
import plinth
from plinth import _native, kernel


class Kernels(unittest.TestCase):
    @support.host_device
    def test_host_device(self):
        with self.assertRaises(plinth.errors.NotSupportedError):
            plinth._compile_kernel("__global__ void f() {}", "f", nvcc_options=["-O3"])

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
        with self.assertRaises(OverflowError):
            kernel._argument(raw[0], 1 << 31, None)
        with self.assertRaises(TypeError):
            kernel._argument(raw[0], "text", None)
        self.assertEqual(len(keep), 6)

    def test_green_contexts(self):
        with self.assertRaises(TypeError):
            plinth.GreenContext()
        try:
            context = plinth.GreenContext.create(8)
        except plinth.errors.NotSupportedError:
            self.skipTest("the device has no green contexts")
        self.assertGreaterEqual(context.num_sms, 8)
        stream = context.Stream()
        buffer = plinth.zeros(16).fill_(3, stream)
        stream.synchronize()
        self.assertEqual(buffer.tobytes(), b"\3" * 16)
        context.set_context()
        context.pop_context()

    @support.host_device
    def test_libraries(self):
        with self.assertRaises(plinth.PlinthError):
            plinth.current_blas_handle()


DLDevice = _native.DLDevice

if __name__ == "__main__":
    unittest.main()
