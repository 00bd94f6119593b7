#!/usr/bin/env python3
"""Compares plinth's jiterator with PyTorch's on one GPU in one run, as a Markdown table.

    benches/jiterator_table.py --library target/release/libplinth.so

Measures first calls, with an empty disk cache; later calls, from Python for both; and for many shapes the device's time for
x + y, alternating. A copy of n bytes reads and writes them: "of a copy's" is the bandwidth relative to that of torch's
copy_ that moves as many bytes. --json saves the raw numbers. The exit status is 77 without PyTorch or a GPU.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/jiterator"))

import jiterating
import plinth

try:
    import torch
except ImportError:
    torch = None

LAUNCHES, WARM, CALLS = 20, 3, 1000
# GPU cycles of a delay, long enough that a launch is queued before the GPU reaches it, so that Python's time is not measured.
HEAD_START = 400_000
CODE = "template <typename T> T add{n}(T x, T y) {{ return x + y; }}"


def shapes(scale):
    """Yields the name and the inputs of each row, of at most 2^`scale` elements."""
    def new(size, dtype="float32"):
        return torch.ones(size, dtype=getattr(torch, dtype), device="cuda")

    def square(dtype="float32"):
        return new((1 << (scale - 2) // 2, 1 << (scale - 1) // 2), dtype)

    large, middle = 1 << scale, 1 << (scale - 1)
    yield "float32, contiguous, large", new(large), new(large)
    yield "float32, contiguous, 2^24", new(1 << 24), new(1 << 24)
    yield "float32, contiguous, 2^20", new(1 << 20), new(1 << 20)
    yield "float32, contiguous, 2^16", new(1 << 16), new(1 << 16)
    yield "float16, contiguous, large", new(large, "float16"), new(large, "float16")
    yield "float16, contiguous, 2^24", new(1 << 24, "float16"), new(1 << 24, "float16")
    yield "bfloat16, contiguous", new(large, "bfloat16"), new(large, "bfloat16")
    yield "float64, contiguous", new(middle, "float64"), new(middle, "float64")
    yield "uint8, contiguous", new(large, "uint8"), new(large, "uint8")
    yield "int64, contiguous", new(middle, "int64"), new(middle, "int64")
    yield "complex64, contiguous", new(middle, "complex64"), new(middle, "complex64")
    yield "float32 + float16", new(middle), new(middle, "float16")
    matrix = square()
    yield "float32, a row to each", matrix, new(matrix.shape[1])
    half = square("float16")
    yield "float16, a row to each", half, new(half.shape[1], "float16")
    yield "float32, a column to each", matrix, new((matrix.shape[0], 1))
    yield "float32, a number to all", matrix, new(())
    yield "float32, one transposed", matrix, new((matrix.shape[1], matrix.shape[0])).t()
    yield "float16, both transposed", half.t(), square("float16").t()
    yield "float32, every second", new(middle)[::2], new(middle)[::2]
    yield "float32, not aligned", new(middle)[1:], new(middle)[1:]
    channels = new((1 << (scale - 20), 64, 128, 64))
    yield "float32, channels last + first", channels, channels.contiguous(memory_format=torch.channels_last)
    yield "float32, odd rows", matrix[:, 1:], square()[:, 1:]


def described(tensor):
    name = str(tensor.dtype).removeprefix("torch.")
    return plinth.descriptor(tensor.data_ptr(), tensor.device.index, name, list(tensor.shape), list(tensor.stride()))


def in_turns(works):
    """Returns the median microseconds on the GPU of each function; the functions alternate, in both orders."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = [[] for _ in works]
    for turn in range(-WARM, LAUNCHES):
        order = range(len(works)) if turn % 2 else reversed(range(len(works)))
        for index in order:
            torch.cuda._sleep(HEAD_START)
            begin.record()
            works[index]()
            end.record()
            end.synchronize()
            if turn >= 0:
                times[index].append(begin.elapsed_time(end) * 1e3)
    return [statistics.median(each) for each in times]


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


def bandwidth(library, scale):
    rows = []
    function = jiterating.Function(library, CODE.format(n=0))
    jitted = torch.cuda.jiterator._create_jit_fn(CODE.format(n=0))
    for name, x, y in shapes(scale):
        expected = jitted(x, y)
        out = torch.empty_like(expected)
        call, arguments = function.prepared([described(x), described(y)], [described(out)])
        if call(*arguments) or not torch.equal(out, expected):
            sys.exit(f"{name}: the result differs from PyTorch's, or the call failed: {library.c.plinth_last_error().decode()}")
        moved = bytes_of(x) + bytes_of(y) + bytes_of(out)
        source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        ours, theirs, copy = in_turns([lambda: call(*arguments), lambda: jitted(x, y), lambda: target.copy_(source)])
        rows.append({"name": name, "bytes": moved, "plinth": ours, "torch": theirs, "copy": copy})
        print(f"| {name} | {ours:.1f} | {moved / ours / 1e3:.0f} | {copy / ours * 100:.1f} % | {theirs:.1f} | "
              f"{theirs / ours:.2f} |", flush=True)
        del x, y, out, expected, source, target
    return rows


def calls(library):
    """Returns the times of first and later calls, in seconds."""
    x, y = torch.ones(1000, device="cuda"), torch.ones(1000, device="cuda")
    out = torch.empty_like(x)
    times = {}
    for side in ("plinth", "torch"):
        first = []
        for number in range(1, 6):
            code = CODE.format(n=number)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            if side == "plinth":
                function = jiterating.Function(library, code)
                call, arguments = function.prepared([described(x), described(y)], [described(out)])
                status = call(*arguments)
                assert status == 0, library.c.plinth_last_error()
                work = lambda: call(*arguments)
            else:
                jitted = torch.cuda.jiterator._create_jit_fn(code)
                jitted(x, y)
                work = lambda: jitted(x, y)
            torch.cuda.synchronize()
            first.append(time.perf_counter() - begin)
        rounds = []
        for _ in range(21):
            begin = time.perf_counter()
            for _ in range(CALLS):
                work()
            rounds.append((time.perf_counter() - begin) / CALLS)
            torch.cuda.synchronize()
        times[side] = {"first": statistics.median(first), "later": statistics.median(rounds)}
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libplinth.so")
    parser.add_argument("--scale", type=int, default=28, help="the largest tensors have 2^SCALE elements")
    parser.add_argument("--json", help="file for the raw numbers")
    arguments = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        print("needs PyTorch and a GPU")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as kernels:
        os.environ["PLINTH_KERNEL_CACHE_PATH"] = f"{kernels}/plinth"
        os.environ["PYTORCH_KERNEL_CACHE_PATH"] = f"{kernels}/torch"
        os.makedirs(f"{kernels}/torch")
        torch.zeros(1, device="cuda")
        library = plinth.Library(arguments.library, "cuda")
        print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name(0)}\n")
        times = calls(library)
        print("| call, from Python | plinth | PyTorch |\n|---|---|---|")
        print(f"| first, compiled | {times['plinth']['first'] * 1e3:.0f} ms | {times['torch']['first'] * 1e3:.0f} ms |")
        print(f"| later | {times['plinth']['later'] * 1e6:.1f} us | {times['torch']['later'] * 1e6:.1f} us |\n")
        print("| x + y | us | GB/s | of a copy's | PyTorch us | times |\n|---|---|---|---|---|---|")
        rows = bandwidth(library, arguments.scale)
    worst = min(rows, key=lambda row: row["torch"] / row["plinth"])
    print(f"\nslowest relative to PyTorch: {worst['name']}, {worst['torch'] / worst['plinth']:.2f} times PyTorch's speed")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"calls": times, "shapes": rows}, indent=1))


if __name__ == "__main__":
    main()
