"""The ways in which benches/torch_training.py trains a model.

Each function returns a function that runs one step. A step appends what it computed to losses and evaluations, which
stay on the device, so that the host does not wait for them.
"""
import datetime
import functools
import random
import time

import torch
from torch import distributed
from torch.utils.data import DataLoader
from torch_models import Experts

SIZES = {"512 B": 512, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
CALLS = 2000  # of torch.empty, for each size and step


class Feed:
    """The next batch, which a side stream copies to the device and prepares there."""

    def __init__(self, work, shape, seed=3):
        self.work, self.chance, self.shape = work, random.Random(seed), shape
        self.side = torch.cuda.Stream()
        self.next = self._fetch()

    def _fetch(self):
        shape = self.shape(self.chance)
        with torch.cuda.stream(self.side):
            copied = [part.to("cuda", non_blocking=True) for part in self.work.on_host(self.chance, shape)]
            return shape, self.work.on_device(*copied)

    def take(self):
        main = torch.cuda.current_stream()
        main.wait_stream(self.side)
        shape, batch = self.next
        for tensor in batch:
            tensor.record_stream(main)
        self.next = self._fetch()
        return shape, batch


def autocast(work, cached=True):
    return torch.autocast("cuda", torch.bfloat16, enabled=work.bfloat16, cache_enabled=cached)


def compute(work, optimizer, batch, cached=True):
    optimizer.zero_grad(set_to_none=True)
    with autocast(work, cached):
        loss = work.loss(*batch)
    loss.backward()
    optimizer.step()
    return loss.detach().clone()  # the output of a compiled function may be overwritten by its next call


def to_device(work, parts):
    return work.on_device(*(part.to("cuda", non_blocking=True) for part in parts))


def train(work, routed, losses, _evaluations, shape=None, seed=3):
    optimizer = work.optimizer(False)
    with routed():
        feed = Feed(work, shape or work.shape, seed)

    def step():
        with routed():
            _, batch = feed.take()
            losses.append(compute(work, optimizer, batch))
            del batch  # frees it while the device still reads it, because the CPU is ahead of the device

    return step


def train_large(work, routed, losses, evaluations):
    return train(work, routed, losses, evaluations, lambda chance: chance.choice(work.large_shapes))


def train_compiled(work, routed, losses, evaluations, mode=None):
    from torch._inductor import config  # slow to import

    if isinstance(work, Experts):
        # A graph for each number of rows of an expert would be recorded and never used again.
        config.triton.cudagraph_skip_dynamic_graphs = True
    work.loss = torch.compile(work.model.loss, dynamic=None if isinstance(work, Experts) else False, mode=mode)
    step = train(work, routed, losses, evaluations, lambda chance: chance.choice(work.graph_shapes))
    if mode is None:
        return step

    def marked():
        torch.compiler.cudagraph_mark_step_begin()
        step()

    return marked


def train_graphed(work, routed, losses, evaluations, pool=None):
    """Captures the whole step for each of two shapes; the replays read their batches from static tensors."""
    optimizer = work.optimizer(True)
    chance = random.Random(5)
    with routed():
        statics = {shape: to_device(work, work.on_host(chance, shape)) for shape in work.graph_shapes}
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            for _ in range(3):
                for batch in statics.values():
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
        feed = Feed(work, lambda chance: chance.choice(work.graph_shapes))

    def step():
        with routed():
            shape, batch = feed.take()
            for static, tensor in zip(statics[shape], batch):
                static.copy_(tensor)
            graph, loss = graphs[shape]
            graph.replay()
            losses.append(loss.clone())
            if len(losses) % 3 == 0:
                # A forward pass of another shape between the replays.
                batch = to_device(work, work.on_host(chance, work.other_shape))
                with torch.no_grad(), autocast(work, False):
                    evaluations.append(work.model.loss(*batch))

    step.optimizer = optimizer  # the graphs update its state, which would be freed with it
    return step


class Batches:
    """A data set for torch.utils.data.DataLoader: batch i is the same in each process."""

    def __init__(self, work):
        self.work = work

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        chance = random.Random(index)
        # Without clone() all of the data would be sent to the parent.
        return [part.clone() for part in self.work.on_host(chance, self.work.small_shape(chance))]


def train_from_workers(work, routed, losses, _evaluations):
    optimizer = work.optimizer(False)
    loader = iter(DataLoader(Batches(work), batch_size=None, num_workers=2, pin_memory=True,
                             multiprocessing_context="fork"))

    def step():
        with routed():
            losses.append(compute(work, optimizer, to_device(work, next(loader))))

    return step


class Loss(torch.nn.Module):
    """A model whose output is its loss, because DistributedDataParallel works in forward()."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *batch):
        return self.model.loss(*batch)


def train_distributed(work, routed, losses, evaluations, rank, ranks, rendezvous):
    """Trains with batches of its own in each rank. A sum of two gradients does not depend on their order."""
    distributed.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks,
                                   timeout=datetime.timedelta(seconds=60), device_id=torch.device("cuda", rank))
    work.loss = torch.nn.parallel.DistributedDataParallel(Loss(work.model), device_ids=[rank])
    return train(work, routed, losses, evaluations, seed=3 + rank)


def train_short_of_memory(work, routed, losses, _evaluations):
    optimizer, chance = work.optimizer(False), random.Random(4)
    total = torch.cuda.mem_get_info()[1]
    try:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")  # the driver refuses this; the limit is set later
        raise RuntimeError("twice the memory of the GPU was allocated")
    except torch.OutOfMemoryError:
        pass
    torch.cuda.set_per_process_memory_fraction(work.limit / total)

    def step():
        large = len(losses) % 4 == 3
        batch = to_device(work, work.on_host(chance, work.too_large if large else work.fits))
        if large:
            try:
                compute(work, optimizer, batch)
                raise RuntimeError("the batch that is too large for the limit did fit")
            except torch.OutOfMemoryError:
                pass
            batch = [part[: work.fits[0]] for part in batch]
        losses.append(compute(work, optimizer, batch))

    return step


def measure_empty(times):
    """Returns a step that appends the nanoseconds of torch.empty and its free to times[size]."""
    device, empty = torch.device("cuda"), torch.empty

    def step():
        for name, size in SIZES.items():
            begin = time.perf_counter_ns()
            for _ in range(CALLS):
                empty(size, dtype=torch.uint8, device=device)
            times.setdefault(name, []).append((time.perf_counter_ns() - begin) / CALLS)

    return step


WAYS = {"": train, "large": train_large, "graph": train_graphed, "dataloader": train_from_workers, "ddp": train_distributed,
        "oom": train_short_of_memory, "compile": train_compiled,
        "reduce": functools.partial(train_compiled, mode="reduce-overhead")}
