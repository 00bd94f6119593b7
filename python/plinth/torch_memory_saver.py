"""The interface of the package torch_memory_saver on plinth's memory.

    import plinth.torch
    plinth.torch.enable()                         # before anything uses CUDA
    from plinth.torch_memory_saver import torch_memory_saver

    with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):
        weights = torch.zeros(1 << 30, device="cuda")
    torch_memory_saver.pause("weights")
    torch_memory_saver.resume("weights")

For a program that imports the package itself: `sys.modules["torch_memory_saver"] = plinth.torch_memory_saver` before it
does. Neither LD_PRELOAD nor a hook mode is needed.

The memory of a region is in a pool with plinth's tag "tag/backup", such as "weights/pinned" or "kv_cache/none". To
pause paused memory and to resume active memory have no effect, where the package ends the process. A region cannot be
entered while memory of its tag and backup is paused: a GraphError.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional, Set

from . import sleeping
from ._native import check, lib
from .graph import pool_id
from .memory import MemPool, use_mem_pool

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]

_CPU_BACKUPS = {"pinned": "pinned", "mmap": "pageable"}


class TorchMemorySaver:
    """Regions of memory that can be paused. The module's `torch_memory_saver` is the one instance that is needed.

    `retain_cpu_backup` says whether resuming keeps the memory of backups for the next pause. Its initial value is that
    of the environment variable TMS_RETAIN_CPU_BACKUP.
    """

    def __init__(self) -> None:
        self.retain_cpu_backup = os.environ.get("TMS_RETAIN_CPU_BACKUP", "").lower() in ("1", "true", "yes")
        self._folder = os.environ.get("TMS_DISK_BACKUP_DIR")
        # The backup of each of plinth's tags, by the tag of the program. The order is that of the first regions.
        self._regions: Dict[str, Dict[str, str]] = {}
        self._retained: Set[str] = set()

    def _add(self, tag: str, cpu: bool, disk: bool, cpu_backend: Optional[str]) -> str:
        """Registers a kind of region, and returns plinth's tag for it."""
        if cpu and disk:
            raise ValueError("a region has enable_cpu_backup and enable_disk_backup; choose one")
        if cpu_backend is not None and not cpu:
            raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")
        backend = cpu_backend or os.environ.get("TMS_INIT_CPU_BACKUP_BACKEND") or "pinned"
        if backend not in _CPU_BACKUPS:
            raise ValueError(f'cpu_backup_backend is {backend!r}, not "pinned" or "mmap"')
        bridge = sys.modules.get(f"{__package__}.torch")
        if "torch" in sys.modules and not (bridge and bridge.is_enabled()):
            raise RuntimeError(
                "a region of torch_memory_saver: PyTorch does not allocate from plinth; call plinth.torch.enable() "
                "before anything uses CUDA, or set PLINTH_TORCH=1 in the environment"
            )
        backup = _CPU_BACKUPS[backend] if cpu else "file" if disk else "none"
        name = f"{tag}/{backup}"
        self._regions.setdefault(tag, {})[name] = backup
        return name

    def _selected(self, tag: Optional[str]) -> Dict[str, str]:
        """Returns plinth's tags of a tag, or of all for None, with their backups."""
        regions = [self._regions.get(tag, {})] if tag else list(self._regions.values())
        known = sleeping.known_tags()
        return {name: backup for region in regions for name, backup in region.items() if name in known}

    @contextmanager
    def region(
        self,
        tag: str = "default",
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: Optional[str] = None,
    ) -> Iterator[None]:
        """A context in which the calling thread allocates memory that can be paused, on the current device.

        Its contents are lost in a pause, unless there is a backup: in host memory, which `cpu_backup_backend` says is
        "pinned", the default, or pageable ("mmap"), or in a file. Raises ValueError for another combination, and
        RuntimeError if PyTorch does not allocate from plinth.
        """
        with sleeping.pool(self._add(tag, enable_cpu_backup, enable_disk_backup, cpu_backup_backend)):
            yield

    @contextmanager
    def cuda_graph(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = "default",
        enable_cpu_backup: bool = False,
        cpu_backup_backend: Optional[str] = None,
    ) -> Iterator[None]:
        """A context that captures a graph as torch.cuda.graph does, in memory that can be paused.

        The pool's whole memory has the tag, also that of other graphs which share the pool.
        """
        import torch

        from . import torch as bridge

        name = self._add(tag, enable_cpu_backup, False, cpu_backup_backend)
        with torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
            yield
        with sleeping.pool(name):
            pass  # An empty pool, so that the tag still exists when the graph does not.
        check(lib.plinth_mem_pool_set_tag(pool_id(bridge.pool_id(cuda_graph)), name.encode()))

    @contextmanager
    def disable(self) -> Iterator[None]:
        """A context, within a region, in which the calling thread allocates memory that is never paused."""
        with use_mem_pool(MemPool(), sleeping.allocation_device()):
            yield

    def pause(self, tag: Optional[str] = None) -> None:
        """Releases the physical memory of regions with a tag, or of all, after a wait for the devices.

        A tag that no region had has no effect.
        """
        selected = self._selected(tag)
        for backup in dict.fromkeys(selected.values()):
            names = [name for name in selected if selected[name] == backup]
            folder = self._folder if backup == "file" else None
            if backup in _CPU_BACKUPS.values() and self.retain_cpu_backup:
                for name in names:
                    if not sleeping.sleep_info(name).pools_asleep:
                        sleeping.alloc_backup(name, backup)
                        self._retained.add(name)
            sleeping.sleep_memory(names, backup, folder)

    def resume(self, tag: Optional[str] = None) -> None:
        """Allocates the physical memory of regions with a tag, or of all, again, and restores what has a backup."""
        names = list(self._selected(tag))
        if not names:
            return
        sleeping.wake_memory(names)
        released = set() if self.retain_cpu_backup else self._retained.intersection(names)
        if released:
            sleeping.free_backup(sorted(released))
            self._retained -= released

    @property
    def enabled(self) -> bool:
        """True."""
        return True

    @property
    def hook_mode(self) -> str:
        """Settable only, to "preload" or "torch". It has no effect: plinth hooks nothing."""
        raise AttributeError("hook_mode can be set, but not read")

    @hook_mode.setter
    def hook_mode(self, hook_mode: str) -> None:
        if hook_mode not in ("preload", "torch"):
            raise ValueError(f'hook_mode is {hook_mode!r}, not "preload" or "torch"')

    @property
    def memory_margin_bytes(self) -> int:
        """Settable only, to 0: plinth has no limit on the device's free memory."""
        raise NotImplementedError("memory_margin_bytes can be set, but not read")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        if value:
            raise NotImplementedError(
                f"setting memory_margin_bytes to {value}: plinth has no limit on the device's free memory; limit what "
                "it allocates with torch.cuda.set_per_process_memory_fraction"
            )

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """Raises NotImplementedError: plinth's backups cannot be read while the memory is paused."""
        raise NotImplementedError(
            "reading a backup: plinth's backups cannot be read; resume the memory, and copy the tensor"
        )

    def set_disk_backup_dir(self, path: str) -> None:
        """Makes a folder, and sets it as that of backups in files; initially TMS_DISK_BACKUP_DIR, else the system's."""
        os.makedirs(path, exist_ok=True)
        self._folder = path


@contextmanager
def configure_subprocess() -> Iterator[None]:
    """A context in which processes are started with PLINTH_TORCH=1, so that their PyTorch allocates from plinth."""
    previous = os.environ.get("PLINTH_TORCH")
    os.environ["PLINTH_TORCH"] = "1"
    try:
        yield
    finally:
        if previous is None:
            del os.environ["PLINTH_TORCH"]
        else:
            os.environ["PLINTH_TORCH"] = previous


torch_memory_saver = TorchMemorySaver()
