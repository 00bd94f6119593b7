#!/usr/bin/env python3
"""Compares collectives of plinth, torch.cuda.comm and NCCL on the GPUs of one machine in one run, as a Markdown table.

    benches/comm_table.py --library target/release/libplinth.so --svg collectives.svg

The libraries alternate. A time is from the start of the call until all GPUs are done, including Python's own time;
benches/comm measures the calls from C. --json saves the raw numbers.
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# The binding is in the folder of the random number tests, both in the repository and in the bundle.
sys.path.insert(0, str(HERE.parent / "tests/random"))

import panels
import plinth

try:
    import torch
    from torch.cuda import comm, nccl
except ImportError:
    torch = None

COLOURS = {"plinth": "#0b6e4f", "torch": "#d1495b", "NCCL": "#4f6d9a"}


def finish(devices):
    for device in range(devices):
        torch.cuda.synchronize(device)


def in_turns(works, rounds, devices):
    """Returns the median and minimum microseconds to completion of each function; the functions alternate."""
    times = {name: [] for name in works}
    for turn in range(-5, rounds):
        for name in works if turn % 2 else reversed(works):
            finish(devices)
            begin = time.perf_counter_ns()
            works[name]()
            finish(devices)
            if turn >= 0:
                times[name].append((time.perf_counter_ns() - begin) / 1e3)
    return {name: (statistics.median(values), min(values)) for name, values in times.items()}


def prepared(library, name, *arguments):
    """Returns a function without arguments that calls plinth_comm_NAME and does nothing else if that succeeds."""
    function = library.function("comm_" + name)

    def call():
        if function(*arguments):
            library.call("comm_" + name, *arguments)  # raises what went wrong
    return call


def described(tensor):
    return plinth.descriptor(tensor.data_ptr(), tensor.device.index, "float32", list(tensor.shape))


def row(tensors):
    described_all = [described(tensor) for tensor in tensors]
    array = (plinth.DLTensor * len(tensors))(*described_all)
    # The single descriptors own the shapes, and the tensors the memory.
    array.owners = described_all, tensors
    return array


def works_of(library, operation, count, devices):
    """Returns a function without arguments for each library; all of them do the same operation."""
    size = ctypes.c_size_t
    each = [torch.zeros(count, device=f"cuda:{device}") for device in range(devices)]
    others, all_of_them = row(each[1:]), row(each)
    if operation == "broadcast":
        return {
            "plinth": prepared(library, operation, ctypes.byref(all_of_them[0]), others, size(devices - 1)),
            "torch": lambda: comm.broadcast(each[0], out=each[1:]),
            "NCCL": lambda: nccl.broadcast(each, 0),
        }
    if operation == "reduce_add":
        out = torch.zeros(count, device="cuda:0")
        target = described(out)
        return {
            "plinth": prepared(library, operation, all_of_them, size(devices), ctypes.byref(target)),
            "torch": lambda: comm.reduce_add(each, 0),
            "NCCL": lambda: nccl.reduce(each, out, 0),
        }
    part = -(-count // devices)
    whole = torch.zeros(part * devices, device="cuda:0")
    parts = [torch.zeros(part, device=f"cuda:{device}") for device in range(devices)]
    target, part_row = described(whole), row(parts)
    if operation == "gather":
        return {
            "plinth": prepared(library, operation, part_row, size(devices), ctypes.c_int32(0), ctypes.byref(target)),
            "torch": lambda: comm.gather(parts, 0, out=whole),
        }
    return {
        "plinth": prepared(library, operation, ctypes.byref(target), part_row, size(devices), None, ctypes.c_int32(0), None),
        "torch": lambda: comm.scatter(whole, out=parts),
    }


def coalesced(library, operation, devices):
    """Broadcasts 254 tensors of 85 MB in total, or reduces 250 of 21 MB: many small ones, some large."""
    tensors, size = (254, 85_000_000) if operation == "broadcast_coalesced" else (250, 21_000_000)
    large = tensors // 4
    counts = [(size - (tensors - large) * 1024) // 4 // large if index % 4 == 0 and index // 4 < large else 256
              for index in range(tensors)]
    lists = [[torch.zeros(count, device=f"cuda:{device}") for count in counts] for device in range(devices)]
    everything = row([tensor for one in lists for tensor in one])
    numbers = (ctypes.c_int32 * devices)(*range(devices))
    if operation == "broadcast_coalesced":
        return size, {
            "plinth": prepared(library, operation, everything, ctypes.c_size_t(tensors), numbers,
                               ctypes.c_size_t(devices), ctypes.c_size_t(10485760), everything),
            "torch": lambda: comm.broadcast_coalesced(lists[0], list(range(devices))),
        }
    sums = row([torch.zeros(count, device="cuda:0") for count in counts])
    return size, {
        "plinth": prepared(library, operation, everything, ctypes.c_size_t(tensors), ctypes.c_size_t(devices),
                           ctypes.c_size_t(10485760), sums),
        "torch": lambda: comm.reduce_add_coalesced(lists, 0),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="target/release/libplinth.so", help="libplinth.so")
    parser.add_argument("--largest", type=int, default=1 << 30, help="bytes of the largest message")
    parser.add_argument("--rounds", type=int, default=60, help="measurements of each case")
    parser.add_argument("--svg", help="file for a chart of time over size")
    parser.add_argument("--json", help="file for the raw numbers")
    arguments = parser.parse_args()
    if torch is None or not torch.cuda.is_available() or torch.cuda.device_count() < 2:
        print("needs PyTorch and two GPUs")
        return 77
    devices = torch.cuda.device_count()
    finish(devices)
    library = plinth.Library(arguments.library, "cuda")
    print(f"{devices} times {torch.cuda.get_device_name()}, PyTorch {torch.__version__}; microseconds from the call until all "
          "GPUs are done, median (minimum)\n")
    print("| operation | bytes | plinth | torch | NCCL | torch over plinth |\n|---|---|---|---|---|---|")
    results = {}

    def report(operation, size, outcome):
        results.setdefault(operation, {})[size] = outcome
        cells = [f"{outcome[name][0]:.1f} ({outcome[name][1]:.1f})" if name in outcome else "" for name in COLOURS]
        print(f"| {operation} | {panels.size_text(size)} | {' | '.join(cells)} | {outcome['torch'][0] / outcome['plinth'][0]:.2f} |",
              flush=True)

    median, least = in_turns({"nothing": lambda: None}, arguments.rounds, devices)["nothing"]
    print(f"| nothing at all | | {median:.1f} ({least:.1f}) | | | |", flush=True)
    for operation in ("broadcast", "reduce_add", "gather", "scatter"):
        size = 1024
        while size <= arguments.largest:
            works = works_of(library, operation, size // 4, devices)
            report(operation, size, in_turns(works, arguments.rounds if size < 1 << 26 else 10, devices))
            del works
            torch.cuda.empty_cache()
            size *= 4
    for operation in ("broadcast_coalesced", "reduce_add_coalesced"):
        size, works = coalesced(library, operation, devices)
        report(operation, size, in_turns(works, arguments.rounds, devices))
        del works
        torch.cuda.empty_cache()
    if arguments.svg:
        curves = {operation: {size: {name: times[0] for name, times in row.items()} for size, row in results[operation].items()}
                  for operation in ("broadcast", "reduce_add", "gather", "scatter")}
        panels.draw(curves, COLOURS, arguments.svg)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
