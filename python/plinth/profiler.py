"""Starts and stops the collection of NVIDIA's profilers: torch.cuda.profiler."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from ._native import check, lib


def start() -> None:
    """Starts the collection of a profiler that is attached to the process."""
    check(lib.plinth_profiler_start())


def stop() -> None:
    """Stops the collection."""
    check(lib.plinth_profiler_stop())


@contextmanager
def profile() -> Iterator[None]:
    """A context in which a profiler collects."""
    start()
    try:
        yield
    finally:
        stop()
