"""Tests NVTX and the profiler's calls. No profiler is attached, so depths and errors are what can be seen."""

import threading
import unittest

import support  # noqa: F401
import plinth
from plinth import nvtx, profiler


class Nvtx(unittest.TestCase):
    def test_depths(self):
        first = nvtx.range_push("outer")
        self.assertEqual(nvtx.range_push("inner"), first + 1)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(nvtx.range_push("another thread")))
        thread.start()
        thread.join()
        self.assertEqual(seen, [first])
        self.assertEqual((nvtx.range_pop(), nvtx.range_pop()), (first + 1, first))

    def test_context_and_decorator(self):
        base = nvtx.range_push("base")
        with self.assertRaises(KeyError), nvtx.range("step {} of {total}", 1, total=2):
            self.assertEqual(nvtx.range_push("x"), base + 2)
            nvtx.range_pop()
            raise KeyError

        @nvtx.range("a function")
        def function():
            return nvtx.range_push("y"), nvtx.range_pop()

        self.assertEqual(function()[0], base + 2)
        self.assertEqual(nvtx.range_pop(), base)

    def test_other_calls(self):
        nvtx.mark("moment")
        nvtx.range_end(nvtx.range_start("a range"))
        nvtx.device_range_end(nvtx.device_range_start("on the device"))
        nvtx.name_thread("main")
        nvtx.annotate_calls(True)
        nvtx.annotate_calls(False)
        self.assertIs(nvtx.is_active(), False)
        plinth.synchronize()
        with profiler.profile():
            pass


if __name__ == "__main__":
    unittest.main()
