"""Graphs: torch.cuda.CUDAGraph, the context `graph`, and the pools that graphs share.

A graph is work that is captured once and replayed as a whole. Calls for one graph are serialized; different graphs may
be used by different threads at the same time.
"""

from __future__ import annotations

import os
import weakref
from ctypes import byref, c_bool, c_size_t
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple, Union

from . import _native
from ._arguments import StreamLike, result, stream_handle, take_text
from ._native import c_void_p, check, lib
from ._release import release, release_delayed
from .errors import PlinthError

if TYPE_CHECKING:
    from .memory import MemPool
    from .random import Generator

PoolId = Tuple[int, int]

_MODES = {
    "global": _native.PLINTH_CAPTURE_GLOBAL,
    "thread_local": _native.PLINTH_CAPTURE_THREAD_LOCAL,
    "relaxed": _native.PLINTH_CAPTURE_RELAXED,
}


def _mode(name: str) -> int:
    if name not in _MODES:
        raise ValueError(f"the capture mode {name!r} is not one of {', '.join(_MODES)}")
    return int(_MODES[name])


def pool_id(pool: "Union[PoolId, CUDAGraph, MemPool]") -> Any:
    """Converts a pool, a graph or a pair of numbers to a plinth_pool_id_t."""
    if isinstance(pool, CUDAGraph):
        pool = pool.pool()
    identifier: Any = getattr(pool, "id", pool)
    owner, index = identifier
    return _native.plinth_pool_id_t(owner, index)


def graph_pool_handle() -> PoolId:
    """Returns the id of a new pool, for graphs that share their memory."""
    pool = _native.plinth_pool_id_t()
    check(lib.plinth_graph_pool_handle(byref(pool)))
    return pool.owner, pool.index


class NodeTime(NamedTuple):
    """The median duration of a node of a graph that runs alone, in microseconds, and its description."""

    microseconds: float
    node_type: int
    what: str


class CUDAGraph:
    """Work that is captured once and replayed as a whole.

    With `keep_graph` the graph keeps its nodes after the capture, and is instantiated by instantiate() or the first
    replay. The graph is destroyed when the object is collected; running replays finish.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._handle = result(c_void_p, lib.plinth_graph_create)
        weakref.finalize(self, release, lib.plinth_graph_destroy, self._handle).atexit = False
        if keep_graph:
            check(lib.plinth_graph_set_flags(self._handle, _native.PLINTH_GRAPH_KEEP_GRAPH))

    def capture_begin(
        self, pool: "Union[None, PoolId, CUDAGraph, MemPool]" = None, capture_error_mode: str = "global"
    ) -> None:
        """Begins to capture the work of the calling thread's current stream, which must not be the default stream.

        `pool` is the pool of the memory that the capture allocates, by default one of the graph's own. The mode is
        "global", "thread_local" or "relaxed". `plinth.graph` is the usual way to capture.
        """
        identifier = None if pool is None else byref(pool_id(pool))
        check(lib.plinth_graph_capture_begin(self._handle, identifier, _mode(capture_error_mode)))

    def capture_end(self) -> None:
        """Ends the capture, in the stream and, unless it is relaxed, in the thread in which it began."""
        status = lib.plinth_graph_capture_end(self._handle)
        try:
            check(status)
        finally:
            release_delayed()

    def instantiate(self) -> None:
        """Makes the kept graph ready for replays, again if it was before."""
        check(lib.plinth_graph_instantiate(self._handle))

    def upload(self) -> None:
        """Transfers the graph to the device in the current stream, so that the first replay starts sooner."""
        check(lib.plinth_graph_upload(self._handle))

    def replay(self) -> None:
        """Enqueues the graph's work in the current stream of its device."""
        check(lib.plinth_graph_replay(self._handle))

    def reset(self) -> None:
        """Returns to the state before the capture, so that another can begin. Running replays finish."""
        check(lib.plinth_graph_reset(self._handle))

    def pool(self) -> PoolId:
        """Returns the id of the graph's pool, for graphs that are to share its memory."""
        pool = _native.plinth_pool_id_t()
        check(lib.plinth_graph_pool(self._handle, byref(pool)))
        return pool.owner, pool.index

    def pools(self) -> List[PoolId]:
        """Returns the ids of the graph's pools: it has one."""
        return [self.pool()]

    def register_generator_state(self, generator: "Generator") -> None:
        """Registers a generator, before the capture, so that each replay draws new numbers from it.

        The graph keeps the generator's state, also when the object is collected.
        """
        check(lib.plinth_graph_register_generator_state(self._handle, generator._handle))

    def enable_debug_mode(self) -> None:
        """Makes the graph keep its nodes for debug_dump; call it before the capture ends."""
        check(lib.plinth_graph_enable_debug_mode(self._handle))

    def debug_dump(self, debug_path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the graph to a file in Graphviz format. The graph must have kept its nodes."""
        check(lib.plinth_graph_debug_dump(self._handle, os.fsencode(debug_path)))

    def summary(self) -> str:
        """Returns a table of the nodes, with a line for each and columns separated by tabs. Nodes must be kept."""
        return take_text(lib.plinth_graph_summary, self._handle)

    def memory(self) -> Tuple[int, int]:
        """Returns the bytes that are allocated from the graph's pool, and the bytes of memory that it holds."""
        allocated, held = c_size_t(), c_size_t()
        check(lib.plinth_graph_memory(self._handle, byref(allocated), byref(held)))
        return allocated.value, held.value

    def sleep(self) -> None:
        """Releases the memory of the graph's pool to the driver, after a wait for the devices; contents are lost."""
        check(lib.plinth_graph_sleep(self._handle))

    def wake(self) -> None:
        """Allocates the memory of the graph's pool again, at the same addresses, with undefined contents."""
        check(lib.plinth_graph_wake(self._handle))

    def is_asleep(self) -> bool:
        """Reports whether the memory of the graph's pool is released."""
        return bool(result(c_bool, lib.plinth_graph_is_asleep, self._handle))

    def update(self, other: "CUDAGraph") -> None:
        """Makes later replays do the work of another graph, which kept its nodes and differs in parameters only."""
        check(lib.plinth_graph_update(self._handle, other._handle))

    def raw_cuda_graph(self) -> int:
        """Returns the CUgraph, which belongs to this object, of a graph that kept its nodes."""
        return int(result(c_void_p, lib.plinth_graph_native, self._handle))

    def raw_cuda_graph_exec(self) -> int:
        """Returns the CUgraphExec, which belongs to this object. If you launch it, you must advance its generators."""
        return int(result(c_void_p, lib.plinth_graph_exec_native, self._handle))

    def node_times(self, repeats: int = 10) -> List[NodeTime]:
        """Runs each node alone, `repeats` times and once before, and returns the medians. Nodes must be kept."""
        count = c_size_t()
        check(lib.plinth_graph_node_times(self._handle, 1, None, 0, byref(count)))
        times = (_native.plinth_node_time_t * max(count.value, 1))()
        times[0] = _native.plinth_node_time_t.init()
        check(lib.plinth_graph_node_times(self._handle, repeats, times, count.value, byref(count)))
        return [
            NodeTime(time.microseconds, time.node_type, time.what.decode(errors="replace"))
            for time in times[: count.value]
        ]

    def __reduce__(self) -> Any:
        raise TypeError("a graph cannot be pickled or copied")


class graph:
    """A context that captures a graph: `with plinth.graph(g): ...`.

    It waits for the device, releases cached memory, and captures in `stream`, by default one that the library keeps for
    this. `pool` and `capture_error_mode` are those of CUDAGraph.capture_begin. If the block raises, the capture is
    discarded. The context must be left by the thread that entered it.
    """

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: "Union[None, PoolId, CUDAGraph, MemPool]" = None,
        stream: StreamLike = None,
        capture_error_mode: str = "global",
    ) -> None:
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_error_mode = capture_error_mode
        self._mode = _mode(capture_error_mode)
        self._stream = stream
        self._context: Any = None

    def __enter__(self) -> None:
        context = _native.plinth_graph_context_t()
        identifier = None if self.pool is None else byref(pool_id(self.pool))
        stream = None if self._stream is None else stream_handle(self._stream)
        check(lib.plinth_graph_begin(self.cuda_graph._handle, identifier, stream, self._mode, byref(context)))
        self._context = context

    def __exit__(self, kind: Optional[type], exception: Optional[BaseException], traceback: object) -> None:
        context, self._context = self._context, None
        body = 0
        if exception is not None:
            body = exception.status if isinstance(exception, PlinthError) else _native.PLINTH_ERROR_ABORTED
        status = lib.plinth_graph_end(byref(context), body)
        try:
            if exception is None:
                check(status)
        finally:
            release_delayed()
