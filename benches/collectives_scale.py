#!/usr/bin/env python3
"""Predicts the times of plinth's all-reduce between processes on more GPUs than were measured.

    benches/collectives_scale.py            prints the tables of docs/collectives_scale.md
    benches/collectives_scale.py --write    writes them to the page

The algorithms are those of kernels/group.cu with the tuning of src/collectives/processes/tuning.rs. Three constants are
fitted to the times of two ranks in docs/benchmarks.md. Everything for more than two ranks is a prediction. NCCL's times
come from comm_model.py.
"""

import argparse
import math
import pathlib
import random
import re

import comm_model

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/collectives_scale.md"
KIB, MIB = 1 << 10, 1 << 20

# As in tuning.rs and symmetric_buffer.cuh; tests/comm/test_collectives_scale.py compares them. Large messages between two ranks have more blocks
# than BLOCKS.
ONE_SHOT = ((2, 4 * MIB), (4, 512 * KIB), (None, 128 * KIB))
PACKETS = ((2, 512 * KIB), (4, 64 * KIB), (None, 32 * KIB))
# The same when two ranks were measured.
PACKETS_MEASURED = ((2, 256 * KIB),)
BLOCK_BYTES, BLOCKS, STAGING = 8 * KIB, 64, 8 * MIB
THREADS, MAX_RANKS = 512, 16

# GB/s that a kernel writes to a peer, measured on two of four H200s (NVLink 4). NVLink 5 has twice the published bandwidth.
LINK, LINK_NVL72 = 367.0, 2 * 367.0
# Microseconds of a load from the L2 cache, which a read of a packet costs: 200 cycles at 1,755 MHz, published for the H100.
POLL = 200 / 1755

# Microseconds on two H100s, 2026-11-26 (docs/benchmarks.md): bytes, plinth in a graph and eager, in a graph NCCL and
# PyTorch's two-shot kernel on registered memory.
TWO_RANKS = (
    (512, 6.1, 16.0, 7.8, 7.8), (2 * KIB, 6.1, 15.6, 8.2, 7.8), (8 * KIB, 5.6, 16.0, 8.8, 7.6),
    (32 * KIB, 6.0, 16.4, 9.1, 8.4), (128 * KIB, 6.0, 16.1, 9.4, 8.8), (512 * KIB, 8.5, 19.5, 11.9, 9.6),
    (2 * MIB, 14.7, 24.8, 30.9, 14.3), (4 * MIB, 22.8, 33.1, 35.8, 21.8), (8 * MIB, 40.3, 50.9, 50.5, 33.9),
    (16 * MIB, 76.5, 86.9, 80.3, 61.3), (32 * MIB, 141.6, 152.2, 144.1, 111.6), (64 * MIB, 269.6, 282.2, 253.9, 216.2))
# Microseconds on four H100s, 2026-11-27 (docs/benchmarks.md): bytes, plinth in a graph and eager, and in a graph the fastest of
# NCCL and PyTorch's one-shot and two-shot kernels.
FOUR_RANKS = (
    (512, 7.7, 17.9, 8.7), (2 * KIB, 7.7, 18.1, 8.7), (8 * KIB, 7.6, 17.9, 8.5), (32 * KIB, 7.9, 17.9, 9.0),
    (128 * KIB, 8.8, 18.6, 10.4), (512 * KIB, 11.9, 22.6, 11.8), (2 * MIB, 21.9, 33.0, 20.0),
    (4 * MIB, 31.7, 43.4, 30.3), (8 * MIB, 52.4, 63.0, 53.0), (16 * MIB, 99.6, 110.1, 94.1),
    (32 * MIB, 188.5, 200.0, 177.1), (64 * MIB, 362.6, 376.1, 328.0))
# The numbers of ranks of the predictions, and the link of each.
NETWORKS = ((4, LINK), (8, LINK), (16, LINK), (72, LINK_NVL72))


def up(value, unit):
    return -(-value // unit)


def by_ranks(table, ranks):
    return next(size for limit, size in table if limit is None or ranks <= limit)


def counts(algorithm, ranks, size):
    """Returns what an all-reduce consists of: steps with flags, serial loads of a thread, serial reads of packets, and bytes
    that leave each rank over its link."""
    if algorithm == "packets":
        return 0, 0, 2 * (ranks - 1), 2 * (ranks - 1) * size
    if algorithm == "registered":
        part = up(size, ranks)
        blocks = max(1, min(BLOCKS, up(part, BLOCK_BYTES)))
        return 2, up(up(up(part, 16), blocks), THREADS), 0, 2 * (ranks - 1) * size / ranks
    slot, parts = max(STAGING // ranks, 16) & ~15, algorithm == "two-shot"
    most = min(up(size, ranks) if parts else size, slot)
    blocks, steps, loads = max(1, min(BLOCKS, up(most, BLOCK_BYTES))), 0, 0
    for offset in range(0, size, slot * ranks if parts else slot):
        chunk = min(size - offset, slot * ranks if parts else slot)
        # One-shot: push, combine. Two-shot: push to each rank, combine and forward, pull from each rank.
        units = up(up(up(chunk, ranks) if parts else chunk, 16), blocks)
        loads += up(units, THREADS) * (2 * ranks + 1 if parts else 2)
        steps += 2 if parts else 1
    return steps, loads, 0, (2 * (ranks - 1) / ranks if parts else ranks - 1) * size


def chosen(ranks, size, packets=PACKETS):
    if size <= min(by_ranks(packets, ranks), by_ranks(ONE_SHOT, ranks)):
        return "packets"
    return "one-shot" if size <= by_ranks(ONE_SHOT, ranks) else "two-shot"


def solve(rows, values):
    """Returns the least-squares solution, by elimination of the normal equations."""
    n = len(rows[0])
    matrix = [[sum(row[i] * row[j] for row in rows) for j in range(n)] + [sum(row[i] * v for row, v in zip(rows, values))]
              for i in range(n)]
    for i in range(n):
        matrix[i] = [value / matrix[i][i] for value in matrix[i]]
        for j in range(n):
            if j != i:
                matrix[j] = [a - matrix[j][i] * b for a, b in zip(matrix[j], matrix[i])]
    return [row[n] for row in matrix]


class Model:
    """launch, step, load: microseconds of a launch with one exchange, of a step with flags, of one of a thread's loads."""

    def __init__(self, measured=TWO_RANKS):
        rows, values = [], []
        for size, time, *_ in measured:
            steps, loads, polls, sent = counts(chosen(2, size, PACKETS_MEASURED), 2, size)
            # Divided by the time, so that relative errors count. The reads of a packet between two ranks are in `launch`.
            rows.append([1 / time, steps / time, loads / time])
            values.append((time - sent / LINK / 1e3) / time)
        self.launch, self.step, self.load = solve(rows, values)
        self.eager = sum(row[2] - row[1] for row in measured) / len(measured)

    def time(self, algorithm, ranks, size, link=LINK):
        steps, loads, polls, sent = counts(algorithm, ranks, size)
        return self.launch + steps * self.step + loads * self.load + max(0, polls - 2) * POLL + sent / link / 1e3

    def default(self, ranks, size, link=LINK):
        return self.time(chosen(ranks, size), ranks, size, link)

    def measured(self, size):
        """Returns the time of two ranks with the thresholds of the measurement."""
        return self.time(chosen(2, size, PACKETS_MEASURED), 2, size)

    def first(self, slower, faster, ranks, link=LINK):
        """Returns the size in KiB from which `faster` is faster, and stays so up to 64 MiB; None if it never is."""
        found = None
        for size in sorted({int(2 ** (power / 8)) & ~15 for power in range(32, 209)}, reverse=True):
            if self.time(faster, ranks, size, link) >= self.time(slower, ranks, size, link):
                return found
            found = size / KIB
        return found


def waiting(ranks, steps, blocks=BLOCKS, whole=False, calls=10, rounds=1, seed=1):
    """Simulates calls of a graph; returns the mean time that one takes for jitter alone. In each step each block of each rank
    is late by a random time, exponential with mean 1. It then waits for the block of its number on all ranks, or, if `whole`,
    for all blocks of all ranks. A rank's call begins when all blocks of its call before have ended."""
    dice, total = random.Random(seed), 0.0
    for _ in range(rounds):
        begins = [0.0] * ranks
        for _ in range(calls):
            at = [[begin] * blocks for begin in begins]
            for _ in range(steps):
                met = [max(at[rank][block] - math.log(1 - dice.random()) for rank in range(ranks)) for block in range(blocks)]
                met = [max(met)] * blocks if whole else met
                at = [met] * ranks
            begins = [max(times) for times in at]
        total += max(begins) / calls
    return total / rounds


def reading(ranks, spread, rounds=2000, seed=1):
    """Simulates a thread that reads two packets of each rank, in the order of ranks, and has a packet `spread` us late on
    average (exponential). Returns the mean microseconds between the last arrival and the last read."""
    dice, total = random.Random(seed), 0.0
    for _ in range(rounds):
        arrivals = [-spread * math.log(1 - dice.random()) for _ in range(ranks - 1)]
        now = 0.0
        for arrival in arrivals:
            now = max(now, arrival) + 2 * POLL
        total += now - max(arrivals)
    return total / rounds


def table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def us(time):
    return f"{time:,.0f}" if time >= 100 else f"{time:.1f}"


def error(predicted, measured):
    return f"{us(predicted)} ({round(100 * (predicted / measured - 1)):+d} %)"


def tables(model):
    text = comm_model.bytes_text
    fit = [[text(size), chosen(2, size, PACKETS_MEASURED), us(graph), error(model.measured(size), graph), us(eager),
            error(model.measured(size) + model.eager, eager), us(two), error(model.time("registered", 2, size), two),
            us(nccl), error(comm_model.nccl(2, size, 50)[2], nccl)] for size, graph, eager, nccl, two in TWO_RANKS]
    yield "fit", table(["message", "algorithm", "graph", "model", "eager", "model", "registered", "model", "NCCL", "model"], fit)
    four = []
    for size, graph, eager, rival in FOUR_RANKS:
        own, nccl = model.time("registered", 4, size), comm_model.nccl(4, size, 50)[2]
        four.append([text(size), chosen(4, size), us(graph), error(model.default(4, size), graph), us(eager),
                     error(model.default(4, size) + model.eager, eager), us(rival), error(min(own, nccl), rival),
                     "registered" if own < nccl else "NCCL"])
    yield "four", table(["message", "algorithm", "graph", "model", "eager", "model", "fastest rival", "the faster model",
                         "which"], four)
    rows = []
    for size in (KIB, 8 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 64 * MIB, 256 * MIB):
        row = [text(size)]
        for ranks, link in NETWORKS:
            row += [f"{us(model.default(ranks, size, link))} {chosen(ranks, size)}",
                    us(model.time("registered", ranks, size, link))]
        rows.append(row + [us(comm_model.nccl(8, size, 50)[2])])
    yield "predictions", table(["message", "4", "registered", "8", "registered", "16", "registered", "72", "registered",
                                "NCCL, 8"], rows)
    rows = []
    overlapping = Model()
    overlapping.load = 0
    for ranks, link in NETWORKS:
        found = [model.first("packets", "one-shot", ranks, link), model.first("packets", "two-shot", ranks, link),
                 model.first("one-shot", "two-shot", ranks, link), overlapping.first("one-shot", "two-shot", ranks, link)]
        rows.append([str(ranks), *(f"{by_ranks(sizes, ranks) // KIB} KiB" for sizes in (PACKETS, ONE_SHOT)),
                     *("never" if size is None else f"{size:.0f} KiB" if size >= 1 else "always" for size in found)])
    yield "thresholds", table(["ranks", "`packets` now", "`one_shot` now", "packets to one-shot", "packets to two-shot",
                               "one-shot to two-shot", "the same, if loads cost nothing"], rows)
    # The mean of the jitter that would explain the whole of a fitted step.
    mean = model.step / (waiting(2, 16, rounds=40) / 16)
    rows = []
    for ranks in (2, 4, 8, 16, 72):
        one, many, whole = (waiting(ranks, steps, whole=together, rounds=max(1, 80 // ranks)) * mean
                            for steps, together in ((1, False), (16, False), (16, True)))
        rows.append([str(ranks), f"{one:.2f}", f"{many / 16:.2f}", f"{whole / 16:.2f}",
                     *(f"{reading(ranks, spread):.2f}" for spread in (0, 0.5, 2))])
    yield "waiting", table(["ranks", "a call of 1 step", "a step of 16", "a step of 16, all blocks together",
                            "reads, no spread", "0.5 us", "2 us"], rows)
    yield "many", comm_model.table(50.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the tables to the page")
    arguments = parser.parse_args()
    model = Model()
    errors = [abs(model.measured(size) / time - 1) for size, time, *_ in TWO_RANKS]
    print(f"error of the fit: mean {100 * sum(errors) / len(errors):.1f} %, largest {100 * max(errors):.1f} %")
    print(f"launch {model.launch:.2f} us, step {model.step:.2f} us, load {model.load:.3f} us, eager {model.eager:.1f} us")
    page = PAGE.read_text()
    for name, lines in tables(model):
        print(f"\n{name}\n{lines}")
        page = re.sub(f"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", lambda found: f"{found[1]}{lines}\n{found[2]}",
                      page, flags=re.DOTALL)
    if arguments.write:
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
