#!/usr/bin/env python3
"""Models the time of an all-reduce on many machines: `benches/comm_model.py [--network GB/S]`.

This is a model, not a measurement. A machine has 8 GPUs. The constants inside a machine were measured on H200s
(docs/collectives_scale.md lists their sources); those between machines are NCCL's own estimates, with the network's
bandwidth as an argument. A step costs its latency, and bytes cost their time on the slowest link on their path.
"""

import argparse
import math

GPUS_PER_MACHINE = 8
# GB/s for each GPU and direction over NVLink, as NCCL's rings reach it (1 GiB all-reduce on four H200s: 352).
NVLINK = 352.0
# Microseconds from the call to the end of an empty kernel on one H200, and of the ordering with the other GPUs' streams.
LAUNCH = 11.6
ORDER = 5.0
# GB/s that plinth's kernels read from peers, and the microseconds of a round trip through the switch.
DIRECT = 372.0
ROUND = 2.0

# NCCL's estimates for its protocols, microseconds: LL (8-byte words with flags), LL128 (128-byte lines), Simple (buffers).
PROTOCOLS = ("LL", "LL128", "Simple")
BASE = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
STEP_INSIDE = {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)}
STEP_BETWEEN = {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)}
# The fraction of the bandwidth that carries data; for the tree, its two directions at once are included.
EFFICIENCY = {"tree": (1 / 3.8, 120 / 128 * 0.92, 0.92), "ring": (0.5, 0.92, 1.0)}
# LL passes through the CPU's memory between machines.
LL_MOST = {False: 141.0, True: 35.0}


def candidates(gpus, size, network):
    """Returns NCCL's algorithms and protocols for an all-reduce, and the microseconds of each in the model."""
    machines = max(1, gpus // GPUS_PER_MACHINE)
    inside = gpus if machines == 1 else GPUS_PER_MACHINE
    # Each GPU of a machine has a network adapter, and the rings leave the machine through all of them.
    bus = NVLINK if machines == 1 else min(NVLINK, network * inside)
    times = []
    for algorithm in ("tree", "ring"):
        for number, protocol in enumerate(PROTOCOLS):
            bandwidth = bus * EFFICIENCY[algorithm][number]
            if protocol == "LL":
                bandwidth = min(bandwidth, LL_MOST[machines > 1])
            near, far = STEP_INSIDE[algorithm][number], STEP_BETWEEN[algorithm][number]
            if algorithm == "ring":
                between = 2 * (machines - 1) if machines > 1 else 0
                latency = (2 * (gpus - 1) - between) * near + between * far
                passes = 2 * (gpus - 1) / gpus
            else:
                latency = 2 * ((inside - 1) * near + math.log2(machines) * far)
                passes = 2.0
            times.append((algorithm, protocol, BASE[algorithm][number] + latency + passes * size / bandwidth / 1e3))
    return times


def nccl(gpus, size, network):
    """Returns the algorithm and protocol that NCCL selects for an all-reduce in the model, and its microseconds."""
    return min(candidates(gpus, size, network), key=lambda candidate: candidate[2])


def direct(gpus, size):
    """Returns the microseconds of plinth's all-reduce inside a machine: one kernel for small messages, one on each GPU
    for its part of large ones."""
    one = (gpus - 1) * size / DIRECT / 1e3 * 2
    each = 2 * (gpus - 1) / gpus * size / DIRECT / 1e3 + gpus * 2.0
    return LAUNCH + ORDER + ROUND + min(one, each)


def hierarchical(gpus, size, network):
    """Returns the microseconds of a hierarchical all-reduce: reduce-scatter inside each machine, all-reduce of the parts
    between machines by NCCL, all-gather inside each machine."""
    machines = gpus // GPUS_PER_MACHINE
    if machines < 2:
        return direct(gpus, size)
    inside = LAUNCH + ORDER + 2 * ROUND + 2 * (GPUS_PER_MACHINE - 1) / GPUS_PER_MACHINE * size / DIRECT / 1e3
    part = size / GPUS_PER_MACHINE
    times = []
    for number in range(3):
        bandwidth = min(network * EFFICIENCY["tree"][number], LL_MOST[True] if number == 0 else network)
        times.append(BASE["tree"][number] + 2 * math.log2(machines) * STEP_BETWEEN["tree"][number]
                     + 2 * part / bandwidth / 1e3)
        bandwidth = min(network * EFFICIENCY["ring"][number], LL_MOST[True] if number == 0 else network)
        times.append(BASE["ring"][number] + 2 * (machines - 1) * STEP_BETWEEN["ring"][number]
                     + 2 * (machines - 1) / machines * part / bandwidth / 1e3)
    return inside + min(times)


def bytes_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def table(network):
    """Returns the times as a Markdown table."""
    lines = ["| GPUs | message | NCCL's ring | NCCL's tree | NCCL's choice | parts: inside, between, inside |",
             "|---|---|---|---|---|---|"]
    for gpus in (8, 64, 512, 4096, 32768, 100000):
        for size in (1 << 10, 1 << 20, 1 << 26, 1 << 30):
            times = candidates(gpus, size, network)
            ring, tree = (min(time for name, _, time in times if name == algorithm) for algorithm in ("ring", "tree"))
            algorithm, protocol, _ = nccl(gpus, size, network)
            own = hierarchical(gpus, size, network)
            lines.append(f"| {gpus:,} | {bytes_text(size)} | {ring:,.0f} | {tree:,.0f} | {algorithm}, {protocol} | {own:,.0f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", type=float, default=50.0, help="GB/s for each GPU and direction between machines (50: 400 Gbit/s)")
    print(table(parser.parse_args().network))


if __name__ == "__main__":
    main()
