#!/usr/bin/env python3
"""Compares random fills of plinth, PyTorch and cuRAND on one GPU in one run, as a Markdown table.

    benches/random_table.py --library target/release/libplinth.so --program target/benches/random

benches/random measures cuRAND, a plain fill and small calls in C. Then plinth and PyTorch fill the same memory alternately,
timed by events. PyTorch's small calls are made from Python, and their times include its cost. --json saves the raw numbers.
"""

import argparse
import datetime
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# The binding is in the folder of the random number tests, both in the repository and in the bundle.
sys.path.insert(0, str(HERE.parent / "tests/random"))

import plinth

try:
    import torch
except ImportError:
    torch = None

LAUNCHES, WARM = 20, 3
# GPU cycles of a delay, long enough that a launch is queued before the GPU reaches it, so that Python's time is not measured.
HEAD_START = 400_000

# By the names in benches/random.cpp: plinth's fill and its arguments, PyTorch's method and its arguments.
OPERATIONS = {
    "uniform": ("uniform", (0.0, 1.0), "uniform_", ()),
    "normal": ("normal", (0.0, 1.0), "normal_", ()),
    "log_normal": ("log_normal", (0.0, 1.0), "log_normal_", (0.0, 1.0)),
    "exponential": ("exponential", (1.0,), "exponential_", ()),
    "cauchy": ("cauchy", (0.0, 1.0), "cauchy_", ()),
    "geometric": ("geometric", (0.3,), "geometric_", (0.3,)),
    "bernoulli": ("bernoulli", (0.3,), "bernoulli_", (0.3,)),
    "random": ("random", (), "random_", ()),
    "random_range 100": ("random_range", (0, 100), "random_", (0, 100)),
    "random_range 2^40": ("random_range", (0, 2**40), "random_", (0, 2**40)),
}


def in_turns(works, rounds=LAUNCHES):
    """Returns the median milliseconds on the GPU of each function; the functions alternate, in both orders."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = [[] for _ in works]
    for turn in range(-WARM, rounds):
        order = range(len(works)) if turn % 2 else reversed(range(len(works)))
        for index in order:
            torch.cuda._sleep(HEAD_START)
            begin.record()
            works[index]()
            end.record()
            end.synchronize()
            if turn >= 0:
                times[index].append(begin.elapsed_time(end))
    return [statistics.median(each) for each in times]


def by_program(program, elements):
    """Runs benches/random; returns a dictionary for each line of its output."""
    command = [str(program), "--json"] + (["--elements", str(elements)] if elements else [])
    # PyTorch's packages include cuRAND, in a folder that the loader does not search.
    found = sorted(pathlib.Path(torch.__file__).parents[1].glob("nvidia/*/lib/libcurand.so.10"))
    command += ["--curand", str(found[0])] if found else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def large(library, generator, rows):
    """Measures the GB/s of plinth and PyTorch, and adds them to the program's rows."""
    for row in rows:
        fill, arguments, method, others = OPERATIONS[row["operation"]]
        tensor = torch.empty(row["elements"], dtype=getattr(torch, row["dtype"]), device="cuda")
        described = plinth.descriptor(tensor.data_ptr(), tensor.device.index, row["dtype"], list(tensor.shape))
        call = getattr(tensor, method)
        ours, theirs = in_turns([lambda: library.fill(fill, described, *arguments, generator=generator),
                                 lambda: call(*others)])
        gigabytes = tensor.numel() * tensor.element_size() * 1e-6
        row["plinth_in_c"], row["plinth"], row["torch"] = row["plinth"], gigabytes / ours, gigabytes / theirs
        del tensor, call


def permutations(library, generator, rows):
    for row in rows:
        tensor = torch.empty(row["elements"], dtype=torch.int64, device="cuda")
        described = plinth.descriptor(tensor.data_ptr(), tensor.device.index, "int64", list(tensor.shape))
        ours, theirs = in_turns([lambda: library.fill("randperm", described, generator=generator),
                                 lambda: torch.randperm(tensor.numel(), out=tensor, device="cuda")])
        row["plinth_us"], row["torch_us"] = ours * 1e3, theirs * 1e3


def small(count=1000, calls=10_000, batch=250):
    """Returns the microseconds of PyTorch's calls from Python: the CPU's, and those to completion."""
    tensor = torch.empty(count, device="cuda")
    rows = []
    for name, call in [("uniform_", tensor.uniform_), ("normal_", tensor.normal_),
                       ("bernoulli_", lambda: tensor.bernoulli_(0.3))]:
        issued, completed = [], []
        for _ in range(calls // batch):
            start = time.perf_counter()
            for _ in range(batch):
                call()
            issued.append((time.perf_counter() - start) / batch * 1e6)
            torch.cuda.synchronize()
        for _ in range(calls // 10):
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            completed.append((time.perf_counter() - start) * 1e6)
        rows.append({"kind": "small", "call": f"PyTorch {name} from Python", "call_us": statistics.median(issued),
                     "completion_us": statistics.median(completed)})
    return rows


def cell(number, digits=0):
    return f"{number:.{digits}f}" if number else "-"


def write_table(rows, head):
    print(head)
    print("\nGB/s written, medians of 20 alternating launches; ratio: plinth divided by PyTorch.\n")
    print("| fill | dtype | numbers | plinth | PyTorch | cuRAND | plain fill | ratio |\n|---|---|---|---|---|---|---|---|")
    for row in rows:
        if row["kind"] == "large":
            print(f"| {row['operation']} | {row['dtype']} | {row['elements']} | {cell(row['plinth'])} | {cell(row['torch'])} | "
                  f"{cell(row['curand'])} | {cell(row['memset'])} | {row['plinth'] / row['torch']:.2f} |")
    print("\nMicroseconds, 1,000 float32.\n\n| call | on the CPU | to completion |\n|---|---|---|")
    for row in rows:
        if row["kind"] == "small":
            print(f"| {row['call']} | {cell(row['call_us'], 2)} | {cell(row['completion_us'], 2)} |")
    print("\nMicroseconds on the GPU.\n\n| randperm of, int64 | plinth | PyTorch | ratio |\n|---|---|---|---|")
    for row in rows:
        if row["kind"] == "randperm":
            print(f"| {row['elements']} | {cell(row['plinth_us'], 1)} | {cell(row['torch_us'], 1)} | "
                  f"{row['torch_us'] / row['plinth_us']:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="target/release/libplinth.so", help="libplinth.so")
    parser.add_argument("--program", type=pathlib.Path, default=HERE / "random", help="the compiled benches/random")
    parser.add_argument("--elements", type=int, default=0, help="elements of a fill, instead of 2^28")
    parser.add_argument("--json", type=pathlib.Path, help="file for the raw numbers")
    arguments = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        print("needs PyTorch and a GPU")
        return 77
    # First, so that this process uses the GPU alone.
    rows = by_program(arguments.program, arguments.elements)
    torch.cuda.init()
    torch.cuda.manual_seed(1)
    library = plinth.Library(arguments.library, "cuda")
    generator = library.generator(torch.cuda.current_device(), seed=1)
    large(library, generator, [row for row in rows if row["kind"] == "large"])
    permutations(library, generator, [row for row in rows if row["kind"] == "randperm"])
    rows += small()
    version = plinth.ctypes.c_char_p
    library.c.plinth_version_string.restype = version
    head = (f"{torch.cuda.get_device_name()}, {datetime.date.today()}, plinth {library.c.plinth_version_string().decode()}, "
            f"PyTorch {torch.__version__} (CUDA {torch.version.cuda}): `{shlex.join(['benches/random_table.py', *sys.argv[1:]])}`")
    write_table(rows, head)
    if arguments.json:
        arguments.json.write_text(json.dumps({"head": head, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
