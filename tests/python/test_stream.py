"""Tests streams: equality, order between streams, current streams, dedicated and external streams, host functions."""

import ctypes
import gc
import sys
import threading
import time
import unittest

import support
import plinth
from plinth import _arguments, _native


class Streams(unittest.TestCase):
    def test_pool_equality_and_hash(self):
        streams = [plinth.Stream(support.LAST) for _ in range(33)]
        self.assertEqual(len(set(streams)), 32)
        self.assertEqual(streams[0], streams[32])
        self.assertEqual(hash(streams[0]), hash(streams[32]))
        self.assertNotEqual(streams[0], streams[1])
        self.assertNotEqual(streams[0], 7)
        self.assertEqual(streams[0].device.index, support.LAST)
        self.assertEqual(plinth.default_stream(0), plinth.default_stream(0))
        if support.LAST:
            self.assertNotEqual(plinth.default_stream(0), plinth.default_stream(1))

    def test_protocol(self):
        stream = plinth.Stream()
        self.assertEqual(stream.__cuda_stream__(), (0, stream.cuda_stream))
        self.assertGreater(stream.cuda_stream, 2)
        self.assertEqual(plinth.default_stream().__cuda_stream__(), (0, 0))
        again = plinth.Stream._wrap(stream.cuda_stream, 0)
        self.assertEqual(again, stream)

    def test_priorities(self):
        least, greatest = plinth.Stream.priority_range()
        self.assertEqual(least, 0)
        self.assertLess(greatest, 0)
        self.assertEqual(plinth.Stream(priority=-1).priority, -1)
        self.assertEqual(plinth.Stream(priority=-1000).priority, greatest)
        self.assertEqual(plinth.default_stream().stream_id, 0)
        self.assertNotEqual(plinth.Stream().stream_id, 0)

    def test_wait_stream_orders_work(self):
        order = []
        first, second = plinth.Stream(), plinth.Stream()
        first.launch_host_function(lambda: (time.sleep(0.05), order.append("first")))
        second.wait_stream(first)
        second.launch_host_function(lambda: order.append("second"))
        second.synchronize()
        self.assertEqual(order, ["first", "second"])
        self.assertTrue(first.query() and second.query())

    def test_wait_event_orders_work(self):
        order = []
        first, second = plinth.Stream(0), plinth.Stream(support.LAST)
        first.launch_host_function(lambda: (time.sleep(0.05), order.append("first")))
        event = first.record_event()
        second.wait_event(event)
        second.launch_host_function(lambda: order.append("second"))
        self.assertFalse(second.query())
        second.synchronize()
        self.assertEqual(order, ["first", "second"])

    def test_host_function_exception_is_reported(self):
        seen = []
        hook, sys.unraisablehook = sys.unraisablehook, seen.append
        try:
            plinth.current_stream().launch_host_function(lambda: 1 / 0)
            plinth.current_stream().synchronize()
        finally:
            sys.unraisablehook = hook
        self.assertEqual([report.exc_type for report in seen], [ZeroDivisionError])

    def test_host_function_in_a_capture_is_refused(self):
        graph, stream = plinth.CUDAGraph(), plinth.Stream()
        with plinth.graph(graph, stream=stream):
            with self.assertRaises(plinth.errors.GraphError):
                stream.launch_host_function(print)

    @support.two_devices
    def test_context_sets_and_restores(self):
        before = plinth.current_stream()
        side = plinth.Stream(1)
        with plinth.stream(side) as entered:
            self.assertIs(entered, side)
            self.assertEqual(plinth.current_device(), 1)
            self.assertEqual(plinth.current_stream(), side)
            self.assertEqual(plinth.current_stream(0), before)
            with plinth.stream(None):
                self.assertEqual(plinth.current_stream(), side)
        self.assertEqual((plinth.current_stream(), plinth.current_device()), (before, 0))
        self.assertEqual(plinth.current_stream(1), plinth.default_stream(1))

    @support.two_devices
    def test_context_with_the_default_stream_of_another_device(self):
        with plinth.stream(plinth.default_stream(1)):
            self.assertEqual(plinth.current_device(), 1)
        self.assertEqual(plinth.current_device(), 0)

    def test_current_stream_belongs_to_the_thread(self):
        seen = []
        with plinth.stream(plinth.Stream()):
            thread = threading.Thread(target=lambda: seen.append(plinth.current_stream()))
            thread.start()
            thread.join()
        self.assertEqual(seen, [plinth.default_stream(0)])

    def test_set_stream(self):
        side = plinth.Stream()
        plinth.set_stream(side)
        try:
            self.assertEqual(plinth.current_stream(), side)
            plinth.set_stream(None)
            self.assertEqual(plinth.current_stream(), side)
        finally:
            plinth.set_stream(plinth.default_stream(0))

    def test_dedicated_stream_lives_as_long_as_it_is_used(self):
        stream = plinth.Stream(dedicated=True)
        plinth.set_stream(stream)
        self.assertIs(plinth.current_stream(), stream)
        handle = stream.cuda_stream
        del stream
        gc.collect()
        self.assertEqual(plinth.current_stream().cuda_stream, handle)
        self.assertTrue(plinth.current_stream().query())
        plinth.set_stream(plinth.default_stream(0))
        gc.collect()
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            plinth.ExternalStream.unregister(plinth.Stream._wrap(handle, 0))
        with self.assertRaisesRegex(plinth.errors.InvalidArgumentError, "stream"):
            plinth.Stream._wrap(handle, 0).query()

    def test_external_stream(self):
        create = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint, ctypes.c_int)
        destroy = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        functions = {}
        for name, kind in (("cuStreamCreateWithPriority", create), ("cuStreamDestroy", destroy)):
            pointer = ctypes.c_void_p()
            _native.check(_native.lib.plinth_driver_entry_point(name.encode(), ctypes.byref(pointer)))
            functions[name] = kind(pointer.value)
        raw = ctypes.c_void_p()
        plinth.empty(1)
        self.assertEqual(functions["cuStreamCreateWithPriority"](ctypes.byref(raw), 1, 0), 0)

        class Foreign:
            def __cuda_stream__(self):
                return 0, raw.value

        order = []
        external = plinth.ExternalStream(Foreign(), 0)
        self.assertEqual(external.cuda_stream, raw.value)
        external.launch_host_function(lambda: (time.sleep(0.02), order.append(1)))
        side = plinth.Stream()
        side.wait_stream(Foreign())
        side.launch_host_function(lambda: order.append(2))
        side.synchronize()
        self.assertEqual(order, [1, 2])
        external.unregister()
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            external.unregister()
        self.assertEqual(functions["cuStreamDestroy"](raw), 0)

    def test_streams_of_other_libraries(self):
        class Device:
            type = "cuda"
            index = support.LAST

        class Torch:
            device = Device()

            def __init__(self, handle):
                self.cuda_stream = handle

        class CuPy:
            device_id = support.LAST

            def __init__(self, handle):
                self.ptr = handle

        own = plinth.Stream(support.LAST)
        for kind in (Torch, CuPy):
            order, side = [], plinth.Stream(support.LAST)
            own.launch_host_function(lambda: (time.sleep(0.02), order.append(1)))
            side.wait_stream(kind(own.cuda_stream))
            side.launch_host_function(lambda: order.append(2))
            side.synchronize()
            self.assertEqual(order, [1, 2])
            self.assertEqual(_arguments.stream_handle(kind(0)), plinth.default_stream(support.LAST)._argument)
            with plinth.stream(kind(own.cuda_stream)):
                self.assertEqual(plinth.current_stream(), own)
            self.assertEqual(plinth.ExternalStream(kind(own.cuda_stream)), own)

    def test_bad_streams(self):
        for stream in ("s", 1.5, object(), plinth.empty(1), plinth.Event()):
            with self.assertRaises(TypeError):
                plinth.current_stream().wait_stream(stream)
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            plinth.current_stream().wait_stream(0x1234500)
        with self.assertRaises(TypeError):
            plinth.Stream(stream_id=5)
        with self.assertRaises(ValueError):
            plinth._sleep(-1)

    def test_arguments_of_torch(self):
        stream = plinth.Stream(support.LAST)
        for options in ({"device": support.LAST}, {"device_index": support.LAST, "device_type": 1}):
            self.assertEqual(plinth.Stream(stream_ptr=stream.cuda_stream, **options), stream)

    def test_names(self):
        stream = plinth.Stream(dedicated=True)
        stream.name = "copies"
        self.assertEqual(stream.name, "copies")

    def test_waits_end_on_ctrl_c(self):
        code = """
            import os, signal, threading, time, plinth
            stream, event = plinth.Stream(), plinth.Event()
            stream.launch_host_function(lambda: time.sleep(2.5))
            event.record(stream)
            for wait in (stream.synchronize, event.synchronize, plinth.synchronize):
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                begin = time.monotonic()
                try:
                    wait()
                except KeyboardInterrupt:
                    print(time.monotonic() - begin < 1.5)
            stream.synchronize()
            print(stream.query())
        """
        self.assertEqual(support.run_python(code), (0, "True\n" * 4))

    def test_exit_waits_for_host_functions(self):
        code = """
            import plinth, time
            s = plinth.Stream(dedicated=True)
            s.launch_host_function(lambda: (time.sleep(0.2), print("ran")))
        """
        self.assertEqual(support.run_python(code), (0, "ran\n"))

    def test_exit_while_a_thread_launches_host_functions(self):
        code = """
            import threading, time, plinth
            def launch():
                stream = plinth.Stream()
                while True:
                    stream.launch_host_function(lambda: None)
            threading.Thread(target=launch, daemon=True).start()
            time.sleep(0.1)
        """
        self.assertEqual(support.run_python(code)[0], 0)

    @support.host_device
    def test_exit_does_not_wait_for_host_functions_of_a_failed_stream(self):
        code = """
            import ctypes, plinth
            from plinth import _native
            pause = ctypes.cast(ctypes.CDLL(None).usleep, _native.plinth_host_function_callback_t)
            kernel = plinth.compile_kernel("__global__ void f() { __trap(); }", "f")
            stream = plinth.Stream(dedicated=True)
            _native.check(_native.lib.plinth_launch_host_function(stream.cuda_stream, pause, 100_000))
            kernel(stream=stream)
            stream.launch_host_function(lambda: print("ran"))
            print("end")
        """
        self.assertEqual(support.run_python(code), (0, "end\n"))

    def test_last_references_in_a_host_function(self):
        def graph():
            made = plinth.CUDAGraph()
            with plinth.graph(made):
                plinth.zeros(1 << 20)
            return made

        def uncached():
            with plinth.caching_allocator_disabled():
                return plinth.zeros(1 << 20)

        def recorded():
            buffer = plinth.zeros(1 << 20)
            buffer.record_stream(side)
            return buffer

        stream, side, reports, gate = plinth.Stream(), plinth.Stream(), [], threading.Event()
        plinth.synchronize()
        plinth.empty_cache()
        before = plinth.memory_allocated()
        hook, sys.unraisablehook = sys.unraisablehook, lambda report: reports.append(report.exc_type)
        try:
            for make, use in ((graph, repr), (uncached, repr), (recorded, repr), (plinth.Event, repr),
                              (lambda: plinth.Stream(dedicated=True), repr), (uncached, lambda made: made.size / 0)):
                stream.launch_host_function(lambda made=make(), use=use: (gate.wait(), use(made)))
            gc.collect()
            gate.set()
            plinth.synchronize()
            deadline = time.monotonic() + 10
            while plinth.memory_allocated() > before and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            sys.unraisablehook = hook
        self.assertEqual((reports, plinth.memory_allocated()), ([ZeroDivisionError], before))

    def test_fork_during_the_collection_of_exports(self):
        code = """
            import os, signal, threading, plinth
            from plinth import _dlpack
            capsules = [plinth.zeros(8).__dlpack__() for _ in range(60)]
            def work():
                while capsules:
                    _dlpack.collect()
            threading.Thread(target=work).start()
            for _ in range(50):
                child = os.fork()
                if child == 0:
                    signal.alarm(5)
                    _dlpack.collect()
                    os._exit(0)
                status = os.waitpid(child, 0)[1]
                if status:
                    break
            capsules.clear()
            print(status)
        """
        self.assertEqual(support.run_python(code), (0, "0\n"))

    def test_forked_child_collects_silently(self):
        code = """
            import os, plinth
            stream, event, buffer = plinth.Stream(dedicated=True), plinth.Event(), plinth.zeros(1000)
            graph, pool, generator = plinth.CUDAGraph(), plinth.MemPool(), plinth.Generator()
            capsule = buffer.__dlpack__()
            event.record(stream)
            plinth.synchronize()
            child = os.fork()
            if child == 0:
                buffer.free()
                del stream, event, buffer, graph, pool, generator, capsule
                try:
                    plinth.zeros(10)
                except plinth.PlinthError as error:
                    print(error.name, flush=True)
                raise SystemExit(0)
            print(os.waitpid(child, 0)[1])
        """
        self.assertEqual(support.run_python(code), (0, "PLINTH_ERROR_FORKED_CHILD\n0\n"))


if __name__ == "__main__":
    unittest.main()
