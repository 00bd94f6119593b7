#!/usr/bin/env python3
"""Replays traces with every available allocator, each in a fresh process, and compares the results.

    compare.py [options] TRACE...        a TRACE is a .trace, a .trace.xz, or a folder of them

Prints a table, and writes into the folder of --out: table.md, the same table; TRACE.svg, live and held memory over time.
It builds nothing: `make replay` builds the programs and calls it. Standard library only.

Exit status: 0; 1 if an allocator returned wrong memory or crashed, if plinth ran out of memory, if nothing could be
replayed, or if interrupted; 2 for invalid arguments. The table shows what a peer cannot do.
"""

import argparse
import csv
import ctypes
import datetime
import json
import lzma
import os
import pathlib
import platform
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

# Do not write bytecode into the source folder.
sys.dont_write_bytecode = True
import chart  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MIB = 1 << 20
# The older name, and the newer one, which takes precedence.
TORCH_CONFIGURATION = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class Allocator:
    """An allocator: its library and two functions, and the environment variables that it needs."""

    def __init__(self, name, library, alloc, free, env=None, can_limit=False):
        self.name, self.library, self.alloc, self.free = name, pathlib.Path(library), alloc, free
        self.env, self.can_limit = env or {}, can_limit

    def arguments(self):
        return ["--allocator", self.name, "--library", str(self.library.resolve()), "--alloc", self.alloc,
                "--free", self.free]


def peers_of(folder):
    def torch(name, expandable):
        return Allocator(f"torch {name}", folder / "peer_torch.so", "torch_alloc", "torch_free",
                         {key: f"expandable_segments:{expandable}" for key in TORCH_CONFIGURATION}, can_limit=True)

    return [torch("native", False), torch("expandable", True),
            Allocator("cudaMallocAsync", folder / "peer_async.so", "async_alloc", "async_free"),
            Allocator("RMM pool", folder / "peer_rmm.so", "rmm_pool_alloc", "rmm_pool_free"),
            Allocator("RMM arena", folder / "peer_rmm.so", "rmm_arena_alloc", "rmm_arena_free")]


class Interrupted(Exception):
    """A signal to end the program. The measurements so far are reported."""


def interrupt(*_):
    raise Interrupted


class Outcome:
    """The result of one process: its standard output, or the reason why there is none."""

    def __init__(self, output="", reason="", setup=False):
        self.output, self.reason, self.setup = output, reason, setup


def run(command, env, limit):
    """Runs one measurement process. With exit status 0 or 1 there is output, with 2 a reason."""
    try:
        process = subprocess.run(command, env=env, timeout=limit, text=True, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(reason=f"took longer than {limit} s")
    if process.returncode in (0, 1):
        return Outcome(output=process.stdout)
    said = process.stderr.strip().splitlines()
    if process.returncode == 2:
        return Outcome(reason=said[0] if said else "exit status 2", setup=True)
    if process.returncode < 0:
        try:
            ended = signal.Signals(-process.returncode).name
        except ValueError:
            ended = f"signal {-process.returncode}"
        return Outcome(reason=f"ended by {ended}" + (f": {said[-1]}" if said else ""))
    return Outcome(reason=f"exit status {process.returncode}" + (f": {said[-1]}" if said else ""))


class Progress:
    """A progress bar on stderr, if that is a terminal."""

    WIDTH = 30

    def __init__(self, total):
        self.total, self.done, self.shown = total, 0, sys.stderr.isatty()

    def step(self, what):
        if self.shown:
            filled = self.done * self.WIDTH // max(self.total, 1)
            bar = "#" * filled + "." * (self.WIDTH - filled)
            sys.stderr.write(f"\r[{bar}] {self.done}/{self.total} {what}\033[K")
            sys.stderr.flush()
        self.done += 1

    def clear(self):
        if self.shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def environment(allocator):
    env = dict(os.environ, **allocator.env)
    env.setdefault("PLINTH_DEVICE", "auto")
    # For the host device: its default of 4 GiB is less than most traces need. Untouched memory, as here, is not backed.
    env.setdefault("PLINTH_HOST_MEMORY", "64GiB")
    return env


def trace_name(path):
    return path.name.removesuffix(".xz").removesuffix(".trace")


def find_traces(arguments):
    found = []
    for argument in arguments:
        path = pathlib.Path(argument)
        if path.is_dir():
            inside = {trace_name(file): file for pattern in ("*.trace.xz", "*.trace") for file in path.glob(pattern)}
            found += [inside[name] for name in sorted(inside)]
        elif path.is_file():
            found.append(path)
        else:
            sys.exit(f"compare.py: {path} does not exist")
    if not found:
        print(f"compare.py: no .trace and no .trace.xz in {' '.join(arguments)}", file=sys.stderr)
        sys.exit(2)
    return found


def unpacked(path, folder):
    if path.suffix != ".xz":
        return path
    target = folder / path.name.removesuffix(".xz")
    try:
        with lzma.open(path) as packed, open(target, "wb") as plain:
            shutil.copyfileobj(packed, plain)
    except (lzma.LZMAError, EOFError) as error:
        sys.exit(f"compare.py: {path} cannot be decompressed: {error}")
    return target


class Comparison:
    def __init__(self, options, allocators, traces):
        self.options, self.allocators, self.traces = options, allocators, traces
        self.rows, self.bench_rows, self.absent = [], [], {}
        self.device, self.failed = None, False
        processes = 1 + (not options.no_charts) + len(options.limits)
        self.progress = Progress(len(allocators) * (1 + len(traces) * processes + bool(options.bench)))

    def replay(self, allocator, trace, *more):
        command = [str(self.options.replay.resolve()), *allocator.arguments(), "--json", *more, str(trace)]
        outcome = run(command, environment(allocator), self.options.timeout)
        return outcome, (json.loads(outcome.output) if outcome.output else None)

    def all(self):
        with tempfile.TemporaryDirectory(prefix="replay-") as folder:
            folder = pathlib.Path(folder)
            self.probe(folder / "probe.trace")
            for packed in self.traces:
                self.one_trace(unpacked(packed, folder), trace_name(packed), folder)
        for allocator in self.allocators:
            if self.options.bench and allocator.name not in self.absent:
                self.bench(allocator)
        self.progress.clear()

    def probe(self, trace):
        """Excludes allocators that cannot allocate one block, because a library or a function is missing."""
        trace.write_bytes(struct.pack("<IHHQIHHQ", 0, 0, 0, 512, 0, 1, 0, 512))
        for allocator in self.allocators:
            self.progress.step(f"{allocator.name}: availability")
            outcome, _ = self.replay(allocator, trace)
            if outcome.setup:
                self.absent[allocator.name] = outcome.reason.removeprefix("replay: ")

    def one_trace(self, trace, name, folder):
        series, live, events, limit = [], None, 0, 0
        for allocator in self.allocators:
            if allocator.name in self.absent:
                continue
            self.progress.step(f"{name}: {allocator.name}")
            limits = ["--limit", str(self.options.limit)] if self.options.limit and allocator.can_limit else []
            outcome, result = self.replay(allocator, trace, *limits)
            self.rows.append(self.row(name, allocator, outcome, result))
            if result is None:
                self.failed = True
                continue
            self.device = self.device or result["device"]
            ran_out = "out_of_memory" in result
            self.failed |= result["failures"] > 0 or (ran_out and allocator.name == "plinth")
            self.rows[-1]["least"] = self.least_limit(allocator, trace, name)
            if not self.options.no_charts:
                self.progress.step(f"{name}: {allocator.name}, over time")
                timeline = folder / "timeline.csv"
                self.replay(allocator, trace, *limits, "--csv", str(timeline))
                held, seen = read_timeline(timeline, allocator.name, result["events"])
                series.append(held)
                events, limit = result["events"], max(limit, result["limit"])
                if live is None or len(seen.points) > len(live.points):
                    live = seen
        if series:
            self.options.out.mkdir(parents=True, exist_ok=True)
            title = f"{name}: memory live and held, {self.device}"
            (self.options.out / f"{name}.svg").write_text(chart.Chart(title, live, series, events, limit).draw())

    def least_limit(self, allocator, trace, name):
        """Returns the smallest limit under which the trace passes, as text."""
        if not self.options.limits or not allocator.can_limit:
            return "-"
        for ratio in self.options.limits:
            self.progress.step(f"{name}: {allocator.name}, limit {ratio}")
            outcome, result = self.replay(allocator, trace, "--limit", str(ratio))
            if outcome.setup:
                return outcome.reason
            if result and "out_of_memory" not in result and not result["failures"]:
                return f"{ratio:.3f}, {result['steady_ns']:.0f} ns"
        return f"over {self.options.limits[-1]:.3f}"

    def row(self, name, allocator, outcome, result):
        row = {"trace": name, "allocator": allocator.name}
        if result is None:
            return row | {"outcome": outcome.reason}
        passes = result["passes"]
        ran_out = result.get("out_of_memory")
        row |= {"first": f"{passes[0]['ns_per_op']:.1f}",
                "steady": f"{result['steady_ns']:.1f}" if result["rounds"] else "-",
                "worst": f"{result['worst_ns'] / 1e3:.0f}", "live": f"{result['peak_live'] / MIB:.0f}",
                "held": f"{result['peak_held'] / MIB:.0f}",
                "ratio": "-" if ran_out else f"{result['peak_held'] / max(result['peak_live'], 1):.4f}",
                "after": " / ".join(f"{one['held_after'] / MIB:.0f}" for one in passes),
                "calls": " / ".join(str(one["driver_calls"]) if "driver_calls" in one else "-" for one in passes)}
        if any(one.get("driver_ns") for one in passes):
            row["cost"] = " / ".join(f"{one['driver_ns'] / max(one['ops'], 1):.1f}" for one in passes)
        outcome = "passed"
        if ran_out:
            outcome = (f"OUT OF MEMORY in pass {ran_out['pass']}, event {ran_out['event']}: "
                       f"{ran_out['request'] / MIB:.1f} MiB requested, {ran_out['live'] / MIB:.0f} MiB live")
        if result["failures"]:
            outcome = f"{result['failures']} FAILURES: {result['first_failure']}"
        return row | {"outcome": outcome}

    def bench(self, allocator):
        self.progress.step(f"{allocator.name}: pairs of calls")
        outcome = run([str(self.options.bench.resolve()), *allocator.arguments(), "--rows"], environment(allocator),
                      self.options.timeout)
        if outcome.reason:
            self.failed = True
            self.bench_rows.append(["(all)", allocator.name, outcome.reason])
        self.bench_rows += [[cell.strip() for cell in line.strip().strip("|").split("|")]
                            for line in outcome.output.splitlines() if line.startswith("|")]


def read_timeline(path, name, events):
    """Returns the allocator's held memory and the live memory over both passes, one after the other."""
    held, live = [], []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            event = int(row["event"]) + events * (int(row["pass"]) - 1)
            held.append((event, int(row["held"])))
            live.append((event, int(row["live"])))
    return chart.Series(name, held), chart.Series("live", live)


COLUMNS = [("trace", "trace"), ("allocator", "allocator"), ("first", "first pass, ns/op"),
           ("steady", "steady, ns/op"), ("worst", "worst, us"), ("live", "peak live, MiB"), ("held", "peak held, MiB"),
           ("ratio", "held/live"), ("after", "kept after pass 1 / 2, MiB"), ("calls", "driver calls"),
           ("cost", "their cost, ns/op"), ("least", "smallest limit that passes"), ("outcome", "outcome")]
BRIEF = {"trace", "allocator", "first", "steady", "worst", "live", "held", "ratio", "outcome"}
BENCH_COLUMNS = ["case", "allocator", "mean, ns", "p50, ns", "p99, ns", "p99.9, ns", "Mpairs/s"]


def table(heading, rows):
    """Formats a Markdown table with aligned columns."""
    rows = [row + [""] * (len(heading) - len(row)) for row in rows]
    widths = [max(len(row[i]) for row in [heading] + rows) for i in range(len(heading))]
    textual = [any(row[i] and not row[i].lstrip("-")[:1].isdigit() and row[i] != "-" for row in rows)
               for i in range(len(heading))]

    def line(cells):
        return "| " + " | ".join(cell.ljust(width) if is_text else cell.rjust(width)
                                 for cell, width, is_text in zip(cells, widths, textual)) + " |"

    rule = "|" + "|".join("---" if is_text else "---:" for is_text in textual) + "|"
    return "\n".join([line(heading), rule] + [line(row) for row in rows])


def processor():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def nvidia_driver():
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
        found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        return f", driver {found.stdout.strip()}"
    except (OSError, subprocess.CalledProcessError):
        return ""


def report(comparison):
    options = comparison.options
    lines = []
    if comparison.rows:
        driver = "" if "host device" in (comparison.device or "") else nvidia_driver()
        lines += [f"{comparison.device or 'no device'}{driver}; {processor()}, {os.cpu_count()} processors; "
                  f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC", ""]
        columns = [(key, title) for key, title in COLUMNS
                   if any(key in row and row[key].strip("- /") for row in comparison.rows)
                   and (not options.brief or key in BRIEF)]
        lines += [table([title for _, title in columns],
                        [[row.get(key, "-") for key, _ in columns] for row in comparison.rows]), ""]
    if comparison.bench_rows:
        # Sorted by case, so that the allocators of a case are adjacent; the first allocator defines the order of the cases.
        order = {}
        for row in comparison.bench_rows:
            order.setdefault(row[0], len(order))
        lines += [table(BENCH_COLUMNS, sorted(comparison.bench_rows, key=lambda row: order[row[0]])), ""]
    lines += [f"Not available: {name} ({reason})" for name, reason in comparison.absent.items()]
    return "\n".join(lines).rstrip() + "\n"


def parse_arguments():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+", metavar="TRACE", help=".trace, .trace.xz or a folder of them")
    parser.add_argument("--replay", type=pathlib.Path, default=target / "benches/replay/replay", help="the replay program")
    parser.add_argument("--bench", type=pathlib.Path, help="benches/allocator: also measure pairs of calls")
    parser.add_argument("--plinth", type=pathlib.Path, default=target / "release/libplinth.so", help="libplinth.so")
    parser.add_argument("--peers", type=pathlib.Path, help="output folder of peers.sh")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=LIB:ALLOC:FREE",
                        help="one more allocator; may be repeated")
    parser.add_argument("--out", type=pathlib.Path, default=target / "replay", help="folder for table and charts")
    parser.add_argument("--limit", type=float, help="limit held memory to this multiple of the peak of live memory")
    parser.add_argument("--limits", default="", metavar="R,R,...",
                        help="also find the smallest of these limits under which each trace passes")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for each process")
    parser.add_argument("--no-charts", action="store_true", help="only the table; starts half as many processes")
    parser.add_argument("--brief", action="store_true", help="print fewer columns")
    options = parser.parse_args()
    try:
        options.limits = sorted(float(ratio) for ratio in options.limits.split(",") if ratio)
    except ValueError:
        parser.error(f"--limits {options.limits} is invalid: expected numbers separated by commas")
    for program in filter(None, (options.replay, options.bench)):
        if not program.is_file():
            parser.error(f"{program} does not exist; `make replay` builds it")
    return parser, options


def has_cuda_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return os.environ.get("PLINTH_DEVICE", "auto") != "host"


def main():
    parser, options = parse_arguments()
    allocators = [Allocator("plinth", options.plinth, "plinth_alloc", "plinth_free", can_limit=True)]
    if options.peers and has_cuda_driver():
        allocators += [peer for peer in peers_of(options.peers) if peer.library.is_file()]
    for also in options.also:
        name, _, where = also.partition("=")
        try:
            library, alloc, free = where.rsplit(":", 2)
        except ValueError:
            parser.error(f"--also {also} is invalid: expected NAME=LIB:ALLOC:FREE")
        allocators.append(Allocator(name, library, alloc, free, can_limit=True))

    comparison = Comparison(options, allocators, find_traces(options.traces))
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    try:
        comparison.all()
    except Interrupted:
        comparison.failed = True
        comparison.progress.clear()
        print("compare.py: interrupted; the remaining measurements are missing", file=sys.stderr)
    text = report(comparison)
    print(text, end="")
    if len(comparison.absent) == len(allocators):
        sys.exit("compare.py: nothing could be replayed")
    options.out.mkdir(parents=True, exist_ok=True)
    full = argparse.Namespace(**vars(options))
    full.brief, comparison.options = False, full
    command = " ".join(shlex.quote(argument) for argument in [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])
    (options.out / "table.md").write_text(report(comparison) + f"\nCommand: `{command}`\n")
    charts = [] if options.no_charts else [options.out / f"{trace_name(trace)}.svg" for trace in comparison.traces]
    print("\nWritten: " + " ".join(str(path) for path in [options.out / "table.md", *charts] if path.is_file()))
    return 1 if comparison.failed else 0


if __name__ == "__main__":
    sys.exit(main())
