"""Tests of plinth.torch without PyTorch: a package `torch` of a temporary folder stands in for it."""

import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

import plinth

# The checkout's, or that of an installed wheel.
PYTHON = pathlib.Path(plinth.__file__).resolve().parents[1]

FAKE_TORCH = '''
__version__ = "{version}"
class version:
    cuda = {cuda!r}
    git_version = "0" * 40
def compiled_with_cxx11_abi():
    return True
from . import cuda
'''
FAKE_CUDA = '''
from . import memory
initialized = {initialized}
forked = {forked}
def is_initialized():
    return initialized
def _is_in_bad_fork():
    return forked
'''
FAKE_MEMORY = '''
backend = {backend!r}
swapped = []
hooks = {{}}
def get_allocator_backend():
    return backend
class CUDAPluggableAllocator:
    def __init__(self, path, alloc, free):
        self.path, self.names = path, (alloc, free)
    def allocator(self):
        return self
    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda address: hooks.__setitem__(name, address)
def change_current_allocator(allocator):
    swapped.append(allocator)
'''


class FakeTorch(unittest.TestCase):
    """Runs programs in processes of their own, because enabling cannot be undone."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def make_torch(self, version="2.11.0+cu130", cuda="13.0", initialized=False, forked=False, backend="native"):
        package = self.folder / "torch"
        (package / "cuda").mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(FAKE_TORCH.format(version=version, cuda=cuda))
        (package / "cuda/__init__.py").write_text(FAKE_CUDA.format(initialized=initialized, forked=forked))
        (package / "cuda/memory.py").write_text(FAKE_MEMORY.format(backend=backend))

    def run_python(self, code, **variables):
        environment = {**os.environ, "PYTHONPATH": f"{self.folder}{os.pathsep}{PYTHON}", "PLINTH_DEVICE": "host",
                       "XDG_CACHE_HOME": str(self.folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1", **variables}
        return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True,
                              timeout=120, check=False)

    def error_of_enable(self):
        done = self.run_python("""
            import plinth.torch
            try:
                plinth.torch.enable()
            except plinth.torch.EnableError as error:
                print(error)
            assert not plinth.torch.is_enabled()
        """)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


class Refusals(FakeTorch):
    """Every program that enable() refuses, with the reason."""

    def expect(self, text, **torch):
        self.make_torch(**torch)
        self.assertIn(text, self.error_of_enable())

    def test_too_old(self):
        self.expect("PyTorch 2.4.1 is too old; the supported versions are ", version="2.4.1")

    def test_too_new(self):
        self.expect("PyTorch 3.0.0a0+git123 is not supported by this version", version="3.0.0a0+git123")

    def test_without_cuda(self):
        self.expect("was built without CUDA", cuda=None)

    def test_initialized(self):
        self.expect("CUDA is initialized already", initialized=True)

    def test_forked(self):
        self.expect("was forked from one that had initialized CUDA", forked=True)

    def test_other_allocator(self):
        self.expect("another allocator, pluggable, is PyTorch's already", backend="pluggable")

    def test_missing(self):
        done = self.run_python("""
            import sys
            sys.modules["torch"] = None
            import plinth.torch
            try:
                plinth.torch.enable()
            except plinth.torch.EnableError as error:
                print(error)
        """)
        self.assertIn("torch cannot be imported", done.stdout, done.stderr)


class WithoutCompiler(FakeTorch):
    """The pluggable route."""

    def test_falls_back_with_a_warning(self):
        self.make_torch()
        done = self.run_python("""
            import warnings, plinth.torch
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                plinth.torch.enable()
            import torch
            [allocator] = torch.cuda.memory.swapped
            print(allocator.names, len(torch.cuda.memory.hooks), all(torch.cuda.memory.hooks.values()))
            print(caught[-1].message)
            assert plinth.torch.is_enabled()
            try:
                plinth.torch.enable()
            except plinth.torch.EnableError as error:
                print(error)
        """, PATH="/nowhere", CXX="")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("('plinth_alloc', 'plinth_free') 8 True", done.stdout)
        self.assertIn("no C++ compiler was found", done.stdout)
        self.assertIn("memory snapshots, torch.cuda.MemPool", done.stdout)
        self.assertIn("it was enabled already; call", done.stdout)

    def test_no_fallback(self):
        self.make_torch()
        done = self.run_python("""
            import plinth.torch
            plinth.torch.enable(fallback=False)
        """, PATH="/nowhere", CXX="")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("EnableError: enabling plinth: no C++ compiler was found", done.stderr)

    def test_failed_build(self):
        self.make_torch()
        (self.folder / "home/include").mkdir(parents=True)
        (self.folder / "home/include/cuda_runtime_api.h").write_text("")
        done = self.run_python("""
            import plinth.torch
            plinth.torch.enable(fallback=False)
        """, CUDA_HOME=str(self.folder / "home"))
        self.assertIn("failed with exit status", done.stderr)
        self.assertEqual([path.name for path in (self.folder / "cache/plinth").iterdir() if path.suffix != ".lock"], [])


class Hook(FakeTorch):
    """PLINTH_TORCH=1."""

    def hooked(self, code, **variables):
        self.make_torch()
        return self.run_python("import _plinth_torch_hook\n" + textwrap.dedent(code), PATH="/nowhere", CXX="", **variables)

    def test_enables_after_the_import(self):
        done = self.hooked("""
            import sys
            assert "plinth" not in sys.modules and "torch" not in sys.modules
            import importlib.util
            assert importlib.util.find_spec("torch") is not None
            import json
            assert "plinth" not in sys.modules
            import torch
            print(len(torch.cuda.memory.swapped), sys.modules["plinth.torch"].is_enabled())
            print(type(torch.__loader__).__name__, type(torch.__spec__.loader).__name__)
            import torch.cuda
        """, PLINTH_TORCH="1")
        self.assertEqual(done.stdout, "1 True\nSourceFileLoader SourceFileLoader\n", done.stderr)

    def test_does_nothing_when_unset(self):
        for value in ("", "0"):
            done = self.hooked("""
                import sys
                print(len(sys.meta_path), "importlib.util" in sys.modules, "plinth" in sys.modules)
                import torch
                print(torch.cuda.memory.swapped)
            """, PLINTH_TORCH=value)
            plain = self.run_python("import sys; print(len(sys.meta_path), 'importlib.util' in sys.modules, False); print([])")
            self.assertEqual(done.stdout, plain.stdout, done.stderr)

    def test_a_refusal_is_a_warning(self):
        self.make_torch(version="1.0.0")
        done = self.run_python("""
            import _plinth_torch_hook, torch
            print(torch.__version__)
        """, PLINTH_TORCH="1")
        self.assertEqual(done.stdout, "1.0.0\n")
        self.assertIn("PLINTH_TORCH=1: enabling plinth: PyTorch 1.0.0 is too old", done.stderr)

    def test_enabling_again_is_an_error(self):
        done = self.hooked("""
            import faulthandler
            faulthandler.dump_traceback_later(60, exit=True)
            import plinth.torch
            try:
                plinth.torch.enable()
            except plinth.torch.EnableError as error:
                print("already" in str(error), "PLINTH_TORCH" in str(error))
        """, PLINTH_TORCH="1")
        self.assertEqual(done.stdout, "True True\n", done.stderr)

    def test_any_failure_is_a_warning(self):
        done = self.hooked("""
            import torch
            print(torch.cuda.memory.swapped)
        """, PLINTH_TORCH="1", PLINTH_LIBRARY="/no/such/libplinth.so")
        self.assertEqual(done.stdout, "[]\n", done.stderr)
        self.assertRegex(done.stderr, "RuntimeWarning: PLINTH_TORCH=1: .*/no/such/libplinth.so")

    def test_without_torch(self):
        done = self.run_python("""
            import sys, _plinth_torch_hook
            sys.path = [path for path in sys.path if "site-packages" not in path]
            try:
                import torch
            except ModuleNotFoundError as error:
                print(error)
        """, PLINTH_TORCH="1")
        self.assertEqual(done.stdout, "No module named 'torch'\n", done.stderr)

    def test_the_pth_file_imports_the_hook(self):
        self.assertEqual((PYTHON / "plinth_torch.pth").read_text().strip(), "import _plinth_torch_hook")


class Cache(unittest.TestCase):
    """The folder of compiled bridges, and what a bridge is kept by."""

    def setUp(self):
        from plinth.torch import _build

        self.build = _build
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        patch = mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.folder / "cache")})
        patch.start()
        self.addCleanup(patch.stop)
        (self.folder / "nvidia/cu13/include").mkdir(parents=True)
        (self.folder / "nvidia/cu13/include/cuda_runtime_api.h").write_text("")
        self.torch = _build.Torch(self.folder / "torch", "2.11.0+cu130", "abc", "13.0", True)

    def test_is_private(self):
        folder = self.build.cache_folder()
        self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)
        for mode in (0o770, 0o707):
            folder.chmod(mode)
            with self.assertRaisesRegex(self.build.BuildError, "not safe to load code from"):
                self.build.cache_folder()
        folder.chmod(0o700)
        with mock.patch.object(os, "geteuid", return_value=os.geteuid() + 1):
            with self.assertRaisesRegex(self.build.BuildError, "belongs to user"):
                self.build.cache_folder()

    def test_is_a_file(self):
        (self.folder / "cache").write_text("")
        with self.assertRaisesRegex(self.build.BuildError, "cannot be used"):
            self.build.cache_folder()

    def test_cannot_be_written(self):
        with mock.patch.object(self.build.fcntl, "flock", side_effect=OSError(30, "Read-only file system")):
            with self.assertRaisesRegex(self.build.BuildError, "cannot be written: .*Read-only file system"):
                self.fake_build(self.torch)
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": ""}), \
                mock.patch.object(pathlib.Path, "home", side_effect=RuntimeError("no home")):
            with self.assertRaisesRegex(self.build.BuildError, "no home; set XDG_CACHE_HOME"):
                self.build.cache_folder()

    def fake_build(self, torch):
        """Builds with a compiler that writes its arguments, and returns the path and how often it linked."""
        linked = []

        def run(command):
            pathlib.Path(command[command.index("-o") + 1]).write_text(" ".join(command))
            linked.extend(command[1:2] if "-shared" in command else [])

        with mock.patch.object(self.build, "run", run), mock.patch.object(self.build, "compiler", lambda: ["/usr/bin/fake"]), \
                mock.patch.object(self.build, "compiler_version", lambda command: "fake 1.0"):
            return self.build.build(torch, self.folder / "libplinth.so", "0.2.0"), len(linked)

    def test_is_kept_by_version(self):
        import dataclasses

        path, links = self.fake_build(self.torch)
        self.assertEqual(links, 1)
        self.assertTrue(path.name.startswith("torch-2.11.0-"), path)
        self.assertEqual(self.fake_build(self.torch), (path, 0))
        for change in ({"git": "def"}, {"version": "2.11.1"}, {"cxx11_abi": False}):
            other, links = self.fake_build(dataclasses.replace(self.torch, **change))
            self.assertEqual(links, 1, change)
            self.assertNotEqual(other, path)

    def test_processes_wait_for_one_build(self):
        import threading

        results = []
        threads = [threading.Thread(target=lambda: results.append(self.fake_build(self.torch)[0])) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(len(set(results)), 1)
        self.assertEqual(len(list((self.folder / "cache/plinth").glob("*.so"))), 1)

    def test_cuda_headers(self):
        self.assertEqual(self.build.cuda_headers(self.torch), self.folder / "nvidia/cu13/include")
        elsewhere = self.build.Torch(self.folder / "x/torch", "2.11.0", "abc", "13.0", True)
        home = self.folder / "toolkit"
        (home / "include").mkdir(parents=True)
        (home / "include/cuda_runtime_api.h").write_text("")
        with mock.patch.dict(os.environ, {"CUDA_HOME": str(home)}):
            self.assertEqual(self.build.cuda_headers(elsewhere), home / "include")
        with mock.patch.dict(os.environ, {"CUDA_HOME": str(self.folder), "CUDA_PATH": "", "PATH": "/nowhere"}):
            if not pathlib.Path("/usr/local/cuda").exists():
                with self.assertRaisesRegex(self.build.BuildError, "install nvidia-cuda-runtime, or set CUDA_HOME"):
                    self.build.cuda_headers(elsewhere)

    def test_named_compiler(self):
        with mock.patch.dict(os.environ, {"CXX": "/no/such/compiler -O1"}):
            with self.assertRaisesRegex(self.build.BuildError, "CXX names"):
                self.build.compiler()


if __name__ == "__main__":
    unittest.main()
