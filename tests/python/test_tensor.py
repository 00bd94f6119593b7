"""Tests views of other libraries' tensors: DLPack, __cuda_array_interface__, the buffer protocol, and their streams."""

import array
import ctypes
import time
import unittest

import support
import plinth
from plinth import _dlpack, tensor

try:
    import numpy
except ImportError:
    numpy = None


class Views(unittest.TestCase):
    def setUp(self):
        self.buffer = plinth.to_device(array.array("f", [1, 2, 3, 4]), support.LAST)

    def test_buffer_protocol(self):
        data = bytearray(b"abcdef")
        with tensor.view(data, writable=True) as view:
            self.assertEqual((view.dtype, view.shape, view.strides, view.device, view.nbytes),
                             ("uint8", (6,), (1,), -1, 6))
            self.assertEqual(ctypes.string_at(view.pointer, 6), b"abcdef")
            with self.assertRaises(BufferError):
                data.append(1)  # The view holds the memory.
        data.append(1)
        with tensor.view(memoryview(array.array("d", range(6)))[::-2]) as view:
            self.assertEqual((view.dtype, view.shape, view.strides, view.is_contiguous),
                             ("float64", (3,), (-2,), False))
        with tensor.view(b"x") as view:
            self.assertTrue(view.read_only)
        with self.assertRaisesRegex(BufferError, "read-only"):
            tensor.view(b"x", writable=True)
        with self.assertRaises(TypeError):
            tensor.view(memoryview((ctypes.c_char_p * 2)()))
        for obj in (None, 3, "text", [1]):
            with self.assertRaises(TypeError):
                tensor.view(obj)

    def test_dlpack(self):
        for versioned in (False, True):
            producer = support.DLPackTensor(self.buffer, versioned)
            with tensor.view(producer, writable=True) as view:
                self.assertEqual((view.device, view.pointer, view.dtype, view.shape),
                                 (support.LAST, self.buffer.ptr, "float32", (4,)))
                self.assertFalse(_dlpack.collect())
            self.assertTrue(_dlpack.collect())  # The deleter was called, or the capsule dropped.
            self.assertEqual(producer.streams, [1])

    def test_dlpack_gets_the_stream_of_the_work(self):
        producer, side = support.DLPackTensor(self.buffer), plinth.Stream(support.LAST)
        tensor.view(producer, stream=side).close()
        with plinth.stream(side):
            tensor.view(producer).close()
        tensor.view(producer, stream=plinth.default_stream(support.LAST)).close()
        tensor.view(producer, stream=0).close()
        self.assertEqual(producer.streams, [side.cuda_stream, side.cuda_stream, 1, 1])

    def test_read_only_dlpack(self):
        producer = support.DLPackTensor(self.buffer, True, tensor.READ_ONLY)
        tensor.view(producer).close()
        with self.assertRaisesRegex(BufferError, "read-only"):
            tensor.view(producer, writable=True)
        with self.assertRaisesRegex(BufferError, "read-only"):
            plinth.random.uniform_(producer)

    def test_consumed_capsule(self):
        capsule = self.buffer.__dlpack__()
        rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_SetName", ctypes.pythonapi))
        rename(capsule, b"used_dltensor")
        with self.assertRaisesRegex(TypeError, "consumed"):
            tensor.from_capsule(capsule)
        rename(capsule, b"dltensor")

    def test_array_interface(self):
        for changes, shape, strides in (({}, (4,), (1,)), ({"strides": (8,), "shape": (2,)}, (2,), (2,)),
                                        ({"stream": None}, (4,), (1,)), ({"shape": ()}, (), ())):
            with tensor.view(support.ArrayInterface(self.buffer, **changes)) as view:
                self.assertEqual((view.device, view.pointer, view.shape, view.strides),
                                 (support.LAST, self.buffer.ptr, shape, strides))
        for changes in ({"typestr": "<M8"}, {"strides": (3,)}, {"mask": self.buffer}):
            with self.assertRaises(TypeError, msg=changes):
                tensor.view(support.ArrayInterface(self.buffer, **changes))
        with self.assertRaises(BufferError):
            tensor.view(support.ArrayInterface(self.buffer, data=(self.buffer.ptr, True)), writable=True)

    def test_array_interface_orders_the_producers_work(self):
        producer, side, order = plinth.Stream(support.LAST), plinth.Stream(support.LAST), []
        producer.launch_host_function(lambda: (time.sleep(0.05), order.append(1)))
        tensor.view(support.ArrayInterface(self.buffer, stream=producer.cuda_stream), stream=side).close()
        side.launch_host_function(lambda: order.append(2))
        side.synchronize()
        self.assertEqual(order, [1, 2])

    def test_types_of_python(self):
        self.assertEqual([tensor.dtype_name(kind) for kind in (bool, int, float, complex)],
                         ["bool", "int64", "float64", "complex128"])
        self.assertEqual(tensor.dtype_name("float"), "float32")

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_numpy(self):
        data = numpy.arange(12, dtype="i8").reshape(3, 4)
        with tensor.view(data.T) as view:
            self.assertEqual((view.dtype, view.shape, view.strides), ("int64", (4, 3), (1, 4)))
        self.assertEqual(plinth.to_device(data.T).tolist(), data.T.tolist())
        data.flags.writeable = False
        with self.assertRaises(BufferError):
            tensor.view(data, writable=True)
        with self.assertRaises(TypeError):
            tensor.view(data.astype(">i8"))
        with self.assertRaisesRegex(TypeError, "dtype.'>i8'. is not an element type"):
            tensor.dtype_name(numpy.dtype(">i8"))
        self.assertEqual(tensor.dtype_name(numpy.float16), "float16")
        self.assertEqual(tensor.dtype_name(numpy.dtype("c8")), "complex64")

    @unittest.skipIf(numpy is None, "numpy is not installed")
    @support.host_device
    def test_memory_of_the_host_device_is_known_as_such(self):
        shared = numpy.from_dlpack(self.buffer)
        with tensor.view(shared[::2]) as view:
            self.assertEqual((view.device, view.strides), (support.LAST, (2,)))
        plinth.random.uniform_(shared[:2], 5, 6)
        values = self.buffer.tolist()
        self.assertTrue(all(5 <= value < 6 for value in values[:2]))
        self.assertEqual(values[2:], [3, 4])


if __name__ == "__main__":
    unittest.main()
