"""vLLM's sleep mode on plinth's memory.

    vllm serve MODEL --enable-sleep-mode --sleep-mode-backend plinth --worker-cls plinth.vllm.Worker

`Worker` is vLLM's GPU worker. It makes plinth PyTorch's allocator, allocates the weights and the KV cache in pools with
the tags "weights" and "kv_cache", and registers `Backend`, which lets these pools sleep and wake. Both are classes of
vLLM with a few methods changed, so vLLM is imported when they are first read, not when this module is imported.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List, Optional, Tuple

from . import sleeping

__all__ = ["NAME", "register"]

# The name in vLLM's option --sleep-mode-backend.
NAME = "plinth"

# The tags that a partial wake-up may leave asleep; it wakes all others.
DEFERRABLE_TAGS = ("weights", "kv_cache")


def register() -> None:
    """Registers Backend with vLLM as "plinth", unless this was done: also for the group vllm.general_plugins."""
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

    try:
        SleepModeBackendFactory.get_backend_class(NAME)
    except ValueError:
        SleepModeBackendFactory.register_backend(NAME, __name__, "Backend")


def _run_hooks(name: str, *arguments: Any) -> None:
    """Calls the functions that vLLM's connectors registered for the changes of a tag's mapping, if vLLM has such."""
    import vllm.device_allocator

    run = getattr(vllm.device_allocator, name, None)
    if run is None:
        return
    allocations = []
    for tag in sleeping.known_tags():
        info = sleeping.sleep_info(tag)
        allocations += [SimpleNamespace(tag=tag, is_asleep=i < info.pools_asleep) for i in range(info.pools)]
    run(allocations, *arguments)


def _make_backend() -> type:
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackend

    class Backend(SleepModeBackend):  # type: ignore[misc]
        """Lets the memory of plinth's pools sleep. One process has one state, so all instances are equal."""

        def suspend(self, level: int = 1) -> None:
            """Releases the memory of all pools. Level 1 keeps the weights in pinned host memory; level 2 loses them."""
            if not sleeping.known_tags():
                raise RuntimeError(
                    "suspending vLLM: no memory of this process is in a pool with a tag; start vLLM with "
                    "--worker-cls plinth.vllm.Worker"
                )
            _run_hooks("run_before_unmap_hooks")
            sleeping.sleep(level)

        def resume(self, tags: Optional[List[str]] = None) -> None:
            """Allocates the memory of the tags, and of all but "weights" and "kv_cache", again; of all for None."""
            names = [
                tag for tag in sleeping.known_tags() if tags is None or tag in tags or tag not in DEFERRABLE_TAGS
            ]
            if names:
                sleeping.wake_memory(names)
            _run_hooks("run_after_map_hooks")

        def discard(self, tags: Tuple[str, ...]) -> None:
            """Releases the memory of some tags without a backup."""
            names = [tag for tag in sleeping.known_tags() if tag in tags]
            if names:
                _run_hooks("run_before_unmap_hooks", names)
                sleeping.sleep_memory(names, "none")

        def state(self) -> str:
            """Returns "SUSPENDED" as long as a pool sleeps, else "RUNNING"."""
            return "SUSPENDED" if sleeping.sleep_info().pools_asleep else "RUNNING"

        @classmethod
        def is_supported(cls) -> bool:
            """Returns whether plinth is PyTorch's allocator in this process."""
            from . import torch as bridge

            return bridge.is_enabled()

        @classmethod
        def preserves_communicators(cls) -> bool:
            """Returns True: communicators and their buffers are not in the pools."""
            return True

    return Backend


def _make_worker() -> type:
    from vllm.v1.worker import gpu_worker

    class Worker(gpu_worker.Worker):  # type: ignore[misc]
        """vLLM's GPU worker. With --sleep-mode-backend plinth its memory is plinth's, otherwise it is unchanged."""

        def __init__(self, vllm_config: Any, *arguments: Any, **options: Any) -> None:
            config = vllm_config.model_config
            self._plinth_sleeps = bool(config.enable_sleep_mode and config.sleep_mode_backend == NAME)
            if self._plinth_sleeps:
                from . import torch as bridge

                if not bridge.is_enabled():
                    bridge.enable(fallback=False)
                register()
            super().__init__(vllm_config, *arguments, **options)

        def _maybe_get_memory_pool_context(self, tag: str) -> Any:
            if self._plinth_sleeps:
                return sleeping.pool(tag)
            return super()._maybe_get_memory_pool_context(tag)

    return Worker


_MAKERS = {"Backend": _make_backend, "Worker": _make_worker}


def __getattr__(name: str) -> type:
    if name not in _MAKERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = _MAKERS[name]()
    return made
