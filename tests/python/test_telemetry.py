"""Tests telemetry: readings, processes, and the sampler."""

import os
import time
import unittest

import support  # noqa: F401
import plinth
from plinth import telemetry


class Telemetry(unittest.TestCase):
    def setUp(self):
        self.buffer = plinth.zeros(8 << 20)
        plinth.synchronize()

    def test_readings(self):
        readings = telemetry.read_telemetry(0)
        self.assertLess(abs(readings.time_us / 1e6 - time.time()), 60)
        self.assertGreaterEqual(readings.memory_used, 8 << 20)
        # A function returns what the reading has, or raises for a reading that the machine lacks.
        for name in ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate"):
            with self.subTest(name=name):
                if getattr(readings, name) is None:
                    with self.assertRaises(plinth.errors.NotSupportedError):
                        getattr(plinth, name)()
                else:
                    self.assertGreaterEqual(getattr(plinth, name)("cuda:0"), 0)
        self.assertGreaterEqual(plinth.device_memory_used(), 8 << 20)
        for function in (telemetry.energy_used, telemetry.throttle_reasons):
            try:
                function()
            except plinth.errors.NotSupportedError:
                pass
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            plinth.utilization(9)

    def test_processes(self):
        processes = {process.pid: process.memory_used for process in telemetry.gpu_processes()}
        self.assertGreaterEqual(processes[os.getpid()], 8 << 20)
        self.assertIn(str(os.getpid()), plinth.list_gpu_processes())
        self.assertIn(str(os.getpid()), plinth.memory.list_gpu_processes())

    def test_sampler(self):
        with telemetry.TelemetrySampler(0, 5, 4) as sampler:
            time.sleep(0.2)
            readings, lost = sampler.take()
            self.assertEqual(len(readings), 4)
            self.assertGreater(lost, 0)
            self.assertEqual(sorted(reading.time_us for reading in readings), [reading.time_us for reading in readings])
            # Expensive readings are taken less often.
            used = [reading.memory_used for reading in readings if reading.memory_used is not None]
            self.assertTrue(all(number >= 8 << 20 for number in used))
        sampler.close()
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            sampler.take()
        for capacity in 0, -1:
            with self.assertRaises(ValueError):
                telemetry.TelemetrySampler(capacity=capacity)


if __name__ == "__main__":
    unittest.main()
