"""Tests devices: counts, properties, the current device of each thread, the contexts, and arguments."""

import threading
import unittest
import warnings

import support
import plinth
from plinth import _arguments


class Index:
    def __init__(self, index, type="cuda"):
        self.index = index
        self.type = type


@support.two_devices
class Devices(unittest.TestCase):
    def setUp(self):
        plinth.set_device(0)

    @support.host_device
    def test_counts_and_kinds(self):
        self.assertGreaterEqual(plinth.device_count(), 2)
        self.assertTrue(plinth.is_available())
        plinth.init()
        self.assertTrue(plinth.is_initialized())
        self.assertEqual(plinth.device_kind(), "host")
        with self.assertRaises(ValueError):
            plinth.set_device_kind("tpu")
        plinth.set_device_kind("host")
        with self.assertRaisesRegex(plinth.PlinthError, "PLINTH_DEVICE|kind"):
            plinth.set_device_kind("cuda")

    def test_properties(self):
        properties = plinth.get_device_properties(1)
        self.assertEqual(properties.name, plinth.get_device_name("cuda:1"))
        self.assertEqual((properties.major, properties.minor), plinth.get_device_capability(Index(1)))
        free, total = plinth.mem_get_info(1)
        self.assertEqual(properties.total_memory, total)
        self.assertLessEqual(free, total)
        self.assertNotEqual(properties.uuid, plinth.get_device_properties(0).uuid)
        self.assertEqual(properties.warp_size, 32)
        self.assertIs(plinth.is_bf16_supported(), True)
        self.assertIs(plinth.is_tf32_supported(), True)
        self.assertTrue(all(name.startswith(("sm_", "compute_")) for name in plinth.get_arch_list()))
        self.assertTrue(plinth.get_arch_list())
        self.assertIn("-gencode", plinth.get_gencode_flags())

    def test_current_device_belongs_to_the_thread(self):
        plinth.set_device(1)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(plinth.current_device()))
        thread.start()
        thread.join()
        self.assertEqual((seen, plinth.current_device()), ([0], 1))
        plinth.set_device(-1)
        self.assertEqual(plinth.current_device(), 1)

    def test_context(self):
        context = plinth.device(1)
        with context:
            self.assertEqual(plinth.current_device(), 1)
            with plinth.device(0), context:
                self.assertEqual(plinth.current_device(), 1)
            self.assertEqual(plinth.current_device(), 1)
        self.assertEqual(plinth.current_device(), 0)
        with self.assertRaises(KeyError), plinth.device("cuda:1"):
            raise KeyError
        self.assertEqual(plinth.current_device(), 0)
        with plinth.device(None), plinth.device(-1):
            self.assertEqual(plinth.current_device(), 0)
        with self.assertRaisesRegex(plinth.errors.InvalidArgumentError, "7"), plinth.device(7):
            self.fail("a device that does not exist was entered")
        self.assertEqual(plinth.current_device(), 0)

    def test_equality(self):
        first, second = plinth.empty(1, device=1), plinth.Stream("cuda:1")
        self.assertEqual(first.device, second.device)
        self.assertEqual({first.device, second.device}, {plinth.device(1)})
        self.assertNotEqual(first.device, plinth.device(0))
        self.assertNotEqual(first.device, 1)

    def test_device_of(self):
        buffer = plinth.empty(16, device=1)
        for obj, expected in ((buffer, 1), (support.DLPackTensor(buffer), 1), (support.ArrayInterface(buffer), 1),
                              (plinth.empty(16, "bfloat16", 1), 1), (plinth.empty(0, device=1), 1),
                              (Index(1), 0), (b"memory of the CPU", 0), (3, 0)):
            with plinth.device_of(obj):
                self.assertEqual(plinth.current_device(), expected, obj)
        self.assertEqual(plinth.current_device(), 0)

    def test_peers(self):
        self.assertTrue(plinth.can_device_access_peer(0, 1))
        self.assertFalse(plinth.can_device_access_peer(0, 0))
        plinth.enable_peer_access(0, 1)
        plinth.disable_peer_access(0, 1)

    def test_arguments(self):
        for argument, index in ((None, -1), (1, 1), ("cuda", -1), ("cuda:1", 1), (Index(1), 1), (Index(None), -1),
                                (plinth.device(1), 1)):
            self.assertEqual(_arguments.device_index(argument), index)
        for argument in ("cpu", "cuda:", "cuda:x", "cuda:-1", "cuda:\u00b2", "cuda:4294967296", 2**32, Index(2**32),
                         Index(0, "cpu")):
            with self.assertRaises(ValueError, msg=repr(argument)):
                _arguments.device_index(argument)
        for argument in (1.5, [], object()):
            with self.assertRaises(TypeError, msg=repr(argument)):
                _arguments.device_index(argument)

    def test_sync_debug_mode(self):
        plinth.set_sync_debug_mode("error")
        try:
            self.assertEqual(plinth.get_sync_debug_mode(), 2)
            with self.assertRaises(plinth.PlinthError) as raised:
                plinth.synchronize()
            self.assertEqual(raised.exception.name, "PLINTH_ERROR_WOULD_SYNCHRONIZE")
        finally:
            plinth.set_sync_debug_mode(0)
        plinth.set_sync_debug_mode("warn")
        try:
            with self.assertWarnsRegex(UserWarning, "synchroniz"):
                plinth.current_stream().synchronize()
        finally:
            plinth.set_sync_debug_mode("default")
        with self.assertRaises(ValueError):
            plinth.set_sync_debug_mode("quiet")
        plinth.synchronize("cuda:1")

    def test_sync_debug_warnings_name_the_line_of_the_program(self):
        buffer, event = plinth.zeros(4), plinth.Event()
        event.record()
        calls = (plinth.synchronize, plinth.synchronize, plinth.current_stream().synchronize, event.synchronize,
                 buffer.tobytes, buffer.tolist)
        plinth.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("default")
                for i, call in enumerate(calls):  # A line is reported once.
                    exec(compile("\n" * i + "call()", "program", "exec"), {"call": call})
        finally:
            plinth.set_sync_debug_mode("default")
        self.assertEqual([(found.filename, found.lineno) for found in caught],
                         [("program", line) for line in range(1, len(calls) + 1)])

    def test_check_error(self):
        plinth.check_error(0)
        with self.assertRaises(plinth.OutOfMemoryError) as raised:
            plinth.check_error(2)
        self.assertEqual(raised.exception.driver_code, 2)


if __name__ == "__main__":
    unittest.main()
