#!/usr/bin/env python3
"""Compares captured fills of plinth with PyTorch's, on a GPU: `captured.py --library libplinth.so --rounds 20 --seed 1`.

In each round both capture the same fills, with the default generator and with a generator that is registered with the
graph. Then replays alternate with fills outside of graphs, in the same order on both sides. After each step the numbers
must be bitwise equal, and so must the offsets of both generators.
"""

import argparse
import ctypes
import random
import sys

import plinth

try:
    import torch
except ImportError:
    torch = None

# Fills: plinth's name and arguments, and PyTorch's call.
FILLS = [
    ("uniform", (-1.0, 2.0), lambda x, g: x.uniform_(-1.0, 2.0, generator=g)),
    ("normal", (0.5, 2.0), lambda x, g: x.normal_(0.5, 2.0, generator=g)),
    ("exponential", (1.5,), lambda x, g: x.exponential_(1.5, generator=g)),
    ("log_normal", (0.0, 0.5), lambda x, g: x.log_normal_(0.0, 0.5, generator=g)),
    ("cauchy", (0.0, 1.0), lambda x, g: x.cauchy_(0.0, 1.0, generator=g)),
    ("geometric", (0.3,), lambda x, g: x.geometric_(0.3, generator=g)),
    ("bernoulli", (0.4,), lambda x, g: x.bernoulli_(0.4, generator=g)),
    ("random", (), lambda x, g: x.random_(generator=g)),
]
DTYPES = ["float32", "float64", "float16", "bfloat16"]


class Side:
    """A random fill, with one tensor for PyTorch and one for plinth."""

    def __init__(self, rng):
        self.name, self.arguments, self.torch_fill = rng.choice(FILLS)
        self.dtype = rng.choice(DTYPES)
        self.own = rng.random() < 0.4
        numel = rng.choice([1, 5, 1000, 4097, 270_337, 1_081_345, rng.randrange(1, 100_000)])
        self.theirs = torch.zeros(numel, dtype=getattr(torch, self.dtype), device="cuda")
        self.ours = torch.zeros_like(self.theirs)
        self.described = plinth.descriptor(self.ours.data_ptr(), 0, self.dtype, [numel])

    def fill_theirs(self, generator):
        self.torch_fill(self.theirs, generator if self.own else None)

    def fill_ours(self, library, generator, stream):
        library.fill(self.name, self.described, *self.arguments, generator=generator if self.own else None, stream=stream)

    def difference(self):
        integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[self.theirs.element_size()]
        wrong = int((self.theirs.view(integers) != self.ours.view(integers)).sum())
        return f"{self.name} {self.dtype} of {self.theirs.numel()}: {wrong} elements differ" if wrong else None


def run_round(library, rng, number):
    seeds = [rng.getrandbits(64), rng.getrandbits(63)]
    torch.cuda.manual_seed(seeds[0])
    their_own = torch.Generator("cuda")
    their_own.manual_seed(seeds[1])
    library.call("manual_seed", ctypes.c_uint64(seeds[0]))
    our_own = library.generator(seed=seeds[1])
    captured = [Side(rng) for _ in range(rng.randrange(1, 6))]
    outside = [Side(rng) for _ in range(rng.randrange(1, 4))]

    their_graph = torch.cuda.CUDAGraph()
    their_graph.register_generator_state(their_own)
    with torch.cuda.graph(their_graph):
        for side in captured:
            side.fill_theirs(their_own)

    stream, our_graph = ctypes.c_void_p(), ctypes.c_void_p()
    library.call("stream_create", ctypes.c_int32(0), ctypes.c_int32(0), ctypes.byref(stream))
    library.call("set_stream", stream)
    library.call("graph_create", ctypes.byref(our_graph))
    library.call("graph_register_generator_state", our_graph, our_own.handle)
    library.call("graph_capture_begin", our_graph, None, ctypes.c_int32(0))
    for side in captured:
        side.fill_ours(library, our_own, stream)
    library.call("graph_capture_end", our_graph)

    wrong = []
    for step in range(rng.randrange(2, 8)):
        if rng.random() < 0.6:
            what, sides = "replay", captured
            their_graph.replay()
            library.call("graph_replay", our_graph)
        else:
            what, sides = "outside", outside
            for side in sides:
                side.fill_theirs(their_own)
                side.fill_ours(library, our_own, stream)
        library.synchronize()
        torch.cuda.synchronize()
        found = [difference for difference in map(Side.difference, sides) if difference]
        offset = (ctypes.c_uint64)()
        library.call("generator_get_offset", None, ctypes.byref(offset))
        theirs = [int.from_bytes(bytes(state[8:16].tolist()), "little")
                  for state in (torch.cuda.get_rng_state(), their_own.get_state())]
        if theirs != [offset.value, our_own.offset]:
            found.append(f"offsets {[offset.value, our_own.offset]} instead of {theirs}")
        wrong += [f"round {number}, step {step} ({what}): {difference}" for difference in found]
    library.call("graph_destroy", our_graph)
    library.call("set_stream", None)
    our_own.destroy()
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libplinth.so")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        print("needs PyTorch and a GPU")
        sys.exit(77)
    library = plinth.Library(options.library, "cuda")
    wrong = []
    for number in range(options.rounds):
        wrong += run_round(library, random.Random(f"{options.seed}/{number}"), number)
    for line in wrong[:20]:
        print("DIFFERS", line)
    print(f"PyTorch {torch.__version__}, {options.rounds} rounds of captured fills: "
          + (f"{len(wrong)} differences" if wrong else "all are bitwise equal"))
    sys.exit(1 if wrong else 0)


main()
