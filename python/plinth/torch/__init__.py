"""PyTorch on plinth's memory.

    import plinth.torch
    plinth.torch.enable()          # before anything uses CUDA

Afterwards every CUDA tensor of the process is in memory of plinth, and torch's statistics, snapshots, pools, CUDA
graphs, torch.compile, shared tensors and torch.OutOfMemoryError work as before. With PLINTH_TORCH=1 in the environment
this happens right after `import torch`, without a change to the program.
"""

import ctypes
import os
import pathlib
import threading
import warnings
from typing import Any, Tuple

from .. import _native
from . import _build

__all__ = ["EnableError", "enable", "is_enabled", "pool_id"]

# The versions of PyTorch whose headers the bridge was compiled against, by major and minor version.
SUPPORTED = {(2, minor) for minor in range(10, 16)}
# PyTorch's setters of hooks besides allocation and free, and plinth's functions. Its names are irregular.
HOOKS = {
    "set_init_fn": "plinth_pluggable_init",
    "set_reset_fn": "plinth_pluggable_reset",
    "set_memory_fraction_fn": "plinth_pluggable_memory_fraction",
    "set_base_alloc_fn": "plinth_pluggable_base_alloc",
    "set_record_stream_fn": "plinth_pluggable_record_stream",
    "set_begin_allocate_to_pool": "plinth_pluggable_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "plinth_pluggable_end_allocate_to_pool",
    "set_release_pool": "plinth_pluggable_release_pool",
}
LOST = ("torch.cuda.memory_stats and other statistics, memory snapshots, torch.cuda.MemPool, cudnn.benchmark, "
        "torch.compile(mode=\"reduce-overhead\") and sending CUDA tensors to other processes raise, and a request that "
        "does not fit returns memory at address 0 instead of raising torch.OutOfMemoryError")

_lock = threading.Lock()
_enabled_by = None  # "bridge" or "pluggable"
_process = None
_kept = []  # what PyTorch holds raw pointers to


class EnableError(RuntimeError):
    """PyTorch cannot use plinth's memory; the message says why and what to do. Nothing was changed."""


def _imported_torch():
    """Imports torch. Raises EnableError."""
    try:
        import torch
    except ImportError as error:
        raise EnableError(f"enabling plinth: torch cannot be imported: {error}") from error
    return torch


def _check(torch):
    """Checks that plinth can become the allocator of torch. Raises EnableError."""
    version = str(torch.__version__)
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split("+")[0].split(".")[:2])
    if not getattr(torch.version, "cuda", None):
        raise EnableError(f"enabling plinth: this PyTorch, {version}, was built without CUDA; install one with CUDA")
    if numbers not in SUPPORTED:
        supported = ", ".join(f"{major}.{minor}" for major, minor in sorted(SUPPORTED))
        reason = "is too old" if numbers < min(SUPPORTED) else "is not supported by this version of plinth"
        raise EnableError(f"enabling plinth: PyTorch {version} {reason}; the supported versions are {supported}")
    if torch.cuda._is_in_bad_fork():
        raise EnableError("enabling plinth: this process was forked from one that had initialized CUDA, and cannot use "
                          "CUDA; start processes with the method 'spawn' or 'forkserver'")
    backend = torch.cuda.memory.get_allocator_backend()
    if backend == "plinth":
        raise EnableError("enabling plinth: plinth is PyTorch's allocator already, by another copy of this package")
    if torch.cuda.is_initialized():
        raise EnableError("enabling plinth: CUDA is initialized already, so PyTorch's allocator cannot be changed; call "
                          "plinth.torch.enable() before anything uses CUDA, at the top of the program, or set "
                          "PLINTH_TORCH=1 in the environment")
    if backend != "native":
        raise EnableError(f"enabling plinth: another allocator, {backend}, is PyTorch's already; remove the call of "
                          "torch.cuda.memory.change_current_allocator, or backend: from PYTORCH_ALLOC_CONF")


def _library_file():
    """Returns the path of the loaded libplinth.so, also if the system's loader found it by name."""
    path = pathlib.Path(_native.library_path)
    if path.exists():
        return path.resolve()
    loaded = _build.loaded_library("libplinth.so")
    if loaded:
        return pathlib.Path(loaded)
    raise _build.BuildError(f"the path of the loaded library {path} is unknown; set PLINTH_LIBRARY to it")


def _install_bridge(torch):
    """Compiles, loads and installs the bridge. Raises BuildError if it cannot be compiled."""
    version = _native.lib.plinth_version_string().decode()
    path = _build.build(_build.Torch.installed(torch), _library_file(), version)
    # Symbols of the bridge's libraries are resolved from those that torch and this package have loaded.
    try:
        bridge = ctypes.PyDLL(str(path))
    except OSError as error:
        raise _build.BuildError(f"the compiled bridge {path} cannot be loaded: {error}; delete it and try again") from None
    bridge.plinth_torch_install.restype = ctypes.c_char_p
    bridge.plinth_torch_pool.restype = ctypes.c_char_p
    bridge.plinth_torch_pool.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64,
                                         ctypes.POINTER(_native.plinth_pool_id_t)]
    message = bridge.plinth_torch_install()
    if message is not None:
        raise EnableError(f"enabling plinth: PyTorch refused the allocator: {message.decode(errors='replace')}")
    _kept.append(bridge)


def _install_pluggable(torch):
    """Installs plinth through PyTorch's own interface for allocators, which has less."""
    path = os.fspath(_native.library_path)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "plinth_alloc", "plinth_free")
    for setter, symbol in HOOKS.items():
        address = ctypes.cast(getattr(_native.lib, symbol), ctypes.c_void_p).value
        getattr(allocator.allocator(), setter)(address)
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise EnableError(f"enabling plinth: PyTorch refused the allocator: {error}") from error
    _kept.append(allocator)


def enable(*, fallback: bool = True) -> None:
    """Makes plinth the allocator of all CUDA memory of PyTorch in this process.

    Call it before anything uses CUDA; it does not initialize CUDA itself. It cannot be undone. The first call for a
    version of PyTorch compiles a library, which takes about 30 seconds, and keeps it in ~/.cache/plinth.

    Without a C++ compiler, PyTorch's interface for other allocators is used instead, which lacks much; a RuntimeWarning
    says what. With fallback=False an EnableError is raised in that case.

    Raises EnableError: if CUDA is initialized already, if plinth is enabled already, in a child that was forked after
    CUDA was initialized, if another allocator was swapped in, and for a PyTorch that is not supported or has no CUDA.
    """
    global _enabled_by, _process
    # Before the lock: with PLINTH_TORCH=1 the import itself calls this function.
    torch = _imported_torch()
    with _lock:
        if _enabled_by is not None:
            forked = " in the process that this one was forked from" if _process != os.getpid() else ""
            raise EnableError(f"enabling plinth: it was enabled already{forked}; call plinth.torch.enable() once, and not "
                              "if PLINTH_TORCH=1 is set")
        _check(torch)
        try:
            _install_bridge(torch)
            _enabled_by = "bridge"
        except _build.BuildError as error:
            if not fallback:
                raise EnableError(f"enabling plinth: {error}") from error
            _install_pluggable(torch)
            _enabled_by = "pluggable"
            warnings.warn(f"plinth: the bridge to PyTorch could not be compiled: {error}\nPyTorch uses plinth through "
                          f"CUDAPluggableAllocator instead: {LOST}.", RuntimeWarning, stacklevel=2)
        _process = os.getpid()


def is_enabled() -> bool:
    """Returns whether plinth is PyTorch's allocator in this process, by enable() here or in the parent of a fork."""
    return _enabled_by is not None


def pool_id(pool: Any, device: Any = None) -> Tuple[int, int]:
    """Returns plinth's id of a pool of PyTorch on a device, by default the current one, as a pair of integers.

    `pool` is a torch.cuda.MemPool, a torch.cuda.CUDAGraph, or the pair that torch.cuda.graph_pool_handle returns. The
    id serves plinth's own functions, such as the tag of plinth.MemPool. Raises EnableError without the bridge, and
    RuntimeError for a pool that PyTorch has not used on the device.
    """
    if _enabled_by != "bridge":
        raise EnableError("pools of PyTorch are pools of plinth only if plinth.torch.enable() has installed the bridge")
    import torch
    owner, index = pool.pool() if hasattr(pool, "pool") else getattr(pool, "id", pool)
    number = None if device is None else torch.device(device).index
    if number is None:
        number = torch.cuda.current_device()
    found = _native.plinth_pool_id_t()
    message = _kept[0].plinth_torch_pool(number, owner, index, ctypes.byref(found))
    if message is not None:
        raise RuntimeError(message.decode(errors="replace"))
    return found.owner, found.index
