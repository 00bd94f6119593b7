"""Tests how the library is found and loaded, errors, and waits that end on Ctrl-C."""

import ctypes
import gc
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import weakref
from unittest import mock

import support  # noqa: F401  so that processes of the tests get SIGINT
from plinth import _bindings, _native, errors

PACKAGE = pathlib.Path(_native.__file__).resolve().parent
CODES = pathlib.Path(__file__).resolve().parents[2] / "crates/driver/src/codes.rs"


def run(code, **environment):
    """Runs Python code in a process of its own, and returns its output and errors."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment}
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    return result.stdout


class Loading(unittest.TestCase):
    def load(self, path):
        with mock.patch.dict(os.environ, PLINTH_LIBRARY=path):
            return _native._load()

    def test_missing_file(self):
        with self.assertRaisesRegex(ImportError, "cannot load /nowhere/libplinth.so: .*; set PLINTH_LIBRARY"):
            self.load("/nowhere/libplinth.so")

    def test_another_library(self):
        with self.assertRaisesRegex(ImportError, "libm.so.6 is not libplinth"):
            self.load("libm.so.6")

    def test_another_version(self):
        for wanted in ({"PLINTH_VERSION_MINOR": 99}, {"PLINTH_VERSION_MAJOR": 1}, {"PLINTH_VERSION_PATCH": 99}):
            with self.subTest(wanted), mock.patch.multiple(_native, **wanted):
                with self.assertRaisesRegex(ImportError, "is version .*, but this package needs"):
                    self.load(_native.library_path)

    def test_library_of_the_package_is_preferred_to_the_system(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(_native, "FOLDER", pathlib.Path(folder)):
            os.mkdir(f"{folder}/lib")
            pathlib.Path(folder, "lib", _native.SONAME).write_text("not a library")
            with self.assertRaisesRegex(ImportError, f"cannot load {folder}/lib/{_native.SONAME}: .*file too short"):
                self.load("")
            os.remove(f"{folder}/lib/{_native.SONAME}")
            with mock.patch.object(_native, "SONAME", "libplinth.so.none"):
                with self.assertRaisesRegex(ImportError, "cannot load libplinth.so.none:"):
                    self.load("")

    def test_unrelated_package_of_the_same_name(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(PACKAGE, f"{folder}/plinth", ignore=shutil.ignore_patterns("lib", "include", "bin", "share"))
            os.mkdir(f"{folder}/plinth-1.2.3.dist-info")
            message = "ImportError: plinth: the package plinth 1.2.3, which is unrelated to libplinth"
            self.assertIn(message, run("import plinth._native", PYTHONPATH=folder))
            # The package that was installed last has written __init__.py.
            init = pathlib.Path(folder, "plinth", "__init__.py")
            init.write_text("")
            self.assertIn(message, run("import plinth._native", PYTHONPATH=folder))
            os.rename(f"{folder}/plinth-1.2.3.dist-info", f"{folder}/libplinth-1.2.3.dist-info")
            self.assertEqual(run("import plinth._native", PYTHONPATH=folder, PLINTH_LIBRARY=_native.library_path), "")

    def test_integers_of_32_bits(self):
        value = ctypes.c_int32()
        for argument in (2**32, 2**31, -(2**31) - 1):
            with self.assertRaisesRegex(ctypes.ArgumentError, f"{argument} is not in -2147483648 to 2147483647"):
                _native.lib.plinth_set_device(argument)
        for argument in (-1, 2**32):
            with self.assertRaises(ctypes.ArgumentError):
                _native.lib.plinth_event_create(argument, ctypes.byref(value))
        self.assertEqual(_native.lib.plinth_set_device(ctypes.c_int32(0)), 0)
        self.assertEqual(_native.lib.plinth_set_device(False), 0)

    def test_texts_with_nul(self):
        for text in (b"a\0b", b"\0"):
            with self.assertRaisesRegex(ctypes.ArgumentError, "null byte"):
                _native.lib.plinth_set_memory_metadata(text)
        self.assertEqual(_native.lib.plinth_set_memory_metadata(b""), 0)

    def test_unknown_function(self):
        with self.assertRaisesRegex(AttributeError, "no function plinth_nothing"):
            _native.lib.plinth_nothing


class Errors(unittest.TestCase):
    def test_exception(self):
        with self.assertRaises(errors.InvalidArgumentError) as caught:
            _native.check(_native.lib.plinth_set_device(9999))
        error = caught.exception
        self.assertIsInstance(error, (ValueError, RuntimeError))
        self.assertIn("9999", str(error))
        self.assertEqual((error.status, error.name, error.driver_code), (3, "PLINTH_ERROR_INVALID_DEVICE", 0))
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(copy), copy.status, copy.name), (str(error), error.status, error.name))

    def test_out_of_memory(self):
        pointer = ctypes.c_void_p()
        with self.assertRaises(errors.OutOfMemoryError) as caught:
            _native.check(_native.lib.plinth_caching_allocator_alloc(1 << 50, 0, None, ctypes.byref(pointer)))
        self.assertIsInstance(caught.exception, MemoryError)
        self.assertIsInstance(caught.exception, RuntimeError)

    def test_every_status(self):
        statuses = {name: value for name, value in vars(_bindings).items() if name.startswith("PLINTH_ERROR_")}
        self.assertEqual(len(statuses), _native.lib.plinth_status_count() - 1)
        used = set()
        for name, status in statuses.items():
            with self.subTest(name), self.assertRaises(errors.PlinthError) as caught:
                _native.check(status)
            self.assertEqual((caught.exception.name, caught.exception.status), (name, status))
            used.add(type(caught.exception).__name__)
        self.assertEqual(used, set(errors.__all__))

    @unittest.skipUnless(CODES.exists(), "the sources are not here")
    def test_codes_of_a_lost_context(self):
        source = CODES.read_text()
        (body,) = re.findall(r"fn is_context_lost.*?\n}", source, re.DOTALL)
        codes = {int(re.search(rf"\b{name} = (\d+)", source)[1]) for name in re.findall(r"CUDA_ERROR_\w+", body)}
        driver = _bindings.PLINTH_ERROR_DRIVER
        self.assertEqual({code for code in range(1000) if errors.class_of(driver, code) is errors.DeviceLostError}, codes)

    def test_unknown_status(self):
        with self.assertRaises(errors.PlinthError) as caught:
            _native.check(12345)
        self.assertIs(type(caught.exception), errors.PlinthError)

    def test_message_belongs_to_the_thread(self):
        status = _native.lib.plinth_set_device(9999)
        thread = threading.Thread(target=_native.lib.plinth_set_device, args=(8888,))
        thread.start()
        thread.join()
        with self.assertRaisesRegex(errors.PlinthError, "9999"):
            _native.check(status)


class Waiting(unittest.TestCase):
    # A stream works for some seconds, in C, and the process waits for it.
    BUSY = """
        import ctypes, os, time
        from plinth._native import *
        from plinth._native import check, lib, wait
        SECONDS = 8
        pause = ctypes.cast(ctypes.CDLL(None).sleep, plinth_host_function_callback_t)
        stream = PLINTH_STREAM_DEFAULT_OF(0)
        event = c_void_p()
        check(lib.plinth_event_create(0, ctypes.byref(event)))
        check(lib.plinth_launch_host_function(stream, pause, SECONDS))
        check(lib.plinth_event_record(event, stream))
        done = c_bool()
        def query_stream():
            check(lib.plinth_stream_query(stream, ctypes.byref(done)))
            return done.value
        def query_event():
            check(lib.plinth_event_query(event, ctypes.byref(done)))
            return done.value
        try:
            print("waiting", flush=True)
            WAIT
            print("not interrupted", flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        os._exit(0)
    """

    def interrupted_after(self, wait):
        """Returns what a process prints that gets a SIGINT while it waits, and the seconds until then."""
        code = textwrap.dedent(self.BUSY.replace("WAIT", wait))
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
        with subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, stdout=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), "waiting\n")
            time.sleep(0.2)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            output = process.stdout.readline().strip()
            seconds = time.monotonic() - begin
            process.kill()
        return output, seconds

    def test_ctrl_c(self):
        for wait in (
            "wait(query_stream, lambda: check(lib.plinth_stream_synchronize(stream)))",
            "wait(query_event, lambda: check(lib.plinth_event_synchronize(event)))",
            "wait(None, lambda: check(lib.plinth_synchronize(0)))",
        ):
            with self.subTest(wait):
                output, seconds = self.interrupted_after(wait)
                self.assertEqual(output, "interrupted")
                self.assertLess(seconds, 3)

    def test_waits_to_the_end(self):
        pause = ctypes.cast(ctypes.CDLL(None).usleep, _bindings.plinth_host_function_callback_t)
        done = ctypes.c_bool()

        def query():
            _native.check(_native.lib.plinth_stream_query(None, ctypes.byref(done)))
            return done.value

        for question in (query, None):
            _native.check(_native.lib.plinth_set_device(0))
            begin = time.monotonic()
            _native.check(_native.lib.plinth_launch_host_function(None, pause, 100_000))
            _native.wait(question, lambda: _native.check(_native.lib.plinth_synchronize(0)))
            self.assertGreaterEqual(time.monotonic() - begin, 0.1)
            self.assertTrue(query())

    def test_a_forbidden_wait_fails_at_once(self):
        _native.check(_native.lib.plinth_set_sync_debug_mode(_bindings.PLINTH_SYNC_DEBUG_ERROR))
        try:
            for query in (lambda: self.fail("it waited"), None):
                with self.assertRaises(errors.PlinthError) as caught:
                    _native.wait(query, lambda: _native.check(_native.lib.plinth_synchronize(0)))
                self.assertEqual(caught.exception.name, "PLINTH_ERROR_WOULD_SYNCHRONIZE")
        finally:
            _native.check(_native.lib.plinth_set_sync_debug_mode(_bindings.PLINTH_SYNC_DEBUG_DEFAULT))

    def test_result_and_exception_of_the_blocking_call(self):
        def fail():
            raise errors.PlinthError("the wait failed")

        for query in (lambda: True, fail, None):
            self.assertEqual(_native.wait(query, lambda: 5), 5)
            with self.assertRaisesRegex(errors.PlinthError, "the wait failed"):
                _native.wait(query, fail)

    def test_a_failed_wait_keeps_nothing_alive(self):
        def fail():
            raise errors.PlinthError("the wait failed")

        def waits():
            thing = threading.Event()
            try:  # assertRaises clears the frames of the traceback.
                _native.wait(None, fail)
            except errors.PlinthError:
                return weakref.ref(thing)

        gc.disable()
        try:
            self.assertIsNone(waits()())
        finally:
            gc.enable()

    def test_other_threads_just_block(self):
        calls = []
        thread = threading.Thread(target=_native.wait, args=(lambda: calls.append("query"), lambda: calls.append("block")))
        thread.start()
        thread.join()
        self.assertEqual(calls, ["block"])

    def test_the_gil_is_released(self):
        pause = ctypes.cast(ctypes.CDLL(None).usleep, _bindings.plinth_host_function_callback_t)
        _native.check(_native.lib.plinth_launch_host_function(_bindings.PLINTH_STREAM_DEFAULT_OF(0), pause, 300_000))
        thread = threading.Thread(target=_native.lib.plinth_synchronize, args=(0,))
        thread.start()
        steps = 0
        while thread.is_alive():
            steps += 1
            time.sleep(0.001)
        self.assertGreater(steps, 2)  # A thread that waited for the GIL would take one.


if __name__ == "__main__":
    unittest.main()
