"""Tests buffers: copies, conversions, DLPack and __cuda_array_interface__ exports, pinned memory, and lifetimes."""

import array
import gc
import itertools
import pickle
import sys
import threading
import time
import unittest
from unittest import mock

import support
import plinth
from plinth import _dlpack, _native, tensor

try:
    import numpy
except ImportError:
    numpy = None


class Buffers(unittest.TestCase):
    def test_shapes_and_types(self):
        buffer = plinth.empty((2, 3), "float32", f"cuda:{support.LAST}")
        self.assertEqual((buffer.shape, buffer.dtype, buffer.nbytes, buffer.size, buffer.itemsize, len(buffer)),
                         ((2, 3), "float32", 24, 6, 4, 2))
        self.assertEqual((buffer.device.index, buffer.stream), (support.LAST, plinth.default_stream(support.LAST)))
        self.assertEqual(buffer.ptr % 512, 0)
        # The default stream by its two names, and the thread's default stream of CUDA.
        self.assertEqual([plinth.empty(4, stream=handle).stream.cuda_stream for handle in (0, 1, 2)], [0, 0, 2])
        self.assertEqual(plinth.empty(10).nbytes, 10)
        self.assertEqual(plinth.empty(10, "torch.bfloat16").nbytes, 20)
        nothing = plinth.zeros((0, 4), "int64")
        self.assertEqual((nothing.ptr, nothing.nbytes, nothing.tolist(), nothing.tobytes()), (0, 0, [], b""))
        scalar = plinth.zeros((), "int16")
        self.assertEqual((scalar.nbytes, scalar.tolist()), (2, 0))
        if numpy is not None:
            self.assertEqual(plinth.empty((numpy.int64(2), 3)).shape, (2, 3))
            self.assertEqual(plinth.empty(numpy.int32(7), numpy.float16).nbytes, 14)
        self.assertEqual(plinth.zeros((2, 1), "float16").fill_(b"\0\x3c").tolist(), [[1.0], [1.0]])
        with self.assertRaises(TypeError):
            plinth.empty(2.5)
        with self.assertRaises(ValueError):
            plinth.empty((2, -1))
        with self.assertRaises(TypeError):
            plinth.empty(3, "float31")
        with self.assertRaises(TypeError):
            plinth.Buffer()
        with self.assertRaises(TypeError):
            pickle.dumps(scalar)

    def test_memory_returns_when_the_object_is_collected(self):
        before = plinth.memory_allocated()
        buffer = plinth.empty(1 << 20)
        self.assertEqual(plinth.memory_allocated(), before + (1 << 20))
        del buffer
        self.assertEqual(plinth.memory_allocated(), before)
        with plinth.empty(1 << 20) as buffer:
            self.assertEqual(plinth.memory_allocated(), before + (1 << 20))
        self.assertEqual(plinth.memory_allocated(), before)
        buffer.free()
        self.assertEqual(buffer.ptr, 0)

    def test_out_of_memory(self):
        with self.assertRaisesRegex(plinth.OutOfMemoryError, "1024.00 TiB") as raised:
            plinth.empty(1 << 50)
        self.assertIsInstance(raised.exception, MemoryError)
        plinth.zeros(1024)

    def test_copies_of_bytes(self):
        data = bytes(range(256)) * 4
        buffer = plinth.empty(1024).copy_from(data)
        self.assertEqual(buffer.tobytes(), data)
        target = bytearray(1024)
        self.assertIs(buffer.copy_to(target), target)
        self.assertEqual(target, data)
        floats = plinth.empty(256, "float32").copy_from(array.array("f", range(256)).tobytes())
        self.assertEqual(floats.tolist(), [float(i) for i in range(256)])
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            buffer.copy_from(b"too short")
        with self.assertRaisesRegex(BufferError, "read-only"):
            buffer.copy_to(data)
        with self.assertRaises(TypeError):
            buffer.copy_from([1, 2, 3])

    def test_bytes_are_what_is_stored_of_float8(self):
        data = bytes(range(256))
        for dtype in "float8_e4m3fn", "float8_e5m2":
            for shape in 256, (16, 16):
                with self.subTest(dtype=dtype, shape=shape):
                    buffer = plinth.empty(shape, dtype).copy_from(data)
                    self.assertEqual(buffer.tobytes(), data)
                    same = plinth.empty(256)
                    _native.check(_native.lib.plinth_copy(same.ptr, buffer.ptr, 256, False))
                    self.assertEqual(same.tobytes(), data)

    def test_sizes_beyond_64_bits(self):
        before = plinth.memory_allocated()
        for shape, dtype in (2**64 + 512, "uint8"), ((2**32, 2**32), "float32"):
            with self.assertRaises(plinth.OutOfMemoryError):
                plinth.empty(shape, dtype)
        with self.assertRaises(plinth.OutOfMemoryError):
            plinth.caching_allocator_alloc(2**64 + 512)
        self.assertEqual(plinth.memory_allocated(), before)

    def test_copies_convert_and_broadcast(self):
        buffer = plinth.empty((2, 3), "float32").copy_from(array.array("q", [1, 2, -3]))
        self.assertEqual(buffer.tolist(), [[1.0, 2.0, -3.0]] * 2)
        target = array.array("h", [0] * 3)
        plinth.to_device(array.array("d", [1.9, -1.9, 7])).copy_to(target)
        self.assertEqual(target.tolist(), [1, -1, 7])
        self.assertEqual(plinth.to_device(memoryview(b"abcd")[::2]).tobytes(), b"ac")

    def test_copies_between_devices(self):
        first = plinth.to_device(array.array("i", range(1000)), 0)
        second = plinth.empty(1000, "int32", support.LAST).copy_from(first)
        self.assertEqual(second.tolist(), list(range(1000)))

    def test_copy_runs_in_the_current_stream(self):
        buffer, side = plinth.zeros(4), plinth.Stream()
        plinth.synchronize()
        pinned = plinth.empty_pinned(4)
        pinned[:] = b"\1\1\1\1"
        gate = threading.Event()
        side.launch_host_function(gate.wait)
        with plinth.stream(side):
            buffer.copy_from(pinned, non_blocking=True)
            self.assertFalse(side.query())
        gate.set()
        side.synchronize()
        self.assertEqual(buffer.tobytes(), b"\1\1\1\1")

    def test_fill(self):
        buffer = plinth.empty(8).fill_(7)
        self.assertEqual(buffer.tobytes(), b"\7" * 8)
        self.assertEqual(buffer.fill_(b"\1\2").tobytes(), b"\1\2" * 4)
        self.assertEqual(plinth.empty(4, "bool").fill_(7).tobytes(), b"\7" * 4)
        self.assertEqual(buffer.zero_(plinth.current_stream()).tobytes(), bytes(8))
        with self.assertRaises(ValueError):
            buffer.fill_(256)
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            buffer.fill_(b"abc")

    def test_pinned(self):
        view = plinth.empty_pinned((2, 2), "float32")
        plinth.to_device(array.array("f", [1, 2, 3, 4])).copy_to(view.cast("B").cast("f"))
        self.assertEqual(view.tolist(), [[1, 2], [3, 4]])
        before = plinth.host_memory_stats()["active_requests.current"]
        del view
        gc.collect()
        self.assertEqual(plinth.host_memory_stats()["active_requests.current"], before - 1)
        with self.assertRaises(plinth.OutOfMemoryError):
            plinth.empty_pinned(2**64 + 8)
        try:
            self.assertEqual(plinth.empty_pinned(2, "float16").format, "e")
        except TypeError:
            self.assertLess(sys.version_info, (3, 12))
        self.assertEqual(plinth.host_memory_stats()["active_requests.current"], before - 1)

    def test_record_stream_delays_the_reuse(self):
        side = plinth.Stream()
        buffer = plinth.empty(1 << 20)
        pointer = buffer.ptr
        side.launch_host_function(lambda: time.sleep(0.2))
        buffer.record_stream(side)
        del buffer
        self.assertNotEqual(plinth.empty(1 << 20).ptr, pointer)
        side.synchronize()

    def test_names(self):
        buffer = plinth.empty(1 << 12)
        buffer.name = "weights"
        self.assertEqual(buffer.name, "weights")
        blocks = [block for segment in plinth.memory_snapshot() for block in segment["blocks"]]
        self.assertIn("weights", [block.get("name") for block in blocks])

    def test_threads_share_and_free(self):
        failures = []

        def work():
            try:
                for i in range(50):
                    data = bytes([i]) * 1000
                    if plinth.to_device(data).tobytes() != data:
                        failures.append(i)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


class Exports(unittest.TestCase):
    def setUp(self):
        _dlpack.collect()
        self.buffer = plinth.to_device(array.array("f", [1, 2, 3, 4]))

    def test_array_interface(self):
        interface = self.buffer.__cuda_array_interface__
        self.assertEqual(interface, {"shape": (4,), "typestr": "<f4", "data": (self.buffer.ptr, False), "strides": None,
                                     "stream": 1, "version": 3})
        with plinth.stream(plinth.Stream()) as side:
            self.assertEqual(self.buffer.__cuda_array_interface__["stream"], side.cuda_stream)
        self.assertFalse(hasattr(plinth.empty(1, "bfloat16"), "__cuda_array_interface__"))

    @support.host_device
    def test_device_of_an_export(self):
        self.assertEqual(self.buffer.__dlpack_device__(), (1, 0))
        with self.assertRaises(BufferError):
            self.buffer.__dlpack__(dl_device=(2, 0))
        with self.assertRaises(BufferError):
            self.buffer.__dlpack__(copy=True)

    def test_dropped_capsule(self):
        for options in ({}, {"max_version": (1, 0)}):
            capsule = self.buffer.__dlpack__(**options)
            name = "dltensor_versioned" if options else "dltensor"
            self.assertIn(f'"{name}"', repr(capsule))
            self.assertFalse(_dlpack.collect())
            with self.assertRaises(BufferError):
                self.buffer.free()
            with tensor.from_capsule(capsule) as view:
                self.assertEqual((view.shape, view.dtype, view.pointer), ((4,), "float32", self.buffer.ptr))
                del capsule
                self.assertFalse(_dlpack.collect())
            self.assertTrue(_dlpack.collect())
            self.assertFalse(_dlpack.collect())
        self.buffer.free()

    def test_a_finalizer_that_collects_within_a_collection(self):
        # The collector of cycles may run in a collection, and the finalizers that it calls may free a buffer.
        is_released = _dlpack._is_released
        for at in range(8):
            buffers = [plinth.empty(1) for _ in range(8)]
            capsules = [buffer.__dlpack__() for buffer in buffers]
            del capsules[::2]
            calls = itertools.count()

            def check(entry):
                found = is_released(entry)
                if next(calls) == at:
                    _dlpack.collect()
                return found

            with mock.patch.object(_dlpack, "_is_released", check):
                _dlpack.collect()
            self.assertEqual([buffer._exports for buffer in buffers], [0, 1] * 4)
            capsules.clear()
            self.assertTrue(_dlpack.collect())
            self.assertEqual([buffer._exports for buffer in buffers], [0] * 8)

    def test_the_cost_of_an_allocation_does_not_grow(self):
        capsules = [self.buffer.__dlpack__() for _ in range(50)]
        checked = []
        with mock.patch.object(_dlpack, "_is_released", lambda entry: checked.append(entry.name)):
            for _ in range(100):
                plinth.empty(1)
        self.assertLessEqual(len(checked), 150)
        del capsules[1:]
        for _ in range(50):
            plinth.empty(1)
        self.assertEqual(self.buffer._exports, 1)
        capsules.clear()
        plinth.empty(1)
        self.assertEqual(self.buffer._exports, 0)

    def test_the_cost_of_a_collection_is_linear(self):
        capsules = [self.buffer.__dlpack__() for _ in range(100)]
        del capsules[50:]
        # No export is compared with others.
        with mock.patch.object(_dlpack._Export, "__eq__", side_effect=AssertionError, create=True):
            self.assertTrue(_dlpack.collect())
        self.assertEqual(self.buffer._exports, 50)
        del capsules
        self.assertTrue(_dlpack.collect())

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_numpy_makes_no_array_of_an_object(self):
        for convert in numpy.asarray, numpy.sum, lambda buffer: numpy.zeros(4) + buffer:
            with self.assertRaisesRegex(TypeError, r"copy_to\(numpy.empty\(\(4,\)"):
                convert(self.buffer)

    @support.host_device
    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_numpy_shares_the_memory(self):
        view = numpy.from_dlpack(self.buffer)
        view[1] = 20
        self.assertEqual(self.buffer.tolist(), [1, 20, 3, 4])
        before = plinth.memory_allocated()
        self.buffer = None
        _dlpack.collect()
        self.assertEqual(plinth.memory_allocated(), before)
        self.assertEqual(view.tolist(), [1, 20, 3, 4])
        del view
        plinth.empty_cache()
        self.assertEqual(plinth.memory_allocated(), before - 512)

    @support.host_device
    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_consumer_that_dies_while_an_exception_is_raised(self):
        with self.assertRaises(ZeroDivisionError):
            (numpy.from_dlpack(self.buffer), 1 / 0)
        self.assertTrue(_dlpack.collect())

    @support.host_device
    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_consumer_in_another_thread(self):
        views = [numpy.from_dlpack(self.buffer) for _ in range(200)]
        thread = threading.Thread(target=views.clear)
        thread.start()
        thread.join()
        self.assertTrue(_dlpack.collect())
        self.buffer.free()

    @support.host_device
    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_consumer_that_outlives_the_interpreter(self):
        code = """
            import ctypes, numpy, plinth
            view = numpy.from_dlpack(plinth.zeros(16, "float32"))
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(view))
            import builtins
            builtins.view = view
            capsule = plinth.zeros(3).__dlpack__()
            print(view.sum())
        """
        self.assertEqual(support.run_python(code), (0, "0.0\n"))

    @support.host_device
    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_out_of_memory_frees_what_consumers_released(self):
        free, total = plinth.mem_get_info()
        large = plinth.empty(int(free * 0.7))
        view = numpy.from_dlpack(large)
        del large, view
        pointer = plinth.caching_allocator_alloc(int(free * 0.7))
        plinth.caching_allocator_delete(pointer)
        plinth.empty_cache()

    def test_export_to_a_consumer_on_a_gpu(self):
        producer, consumer = plinth.Stream(), plinth.Stream()
        with mock.patch.object(plinth.Buffer, "__dlpack_device__", lambda self: (2, self.device.index)):
            for number, waits in ((consumer.cuda_stream, True), (-1, False), (1, False), (None, False)):
                order, gate = [], threading.Event()
                with plinth.stream(producer):
                    producer.launch_host_function(lambda: (gate.wait(), order.append("producer")))
                    capsule = self.buffer.__dlpack__(stream=number, max_version=(1, 1))
                    self.assertEqual(order, [])  # The CPU does not wait.
                consumer.launch_host_function(lambda: order.append("consumer"))
                if not waits and plinth.device_kind() == "host":
                    consumer.synchronize()
                gate.set()
                plinth.synchronize()
                if waits:
                    self.assertEqual(order, ["producer", "consumer"], number)
                elif plinth.device_kind() == "host":  # CUDA may run the host functions of all streams in one thread.
                    self.assertEqual(order, ["consumer", "producer"], number)
                with tensor.from_capsule(capsule) as view:
                    self.assertEqual((view.device, view.dtype, view.strides), (0, "float32", (1,)))
                del capsule
            gate = threading.Event()
            with plinth.stream(producer):
                producer.launch_host_function(gate.wait)
                self.buffer.__dlpack__(stream=1)
            self.assertFalse(plinth.default_stream().query())
            gate.set()
            plinth.synchronize()
        _dlpack.collect()

    @support.host_device
    def test_export_waits_for_the_current_stream(self):
        side, order = plinth.Stream(), []
        with plinth.stream(side):
            side.launch_host_function(lambda: (time.sleep(0.05), order.append(1)))
            self.buffer.__dlpack__()
        self.assertEqual(order, [1])


if __name__ == "__main__":
    unittest.main()
