"""Trains GPT-2 and ResNet-50 on PyTorch's own allocator and on plinth's, and compares: the losses bit for bit, the memory
held, the time of a step.

    python3 benches/torch_training.py [--library LIBPLINTH] [--runs NAME,...] [--allocators NAME,...] [--json FILE]

Each model trains in four ways. gpt2 and resnet50 run in eager mode, with sequence lengths, image sizes and batch sizes that
change at every step. The runs named -graph capture the whole step in a CUDA graph, one graph for each of two shapes in one
pool, with eager evaluations between the replays. Those named -compile train through torch.compile in its default mode, on
two shapes. Those named -limit are the eager runs again with a limit on the memory that the process may hold: 1.05 times
the peak of native's memory in use without a limit. Their results must be those of native without a limit; native itself
may run out of memory under the limit, which the table shows. A side stream prepares each batch while the previous step
computes, so record_stream has to work.

Four allocators: native and expandable are PyTorch's own, without and with expandable_segments; plinth is plinth in place
of PyTorch's (CUDAPluggableAllocator); mempool is plinth under PyTorch's allocator (torch.cuda.MemPool). The runs named
-compile and -limit use native and plinth only.

Each run has its own process. The exit status is 1 if a process failed, if any loss, evaluation or parameter differs from
native's by a bit, or if plinth's peak of memory held is above native's. Needs PyTorch and a GPU, and for torch.compile a
C compiler; no data, no network.
"""
import argparse
import contextlib
import gc
import importlib.util
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

STEPS, WARM = 30, 8  # steps of a run; how many of them the times leave out
RUNS = tuple(model + way for way in ("", "-graph", "-compile", "-limit") for model in ("gpt2", "resnet50"))
LIMIT = 1.05  # of native's peak of memory in use, in the runs with a limit
ALLOCATORS = ("native", "expandable", "plinth", "mempool")
MIB = 1 << 20


def example():
    """Loads examples/pytorch_allocator.py, so that the code that users copy is tested."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "pytorch_allocator.py")
    spec = importlib.util.spec_from_file_location("pytorch_allocator", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- the models, which need only torch


def make_models():
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, mask):
            batch, length, width = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            # The attention is not fused: this is deterministic on every GPU, and its many large blocks make the
            # allocator's work depend on the sequence length.
            scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
            mixed = torch.softmax(scores + mask[:length, :length], dim=-1) @ v
            x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.shrink(functional.gelu(self.grow(self.norm2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self, vocabulary=50257, context=1024, width=768, layers=12, heads=12):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.norm = nn.LayerNorm(width)
            self.register_buffer("mask", torch.full((context, context), float("-inf")).triu(1), persistent=False)
            self.register_buffer("order", torch.arange(context), persistent=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places(self.order[: tokens.shape[1]])
            for block in self.blocks:
                x = block(x, self.mask)
            return functional.linear(self.norm(x), self.tokens.weight)

        def loss(self, tokens, targets):
            return functional.cross_entropy(self(tokens).flatten(0, 1).float(), targets.flatten())

    class Bottleneck(nn.Module):
        def __init__(self, inside, width, stride):
            super().__init__()
            outside = 4 * width
            self.body = nn.Sequential(
                nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside))
            self.skip = nn.Identity() if stride == 1 and inside == outside else nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

        def forward(self, x):
            return functional.relu(self.body(x) + self.skip(x))

    class Resnet(nn.Module):
        def __init__(self, depths=(3, 4, 6, 3), width=64, classes=1000):
            super().__init__()
            layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                      nn.MaxPool2d(3, 2, 1)]
            inside = width
            for stage, depth in enumerate(depths):
                for block in range(depth):
                    layers.append(Bottleneck(inside, width << stage, 2 if stage and not block else 1))
                    inside = 4 * (width << stage)
            self.body, self.head = nn.Sequential(*layers), nn.Linear(inside, classes)

        def forward(self, images):
            return self.head(self.body(images).mean((2, 3)))

        def loss(self, images, targets):
            return functional.cross_entropy(self(images).float(), targets)

    return Gpt2, Resnet


class Text:
    """GPT-2 and its batches of tokens."""

    def __init__(self, tiny=False):
        import torch

        torch.manual_seed(1)
        self.vocabulary = 97 if tiny else 50257
        model = make_models()[0]
        self.model = model(self.vocabulary, 64, 32, 2, 4) if tiny else model()
        self.bfloat16 = True
        self.data = torch.randint(self.vocabulary, (1 << 12 if tiny else 1 << 20,))
        # Each of the two graphs uses one of these shapes; evaluations use other_shape.
        self.graph_shapes = ((2, 16), (2, 32)) if tiny else ((4, 384), (4, 640))
        self.other_shape = (3, 24) if tiny else (3, 500)
        self.lengths = (8, 64) if tiny else (160, 1024)
        self.batch = 2 if tiny else 8

    def optimizer(self, capturable):
        import torch

        return torch.optim.AdamW(self.model.parameters(), lr=3e-4, capturable=capturable)

    def shape(self, chance):
        return self.batch, chance.randint(*self.lengths) // 8 * 8

    def on_host(self, chance, shape):
        batch, length = shape
        start = chance.randrange(len(self.data) - batch * (length + 1))
        return (self.data[start : start + batch * (length + 1)].view(batch, length + 1),)

    def on_device(self, rows):
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


class Images:
    """ResNet-50 and its batches of bytes, which the device converts to floating-point numbers."""

    def __init__(self, tiny=False):
        import torch

        torch.manual_seed(2)
        self.classes = 10 if tiny else 1000
        model = make_models()[1]
        self.model = model((1, 1, 1, 1), 8, self.classes) if tiny else model()
        self.bfloat16 = False
        self.data = torch.randint(256, (1 << 18 if tiny else 1 << 25,), dtype=torch.uint8)
        self.labels = torch.randint(self.classes, (1 << 12,))
        self.graph_shapes = ((4, 32), (4, 48)) if tiny else ((32, 160), (32, 224))
        self.other_shape = (3, 40) if tiny else (24, 192)
        self.sizes = (32, 48) if tiny else (128, 160, 192, 224, 256)
        self.batches = (2, 4) if tiny else (32, 64)

    def optimizer(self, _capturable):
        import torch

        return torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def shape(self, chance):
        return chance.randint(*self.batches), chance.choice(self.sizes)

    def on_host(self, chance, shape):
        batch, size = shape
        count = batch * 3 * size * size
        start, label = chance.randrange(len(self.data) - count), chance.randrange(len(self.labels) - batch)
        return self.data[start : start + count].view(batch, 3, size, size), self.labels[label : label + batch]

    def on_device(self, pixels, labels):
        return (pixels.float() - 127.5) / 58.0, labels.clone()

    def pin(self):
        self.labels = self.labels.pin_memory()


# ---- one run, in its own process


class Sampler:
    """Records an event after each step, keeps the CPU at most two steps ahead, and reads the device's used memory."""

    def __init__(self, baseline):
        self.baseline, self.peak, self.marks, self.walls = baseline, 0, [], []

    def mark(self):
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)
        if len(self.marks) > 2:
            self.marks[-3].synchronize()
        self.walls.append(time.perf_counter())
        free, total = torch.cuda.mem_get_info()
        self.peak = max(self.peak, total - free - self.baseline)

    def times(self):
        """Returns milliseconds: the median step by the device's clock, and the mean step by the wall clock."""
        import torch

        torch.cuda.synchronize()
        end = time.perf_counter()
        steps = [a.elapsed_time(b) for a, b in zip(self.marks, self.marks[1:])][WARM:]
        return statistics.median(steps), 1000 * (end - self.walls[WARM]) / (len(self.walls) - 1 - WARM)


class Feed:
    """The next batch, which a side stream copies to the device and prepares there."""

    def __init__(self, work, seed, shape):
        import torch

        self.work, self.chance, self.shape = work, random.Random(seed), shape
        self.side = torch.cuda.Stream()
        self.next = self._fetch()

    def _fetch(self):
        import torch

        shape = self.shape(self.chance)
        with torch.cuda.stream(self.side):
            copied = [part.to("cuda", non_blocking=True) for part in self.work.on_host(self.chance, shape)]
            return shape, self.work.on_device(*copied)

    def take(self):
        import torch

        main = torch.cuda.current_stream()
        main.wait_stream(self.side)
        shape, batch = self.next
        for tensor in batch:
            tensor.record_stream(main)
        self.next = self._fetch()
        return shape, batch


def autocast(work, cached=True):
    import torch

    return torch.autocast("cuda", torch.bfloat16, enabled=work.bfloat16, cache_enabled=cached)


def compute(work, optimizer, batch, cached=True):
    with autocast(work, cached):
        loss = work.loss(*batch)
    loss.backward()
    optimizer.step()
    return loss.detach()


def evaluate(work, feed_chance):
    """Runs a forward pass of another shape; returns the loss."""
    import torch

    batch = work.on_device(*(part.to("cuda") for part in work.on_host(feed_chance, work.other_shape)))
    with torch.no_grad(), autocast(work, False):
        return work.model.loss(*batch)


def train(work, sampler, routed, shape):
    optimizer = work.optimizer(False)
    with routed():
        feed = Feed(work, 3, shape)
        losses = []
        sampler.mark()
        for _ in range(STEPS):
            _, batch = feed.take()
            optimizer.zero_grad(set_to_none=True)
            losses.append(compute(work, optimizer, batch))
            del batch  # frees it while the device still reads it, because the CPU is ahead of the device
            sampler.mark()
    return losses, []


def train_graphed(work, sampler, routed, pool):
    """Captures the whole step for each of two shapes; the replays read their batches from static tensors."""
    import torch

    optimizer = work.optimizer(True)
    chance = random.Random(5)
    with routed():
        statics = {shape: work.on_device(*(part.to("cuda") for part in work.on_host(chance, shape)))
                   for shape in work.graph_shapes}
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            for _ in range(3):
                for batch in statics.values():
                    optimizer.zero_grad(set_to_none=True)
                    compute(work, optimizer, batch, cached=False)
        torch.cuda.current_stream().wait_stream(warm)

    # Outside of `routed`: the graphs name the pool themselves, and only one context may use a pool at a time.
    pool = pool or torch.cuda.graph_pool_handle()
    graphs = {}
    for shape, batch in statics.items():
        optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            loss = compute(work, optimizer, batch, cached=False)
        graphs[shape] = graph, loss

    with routed():
        feed = Feed(work, 3, lambda chance: chance.choice(work.graph_shapes))
        losses, evaluations = [], []
        sampler.mark()
        for step in range(STEPS):
            shape, batch = feed.take()
            for static, tensor in zip(statics[shape], batch):
                static.copy_(tensor)
            del batch, tensor
            graph, loss = graphs[shape]
            graph.replay()
            losses.append(loss.clone())
            if step % 3 == 2:
                evaluations.append(evaluate(work, chance))
            sampler.mark()
    torch.cuda.synchronize()
    return losses, evaluations


def child(run, allocator, path, report):
    """Prepares what needs no GPU, waits for the parent to send the limit of memory in bytes or 0, runs, writes the report."""
    import torch

    work = (Text if run.startswith("gpt2") else Images)()
    allocators = example()
    torch.use_deterministic_algorithms(True)
    word = sys.stdin.readline()
    if not word:
        return  # the parent has gone
    limit = int(word)

    plinth = pool = None
    if allocator == "plinth":
        plinth = allocators.use_plinth(path)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False  # with True, cuDNN queries what a pluggable allocator does not implement
    torch.cuda.init()
    free, total = torch.cuda.mem_get_info()
    baseline = total - free
    if allocator == "mempool":
        pool, plinth = allocators.plinth_pool(path), allocators.Plinth(path)
    routed = (lambda: torch.cuda.use_mem_pool(pool)) if pool else contextlib.nullcontext

    if limit:
        # plinth_pluggable_memory_fraction where plinth was swapped in.
        torch.cuda.set_per_process_memory_fraction(limit / total)

    work.data = work.data.pin_memory()
    getattr(work, "pin", lambda: None)()
    with routed():
        work.model.cuda()
    work.loss = work.model.loss
    sampler = Sampler(baseline)
    if run.endswith("-graph"):
        losses, evaluations = train_graphed(work, sampler, routed, pool.id if pool else None)
    elif run.endswith("-compile"):
        work.loss = torch.compile(work.model.loss, dynamic=False)
        losses, evaluations = train(work, sampler, routed, lambda chance: chance.choice(work.graph_shapes))
    else:
        losses, evaluations = train(work, sampler, routed, work.shape)
    median, wall = sampler.times()

    swapped = allocator == "plinth"
    result = {
        "run": run, "allocator": allocator, "backend": torch.cuda.get_allocator_backend(),
        "torch": torch.__version__, "device": torch.cuda.get_device_name(0),
        "step_ms": median, "wall_ms": wall, "driver_peak": sampler.peak,
        "held_peak": plinth.max_memory_reserved() if swapped else torch.cuda.max_memory_reserved(),
        "used_peak": plinth.max_memory_allocated() if swapped else torch.cuda.max_memory_allocated(),
        "plinth_held_peak": plinth.max_memory_reserved() if plinth else None,
        "losses": [value.hex() for value in torch.stack(losses).tolist()],
        "evaluations": [value.hex() for value in torch.stack(evaluations).tolist()] if evaluations else [],
        "parameters": [int(parameter.detach().view(torch.int32).sum(dtype=torch.int64))
                       for parameter in work.model.parameters()],
    }
    if not all(math.isfinite(float.fromhex(value)) for value in result["losses"] + result["evaluations"]):
        raise RuntimeError("a loss is not finite, so equal losses would prove little")
    if plinth and not result["plinth_held_peak"]:
        raise RuntimeError("plinth received no allocation request")

    # The memory that the allocator still holds after everything was freed.
    del losses, evaluations, work
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    pool = None
    torch.cuda.empty_cache()
    result["held_after"] = plinth.memory_reserved() if swapped else torch.cuda.memory_reserved()
    if plinth:
        plinth.call("plinth_testing_check_allocator")
    with open(report, "w") as file:
        json.dump(result, file)


# ---- all runs


class Process:
    """A child process. It imports PyTorch and creates its model while the previous child still uses the GPU."""

    def __init__(self, run, allocator, path, folder):
        self.run, self.allocator = run, allocator
        # Only the first process of a model compiles, so that all of them run the same kernels.
        cache = os.path.join(folder, "compiled")
        self.report, self.log = (os.path.join(folder, f"{run}-{allocator}.{end}") for end in ("json", "log"))
        environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTHONUNBUFFERED="1",
                           TORCHINDUCTOR_CACHE_DIR=cache, TRITON_CACHE_DIR=os.path.join(cache, "triton"))
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"):
            environment.pop(name, None)
        if allocator == "expandable":
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        command = [sys.executable, os.path.abspath(__file__), "--child", run, allocator, path, self.report]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)

    def finish(self, limit, memory_limit):
        """Its report, or None and a word on what went wrong. The limits are in seconds and in bytes, 0 for none."""
        try:
            self.process.communicate(f"{memory_limit}\n".encode(), timeout=limit)
            wrong = f"exit status {self.process.returncode}" if self.process.returncode else None
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            wrong = f"took longer than {limit} s"
        except BrokenPipeError:
            wrong = f"exit status {self.process.wait()}"
        try:
            with open(self.report) as file:
                return json.load(file), wrong
        except (OSError, ValueError):
            return None, wrong or "no report"

    def log_tail(self):
        with open(self.log, errors="replace") as file:
            return "".join(file.readlines()[-25:])


def base_of(run):
    """The run whose numbers on the native allocator are the reference."""
    return run.removesuffix("-limit")


def compare(native, other):
    """What differs from native's numbers, in words; None if nothing does."""
    for key in ("losses", "evaluations", "parameters"):
        if native[key] != other[key]:
            differing = [i for i, (a, b) in enumerate(zip(native[key], other[key])) if a != b]
            first = differing[0] if differing else min(len(native[key]), len(other[key]))
            return f"{len(differing)} of {len(native[key])} {key} differ, first number {first}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libplinth.so")
    parser.add_argument("--runs", default=",".join(RUNS))
    parser.add_argument("--allocators", default=",".join(ALLOCATORS), help="native always goes first")
    parser.add_argument("--json", help="write all reports to this file")
    parser.add_argument("--limit", type=int, default=240, help="seconds for one process on the GPU")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(*arguments.child)

    if importlib.util.find_spec("torch") is None:
        print("skipped: no PyTorch")
        return 77
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.path.join(here, "..", *place, "libplinth.so") for place in (("lib",), ("target", "release"))]
    path = next((os.path.abspath(p) for p in (arguments.library, os.environ.get("PLINTH_LIBRARY"), *places)
                 if p and os.path.exists(p)), None)
    if path is None or arguments.library and path != os.path.abspath(arguments.library):
        sys.exit("there is no libplinth.so; name it by --library")

    chosen = arguments.allocators.split(",")
    plan = [(run, allocator) for run in arguments.runs.split(",")
            for allocator in ("native", *(a for a in chosen if a != "native"))
            if allocator in ("native", "plinth") or not run.endswith(("-compile", "-limit"))]
    unknown = {name for pair in plan for name in pair} - {*RUNS, *ALLOCATORS}
    if unknown:
        sys.exit(f"there is no {', '.join(sorted(unknown))}; runs: {', '.join(RUNS)}; allocators: {', '.join(ALLOCATORS)}")

    begun = time.monotonic()
    results, problems, ratios = {}, [], []
    with tempfile.TemporaryDirectory() as folder:
        coming = Process(*plan[0], path, folder)
        for number, (run, allocator) in enumerate(plan):
            process = coming
            coming = Process(*plan[number + 1], path, folder) if number + 1 < len(plan) else None
            without = results.get((base_of(run), "native"))
            memory_limit = int(LIMIT * without["used_peak"]) if run.endswith("-limit") and without else 0
            result, wrong = process.finish(arguments.limit, memory_limit)
            if wrong and run.endswith("-limit") and allocator == "native" and "OutOfMemoryError" in process.log_tail():
                print(f"-- {run}: native runs out of memory with {memory_limit / MIB:.0f} MiB", flush=True)
            elif wrong:
                problems.append(f"{run} on {allocator}: {wrong}")
                print(f"-- {problems[-1]}; the end of what it wrote:\n{process.log_tail()}", flush=True)
            if result:
                results[run, allocator] = result

    if results:
        any_result = next(iter(results.values()))
        print(f"PyTorch {any_result['torch']} on {any_result['device']}, {STEPS} steps each; MiB; held: by the allocator; "
              "driver: cudaMemGetInfo, over what was used before the first tensor; after: held once all is freed\n")
    print("| run | allocator | losses | step, ms | wall, ms | in use, peak | held, peak | driver, peak | after |")
    print("|---|---|---|---|---|---|---|---|---|")
    for run, allocator in plan:
        result, native = results.get((run, allocator)), results.get((base_of(run), "native"))
        if result is None:
            print(f"| {run} | {allocator} | did not finish | | | | | | |")
            continue
        difference = compare(native, result) if native else "native's are missing"
        if difference:
            problems.append(f"{run} on {allocator}: {difference}")
        if allocator == "plinth" and native and not run.endswith("-limit"):
            ratios.append(result["held_peak"] / native["held_peak"])
            if ratios[-1] > 1:
                problems.append(f"{run}: plinth holds {result['held_peak']} bytes at most, native {native['held_peak']}")
        sizes = " | ".join(f"{result[key] / MIB:.0f}" for key in ("used_peak", "held_peak", "driver_peak", "held_after"))
        verdict = "DIFFER" if difference else "equal" if result is not native else f"{len(result['losses'])}, last " \
            f"{float.fromhex(result['losses'][-1]):.4f}"
        print(f"| {run} | {allocator} | {verdict} | {result['step_ms']:.2f} | {result['wall_ms']:.2f} | {sizes} |")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(list(results.values()), file, indent=1)

    print()
    for problem in problems:
        print(f"FAILED: {problem}")
    held = f"plinth's peak is {min(ratios):.3f} to {max(ratios):.3f} of native's" if ratios else "plinth did not run"
    print(f"{len(results)} of {len(plan)} runs, {time.monotonic() - begun:.0f} s; {held}; "
          f"{f'{len(problems)} problems' if problems else 'every loss, evaluation and parameter is equal bit for bit'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
