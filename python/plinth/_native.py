"""Loads libplinth.so, and calls it.

`lib` has all functions by their C names: `lib.plinth_init()`. They are called through ctypes, which releases the GIL
during every call. `check` makes an exception of a status. Everything in _bindings is here as well.

The library is the file that the environment variable PLINTH_LIBRARY names, else the one in this package, as in a wheel,
else the system's.
"""

import _thread
import ctypes
import os
import pathlib
import threading
import time

FOLDER = pathlib.Path(__file__).resolve().parent


def _refuse_other_package():
    """Raises an ImportError if PyPI's `plinth`, an unrelated package, is installed in the same folder."""
    for path in FOLDER.parent.glob("plinth-*-info"):
        name, version = path.stem.split("-")[:2]
        raise ImportError(
            f"plinth: the package {name} {version}, which is unrelated to libplinth, is installed in the same folder "
            f"{FOLDER.parent}, and both are imported as `plinth`, so their files overwrite each other; run "
            "`pip uninstall plinth libplinth`, then `pip install libplinth`")


# Before the other modules, any of which may be the other package's.
_refuse_other_package()

from . import errors  # noqa: E402
from ._bindings import *  # noqa: E402, F403
from ._bindings import (  # noqa: E402
    PLINTH_SYNC_DEBUG_ERROR, PLINTH_VERSION_MAJOR, PLINTH_VERSION_MINOR, PLINTH_VERSION_PATCH, PROTOTYPES,
)

# The name by which programs load the library. Before 1.0 every minor version may break binaries.
SONAME = f"libplinth.so.{PLINTH_VERSION_MAJOR or f'0.{PLINTH_VERSION_MINOR}'}"


def _checked(kind, from_param):
    """Makes the type of a parameter that `from_param` converts; it may raise."""
    return type(kind.__name__, (kind,), {"from_param": classmethod(from_param)})


def _integer(kind, low, high):
    def from_param(cls, value):
        if isinstance(value, int) and not low <= value < high:
            raise ValueError(f"{value} is not in {low} to {high - 1}")
        return kind.from_param(value)

    return _checked(kind, from_param)


def _text(cls, value):
    if isinstance(value, bytes) and b"\0" in value:
        raise ValueError("embedded null byte")
    return ctypes.c_char_p.from_param(value)


# ctypes takes integers modulo 2^32, and C takes a text up to its first NUL.
_CHECKED = {
    ctypes.c_int32: _integer(ctypes.c_int32, -2**31, 2**31),
    ctypes.c_uint32: _integer(ctypes.c_uint32, 0, 2**32),
    ctypes.c_char_p: _checked(ctypes.c_char_p, _text),
}


class _Library(ctypes.CDLL):
    """The library. A function gets its types when it is first used."""

    def __getitem__(self, name):
        try:
            function = super().__getitem__(name)
            function.restype, kinds = PROTOTYPES[name]
            function.argtypes = [_CHECKED.get(kind, kind) for kind in kinds]
        except (AttributeError, KeyError):
            raise AttributeError(f"{self._name} has no function {name} that this package knows") from None
        return function


def _load():
    """Returns the library and its path or name."""
    path = os.environ.get("PLINTH_LIBRARY")
    if not path:
        path = FOLDER / "lib" / SONAME
        path = str(path) if path.exists() else SONAME
    try:
        library = _Library(path)
    except OSError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise ImportError(
            f"plinth: cannot load {path}: {reason}; set PLINTH_LIBRARY to the path of libplinth.so, or install a wheel "
            "of libplinth, which has the library") from None
    try:
        text = library.plinth_version_string().decode()
    except AttributeError:
        raise ImportError(f"plinth: {path} is not libplinth: it has no function plinth_version_string; set "
                          "PLINTH_LIBRARY to the path of libplinth.so") from None
    found = tuple(int(part) for part in text.split("-")[0].split("+")[0].split("."))
    wanted = (PLINTH_VERSION_MAJOR, PLINTH_VERSION_MINOR, PLINTH_VERSION_PATCH)
    # Before 1.0, a minor version may break programs.
    same = 1 if wanted[0] else 2
    if found[:same] != wanted[:same] or found < wanted:
        raise ImportError(f"plinth: {path} is version {text}, but this package needs {'.'.join(map(str, wanted))} or a "
                          f"later one of {'.'.join(map(str, wanted[:same]))}; install matching versions")
    return library, path


def check(status):
    """Raises the exception of a status, with the calling thread's last message, unless the status is PLINTH_OK."""
    if status:
        # The message belongs to the thread's last call that returns a status; these return none.
        message = lib.plinth_last_error() or lib.plinth_status_string(status) or b""
        name = lib.plinth_status_name(status) or b""
        code = lib.plinth_last_driver_error()
        raise errors.class_of(status, code)(message.decode(errors="replace"), status, name.decode(), code)


def wait(query, block):
    """Waits for work of the device, so that Ctrl-C, or another signal with a Python handler, ends the wait.

    `block` waits for the work and raises its errors. It releases the GIL, but Python handles a signal only when it
    returns. `query` returns whether the work is done; it may be None if there is no such call.

    Signals are handled in the main thread only, so other threads just block. The main thread calls `query` until the
    work is done, with sleeps of up to an eighth of the time waited, at most 1 ms. Without `query` it blocks in a second
    thread, which after Ctrl-C ends with the work. It does not inherit the current device and streams, so `block` must
    name them. In a sync debug mode it blocks in the main thread. The work itself goes on after Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        return block()
    mode = ctypes.c_int32()
    lib.plinth_get_sync_debug_mode(ctypes.byref(mode))
    if mode.value == PLINTH_SYNC_DEBUG_ERROR or mode.value and query is None:
        return block()  # It fails before it waits, or warns of the line of the caller, which is in this thread's stack.
    if query is None:
        return _wait_in_thread(block)
    try:
        begin = time.monotonic()
        while not query():
            waited = time.monotonic() - begin
            time.sleep(min(waited / 8, 1e-3) if waited > 1e-4 else 0)
    except errors.PlinthError:
        pass  # `block` has the same error, or can wait where `query` is not permitted.
    return block()


def _wait_in_thread(block):
    """Calls `block` in another thread, waits for it, and returns its result or raises its exception."""
    results = []
    done = _thread.allocate_lock()
    done.acquire()

    def run():
        try:
            results.append((block(), None))
        except BaseException as error:
            results.append((None, error))
        done.release()

    # Not a threading.Thread, whose start is another wait for the thread.
    _thread.start_new_thread(run, ())
    done.acquire()
    result, error = results.pop()
    if error is None:
        return result
    try:
        raise error
    finally:
        del error  # Its traceback has this frame: a cycle would keep what the callers' frames hold.


lib, library_path = _load()
