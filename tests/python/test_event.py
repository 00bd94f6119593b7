"""Tests events: record, wait, query, elapsed time, and events of another process."""

import threading
import time
import unittest

import support
import plinth


class Events(unittest.TestCase):
    def test_query_and_synchronize(self):
        event = plinth.Event()
        self.assertTrue(event.query())
        self.assertIsNone(event.device)
        stream, gate = plinth.Stream(support.LAST), threading.Event()
        stream.launch_host_function(gate.wait)
        event.record(stream)
        self.assertFalse(event.query())
        gate.set()
        event.synchronize()
        self.assertTrue(event.query())
        self.assertEqual(event.device.index, support.LAST)
        self.assertNotEqual(event.cuda_event, 0)

    def test_record_without_a_stream_uses_the_current_stream(self):
        side, gate = plinth.Stream(), threading.Event()
        with plinth.stream(side):
            side.launch_host_function(gate.wait)
            event = plinth.Event()
            event.record()
        self.assertFalse(event.query())
        gate.set()
        order = []
        plinth.current_stream().launch_host_function(lambda: order.append(event.__class__))
        side.synchronize()
        self.assertTrue(event.query())

    def test_elapsed_time(self):
        start, end = plinth.Event(enable_timing=True), plinth.Event(enable_timing=True)
        stream, gate = plinth.Stream(), threading.Event()
        start.record(stream)
        stream.launch_host_function(lambda: (gate.wait(), time.sleep(0.05)))
        end.record(stream)
        with self.assertRaises(plinth.PlinthError) as raised:
            start.elapsed_time(end)
        self.assertEqual(raised.exception.name, "PLINTH_ERROR_EVENT_NOT_COMPLETE")
        gate.set()
        end.synchronize()
        self.assertGreaterEqual(start.elapsed_time(end), 50)
        self.assertLess(start.elapsed_time(end), 5000)

    def test_elapsed_time_needs_timing(self):
        event = plinth.Event()
        event.record()
        with self.assertRaises(plinth.PlinthError) as raised:
            event.elapsed_time(event)
        self.assertEqual(raised.exception.name, "PLINTH_ERROR_EVENT_TIMING_DISABLED")

    def test_wait(self):
        event, order = plinth.Event(), []
        first, second = plinth.Stream(), plinth.Stream()
        first.launch_host_function(lambda: (time.sleep(0.05), order.append(1)))
        event.record(first)
        event.wait(second)
        second.launch_host_function(lambda: order.append(2))
        second.synchronize()
        self.assertEqual(order, [1, 2])

    def test_another_process(self):
        event = plinth.Event(interprocess=True)
        event.record()
        plinth.synchronize()
        handle = event.ipc_handle()
        self.assertEqual(len(handle), 64)
        code = f"""
            import plinth
            event = plinth.Event.from_ipc_handle(0, {handle!r})
            print(event.query())
        """
        self.assertEqual(support.run_python(code), (0, "True\n"))
        with self.assertRaises(ValueError):
            plinth.Event.from_ipc_handle(0, b"short")
        with self.assertRaises(plinth.PlinthError):
            plinth.Event().ipc_handle()


if __name__ == "__main__":
    unittest.main()
