"""Tests graphs: capture, replay, pools, generators, errors, dumps, and memory that sleeps."""

import gc
import os
import sys
import tempfile
import threading
import unittest
import weakref

import support
import plinth


class Graphs(unittest.TestCase):
    def capture_fill(self, value, **options):
        graph = plinth.CUDAGraph(**options)
        with plinth.graph(graph):
            self.buffer.fill_(value)
        return graph

    def setUp(self):
        self.buffer = plinth.zeros(1024)
        plinth.synchronize()

    def test_capture_and_replay(self):
        before = plinth.current_stream()
        graph = self.capture_fill(5)
        self.assertEqual(plinth.current_stream(), before)
        self.assertEqual(self.buffer.tobytes(), bytes(1024))
        graph.replay()
        self.assertEqual(self.buffer.tobytes(), b"\5" * 1024)

    def test_capture_in_a_stream_of_the_program(self):
        side, graph = plinth.Stream(), plinth.CUDAGraph()
        self.assertFalse(plinth.is_current_stream_capturing())
        with plinth.stream(side):
            graph.capture_begin()
            self.assertTrue(plinth.is_current_stream_capturing() and side.is_capturing())
            self.buffer.fill_(3)
            graph.capture_end()
            graph.replay()
        side.synchronize()
        self.assertEqual(self.buffer.tobytes()[:2], b"\3\3")

    def test_memory_of_the_pool(self):
        graph = plinth.CUDAGraph()
        with plinth.graph(graph):
            inside = plinth.empty(4096).fill_(9)
        self.assertEqual(graph.memory()[0], 4096)
        second = plinth.CUDAGraph()
        with plinth.graph(second, pool=graph):
            self.buffer.fill_(1)
        self.assertEqual(second.pool(), graph.pool())
        third = plinth.CUDAGraph()
        with plinth.graph(third, pool=graph.pool()):
            pass
        graph.replay()
        self.assertEqual(inside.tobytes()[:1], b"\x09")
        self.assertNotEqual(plinth.graph_pool_handle(), plinth.graph_pool_handle())

    def test_exception_discards_the_capture(self):
        graph = plinth.CUDAGraph()
        with self.assertRaises(KeyError):
            with plinth.graph(graph):
                raise KeyError
        with self.assertRaises(plinth.errors.GraphError):
            graph.replay()
        self.assertFalse(plinth.is_current_stream_capturing())
        with plinth.graph(graph):
            self.buffer.fill_(2)
        graph.replay()
        self.assertEqual(self.buffer.tobytes()[:1], b"\2")

    def test_stream_that_is_collected_in_a_capture(self):
        def capture(begin, end):
            begin()
            side = plinth.Stream(dedicated=True)
            side.wait_stream(plinth.current_stream())
            self.buffer.fill_(8, side)
            plinth.current_stream().wait_stream(side)
            handle = side.cuda_stream
            del side
            gc.collect()
            end()
            with self.assertRaises(plinth.errors.InvalidArgumentError):
                plinth.Stream._wrap(handle, 0).query()

        graphs, reports = (plinth.CUDAGraph(), plinth.CUDAGraph()), []
        hook, sys.unraisablehook = sys.unraisablehook, reports.append
        try:
            context = plinth.graph(graphs[0])
            capture(context.__enter__, lambda: context.__exit__(None, None, None))
            with plinth.stream(plinth.Stream()):
                capture(graphs[1].capture_begin, graphs[1].capture_end)
        finally:
            sys.unraisablehook = hook
        self.assertEqual(reports, [])
        for graph in graphs:
            self.buffer.zero_()
            graph.replay()
            self.assertEqual(self.buffer.tobytes()[:1], b"\x08")

    def test_exceptions_with_a_status_of_their_own(self):
        for status in 0, 404, "failed":
            error, graph = KeyError(), plinth.CUDAGraph()
            error.status = status
            with self.assertRaises(KeyError), plinth.graph(graph):
                self.buffer.fill_(2)
                raise error
            self.assertFalse(plinth.is_current_stream_capturing())
            with self.assertRaises(plinth.errors.GraphError):
                graph.replay()

    def test_forbidden_call_names_itself(self):
        with self.assertRaisesRegex(plinth.errors.GraphError, "captur"):
            with plinth.graph(plinth.CUDAGraph()):
                plinth.synchronize()
        self.assertFalse(plinth.is_current_stream_capturing())
        plinth.synchronize()

    def test_errors(self):
        graph = plinth.CUDAGraph()
        with self.assertRaises(ValueError):
            plinth.graph(graph, capture_error_mode="loose")
        with self.assertRaises(plinth.errors.GraphError):
            graph.capture_begin()  # The default stream cannot capture.
        with self.assertRaises(plinth.errors.GraphError):
            graph.capture_end()
        with self.assertRaises(TypeError):
            plinth.CUDAGraph.__reduce__(graph)
        done = self.capture_fill(1)
        with self.assertRaises(plinth.errors.GraphError) as raised:
            with plinth.graph(done):
                pass
        self.assertEqual(raised.exception.name, "PLINTH_ERROR_GRAPH_CAPTURED")
        done.reset()
        with plinth.graph(done):
            self.buffer.fill_(4)

    def test_generators(self):
        generator, graph = plinth.Generator(), plinth.CUDAGraph()
        numbers = plinth.zeros(64, "float32")
        with self.assertRaises(plinth.PlinthError) as raised:
            with plinth.graph(graph):
                plinth.random.uniform_(numbers, generator=generator)
        self.assertEqual(raised.exception.name, "PLINTH_ERROR_GENERATOR_NOT_REGISTERED")
        graph = plinth.CUDAGraph()
        graph.register_generator_state(generator)
        with plinth.graph(graph):
            plinth.random.uniform_(numbers, generator=generator)
        graph.replay()
        first = numbers.tolist()
        graph.replay()
        self.assertNotEqual(first, numbers.tolist())
        generator.set_offset(0)
        graph.replay()
        self.assertEqual(first, numbers.tolist())
        generator = weakref.ref(generator)
        self.assertIsNone(generator())
        graph.replay()
        self.assertNotEqual(first, numbers.tolist())

    def test_dump_summary_and_times(self):
        graph = self.capture_fill(5, keep_graph=True)
        graph.instantiate()
        graph.upload()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph.dot")
            graph.debug_dump(path)
            with open(path, encoding="utf-8") as file:
                self.assertIn("digraph", file.read())
        self.assertIn("memset", graph.summary())
        (node,) = graph.node_times(3)
        self.assertGreater(node.microseconds, 0)
        self.assertTrue(graph.raw_cuda_graph() and graph.raw_cuda_graph_exec())
        with self.assertRaises(plinth.errors.GraphError):
            self.capture_fill(5).debug_dump("/nowhere/graph.dot")
        debugged = plinth.CUDAGraph()
        debugged.enable_debug_mode()
        with plinth.graph(debugged):
            self.buffer.fill_(1)
        self.assertIn("memset", debugged.summary())

    def test_update(self):
        graph, other = self.capture_fill(5, keep_graph=True), self.capture_fill(6, keep_graph=True)
        graph.instantiate()
        graph.update(other)
        graph.replay()
        self.assertEqual(self.buffer.tobytes()[:1], b"\6")

    def test_sleep_and_wake(self):
        graph = plinth.CUDAGraph()
        with plinth.graph(graph):
            inside = plinth.empty(4096).fill_(9)
        graph.sleep()
        self.assertTrue(graph.is_asleep())
        self.assertEqual(graph.memory()[1], 0)
        with self.assertRaises(plinth.errors.GraphError):
            graph.replay()
        graph.wake()
        graph.replay()
        self.assertEqual(inside.tobytes()[:1], b"\x09")

    def test_graphs_of_several_threads(self):
        failures = []

        def work(value):
            try:
                buffer, graph = plinth.zeros(64), plinth.CUDAGraph()
                plinth.synchronize()
                with plinth.graph(graph, stream=plinth.Stream(dedicated=True), capture_error_mode="thread_local"):
                    buffer.fill_(value)
                for _ in range(10):
                    graph.replay()
                if buffer.tobytes() != bytes([value]) * 64:
                    failures.append(value)
            except plinth.errors.GraphError as error:
                if error.name != "PLINTH_ERROR_CAPTURE_FORBIDS":  # Another thread's capture forbids the wait.
                    failures.append(error)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
