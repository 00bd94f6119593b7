"""Destroys what objects own when they are collected, which happens in any thread.

A thread of the driver that runs a function of the program must not call CUDA. The collector may run there, and the
function may hold the last reference to an object. What is collected there is destroyed in a thread of its own.
"""

from __future__ import annotations

import _thread
import os
from typing import Any, Callable, List, Set, Tuple

from ._arguments import call_and_report
from ._native import PLINTH_ERROR_CAPTURE_FORBIDS, PLINTH_ERROR_SHUTTING_DOWN, check
from .errors import DeviceLostError, PlinthError

_driver_threads: Set[int] = set()
_delayed: List[Tuple[Callable[..., int], Tuple[Any, ...]]] = []
_is_exiting = False


class Unpicklable:
    """An object that owns a handle: a copy would use the handle after it is destroyed."""

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied")


def release(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function of the C API that destroys or frees. In a thread of the driver another thread calls it later.

    A stream that is a part of a capture is destroyed when the capture has ended. What is on a device whose context is
    lost is lost with it, which other calls have reported.
    """
    delays = bool(_driver_threads) and _thread.get_ident() in _driver_threads
    status = 0 if delays else function(*arguments)
    if delays or status == PLINTH_ERROR_CAPTURE_FORBIDS:
        _delayed.append((function, arguments))
    else:
        try:
            check(status)
        except DeviceLostError:
            pass


def call_in_driver_thread(function: Callable[[], object]) -> None:
    """Calls a function of the program in a thread of the driver. Its exception goes to sys.unraisablehook."""
    thread = _thread.get_ident()
    _driver_threads.add(thread)
    try:
        call_and_report(function)
    finally:
        _driver_threads.discard(thread)
        if _delayed:
            try:
                _thread.start_new_thread(release_delayed, ())
            except RuntimeError:
                pass  # The interpreter ends, and the process with it.


def begin_exit() -> None:
    """Makes check_exit fail from now on: the interpreter is about to end."""
    global _is_exiting
    _is_exiting = True


def check_exit(what: str) -> None:
    """Raises PlinthError if the interpreter ends: a thread of the driver that then calls Python ends the process."""
    if _is_exiting:
        raise PlinthError(
            f"{what}: the interpreter is ending, and no thread of the driver may call Python any more",
            PLINTH_ERROR_SHUTTING_DOWN,
            "PLINTH_ERROR_SHUTTING_DOWN",
        )


def release_delayed() -> None:
    """Destroys what could not be destroyed when it was collected, if that is possible now."""
    for _ in range(len(_delayed)):
        try:
            function, arguments = _delayed.pop(0)
        except IndexError:
            return  # Another thread was faster.
        call_and_report(lambda: release(function, *arguments))


os.register_at_fork(after_in_child=_driver_threads.clear)
