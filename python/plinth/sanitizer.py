"""The stream sanitizer: finds accesses to memory that nothing orders, use after free, and accesses past a block's end.

It watches the calls of plinth; report the accesses of other libraries with `access` and `operation`. All of it holds
for the whole process. torch's name is _sanitizer.enable_cuda_sanitizer.
"""

from __future__ import annotations

import atexit
import itertools
import json
from ctypes import byref, c_int32, c_size_t, c_uint64
from typing import Any, Callable, List, Optional, Sequence, Tuple

from . import _native, tensor
from ._arguments import StreamLike, result, stream_handle, take_text
from ._native import check, lib

_MODES = {
    "off": _native.PLINTH_SANITIZER_OFF,
    "collect": _native.PLINTH_SANITIZER_COLLECT,
    "warn": _native.PLINTH_SANITIZER_WARN,
    "error": _native.PLINTH_SANITIZER_ERROR,
}
_ACCESSES = {
    "read": _native.PLINTH_SANITIZER_READ,
    "write": _native.PLINTH_SANITIZER_WRITE,
    "read_write": _native.PLINTH_SANITIZER_READ | _native.PLINTH_SANITIZER_WRITE,
}

_callback: Optional[Any] = None
# C code may call the library after the interpreter has ended.
atexit.register(lib.plinth_sanitizer_set_callback, _native.plinth_sanitizer_callback_t(), None)


def enable(mode: str = "error", callback: Optional[Callable[[dict[str, Any]], object]] = None) -> None:
    """Starts the sanitizer, before memory is allocated and work is enqueued.

    "collect" stores findings, "warn" also calls `callback` with each new one, and "error" also makes the call in which
    something is found raise RaceError, before it has any effect. The callback gets a dictionary of the finding, with
    its text in "text", in the thread of the call; its exceptions go to sys.unraisablehook. Raises ValueError for
    another mode.
    """
    if mode not in _MODES:
        raise ValueError(f"the mode {mode!r} is not one of {', '.join(_MODES)}")
    set_callback(callback)
    check(lib.plinth_sanitizer_enable(_MODES[mode]))


def enable_cuda_sanitizer() -> None:
    """Starts the sanitizer in the mode "error": torch's name."""
    enable("error")


def disable() -> None:
    """Stops the sanitizer. Findings are kept."""
    check(lib.plinth_sanitizer_disable())


def mode() -> str:
    """Returns the mode: "off", "collect", "warn" or "error"."""
    number = result(c_int32, lib.plinth_sanitizer_mode)
    return next(name for name, value in _MODES.items() if value == number)


def _wrap(function: Callable[[dict[str, Any]], object]) -> Any:
    def call(report: Any, context: Any) -> None:
        raw = report[0]
        finding = json.loads(raw.json) if raw.json else {}
        finding["text"] = (raw.text or b"").decode(errors="replace")
        function(finding)

    return _native.plinth_sanitizer_callback_t(call)


def set_callback(callback: Optional[Callable[[dict[str, Any]], object]]) -> None:
    """Sets the function that is called with each new finding; None for none."""
    global _callback
    wrapped = _native.plinth_sanitizer_callback_t() if callback is None else _wrap(callback)
    check(lib.plinth_sanitizer_set_callback(wrapped, None))
    _callback = wrapped  # The previous one is released when no call can use it any more.


def access(obj: Any, kind: str = "read", stream: StreamLike = None) -> None:
    """Reports that work in a stream accesses an object's memory: "read", "write" or "read_write"."""
    operation("plinth_sanitizer_access", [(obj, kind)], stream)


# The most runs of bytes without a gap that are reported of a tensor, as of those that plinth's own calls use.
_MAX_RUNS = 4096


def _runs(view: tensor.TensorView) -> List[Tuple[int, int]]:
    """Returns the addresses and the sizes of the runs of bytes without a gap that a tensor consists of."""
    if not view.size:
        return []
    begin = view.span[0]
    run = item = view.nbytes // view.size
    steps = sorted((abs(stride) * item, extent) for extent, stride in zip(view.shape, view.strides) if extent > 1)
    while steps and steps[0][0] <= run:
        step, extent = steps.pop(0)
        run += step * (extent - 1)
    offsets = itertools.product(*(range(0, step * extent, step) for step, extent in reversed(steps)))
    return [(begin + sum(offset), run) for offset in itertools.islice(offsets, _MAX_RUNS)]


def operation(name: str, accesses: Sequence[Tuple[Any, str]], stream: StreamLike = None) -> None:
    """Reports an operation in a stream, such as a kernel of another library, with pairs of an object and its access."""
    views = [(tensor.view(obj, stream=stream), _kind(kind)) for obj, kind in accesses]
    ranges = [(pointer, size, kind) for view, kind in views for pointer, size in _runs(view)]
    raw = (_native.plinth_sanitizer_access_t * max(len(ranges), 1))()
    for i, (pointer, size, kind) in enumerate(ranges):
        raw[i] = _native.plinth_sanitizer_access_t.init()
        raw[i].pointer, raw[i].bytes, raw[i].kind = pointer, size, kind
    check(lib.plinth_sanitizer_operation(name.encode(), raw, len(ranges), stream_handle(stream)))


def _kind(kind: str) -> int:
    if kind not in _ACCESSES:
        raise ValueError(f"the access {kind!r} is not one of {', '.join(_ACCESSES)}")
    return int(_ACCESSES[kind])


def count() -> Tuple[int, int]:
    """Returns the number of reports, and the number of findings in them."""
    reports, findings = c_size_t(), c_uint64()
    check(lib.plinth_sanitizer_count(byref(reports), byref(findings)))
    return reports.value, findings.value


def findings() -> List[dict[str, Any]]:
    """Returns the reports as dictionaries, each with its text in "text"."""
    found: List[dict[str, Any]] = []
    callback = _wrap(found.append)
    check(lib.plinth_sanitizer_each(callback, None))
    return found


def text() -> str:
    """Returns all reports as a text."""
    return take_text(lib.plinth_sanitizer_text)


def clear() -> None:
    """Discards the reports."""
    check(lib.plinth_sanitizer_clear())
