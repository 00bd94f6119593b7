#!/usr/bin/env python3
"""Compares collectives between processes with NCCL and PyTorch's symmetric memory, eager and in graphs, as Markdown tables.

    benches/communicator_table.py --nccl OLD/libnccl.so.2 NEW/libnccl.so.2 --svg communicator.svg

float32, between as many processes as there are GPUs, with memory that is registered and that is not: `benches/communicator`
measures plinth and, through plinth, each NCCL, in its blocking mode; registered memory is a symmetric window there. PyTorch's
one-shot and two-shot kernels, which only reduce to all, are measured from Python. Every library takes its turn in every
repetition; a cell is the median of the repetitions' medians. A launch without a collective is a memset of 4 bytes. --json
saves all numbers.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import panels

HERE = pathlib.Path(__file__).resolve().parent
KIB, MIB = 1 << 10, 1 << 20
SIZES = (512, 2 * KIB, 8 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, *(power * MIB for power in (1, 2, 4, 8, 16, 32, 64, 128, 256)))
# PyTorch's one-shot kernel is for short messages; with longer ones it takes the time of the others many times over.
ONE_SHOT_LARGEST = 8 * MIB
GRAPH_CALLS, ROUNDS, ROUNDS_OF_LARGE, WARM, LARGE = 20, 100, 20, 10, 16 * MIB
MODES = ("eager", "graph")
# Seconds for all sizes of PyTorch's kernels.
LIMIT = 120
OWN = ("plinth", "plinth, registered")
COLOURS = ("#0b6e4f", "#59b38f", "#d1495b", "#e8963e", "#4f6d9a", "#8fb1e0", "#7a4fa0", "#b99ad6")


# ---- PyTorch's kernels, in processes of their own


def timed(function, rounds, torch):
    """Returns the median microseconds from the call to the completion of its work."""
    times = []
    for turn in range(-WARM, rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        function()
        torch.cuda.synchronize()
        if turn >= 0:
            times.append((time.perf_counter_ns() - begin) / 1e3)
    return statistics.median(times)


def captured(function, torch):
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(GRAPH_CALLS):
                function()
    return graph


def symmetric_rank(rank, ranks, port, sizes):
    """Measures one-shot and two-shot as one rank; rank 0 prints a line of JSON for each case."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks,
                            device_id=torch.device("cuda", rank))
    group = dist.group.WORLD.group_name
    for size in sizes:
        memory = symmetric.empty(size // 4, dtype=torch.float32, device="cuda")
        symmetric.rendezvous(memory, group)
        memory.zero_()
        operations = torch.ops.symm_mem
        cases = {"two-shot": lambda tensor=memory: operations.two_shot_all_reduce_(tensor, "sum", group)}
        if size <= ONE_SHOT_LARGEST:
            cases["one-shot"] = lambda tensor=memory: operations.one_shot_all_reduce(tensor, "sum", group)
        for name, function in cases.items():
            rounds = ROUNDS_OF_LARGE if size >= LARGE else ROUNDS
            dist.barrier()
            row = {"eager": timed(function, rounds, torch)}
            graph = captured(function, torch)
            dist.barrier()
            row["graph"] = timed(graph.replay, rounds, torch) / GRAPH_CALLS
            if rank == 0:
                print(json.dumps([name, size, row]), flush=True)
    dist.barrier()
    torch.cuda.synchronize()
    # What the processes share has no order in which it could be destroyed.
    os._exit(0)


def symmetric(ranks, sizes, turn):
    """Returns {(operation, name, mode, size): us} of PyTorch's kernels."""
    command = [sys.executable, __file__, "--ranks", str(ranks), "--sizes", ",".join(map(str, sizes)), "--port", str(29511 + turn)]
    # NVLink multicast is off for all libraries.
    environment = {**os.environ, "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}
    processes = [subprocess.Popen([*command, "--symmetric-rank", str(rank)], env=environment, text=True,
                                  stdout=subprocess.PIPE if rank == 0 else None) for rank in range(ranks)]
    try:
        lines, _ = processes[0].communicate(timeout=LIMIT)
        if any(process.wait(timeout=LIMIT) != 0 for process in processes):
            raise RuntimeError("PyTorch's symmetric memory failed")
    finally:
        # If a rank fails, the others wait for it.
        for process in processes:
            process.kill()
    measured = [json.loads(line) for line in lines.splitlines() if line.startswith("[")]
    return {("all_reduce", name, mode, size): us for name, size, row in measured for mode, us in row.items()}


# ---- plinth and NCCL


def communicator(ranks, sizes, name, engine, graph, registered=False, only=None, nccl=None):
    """Returns {(operation, name, mode, size): us}; the mode "call" is the host's time of an eager call."""
    command = [HERE / "communicator", "--processes", str(ranks), "--engine", engine, "--sizes", ",".join(map(str, sizes)),
               *(["--only", only] if only else []), *["--unlimited"] * (engine == "nccl"), *["--graph"] * graph,
               *["--registered"] * registered]
    environment = {**os.environ, "NCCL_NVLS_ENABLE": "0", **({"PLINTH_NCCL_LIBRARY": nccl} if nccl else {})}
    output = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=True).stdout
    times = {}
    for operation, _, size, median, _, call in (line.split() for line in output.splitlines() if not line.startswith("#")):
        times[operation, name, "graph" if graph else "eager", int(size)] = float(median)
        if not graph:
            times[operation, name, "call", int(size)] = float(call)
    return times


def repetition(ranks, sizes, libraries, only, turn):
    """Measures everything once."""
    times = {}
    for graph in (False, True):
        times |= communicator(ranks, [4], "launch", "shared", graph, only="memset")
        for registered in (False, True):
            kind = ", registered" if registered else ""
            times |= communicator(ranks, sizes, "plinth" + kind, "shared", graph, registered, only)
            for name, path in libraries.items():
                times |= communicator(ranks, sizes, name + kind, "nccl", graph, registered, only, path)
    return times | (symmetric(ranks, sizes, turn) if only in (None, "all_reduce") else {})


def version_of(path):
    """Returns the name of an NCCL library, like NCCL 2.28.9."""
    probe = "import ctypes; v = ctypes.c_int(); ctypes.CDLL({!r}).ncclGetVersion(ctypes.byref(v)); print(v.value)".format(path)
    version = int(subprocess.run([sys.executable, "-c", probe], text=True, stdout=subprocess.PIPE, check=True).stdout)
    return f"NCCL {version // 10000}.{version // 100 % 100}.{version % 100}"


def print_table(title, rows, names):
    """Prints {size: {name: us}}, the least of a row in bold."""
    names = [name for name in names if any(name in row for row in rows.values())]
    print(f"\n| {title} | " + " | ".join(names) + " | best rival over plinth |\n|" + "---|" * (len(names) + 2))
    for size, row in rows.items():
        best = min(row.values())
        cells = [f"**{row[name]:.1f}**" if row.get(name) == best else f"{row[name]:.1f}" if name in row else "" for name in names]
        rivals = [us for name, us in row.items() if name not in OWN]
        ratio = f"{min(rivals) / min(row[name] for name in OWN):.2f}" if rivals else ""
        print(f"| {panels.size_text(size)} | " + " | ".join(cells) + f" | {ratio} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, help="processes, each with a GPU; all GPUs without it")
    parser.add_argument("--nccl", nargs="*", default=[], help="files of NCCL to compare with")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of the messages")
    parser.add_argument("--only", help="one operation")
    parser.add_argument("--svg", help="file for a chart of time over size")
    parser.add_argument("--json", help="file for the numbers of all repetitions")
    parser.add_argument("--symmetric-rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    if arguments.symmetric_rank is not None:
        symmetric_rank(arguments.symmetric_rank, arguments.ranks, arguments.port, sizes)
    import torch

    ranks = arguments.ranks or torch.cuda.device_count()
    if ranks < 2:
        print("needs two GPUs")
        return 77
    libraries = {version_of(path): path for path in arguments.nccl}
    if len(libraries) < len(arguments.nccl) or len(libraries) > 2:
        parser.error("--nccl takes at most two files, of different versions")
    names = [*OWN, "one-shot", "two-shot", *(name + kind for name in libraries for kind in ("", ", registered"))]
    all_times = []
    for turn in range(arguments.repetitions):
        all_times.append(repetition(ranks, sizes, libraries, arguments.only, turn))
        if arguments.json:
            rows = [[[*key, us] for key, us in times.items()] for times in all_times]
            pathlib.Path(arguments.json).write_text(json.dumps(rows) + "\n", encoding="utf-8")
    table = {key: statistics.median(times[key] for times in all_times) for key in all_times[0]}
    launch = ", ".join(f"{mode} {table['memset', 'launch', mode, 4]:.1f}" for mode in MODES)
    print(f"{ranks} times {torch.cuda.get_device_name()}, PyTorch {torch.__version__}; microseconds, median of "
          f"{len(all_times)} repetitions. A launch without a collective: {launch}.")
    curves = {}
    for operation in dict.fromkeys(key[0] for key in table if key[0] != "memset"):
        for mode in (*MODES, "call"):
            rows = {size: {name: table[operation, name, mode, size] for name in names if (operation, name, mode, size) in table}
                    for size in sizes}
            print_table(f"{operation}, {mode}", rows, names)
            if mode in MODES:
                curves[f"{operation}, {mode}"] = rows
    if arguments.svg:
        panels.draw(curves, dict(zip(names, COLOURS)), arguments.svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
