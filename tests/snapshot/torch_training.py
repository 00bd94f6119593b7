#!/usr/bin/env python3
# A PyTorch training with plinth's memory and its history. SPDX-License-Identifier: MIT OR Apache-2.0
"""Trains a small transformer on a GPU with plinth as PyTorch's allocator, and dumps the allocator's history.

  torch_training.py [--route pluggable|bridge] [--library LIBPLINTH] [--out FOLDER] [--steps 5]

With the route pluggable, plinth records the history, and writes it as a page, too. With the bridge (plinth.torch.enable) the
program calls PyTorch's functions for both, and the stacks are Python's.

The history begins before the model is created, so that every block has a stack. After a warm-up step and the measured steps,
training.pickle and training.html are written to FOLDER. check.py and every command of torch's own tool read the pickle. At the
end the same steps run without a history, to measure its cost. The exit status is 77 without PyTorch or a GPU. Written for
PyTorch 2.11.
"""

import argparse
import contextlib
import ctypes
import importlib.util
import os
import pathlib
import pickle
import statistics
import sys
import time

import check
import torch_viz

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
MIB = 1 << 20
LAYERS, WIDTH, HEADS, VOCABULARY, BATCH, LENGTH = 6, 512, 8, 8192, 16, 256


class HistoryOptions(ctypes.Structure):
    """plinth_memory_history_options_t."""

    _fields_ = [("struct_size", ctypes.c_size_t), ("enabled", ctypes.c_int32), ("context", ctypes.c_int32),
                ("max_entries", ctypes.c_uint64), ("clear_history", ctypes.c_int32), ("record_annotations", ctypes.c_int32),
                ("skip_actions", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


# PLINTH_MEMORY_HISTORY_OFF and _ALL, PLINTH_MEMORY_CONTEXT_NONE and _ALL.
OFF, ALL_HISTORY, NO_CONTEXT, ALL_CONTEXT = 0, 2, 0, 3


def example():
    """Loads examples/pytorch_allocator.py, so that the code that users copy is tested."""
    spec = importlib.util.spec_from_file_location("pytorch_allocator", ROOT / "examples" / "pytorch_allocator.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Pluggable:
    """plinth through CUDAPluggableAllocator, with plinth's own history."""

    endings = ("pickle", "html")

    def __init__(self, library):
        self.plinth = example().use_plinth(library)
        self.counter = lambda name: getattr(self.plinth, name)()

    def record(self, enabled):
        """Starts a history of all events with all stacks, or stops it, which clears it."""
        options = HistoryOptions(struct_size=ctypes.sizeof(HistoryOptions), record_annotations=1,
                                 enabled=ALL_HISTORY if enabled else OFF, context=ALL_CONTEXT if enabled else NO_CONTEXT)
        self.plinth.call("plinth_record_memory_history", ctypes.byref(options))

    @contextlib.contextmanager
    def annotated(self, name):
        """Annotates the allocations inside; the viewers show a band."""
        self.plinth.call("plinth_memory_annotation_begin", name.encode())
        yield
        self.plinth.call("plinth_memory_annotation_end", name.encode())

    def dump(self, path):
        self.plinth.call("plinth_dump_snapshot", os.fsencode(path))


class Bridge:
    """plinth through the bridge, with PyTorch's functions: their stacks are Python's."""

    endings = ("pickle",)

    def __init__(self, library):
        os.environ["PLINTH_LIBRARY"] = library
        if importlib.util.find_spec("plinth") is None:
            sys.path.insert(0, str(ROOT / "python"))
        import plinth.torch

        plinth.torch.enable(fallback=False)
        import torch

        self.memory = torch.cuda.memory
        self.annotated = torch.profiler.record_function
        self.counter = lambda name: getattr(self.memory, name)()

    def record(self, enabled):
        self.memory._record_memory_history("all" if enabled else None, stacks="python", global_record_annotations=True)

    def dump(self, path):
        self.memory._dump_snapshot(path)


ROUTES = {"pluggable": Pluggable, "bridge": Bridge}


def make_model():
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.grow, self.shrink = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
            return x + self.shrink(functional.gelu(self.grow(self.norm2(x))))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
            return self.head(self.norm(self.blocks(x)))

    torch.manual_seed(1)
    return Transformer()


class Training:
    """The model, its optimizer, and one step of it."""

    def __init__(self, route, device="cuda"):
        import torch

        self.annotated, self.device = route.annotated, device
        self.model = make_model().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        # The batch is the same at every step, so that the loss must decrease.
        self.tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))

    def step(self, name="step"):
        """Runs one step; returns its loss."""
        import torch
        from torch.nn import functional

        with self.annotated(name):
            tokens = self.tokens.to(self.device)
            with self.annotated("forward"), torch.autocast(self.device, torch.bfloat16):
                logits = self.model(tokens[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
            with self.annotated("backward"):
                loss.backward()
            with self.annotated("optimizer"):
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def timed(self, steps):
        """Returns the median milliseconds of synchronized steps, and the last loss."""
        import torch

        times = []
        for _ in range(steps):
            begun = time.perf_counter()
            loss = self.step()
            torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - begun))
        return statistics.median(times), loss.item()


def train(route, folder, steps):
    """Trains with the history on, dumps, trains without it, and prints results. Returns the pickle's path and the counters."""
    import torch

    route.record(True)
    training = Training(route)
    first = training.step("warm-up").item()
    with_history, last = training.timed(steps)
    check.expect(last < first, f"the loss went from {first} to {last}")
    counters = {name: route.counter(name) for name in
               ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")}
    begun = time.perf_counter()
    paths = [folder / f"training.{ending}" for ending in route.endings]
    for path in paths:
        route.dump(path)
    took = time.perf_counter() - begun
    # Nothing ran in between, so the snapshot must agree with the counters.
    check.expect(counters["memory_allocated"] == route.counter("memory_allocated"), "something was allocated during the dump")
    route.record(False)
    training.step()
    without_history, _ = training.timed(steps)

    parameters = sum(parameter.numel() for parameter in training.model.parameters())
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name(0)}, allocator: {torch.cuda.get_allocator_backend()}")
    print(f"a transformer of {LAYERS} layers, width {WIDTH}, {parameters} parameters; batches of {BATCH} x {LENGTH}; a step to "
          f"warm up and {steps} more; loss {first:.4f} to {last:.4f}")
    for name, value in counters.items():
        print(f"{name:22} {value:13} bytes, {value / MIB:8.1f} MiB")
    print(f"a step                 {with_history:.2f} ms with the history, {without_history:.2f} ms without (median of {steps})")
    print(f"dumps                  {', '.join(f'{path.name}: {path.stat().st_size} bytes' for path in paths)}; {took:.2f} s, "
          "including the look-up of function names")
    return paths[0], counters


def print_summary(snapshot):
    """Prints the numbers of segments, blocks, entries and stacks."""
    trace = snapshot["device_traces"][0]
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["state"] != "inactive"]
    stacks = {tuple((frame["name"], frame["filename"], frame["line"]) for frame in entry["frames"]) for entry in trace}
    deepest = max(map(len, stacks))
    print(f"the snapshot           {len(snapshot['segments'])} segments, {len(blocks)} live blocks, {len(trace)} entries, "
          f"{len(stacks)} different stacks of at most {deepest} functions, {len(snapshot['external_annotations'])} annotations")


def check_dump(path, counters, steps, python):
    """Checks that the pickle agrees with plinth's counters and with the training, and that torch's tool reads it.

    With `python`, the stacks must have this program's functions."""
    snapshot, _ = check.check(path)
    allocated = sum(segment["allocated_size"] for segment in snapshot["segments"])
    held = sum(segment["total_size"] for segment in snapshot["segments"])
    check.expect(allocated == counters["memory_allocated"], f"{allocated} bytes in blocks, {counters['memory_allocated']} counted")
    check.expect(held == counters["memory_reserved"], f"{held} bytes in segments, {counters['memory_reserved']} counted")
    begun = [annotation["name"] for annotation in snapshot["external_annotations"] if annotation["stage"] == "START"]
    expected = {"warm-up": 1, "step": steps, "forward": steps + 1, "backward": steps + 1, "optimizer": steps + 1}
    # PyTorch's optimizers annotate, too.
    check.expect({name: begun.count(name) for name in (expected if python else set(begun))} == expected, f"annotations: {begun}")
    stacks = [entry["frames"] for entry in snapshot["device_traces"][0] if entry["action"] == "alloc"]
    if python:
        names = {frame["name"] for stack in stacks for frame in stack
                 if frame["filename"].endswith("torch_training.py")}
        check.expect({"__init__", "forward", "step", "train", "main"} <= names, f"the stacks have {sorted(names)}")
        # Not those of the backward pass, which runs in a thread of C++: most of its blocks are freed at the end.
        stacks = [block["frames"] for segment in snapshot["segments"] for block in segment["blocks"]
                  if block["state"] == "active_allocated"]
    least = 0.9 if python else 0.99
    check.expect(sum(map(bool, stacks)) > least * len(stacks), f"{stacks.count([])} of {len(stacks)} allocations have no stack")
    print_summary(snapshot)
    torch_viz.read_with_torch(path, torch_viz.find_tool(None))


def find_library(named):
    """Finds libplinth.so: the given path, $PLINTH_LIBRARY, or the repository's."""
    candidates = [named] if named else [os.environ.get("PLINTH_LIBRARY"), ROOT / "lib" / "libplinth.so",
                                        ROOT / "target" / "release" / "libplinth.so"]
    found = next((path for path in candidates if path and os.path.exists(path)), None)
    if found is None:
        sys.exit("torch_training.py: cannot find libplinth.so; pass its path with --library")
    return os.path.abspath(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libplinth.so; else $PLINTH_LIBRARY, lib/ or target/release/ of the repository")
    parser.add_argument("--route", choices=ROUTES, default="pluggable", help="how PyTorch uses plinth")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."), help="the folder for the dumps")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--most", type=int, default=8 * MIB, help="the largest permitted size of the pickle in bytes")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error("--steps: at least 1")
    if importlib.util.find_spec("torch") is None:
        print("skipped: no PyTorch")
        return SKIPPED
    import torch

    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return SKIPPED
    arguments.out.mkdir(parents=True, exist_ok=True)
    path, counters = train(ROUTES[arguments.route](find_library(arguments.library)), arguments.out, arguments.steps)
    check_dump(path, counters, arguments.steps, arguments.route == "bridge")
    if arguments.route == "pluggable":  # plinth wrote it
        check.expect(path.stat().st_size <= arguments.most, f"{path} has {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
