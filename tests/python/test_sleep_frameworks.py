"""Tests plinth.vllm and plinth.torch_memory_saver with stand-ins for vLLM and PyTorch, on the host device.

The signatures are those of vLLM's main branch of August 2026 and of torch_memory_saver 0.0.10b1.
"""

import abc
import contextlib
import importlib
import inspect
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

import support  # noqa: F401
import plinth
import plinth.torch
import plinth.torch_memory_saver
import plinth.vllm
from plinth import sleeping

SIZE = 3 << 20


def make_torch():
    """A module with the parts of PyTorch that plinth.sleeping and plinth.torch_memory_saver use."""
    torch = types.ModuleType("torch")
    torch.captures = []

    @contextlib.contextmanager
    def graph(cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        torch.captures.append((cuda_graph, pool, stream, capture_error_mode))
        yield

    torch.cuda = types.SimpleNamespace(current_device=lambda: 0, current_stream=lambda: None, graph=graph)
    return torch


class SleepModeBackend(abc.ABC):
    """The methods of vLLM's class."""

    def __init__(self):
        self._state = "RUNNING"

    @abc.abstractmethod
    def suspend(self, level=1):
        raise NotImplementedError

    @abc.abstractmethod
    def resume(self, tags=None):
        raise NotImplementedError

    def state(self):
        return self._state

    def discard(self, tags):
        raise RuntimeError

    @classmethod
    def is_supported(cls):
        return True

    @classmethod
    def preserves_communicators(cls):
        return False

    @classmethod
    def preserves_compiled_artifacts(cls):
        return False

    @classmethod
    def preserves_graphs_with_communicators(cls):
        return False

    @classmethod
    def supports_durable_storage(cls):
        return False


def make_factory():
    class SleepModeBackendFactory:
        """Registers backends by module and class, and resolves them when they are needed."""

        registry = {}

        @classmethod
        def register_backend(cls, name, module_path, class_name):
            if name in cls.registry:
                raise ValueError(f"{name} is registered")
            cls.registry[name] = module_path, class_name

        @classmethod
        def get_backend_class(cls, name):
            if name not in cls.registry:
                raise ValueError(f"{name} is not registered")
            module, attribute = cls.registry[name]
            return getattr(importlib.import_module(module), attribute)

        @classmethod
        def create_backend(cls, model_config):
            backend = cls.get_backend_class(model_config.sleep_mode_backend)
            if not backend.is_supported():
                raise ValueError("unsupported")
            return backend()

    return SleepModeBackendFactory


def make_worker(factory):
    class Worker:
        """The parts of vLLM's GPU worker that deal with sleep mode."""

        def __init__(self, vllm_config, local_rank, rank, distributed_init_method, is_driver_worker=False):
            self.vllm_config = vllm_config
            self.arguments = local_rank, rank, distributed_init_method, is_driver_worker
            self._sleep_mode_backend = None

        def _get_sleep_mode_backend(self):
            if self._sleep_mode_backend is None:
                self._sleep_mode_backend = factory.create_backend(self.vllm_config.model_config)
            return self._sleep_mode_backend

        def sleep(self, level=1):
            self._get_sleep_mode_backend().suspend(level)

        def wake_up(self, tags=None):
            self._get_sleep_mode_backend().resume(tags)

        def _maybe_get_memory_pool_context(self, tag):
            return contextlib.nullcontext("vLLM's")

    return Worker


def compare_signatures(test, own, other):
    """Fails unless a function can be called in every way in which another can."""
    own, other = inspect.signature(own).parameters, inspect.signature(other).parameters
    test.assertEqual(list(own)[: len(other)], list(other))
    for name, parameter in other.items():
        test.assertEqual((own[name].kind, own[name].default), (parameter.kind, parameter.default), name)
    for name in list(own)[len(other):]:
        test.assertIsNot(own[name].default, inspect.Parameter.empty, name)


class Cases(unittest.TestCase):
    def setUp(self):
        self.addCleanup(sleeping.wake_memory)
        self.torch = make_torch()
        self.replace(mock.patch.dict(sys.modules, torch=self.torch))
        self.enabled = self.replace(mock.patch.object(plinth.torch, "is_enabled", return_value=True))

    def replace(self, patch):
        self.addCleanup(patch.stop)
        return patch.start()

    def fill(self, buffer, seed):
        contents = bytes((i * 17 + seed) % 253 for i in range(1024)) * (buffer.nbytes // 1024)
        buffer.copy_from(contents)
        return contents


class Vllm(Cases):
    def setUp(self):
        super().setUp()
        self.factory = make_factory()
        names = ("vllm", "vllm.device_allocator", "vllm.device_allocator.sleep_mode_backend", "vllm.v1",
                 "vllm.v1.worker", "vllm.v1.worker.gpu_worker")
        modules = {name: types.ModuleType(name) for name in names}
        for name in names[1:]:
            parent, _, child = name.rpartition(".")
            setattr(modules[parent], child, modules[name])
        self.device_allocator = modules["vllm.device_allocator"]
        self.device_allocator.sleep_mode_backend.SleepModeBackend = SleepModeBackend
        self.device_allocator.sleep_mode_backend.SleepModeBackendFactory = self.factory
        modules["vllm.v1.worker.gpu_worker"].Worker = self.worker_class = make_worker(self.factory)
        self.replace(mock.patch.dict(sys.modules, modules))
        # The classes are made from those of the imported vLLM.
        for name in ("Backend", "Worker"):
            vars(plinth.vllm).pop(name, None)
            self.addCleanup(vars(plinth.vllm).pop, name, None)

    def make(self, backend="plinth", sleep_mode=True):
        config = types.SimpleNamespace(enable_sleep_mode=sleep_mode, sleep_mode_backend=backend)
        return plinth.vllm.Worker(vllm_config=types.SimpleNamespace(model_config=config), local_rank=0, rank=1,
                                  distributed_init_method="tcp://", is_driver_worker=True)

    def load(self, worker):
        """Allocates as a worker does, and returns the weights, their contents and the KV cache."""
        with worker._maybe_get_memory_pool_context(tag="weights"):
            weights = plinth.empty(SIZE)
        with worker._maybe_get_memory_pool_context(tag="kv_cache"):
            cache = plinth.empty(SIZE)
        for tag in ("weights", "kv_cache"):
            self.assertEqual(sum(pool.memory()[0] for pool in sleeping._idle[tag]), SIZE)
        return weights, self.fill(weights, 3), cache

    def test_signatures(self):
        self.assertTrue(issubclass(plinth.vllm.Backend, SleepModeBackend))
        for name, method in vars(plinth.vllm.Backend).items():
            theirs = getattr(SleepModeBackend, name, None)
            if not name.startswith("_") and callable(theirs):
                with self.subTest(name=name):
                    self.assertIs(type(method), type(inspect.getattr_static(SleepModeBackend, name)))
                    compare_signatures(self, getattr(plinth.vllm.Backend, name), theirs)
                    self.assertTrue(getattr(plinth.vllm.Backend, name).__doc__)
        compare_signatures(self, plinth.vllm.Worker._maybe_get_memory_pool_context,
                           self.worker_class._maybe_get_memory_pool_context)
        self.assertIs(plinth.vllm.Backend.preserves_communicators(), True)
        self.assertIs(plinth.vllm.Backend.supports_durable_storage(), False)
        with self.assertRaises(AttributeError):
            plinth.vllm.Model

    def test_import_does_not_import_vllm(self):
        status, output = support.run_python("""
            import sys
            import plinth.vllm
            assert not {"vllm", "torch"} & set(sys.modules)
        """)
        self.assertEqual(status, 0, output)

    def test_level_1_and_partial_wake_up(self):
        worker = self.make()
        self.assertEqual(worker.arguments, (0, 1, "tcp://", True))
        weights, contents, cache = self.load(worker)
        addresses = weights.ptr, cache.ptr
        worker.sleep(1)
        backend = worker._get_sleep_mode_backend()
        self.assertEqual((type(backend), backend.state()), (plinth.vllm.Backend, "SUSPENDED"))
        self.assertGreaterEqual(sleeping.sleep_info("weights").saved_bytes, SIZE)
        self.assertEqual(sleeping.sleep_info("kv_cache").saved_bytes, 0)
        worker.wake_up(["weights"])
        self.assertEqual(weights.tobytes(), contents)
        self.assertEqual((sleeping.sleep_info("kv_cache").pools_asleep, backend.state()), (1, "SUSPENDED"))
        worker.wake_up(["kv_cache"])
        self.assertEqual((backend.state(), weights.ptr, cache.ptr), ("RUNNING", *addresses))
        cache.fill_(1)

    def test_level_2_and_discard(self):
        worker = self.make()
        weights, contents, _ = self.load(worker)
        worker._get_sleep_mode_backend().discard(("kv_cache", "not a tag of this process"))
        self.assertEqual([sleeping.sleep_info(tag).pools_asleep for tag in ("weights", "kv_cache")], [0, 1])
        self.assertEqual(sleeping.sleep_info("kv_cache").saved_bytes, 0)
        self.assertEqual(weights.tobytes(), contents)
        worker.wake_up()
        worker.sleep(level=2)
        self.assertEqual([sleeping.sleep_info(tag).saved_bytes for tag in ("weights", "kv_cache")], [0, 0])
        worker.wake_up()
        self.assertEqual(worker._get_sleep_mode_backend().state(), "RUNNING")

    def test_a_partial_wake_up_wakes_other_tags(self):
        worker = self.make()
        self.load(worker)
        with sleeping.pool("graphs"):
            other = plinth.empty(SIZE)
        worker.sleep()
        worker.wake_up(["kv_cache"])
        tags = ("weights", "kv_cache", "graphs")
        self.assertEqual([sleeping.sleep_info(tag).pools_asleep for tag in tags], [1, 0, 0])
        other.fill_(1)

    def test_hooks_of_connectors(self):
        calls = []

        def before(allocations, tags=None):
            calls.append((sorted({a.tag for a in allocations if not a.is_asleep} & {"weights", "kv_cache"}), tags))

        def after(allocations):
            calls.append(sorted({a.tag for a in allocations if a.is_asleep} & {"weights", "kv_cache"}))

        self.device_allocator.run_before_unmap_hooks, self.device_allocator.run_after_map_hooks = before, after
        worker = self.make()
        self.load(worker)
        worker._get_sleep_mode_backend().discard(("kv_cache",))
        worker.sleep()
        worker.wake_up(["weights"])
        worker.wake_up()
        self.assertEqual(calls, [(["kv_cache", "weights"], ["kv_cache"]), (["weights"], None), ["kv_cache"], []])

    def test_nothing_has_a_tag(self):
        self.make()
        with mock.patch.object(sleeping, "known_tags", return_value=[]):
            with self.assertRaisesRegex(RuntimeError, "--worker-cls plinth.vllm.Worker"):
                plinth.vllm.Backend().suspend()

    def test_the_worker_enables_plinth(self):
        self.enabled.return_value = False
        with mock.patch.object(plinth.torch, "enable") as enable:
            self.make()
            enable.assert_called_once_with(fallback=False)
        self.assertFalse(plinth.vllm.Backend.is_supported())
        with self.assertRaises(ValueError):
            self.factory.create_backend(types.SimpleNamespace(sleep_mode_backend="plinth"))

    def test_other_backends_are_left_alone(self):
        for worker in (self.make("cumem"), self.make(sleep_mode=False)):
            with worker._maybe_get_memory_pool_context("weights") as context:
                self.assertEqual(context, "vLLM's")
        self.assertEqual(self.factory.registry, {})

    def test_registers_once(self):
        plinth.vllm.register()
        plinth.vllm.register()
        self.assertEqual(self.factory.registry, {"plinth": ("plinth.vllm", "Backend")})


def region(tag="default", enable_cpu_backup=False, enable_disk_backup=False, cpu_backup_backend=None): ...
def cuda_graph(cuda_graph, pool=None, stream=None, capture_error_mode="global", tag="default", enable_cpu_backup=False,
               cpu_backup_backend=None): ...
def disable(): ...
def pause(tag=None): ...
def resume(tag=None): ...
def get_cpu_backup(x, zero_copy=False): ...
def set_disk_backup_dir(path): ...


class MemorySaver(Cases):
    def setUp(self):
        super().setUp()
        self.saver = plinth.torch_memory_saver.TorchMemorySaver()

    def allocate(self, seed, **options):
        with self.saver.region(**options):
            buffer = plinth.empty(SIZE)
        return buffer, self.fill(buffer, seed)

    def test_signatures(self):
        module = plinth.torch_memory_saver
        self.assertIsInstance(module.torch_memory_saver, module.TorchMemorySaver)
        for function in (region, cuda_graph, disable, pause, resume, get_cpu_backup, set_disk_backup_dir):
            with self.subTest(name=function.__name__):
                compare_signatures(self, getattr(self.saver, function.__name__), function)
        compare_signatures(self, module.configure_subprocess, disable)
        self.assertIs(self.saver.enabled, True)

    def test_contents(self):
        options = dict(tag="contents", enable_cpu_backup=True)
        kept, contents = self.allocate(1, **options)
        pageable, pageable_contents = self.allocate(2, **options, cpu_backup_backend="mmap")
        lost, _ = self.allocate(3, tag="contents")
        other, other_contents = self.allocate(4, tag="other")
        addresses = kept.ptr, lost.ptr
        for _ in range(2):
            self.saver.pause("contents")
            self.saver.pause("contents")
            for backup, saved in (("pinned", True), ("pageable", True), ("none", False)):
                info = sleeping.sleep_info(f"contents/{backup}")
                self.assertEqual((info.pools_asleep, info.mapped_bytes, info.saved_bytes >= SIZE), (1, 0, saved))
            self.assertEqual(other.tobytes(), other_contents)
            self.saver.resume("contents")
            self.saver.resume("contents")
            self.assertEqual((kept.ptr, lost.ptr), addresses)
            self.assertEqual((kept.tobytes(), pageable.tobytes()), (contents, pageable_contents))
            lost.fill_(1)

    def test_all_and_unknown_tags(self):
        first, contents = self.allocate(1, enable_cpu_backup=True)
        self.allocate(2, tag="second")
        self.saver.pause("a tag without memory")
        self.saver.resume("a tag without memory")
        self.saver.pause()
        self.assertEqual([sleeping.sleep_info(tag).pools_asleep for tag in ("default/pinned", "second/none")], [1, 1])
        self.saver.resume("second")
        self.assertEqual([sleeping.sleep_info(tag).pools_asleep for tag in ("default/pinned", "second/none")], [1, 0])
        self.saver.resume()
        self.assertEqual(first.tobytes(), contents)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "made")
            self.saver.set_disk_backup_dir(path)
            self.assertTrue(os.path.isdir(path))
            buffer, contents = self.allocate(1, tag="disk", enable_disk_backup=True)
            with mock.patch.object(sleeping, "sleep_memory", wraps=sleeping.sleep_memory) as sleep:
                self.saver.pause("disk")
            sleep.assert_called_once_with(["disk/file"], "file", path)
            self.saver.resume("disk")
            self.assertEqual(buffer.tobytes(), contents)

    def test_retained_backups(self):
        buffer, contents = self.allocate(1, tag="retained", enable_cpu_backup=True)
        self.saver.retain_cpu_backup = True
        self.saver.pause("retained")
        self.saver.pause("retained")
        self.saver.resume("retained")
        self.assertGreaterEqual(sleeping.sleep_info("retained/pinned").backup_bytes, SIZE)
        self.saver.retain_cpu_backup = False
        self.saver.pause("retained")
        self.saver.resume("retained")
        self.assertEqual(sleeping.sleep_info("retained/pinned").backup_bytes, 0)
        self.assertEqual(buffer.tobytes(), contents)

    def test_disable(self):
        with self.saver.region("disabled"):
            with self.saver.disable():
                inner = plinth.empty(SIZE)
            outer = plinth.empty(SIZE)
        contents = self.fill(inner, 5)
        self.assertEqual([pool.memory()[0] for pool in sleeping._idle["disabled/none"]], [SIZE])
        self.saver.pause()
        self.assertEqual(inner.tobytes(), contents)
        self.saver.resume()
        outer.fill_(1)

    def test_cuda_graph(self):
        pool = plinth.MemPool()
        with mock.patch.object(plinth.torch, "pool_id", create=True, return_value=pool.id) as pool_id:
            with self.saver.cuda_graph("the graph", pool=(1, 0), capture_error_mode="relaxed", tag="graph"):
                with plinth.use_mem_pool(pool):
                    buffer = plinth.empty(SIZE)
            pool_id.assert_called_once_with("the graph")
        self.assertEqual(self.torch.captures, [("the graph", (1, 0), None, "relaxed")])
        self.saver.pause("graph")
        self.assertGreaterEqual(sleeping.sleep_info("graph/none").asleep_bytes, SIZE)
        self.saver.resume("graph")
        buffer.fill_(1)
        buffer.free()
        del pool
        self.saver.pause("graph")  # The graph is gone, and the tag is not unknown.

    def test_wrong_arguments(self):
        for options in (dict(enable_cpu_backup=True, enable_disk_backup=True), dict(cpu_backup_backend="pinned"),
                        dict(enable_cpu_backup=True, cpu_backup_backend="disk"), dict(tag="a,b")):
            with self.subTest(options=options), self.assertRaises(ValueError):
                self.allocate(1, **options)
        self.enabled.return_value = False
        with self.assertRaisesRegex(RuntimeError, r"plinth\.torch\.enable\(\)"):
            self.allocate(1)

    def test_properties(self):
        self.saver.hook_mode = "preload"
        self.saver.hook_mode = "torch"
        with self.assertRaises(ValueError):
            self.saver.hook_mode = "other"
        with self.assertRaises(AttributeError):
            self.saver.hook_mode
        self.saver.memory_margin_bytes = 0
        with self.assertRaises(NotImplementedError):
            self.saver.memory_margin_bytes = 1
        with self.assertRaises(NotImplementedError):
            self.saver.memory_margin_bytes
        with self.assertRaises(NotImplementedError):
            self.saver.get_cpu_backup(None)

    def test_environment(self):
        variables = dict(TMS_RETAIN_CPU_BACKUP="1", TMS_INIT_CPU_BACKUP_BACKEND="mmap", TMS_DISK_BACKUP_DIR="/a/folder")
        with mock.patch.dict(os.environ, variables):
            self.saver = plinth.torch_memory_saver.TorchMemorySaver()
            self.assertIs(self.saver.retain_cpu_backup, True)
            self.assertEqual(self.saver._folder, "/a/folder")
            self.allocate(1, tag="environment", enable_cpu_backup=True)
            self.assertEqual(sleeping.sleep_info("environment/pageable").pools, 1)
        for before in ("0", None):
            with mock.patch.dict(os.environ, {} if before is None else {"PLINTH_TORCH": before}):
                if before is None:
                    os.environ.pop("PLINTH_TORCH", None)
                with plinth.torch_memory_saver.configure_subprocess():
                    self.assertEqual(os.environ["PLINTH_TORCH"], "1")
                self.assertEqual(os.environ.get("PLINTH_TORCH"), before)

    def test_in_place_of_the_package(self):
        status, output = support.run_python("""
            import sys
            import plinth.torch_memory_saver
            sys.modules["torch_memory_saver"] = plinth.torch_memory_saver
            from torch_memory_saver import configure_subprocess, torch_memory_saver
            assert torch_memory_saver is plinth.torch_memory_saver.torch_memory_saver
        """)
        self.assertEqual(status, 0, output)


if __name__ == "__main__":
    unittest.main()
