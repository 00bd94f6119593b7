"""Trains three models in PyTorch on PyTorch's own allocator and on plinth's, and compares the results bit for bit,
the memory held, and the time of a step. The models are in torch_models.py, the ways of training in torch_steps.py.

    python3 benches/torch_training.py [--library LIBPLINTH] [--python FOLDER] [--runs NAME,...] [--allocators NAME,...]
                                      [--blocks COUNT] [--steps COUNT] [--seconds TOTAL] [--json FILE] [--control]
                                      [--cores COUNT]

The models are gpt2, resnet50 and moe (a transformer with a mixture of experts, whose allocation sizes depend on the
data). A run is a model and a way of training:

    gpt2             eager; the shape changes at every step, and a side stream prepares each batch (record_stream)
    gpt2-graph       the whole step in a CUDA graph, one for each of two shapes, with eager evaluations; not moe
    gpt2-dataloader  eager; batches from two workers of a DataLoader, with pinned memory and non-blocking copies
    gpt2-ddp         eager; DistributedDataParallel on two GPUs, a process for each, over NCCL
    gpt2-oom         eager; every fourth batch is too large for a limit of memory. The program catches
                     torch.OutOfMemoryError and goes on with a part of that batch
    empty            no training: nanoseconds of torch.empty and its free, for three sizes
    gpt2-compile     torch.compile
    gpt2-reduce      torch.compile(mode="reduce-overhead")
    gpt2-large       eager; two shapes, whose batches are so large that the processor waits for the device

Allocators: native and plinth (plinth.torch.enable) by default; expandable (PyTorch's, with expandable_segments); and,
for the first three runs and graphs, pluggable (plinth through CUDAPluggableAllocator) and mempool (plinth under PyTorch's
allocator, torch.cuda.MemPool). Each is compared with native in a pair of processes that live at the same time and take
turns: blocks of a few steps, in the order ABBA. A ratio is the median over the blocks of the other's time divided by
native's, with a 95 % bootstrap confidence interval. The time of an eager step is mostly the processor's, which other
programs of the machine disturb for seconds; blocks of one step (--steps 1), and many of them, give the narrowest interval.
Two processes also differ by their places, in memory and on processors that others load, too. --control adds a third
process to each pair, on native's allocator again, whose ratio to native shows by how much; with --cores, the processes of
a pair share that many processors (of each rank, its own), once they are prepared.

All processes of a pair must fit on the GPU: up to 45 GiB, and 90 GiB for -large. Those of -compile and -reduce load the
kernels that another process has compiled before. The two ranks of a -ddp run work at the same time. Its step time is that
of the slower rank, its sizes are the sums of both, and plinth's peak is compared with native's rank by rank.

--seconds limits the whole program. Runs that it leaves no time for are listed as not run, which is no failure. The exit
status is 1 if a process failed, if a loss, an evaluation or a parameter differs from native's by a bit, or if plinth's
peak of memory held is above native's (not for -oom and empty). Times never change the exit status. Needs PyTorch, a GPU
and a C++ compiler; no data, no network. --tiny uses small models, to test this program.
"""
import argparse
import contextlib
import functools
import gc
import importlib.util
import json
import math
import os
import random
import select
import statistics
import subprocess
import sys
import tempfile
import time

WARM, BLOCKS, STEPS = 8, 6, 4  # steps that the times leave out, blocks of a process, steps of a block
RUNS = ("gpt2", "resnet50", "moe", "gpt2-graph", "resnet50-graph",
        *(model + way for way in ("-dataloader", "-ddp", "-oom") for model in ("gpt2", "resnet50", "moe")), "empty",
        *(model + way for way in ("-compile", "-reduce", "-large") for model in ("gpt2", "resnet50", "moe")))
ALLOCATORS = ("native", "plinth", "expandable", "pluggable", "mempool")
HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
LARGE_MEMORY = 100 << 30  # of a device, for two processes of -large


def example():
    """Loads examples/pytorch_allocator.py, so that the code that users copy is tested."""
    path = os.path.join(HERE, "..", "examples", "pytorch_allocator.py")
    spec = importlib.util.spec_from_file_location("pytorch_allocator", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- one run on one allocator, in a process of its own that obeys the parent


class DriverMemory:
    """This process's part of the device's used memory: what changes during its turns, while the other is idle."""

    def __init__(self):
        self.own = self.peak = 0
        self.begin_turn()

    def _used(self):
        import torch

        free, total = torch.cuda.mem_get_info()
        return total - free

    def begin_turn(self):
        self.others = self._used() - self.own

    def sample(self):
        self.own = self._used() - self.others
        self.peak = max(self.peak, self.own)


def run_steps(step, count, memory):
    """Runs steps, keeping the CPU at most two ahead of the device; returns the mean milliseconds of a step."""
    import torch

    events = []
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        step()
        events.append(torch.cuda.Event())
        events[-1].record()
        if len(events) > 2:
            events[-3].synchronize()
        memory.sample()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begin) / count


def stay_on(cores, rank):
    """Restricts all threads of this process to a number of processors, other ones for each rank."""
    allowed = sorted(os.sched_getaffinity(0))
    end = len(allowed) - rank * cores  # the first processors have most of the interrupts
    own = allowed[max(end - cores, 0) : end] or allowed
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), own)


def child(run, allocator, path, rank, rendezvous, tiny, cores):
    """Reads one command a line: prepare, a number of steps, finish. Answers each with a line of JSON."""
    rank = int(rank)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print write to the log

    def answer(value):
        print(json.dumps(value), file=answers, flush=True)

    import torch

    import torch_steps
    from torch_models import MODELS

    model, _, way = run.partition("-")
    work = MODELS[model](tiny) if model in MODELS else None
    allocators = example()
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False  # its choice of an algorithm depends on times
    if allocator == "plinth":
        import plinth.torch

        plinth.torch.enable(fallback=False)
    elif allocator == "pluggable":
        allocators.use_plinth(path)
    answer("loaded")
    if not sys.stdin.readline():
        return  # the parent has exited, or has no time left

    if torch.cuda.device_count() < ranks_of(run):
        return answer(f"not run: needs {ranks_of(run)} GPUs")
    if way == "large" and torch.cuda.mem_get_info()[1] < LARGE_MEMORY:
        return answer(f"not run: needs {LARGE_MEMORY >> 30} GiB of memory")
    torch.cuda.set_device(rank)
    torch.cuda.init()
    memory = DriverMemory()
    begin = time.perf_counter()
    pool = allocators.plinth_pool(path) if allocator == "mempool" else None
    figures = allocators.Plinth(path) if allocator in ("plinth", "pluggable", "mempool") else None
    statistics_of = figures if allocator == "pluggable" else torch.cuda
    routed = (lambda: torch.cuda.use_mem_pool(pool)) if pool else contextlib.nullcontext
    losses, evaluations, times = [], [], {}
    if work is None:
        step = torch_steps.measure_empty(times)
    else:
        if way != "dataloader":
            work.data = work.data.pin_memory()
            getattr(work, "pin", lambda: None)()
        with routed():
            work.model.cuda()
        work.loss = work.model.loss
        start = torch_steps.WAYS[way]
        if way == "ddp":
            start = functools.partial(start, rank=rank, ranks=ranks_of(run), rendezvous=rendezvous)
        if pool and way == "graph":
            start = functools.partial(start, pool=pool.id)
        step = start(work, routed, losses, evaluations)
    run_steps(step, WARM, memory)
    times.clear()
    if cores:
        stay_on(cores, rank)
    answer(time.perf_counter() - begin)

    def count_mappings():
        """The segments that were allocated and freed: driver calls, which take longer than a kernel's launch."""
        counts = {} if allocator == "pluggable" else torch.cuda.memory_stats()
        return sum(counts.get(f"segment.all.{key}", 0) for key in ("allocated", "freed"))

    mappings, measured = count_mappings(), 0
    for command in sys.stdin:
        memory.begin_turn()
        if command == "finish\n":
            break
        measured += int(command)
        milliseconds = run_steps(step, int(command), memory)
        answer({name: statistics.median(values) for name, values in times.items()} or {"step": milliseconds})
        times.clear()
    else:
        return

    result = {
        "run": run, "allocator": allocator, "backend": torch.cuda.get_allocator_backend(),
        "torch": torch.__version__, "device": torch.cuda.get_device_name(), "driver_peak": memory.peak,
        "held_peak": statistics_of.max_memory_reserved(), "used_peak": statistics_of.max_memory_allocated(),
        "mappings": (count_mappings() - mappings) / max(measured, 1),
        "plinth_held_peak": figures.max_memory_reserved(torch.cuda.current_device()) if figures else None,
        "losses": [value.hex() for value in torch.stack(losses).tolist()] if losses else [],
        "evaluations": [value.hex() for value in torch.stack(evaluations).tolist()] if evaluations else [],
        "parameters": [int(parameter.detach().view(torch.int32).sum(dtype=torch.int64))
                       for parameter in work.model.parameters()] if work else [],
    }
    if way in ("compile", "reduce"):
        counts = torch._dynamo.utils.counters
        result["cudagraph_skips"] = counts["inductor"]["cudagraph_skips"]
        result["graph_breaks"] = sum(counts["graph_break"].values())
    if not all(math.isfinite(float.fromhex(value)) for value in result["losses"] + result["evaluations"]):
        raise RuntimeError("a loss is not finite, so equal losses would prove little")
    if figures and not result["plinth_held_peak"]:
        raise RuntimeError("plinth received no allocation request")
    if allocator == "plinth" and result["backend"] != "plinth":
        raise RuntimeError(f"the allocator is {result['backend']}, not plinth")

    # The memory that the allocator still holds after everything was freed.
    step = work = start = None
    losses.clear()
    evaluations.clear()
    if way in ("compile", "reduce"):
        torch.compiler.reset()
    gc.collect()
    if way == "ddp":
        torch.distributed.destroy_process_group()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    pool = None
    torch.cuda.empty_cache()
    result["held_after"] = statistics_of.memory_reserved()
    if figures:
        figures.call("plinth_testing_check_allocator")
    answer(result)


# ---- all runs


class Failed(Exception):
    """A process failed; the text says how."""


class NotRun(Exception):
    """The time of --seconds is over, or the machine lacks something; the text says which."""


def ranks_of(run):
    """Returns the number of GPUs, and of processes, that a run uses."""
    return 2 if run.endswith("-ddp") else 1


class Process:
    """A child process, or one for each rank. It imports PyTorch and creates its model while the pair before it still
    uses the GPU."""

    def __init__(self, run, allocator, path, python, folder, arguments):
        self.run, self.allocator, self.is_loaded, self.blocks, self.result = run, allocator, False, [], None
        prefix = os.path.join(folder, f"{run}-{allocator}")
        self.logs = [f"{prefix}-{rank}.log" for rank in range(ranks_of(run))]
        # Only the first process of a run compiles, so that all of them run the same kernels.
        cache = os.path.join(folder, "compiled")
        environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTHONUNBUFFERED="1", PLINTH_LIBRARY=path,
                           TORCHINDUCTOR_CACHE_DIR=cache, TRITON_CACHE_DIR=os.path.join(cache, "triton"),
                           NCCL_DEBUG="WARN", NCCL_NVLS_ENABLE="0")  # no NVLink multicast
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PLINTH_TORCH"):
            environment.pop(name, None)
        if python:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (python, environment.get("PYTHONPATH"))))
        if allocator == "expandable":
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        self.processes = []
        for rank, path_of_log in enumerate(self.logs):
            command = [sys.executable, os.path.abspath(__file__), *["--tiny"] * arguments.tiny,
                       "--cores", str(arguments.cores),
                       "--child", run, allocator, path, str(rank), prefix + ".rendezvous"]
            with open(path_of_log, "w") as log:
                self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                       stderr=log, env=environment, text=True))

    def answer(self, limit, deadline):
        """Returns the next answer of each rank. Raises Failed, or NotRun at the deadline (time.monotonic)."""
        answers, end = {}, min(time.monotonic() + limit, deadline)
        while len(answers) < len(self.processes):
            missing = [process.stdout for process in self.processes if process.stdout not in answers]
            ready = select.select(missing, [], [], max(0, end - time.monotonic()))[0]
            if not ready:
                if end == deadline:
                    raise NotRun("not run: the time is over")
                raise Failed(f"{self.run} on {self.allocator}: no answer in {limit} s")
            for process in self.processes:
                if process.stdout in ready:
                    line = process.stdout.readline()
                    if not line:
                        raise Failed(f"{self.run} on {self.allocator}: exit status {process.wait()}")
                    answers[process.stdout] = json.loads(line)
        return [answers[process.stdout] for process in self.processes]

    def wait_loaded(self, limit, deadline):
        if not self.is_loaded:
            self.answer(limit, deadline)
            self.is_loaded = True

    def ask(self, command, limit, deadline):
        for process in self.processes:
            with contextlib.suppress(BrokenPipeError):
                print(command, file=process.stdin, flush=True)
        return self.answer(limit, deadline)

    def prepare(self, limit, deadline):
        seconds = self.ask("prepare", limit, deadline)
        if isinstance(seconds[0], str):
            raise NotRun(seconds[0])
        self.warm_seconds = max(seconds)

    def end(self):
        """Waits for processes that have given their results, and kills all others. Raises Failed for an exit status."""
        codes = []
        for process in self.processes:
            if self.result is None:
                process.kill()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self.processes:
            try:
                codes.append(process.wait(20))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
            process.stdout.close()
        if any(codes) and self.result is not None:
            self.result = None
            raise Failed(f"{self.run} on {self.allocator}: exit status {next(filter(None, codes))} after the results")

    def log_tail(self):
        """Returns the ends of the logs, without the frames of C++ stacks, which hide the first error."""
        tails = []
        for path in self.logs:
            with open(path, errors="replace") as file:
                tails += [line for line in file if not line.startswith("frame #")][-40:]
        return "".join(tails)


def merge(process, results):
    """Returns one result for all ranks of a run: their numbers one after the other, the sums of their sizes."""
    whole = dict(results[0], ranks=results)
    for key in ("losses", "evaluations"):
        whole[key] = [value for result in results for value in result[key]]
    for key in ("driver_peak", "held_peak", "used_peak", "held_after"):
        whole[key] = sum(result[key] for result in results)
    if any(result["parameters"] != whole["parameters"] for result in results):
        raise Failed(f"{process.run} on {process.allocator}: the parameters of the ranks differ")
    if len(results) > 1 and all(result["losses"] == results[0]["losses"] for result in results):
        raise Failed(f"{process.run} on {process.allocator}: the ranks have the same losses, so they had the same batches")
    return whole


def compete(pair, following, blocks, steps, limit, deadline):
    """Lets the processes of a pair, and its control, take turns of a number of steps. Sets their results.

    A compiler among them is removed once it has filled the cache of compiled kernels: with its heap and its children,
    its steps would not take the same time as those of the others.
    """
    for process in pair:
        process.wait_loaded(limit, deadline)
    for process in list(pair):
        process.prepare(limit, deadline)
        if process.allocator == "compiler":
            process.end()
            pair.remove(process)
    for process in following:
        with contextlib.suppress(Failed):  # it is reported when its turn comes
            process.wait_loaded(limit, deadline)
    for block in range(blocks):
        for process in pair if block % 2 == 0 else pair[::-1]:
            blocks_of_ranks = process.ask(steps, limit, deadline)
            process.blocks.append({key: max(one[key] for one in blocks_of_ranks) for key in blocks_of_ranks[0]})
    for process in pair:
        process.result = merge(process, process.ask("finish", limit, deadline))
        process.result.update(warm_seconds=process.warm_seconds, blocks=process.blocks)


def compare(native, other):
    """Returns what differs from native's numbers, in words; None if nothing does."""
    for key in ("losses", "evaluations", "parameters"):
        if native[key] != other[key]:
            differing = [i for i, (a, b) in enumerate(zip(native[key], other[key])) if a != b]
            first = differing[0] if differing else min(len(native[key]), len(other[key]))
            return f"{len(differing)} of {len(native[key])} {key} differ, first number {first}"
    return None


def ratio(native, other, key):
    """Returns the median ratio of the times of paired blocks, and the ends of its 95 % bootstrap interval."""
    ratios = [b[key] / a[key] for a, b in zip(native["blocks"], other["blocks"])]
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(4000))
    return statistics.median(ratios), medians[100], medians[-101]


def report(results, steps, not_run, problems):
    """Prints the tables, and adds what differs to problems. Returns the ratios of plinth's memory held to native's."""
    if results:
        first = results[0][0]
        print(f"PyTorch {first['torch']} on {first['device']}; {WARM} steps to warm up, blocks of {steps} in turns; "
              "time: over native's, 95 % interval; MiB; held: by the allocator; driver: of cudaMemGetInfo; after: held "
              "once all is freed; mappings: segments allocated and freed in a step; warm-up: s, with compilation\n")
    print("| run | allocator | losses | step, ms | time | in use, peak | held, peak | driver, peak | after | mappings | "
          "warm-up |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    held, calls = [], []
    for native, other in ((pair[0], other) for pair in results for other in pair[1:]):
        run, allocator, keys = other["run"], other["allocator"], list(other["blocks"][0])
        difference = compare(native, other)
        if difference:
            problems.append(f"{run} on {allocator}: {difference}")
        other["ratios"] = {key: ratio(native, other, key) for key in keys}
        shown = {key: "{:.4f} ({:.4f} - {:.4f})".format(*other["ratios"][key]) for key in keys}
        medians = [{key: statistics.median(block[key] for block in one["blocks"]) for key in keys}
                   for one in (native, other)]
        if run == "empty":
            calls += [f"| {key} | {allocator} | {medians[0][key]:.0f} | {medians[1][key]:.0f} | {shown[key]} |"
                      for key in keys]
            continue
        if allocator == "plinth" and not run.endswith("-oom"):
            held.append(max(b["held_peak"] / a["held_peak"] for a, b in zip(native["ranks"], other["ranks"])))
            if held[-1] > 1:
                problems.append(f"{run}: plinth's peak of memory held is {held[-1]:.4f} of native's")
        verdicts = (f"{len(native['losses'])}, last {float.fromhex(native['losses'][-1]):.4f}",
                    "DIFFER" if difference else "equal")
        rows = list(zip((native, other), verdicts, medians, ("", shown["step"])))
        for one, verdict, step, over in rows[1:] if allocator == "control" else rows:
            sizes = (f"{one[key] / MIB:.0f}" for key in ("used_peak", "held_peak", "driver_peak", "held_after"))
            print(f"| {run} | {one['allocator']} | {verdict} | {step['step']:.2f} | {over} | {' | '.join(sizes)} | "
                  f"{one['mappings']:.1f} | {one['warm_seconds']:.1f} |")
    for run, allocator, why in not_run:
        print(f"| {run} | {allocator} | {why} | | | | | | | | |")
    if calls:
        print("\n| torch.empty, free | allocator | native, ns | ns | time |\n|---|---|---|---|---|", *calls, sep="\n")
    return held


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libplinth.so")
    parser.add_argument("--python", help="the folder that has the package plinth; else ../python, else as installed")
    parser.add_argument("--runs", default=",".join(RUNS))
    parser.add_argument("--allocators", default="native,plinth", help="those to compare with native")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="measured blocks for each process")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a block")
    parser.add_argument("--seconds", type=float, default=540, help="for all runs together")
    parser.add_argument("--limit", type=int, default=180, help="seconds for one answer of a process, such as compiling")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--tiny", action="store_true", help="small models")
    parser.add_argument("--control", action="store_true", help="a third process beside each pair, native again")
    parser.add_argument("--cores", type=int, default=0, help="processors that the processes of a pair share; 0: all")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.child:
        return child(*arguments.child, arguments.tiny, arguments.cores)
    if importlib.util.find_spec("torch") is None:
        print("skipped: no PyTorch")
        return 77
    places = [os.path.join(HERE, "..", *place, "libplinth.so") for place in (("lib",), ("target", "release"))]
    path = next((os.path.abspath(p) for p in (arguments.library, os.environ.get("PLINTH_LIBRARY"), *places)
                 if p and os.path.exists(p)), None)
    if path is None or arguments.library and path != os.path.abspath(arguments.library):
        sys.exit("finding libplinth.so: no such file; name it with --library")
    python = os.path.abspath(arguments.python or os.path.join(HERE, "..", "python"))
    if not os.path.isdir(os.path.join(python, "plinth")):
        if arguments.python:
            sys.exit(f"finding the package plinth: it is not in {python}; name its parent folder with --python")
        python = None

    if min(arguments.blocks, arguments.steps) < 1:
        sys.exit("--blocks and --steps must be positive")
    chosen, runs = arguments.allocators.split(","), arguments.runs.split(",")
    unknown = sorted({*chosen, *runs} - {*RUNS, *ALLOCATORS})
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; runs: {', '.join(RUNS)}; allocators: {', '.join(ALLOCATORS)}")
    plan = [(run, other) for run in RUNS if run in runs for other in chosen
            if other != "native" and (other in ("plinth", "expandable") or "-" not in run or run.endswith("-graph"))]

    begun = time.monotonic()
    deadline = begun + arguments.seconds
    results, not_run, problems, following = [], [], [], []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        def start(number):
            if number >= len(plan) or time.monotonic() >= deadline:
                return []
            run, other = plan[number]
            compiler = ["compiler"] * run.endswith(("-compile", "-reduce"))
            names = (*compiler, "native", other, *["control"] * arguments.control)
            return [Process(run, name, path, python, folder, arguments) for name in names]

        following = start(0)
        for number, (run, other) in enumerate(plan):
            pair, following, at = following, start(number + 1), time.monotonic()
            try:
                if not pair:
                    raise NotRun("not run: the time is over")
                compete(pair, following, arguments.blocks, arguments.steps, arguments.limit, deadline)
                for process in pair:
                    process.end()
                results.append([process.result for process in pair])
                warm = ", ".join(f"{process.allocator} {process.warm_seconds:.1f} s" for process in pair)
                print(f"-- {run}: {time.monotonic() - at:.0f} s; warm-up with compilation: {warm}", flush=True)
            except NotRun as reason:
                not_run.append((run, other, str(reason)))
            except Failed as error:
                problems.append(str(error))
                not_run.append((run, other, "FAILED"))
                logs = "".join(f"\n{process.allocator}:\n{process.log_tail()}" for process in pair)
                print(f"-- {error}; the ends of the logs:{logs}", flush=True)
            finally:
                for process in pair:
                    with contextlib.suppress(Failed):
                        process.end()

    held = report(results, arguments.steps, not_run, problems)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"results": [one for pair in results for one in pair], "not_run": not_run, "problems": problems},
                      file, indent=1)
    print()
    for problem in problems:
        print(f"FAILED: {problem}")
    memory = f"plinth's peak is {min(held):.3f} to {max(held):.3f} of native's" if held else "plinth was not compared"
    print(f"{len(results)} of {len(plan)} runs, {time.monotonic() - begun:.0f} s; {memory}; "
          f"{f'{len(problems)} problems' if problems else 'all results compared are equal bit for bit'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
