"""Tests the sanitizer, in processes of their own, because it holds for a whole process."""

import os
import unittest

import support
from plinth import sanitizer

RACE = """
    import plinth
    from plinth import sanitizer
    {enable}
    side = plinth.Stream()
    side.name = "side"
    buffer = plinth.zeros(1024)
    buffer.name = "numbers"
    try:
        buffer.fill_(1, side)
        print("not found")
    except plinth.errors.RaceError as error:
        print("fill" in str(error) or "memset" in str(error), "side" in str(error))
    {after}
"""


class Sanitizer(unittest.TestCase):
    def test_error(self):
        status, output = support.run_python(RACE.format(enable="plinth._sanitizer.enable_cuda_sanitizer()",
                                                        after="print(sanitizer.count()[0], sanitizer.mode())"))
        self.assertEqual((status, output), (0, "True True\n1 error\n"))

    def test_ordered_work_is_no_race(self):
        code = """
            import plinth
            from plinth import sanitizer
            sanitizer.enable()
            side, buffer = plinth.Stream(), plinth.zeros(1024)
            side.wait_stream(plinth.current_stream())
            buffer.fill_(1, side)
            side.synchronize()
            buffer.fill_(2)
            print(sanitizer.count(), repr(sanitizer.text())[:40])
            sanitizer.disable()
            print(sanitizer.mode())
        """
        status, output = support.run_python(code)
        self.assertEqual((status, output.splitlines()[0][:6], output.splitlines()[1]), (0, "(0, 0)", "off"))

    def test_callback(self):
        code = RACE.format(enable='found = []; sanitizer.enable("warn", found.append)', after="""
    (report,), (again,) = found, sanitizer.findings()
    print(report == again, "numbers" in report["text"], sorted(report)[:2] != [])
    sanitizer.clear()
    print(sanitizer.count())
    def fail(report):
        raise RuntimeError("in a callback")
    sanitizer.set_callback(fail)
    buffer.fill_(2)
    sanitizer.set_callback(None)
""")
        status, output = support.run_python(code)
        self.assertEqual(status, 0, output)
        self.assertTrue(output.startswith("not found\nTrue True True\n(0, 0)\n"), output)
        self.assertIn("in a callback", output)

    def test_accesses_of_other_libraries(self):
        code = """
            import plinth
            from plinth import sanitizer
            sanitizer.enable("collect")
            side, buffer = plinth.Stream(), plinth.zeros(1024)
            sanitizer.access(buffer, "read", side)
            sanitizer.operation("my kernel", [(buffer, "read_write")], side)
            print("my kernel" in sanitizer.text(), sanitizer.count()[0] >= 1)
            try:
                sanitizer.access(buffer, "append")
            except ValueError as error:
                print(error)
        """
        self.assertEqual(support.run_python(code),
                         (0, "True True\nthe access 'append' is not one of read, write, read_write\n"))

    def test_strided_accesses(self):
        code = """
            import plinth, support
            from plinth import sanitizer
            sanitizer.enable("collect")
            data, side = plinth.zeros(1024), plinth.Stream()
            plinth.synchronize()

            def access(first, **layout):
                return support.ArrayInterface(data, data=(data.ptr + first, False), stream=None, **layout)

            sanitizer.access(access(0, shape=(4, 2), strides=(256, 1)), "write", side)
            sanitizer.access(access(2, shape=(4, 254), strides=(256, 1)), "write")
            sanitizer.access(access(0, shape=(0,)), "write")
            print(sanitizer.count())
            sanitizer.access(access(769, shape=(1,)), "write")
            print(sanitizer.count())
            plinth.synchronize()
            sanitizer.clear()
            sanitizer.operation("last to first", [(access(1023, shape=(1024,), strides=(-1,)), "write")], side)
            sanitizer.access(access(0, shape=(1,)), "read")
            print(sanitizer.count())
        """
        environment = {"PYTHONPATH": os.pathsep.join((support.FOLDER, os.path.dirname(__file__)))}
        self.assertEqual(support.run_python(code, **environment), (0, "(0, 0)\n(1, 1)\n(1, 1)\n"))

    def test_callback_ends_with_the_interpreter(self):
        code = """
            import atexit
            @atexit.register  # It runs behind the handlers of plinth.
            def race():
                buffer.fill_(1, plinth.Stream())
                buffer.fill_(2, plinth.Stream())
                print(sanitizer.count())
            import plinth
            from plinth import sanitizer
            sanitizer.enable("warn", print)
            buffer = plinth.zeros(1024)
            plinth.synchronize()
        """
        self.assertEqual(support.run_python(code), (0, "(1, 1)\n"))

    def test_modes(self):
        with self.assertRaises(ValueError):
            sanitizer.enable("loud")


if __name__ == "__main__":
    unittest.main()
