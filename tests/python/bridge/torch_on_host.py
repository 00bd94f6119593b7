"""Tests of plinth.torch in real PyTorch on the host device; host_torch.py prepares the process."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

import plinth
import plinth.torch

import check
import torch_viz

MIB = 1 << 20
if __name__ == "__main__":
    plinth.torch.enable(fallback=False)
import torch  # noqa: E402
import torch.cuda._gpu_trace  # noqa: E402
import torch.multiprocessing  # noqa: E402


def run_python(code, **variables):
    """Runs a program with PyTorch, in which nothing has enabled plinth."""
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, **variables}, text=True,
                          capture_output=True, timeout=120, check=False)


def make_weights(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def sum_in_child(queue, answers):
    plinth.torch.enable(fallback=False)
    tensor = queue.get()
    answers.put(int(tensor.cpu().sum()))


class Memory(unittest.TestCase):
    """One process, in which plinth is enabled."""

    def setUp(self):
        self.assertEqual(torch.cuda.get_allocator_backend(), "plinth")
        self.assertEqual(torch.cuda.device_count(), 2)

    def test_copies(self):
        values = torch.randint(1 << 30, (100_000,))
        for device in (0, 1):
            before = torch.cuda.memory_allocated(device)
            there = values.to(f"cuda:{device}")
            self.assertGreaterEqual(torch.cuda.memory_allocated(device), before + 800_000)
            self.assertTrue(torch.equal(there.cpu(), values))
            self.assertTrue(torch.equal(there.to(f"cuda:{1 - device}").cpu(), values))
            del there
            self.assertEqual(torch.cuda.memory_allocated(device), before)

    def test_statistics_have_the_keys_of_pytorch(self):
        done = run_python("""
            import torch
            kept = torch.empty(1000, device="cuda")
            assert torch.cuda.get_allocator_backend() == "native"
            print(*sorted(torch.cuda.memory_stats()))
        """)
        self.assertEqual(done.returncode, 0, done.stderr)
        kept = make_weights(1000)
        self.assertEqual(sorted(torch.cuda.memory_stats()), done.stdout.split())
        self.assertEqual(torch.cuda.memory_stats()["requested_bytes.all.current"], 1000)
        self.assertIn("Allocated memory", torch.cuda.memory_summary())
        del kept

    def test_snapshot_with_python_frames(self):
        for stacks in ("python", "all"):
            torch.cuda.empty_cache()
            torch.cuda.memory._record_memory_history("all", stacks=stacks, global_record_annotations=True)
            with torch.profiler.record_function("a step"):
                weights, passing = make_weights(3 * MIB), make_weights(30 * MIB)
            del passing
            with self.assertRaises(torch.OutOfMemoryError):
                make_weights(1 << 40)
            other = torch.empty(5000, device="cuda:1")
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "snapshot.pickle"
                torch.cuda.memory._dump_snapshot(path)
                torch.cuda.memory._record_memory_history(enabled=None)
                snapshot, _ = check.check(path)
                torch_viz.read_with_torch(path, torch_viz.find_tool(None))
            stages = [one["stage"] for one in snapshot["external_annotations"] if one["name"] == "a step"]
            self.assertEqual(stages, ["START", "END"])
            [block] = [block for segment in snapshot["segments"] for block in segment["blocks"]
                       if block["address"] == weights.data_ptr()]
            events = [event for event in snapshot["device_traces"][0] if event["action"] != "snapshot"]
            self.assertLessEqual({"alloc", "free_requested", "free_completed", "oom"}, {event["action"] for event in events})
            for frames in (block["frames"], *[event["frames"] for event in events if event["action"] in ("alloc", "oom")]):
                [own] = [frame for frame in frames if frame["name"] == "make_weights"]
                self.assertEqual(pathlib.Path(own["filename"]).name, "torch_on_host.py")
                self.assertEqual(own["line"], make_weights.__code__.co_firstlineno + 1)
                self.assertEqual(any("at::" in frame["name"] for frame in frames), stacks == "all")
            self.assertIn("alloc", [event["action"] for event in snapshot["device_traces"][1]])
            del weights, other

    def test_out_of_memory(self):
        with self.assertRaisesRegex(torch.OutOfMemoryError, r"Tried to allocate 2\.00 GiB\..*of which.*is free"):
            make_weights(2 << 30)
        self.assertEqual(make_weights(100 * MIB).numel(), 100 * MIB)
        torch.cuda.set_per_process_memory_fraction(0.25)
        try:
            with self.assertRaises(torch.OutOfMemoryError):
                make_weights(300 * MIB)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        self.assertEqual(make_weights(300 * MIB).numel(), 300 * MIB)

    def test_pool(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = make_weights(3 * MIB)
        outside = make_weights(3 * MIB)
        addresses = [block["address"] for segment in pool.snapshot() for block in segment["blocks"]]
        self.assertIn(inside.data_ptr(), addresses)
        self.assertNotIn(outside.data_ptr(), addresses)
        self.assertEqual(pool.use_count(), 1)
        self.assertEqual(len(plinth.torch.pool_id(pool)), 2)
        del inside

    def test_record_stream(self):
        side = torch.cuda.Stream()
        tensor = make_weights(40 * MIB)
        address = tensor.data_ptr()
        plinth._native.check(plinth._native.lib.plinth_sleep(500_000_000, side.cuda_stream))
        tensor.record_stream(side)
        del tensor
        self.assertFalse(side.query())
        self.assertNotEqual(make_weights(40 * MIB).data_ptr(), address)
        event = torch.cuda.Event()
        event.record(side)
        torch.cuda.current_stream().wait_event(event)
        side.synchronize()
        self.assertTrue(event.query())

    def test_gpu_trace(self):
        seen = []
        torch._C._activate_gpu_trace()
        torch.cuda._gpu_trace.register_callback_for_memory_allocation(seen.append)
        weights = make_weights(MIB)
        self.assertEqual(seen[-1:], [weights.data_ptr()])

    def test_another_process(self):
        context = torch.multiprocessing.get_context("spawn")
        queue, answers = context.Queue(), context.Queue()
        process = context.Process(target=sum_in_child, args=(queue, answers))
        process.start()
        values = torch.arange(100_000)
        shared = values.to("cuda")
        queue.put(shared)
        self.assertEqual(answers.get(timeout=60), int(values.sum()))
        process.join(60)
        self.assertEqual(process.exitcode, 0)


class Refusals(unittest.TestCase):
    """Programs that enable() refuses, each in a process of its own."""

    def expect(self, text, before, **variables):
        done = run_python(textwrap.dedent(before) + textwrap.dedent("""
            import plinth.torch
            try:
                plinth.torch.enable(fallback=False)
            except plinth.torch.EnableError as error:
                print(error)
            # PyTorch is as it was.
            import torch
            print(torch.cuda.get_allocator_backend(), len(torch.empty(100, device="cuda")))
        """), **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(text, done.stdout)
        return done.stdout

    def test_initialized(self):
        self.assertIn("native 100", self.expect("CUDA is initialized already", "import torch; torch.cuda.init()"))

    def test_twice(self):
        self.assertIn("plinth 100", self.expect("it was enabled already; call", "import plinth.torch; plinth.torch.enable()"))

    def test_other_allocator(self):
        shown = self.expect("another allocator, pluggable, is PyTorch's already", """
            import os, torch
            allocator = torch.cuda.memory.CUDAPluggableAllocator(os.environ["PLINTH_LIBRARY"], "plinth_alloc", "plinth_free")
            torch.cuda.memory.change_current_allocator(allocator)
        """)
        self.assertIn("pluggable 100", shown)

    def test_forked_child(self):
        done = run_python("""
            import os, plinth.torch, torch
            torch.cuda.init()
            child = os.fork()
            if child == 0:
                try:
                    plinth.torch.enable()
                except plinth.torch.EnableError as error:
                    print(error, flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        """)
        self.assertIn("was forked from one that had initialized CUDA", done.stdout, done.stderr)


class Routes(unittest.TestCase):
    """The other ways to enable plinth."""

    def test_environment(self):
        done = run_python("""
            import _plinth_torch_hook, torch
            print(torch.cuda.get_allocator_backend(), len(torch.empty(100, device="cuda")))
        """, PLINTH_TORCH="1")
        self.assertEqual(done.stdout, "plinth 100\n", done.stderr)

    def test_forked_before_initialization(self):
        done = run_python("""
            import os, plinth.torch, torch
            plinth.torch.enable(fallback=False)
            child = os.fork()
            if child == 0:
                print(torch.cuda.get_allocator_backend(), len(torch.empty(100, device="cuda")), flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        """)
        self.assertEqual(done.stdout, "plinth 100\n", done.stderr)

    def test_without_a_compiler(self):
        done = run_python("""
            import plinth.torch, torch
            plinth.torch.enable()
            print(torch.cuda.get_allocator_backend(), torch.arange(10).to("cuda").cpu().tolist())
        """, PATH="/nowhere", CXX="")
        self.assertEqual(done.stdout, "pluggable [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n", done.stderr)
        self.assertIn("no C++ compiler was found", done.stderr)


if __name__ == "__main__":
    unittest.main()
