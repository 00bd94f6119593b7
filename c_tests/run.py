#!/usr/bin/env python3
# Builds and runs the C and C++ tests, those of one program in one process where they can share it.
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Builds c_tests/*.c and *.cpp against a library and runs every test in them, with a time limit for each.

The tests of a program share one process, and on a GPU one context: harness.h resets the library between them. A test that
fails in company, or leaves something behind, runs again in a process of its own, and the tests after it go on in a fresh
process. If it passes alone it counts as passed, and a warning names it. Under a sanitizer or valgrind, and with --alone,
every test has a process of its own.

A program says what it needs in comment lines near its top:
  // env: NAME=VALUE    is put into the environment of its tests
  // device: host       its tests make sense on this kind of device only
  // timeout: 120       seconds that its tests may take, where the usual limit is too short
  // also: NAME=VALUE   its tests run once more with this in the environment; every such line is a run of its own
  // long: NAME...      these tests take longest; they start first, each in a process of its own
  // last: NAME...      these tests measure all of the device; on a GPU each runs when all others are done
  // library: NAME      helpers/NAME.c becomes the shared library NAME.so beside the programs, for its tests to load
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
SKIPPED = 77
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
DECLARATION = re.compile(r"^\s*(?://|/\*)\s*(env|device|timeout|also|alone|long|last|library):\s*(.*?)\s*(?:\*/)?\s*$", re.MULTILINE)
VALGRIND = ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite",
            "--fair-sched=yes"]
# Under valgrind or an emulator.
SLOWNESS = 8


class Program:
    """A source file, and what its comments declare."""

    def __init__(self, source):
        self.source = source
        self.name = source.stem
        self.env = {}
        self.device = None
        self.timeout = None
        self.variants = [{}]
        self.libraries = []
        self.alone = set()
        self.long = set()
        self.last = set()
        for key, value in DECLARATION.findall(source.read_text()):
            if key in ("env", "also"):
                name, _, content = value.partition("=")
                if key == "env":
                    self.env[name.strip()] = content.strip()
                else:
                    self.variants.append({name.strip(): content.strip()})
            elif key == "device":
                self.device = value
            elif key == "alone":
                self.alone.update(value.partition(";")[0].split())
            elif key == "long":
                self.long.update(value.split())
            elif key == "last":
                self.last.update(value.split())
            elif key == "library":
                self.libraries.append(Library(HERE / "helpers" / f"{value}.c"))
            else:
                self.timeout = float(value)


class Library:
    """A shared library that tests load."""

    def __init__(self, source):
        self.source = source
        self.name = source.stem + ".so"
        self.libraries = []


class Result:
    """What came of one test."""

    def __init__(self, name, outcome, reason="", output=""):
        self.name, self.outcome, self.reason, self.output = name, outcome, reason, output
        self.seconds = 0.0
        # Why it failed in company, if it passed alone.
        self.warning = None


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", type=pathlib.Path, default=ROOT / "target" / "debug", help="folder of libplinth.so")
    parser.add_argument("--include", type=pathlib.Path, default=ROOT / "include", help="folder of plinth.h")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "target" / "c_tests", help="folder for programs")
    parser.add_argument("--cc", default=os.environ.get("CC", "gcc"), help="C compiler")
    parser.add_argument("--cxx", default=os.environ.get("CXX", "g++"), help="C++ compiler")
    parser.add_argument("--optimize", choices=["0", "1", "2"], default="1", help="optimization level of the programs")
    parser.add_argument("--sanitizer", choices=["address", "thread", "undefined"], help="compile the tests with it")
    parser.add_argument("--valgrind", action="store_true", help="run the tests under valgrind")
    parser.add_argument("--runner", type=shlex.split, default=[], metavar="COMMAND",
                        help="a command that runs programs of another architecture: qemu-aarch64 -L /usr/aarch64-linux-gnu")
    parser.add_argument("--device", choices=["host", "cuda", "auto"], default=os.environ.get("PLINTH_DEVICE", "host"),
                        help="the kind of device")
    parser.add_argument("--filter", default="", help="run the tests whose program/name has this regular expression")
    parser.add_argument("--first-variant", action="store_true", help="run every test once, without the `also:` lines")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at the same time")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds that a test may take")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="show the N tests that took longest, at the end")
    processes = parser.add_mutually_exclusive_group()
    processes.add_argument("--alone", action="store_true", help="run every test in a process of its own")
    processes.add_argument("--together", action="store_true", help="let tests share a process in spite of `alone:`")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--no-build", action="store_true", help="run what is built already")
    when.add_argument("--build-only", action="store_true", help="build, and run nothing")
    return parser.parse_args()


def compile_command(program, arguments):
    """The command that makes a program."""
    # A sanitizer's run time is for programs; what they load stands for somebody else's library, which has none either.
    foreign = isinstance(program, Library)
    if foreign and arguments.sanitizer:
        command = ["gcc", "-std=c11"]
    elif program.source.suffix == ".c":
        command = shlex.split(arguments.cc) + ["-std=c11"]
    else:
        command = shlex.split(arguments.cxx) + ["-std=c++17"]
    command += WARNINGS + ["-g", f"-O{arguments.optimize}", "-pthread", f"-I{arguments.include}"]
    if arguments.sanitizer and not foreign:
        command += [f"-fsanitize={arguments.sanitizer}", "-fno-omit-frame-pointer"]
        if arguments.sanitizer == "undefined":
            command += ["-fno-sanitize-recover=all"]
    if foreign:
        command += ["-shared", "-fPIC"]
    command += [str(program.source), "-o", str(arguments.build / program.name)]
    command += [f"-L{arguments.lib}", "-lplinth", "-lm"]
    command += [f"-Wl,-rpath,{folder}" for folder in (arguments.lib, "$ORIGIN", "$ORIGIN/../lib")]
    return command


def link_soname(arguments):
    """Puts the library under its soname beside the programs, where its own folder has it under its plain name only."""
    library = arguments.lib / "libplinth.so"
    dynamic = subprocess.run(["readelf", "-d", str(library)], stdout=subprocess.PIPE, text=True, check=True).stdout
    soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic)
    if soname and not (arguments.lib / soname[1]).exists():
        link = arguments.build / soname[1]
        link.unlink(missing_ok=True)
        link.symlink_to(library)


def build_one(program, arguments):
    """Makes a program unless it is newer than all it is made of. Returns the compiler's complaint, or None."""
    binary = arguments.build / program.name
    stamp = arguments.build / (program.name + ".command")
    command = compile_command(program, arguments)
    included = re.findall(r'^#include "(\w+\.c)"', program.source.read_text(), re.MULTILINE)
    sources = [program.source, *(program.source.parent / name for name in included), *HERE.glob("*.h"),
               *HERE.glob("helpers/*.h"), *arguments.include.rglob("*.h*")]
    if binary.exists() and stamp.exists() and stamp.read_text() == shlex.join(command):
        if binary.stat().st_mtime > max(source.stat().st_mtime for source in sources):
            return None
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        return f"{shlex.join(command)}\n{done.stdout}"
    stamp.write_text(shlex.join(command))
    return None


def build(programs, arguments, pool):
    """Makes all programs; returns whether that worked."""
    arguments.build.mkdir(parents=True, exist_ok=True)
    link_soname(arguments)
    worked = True
    # Programs may share a library.
    libraries = {library.name: library for program in programs for library in program.libraries}
    programs = [*programs, *libraries.values()]
    for program, complaint in zip(programs, pool.map(lambda each: build_one(each, arguments), programs)):
        if complaint:
            worked = False
            print(f"{program.source.name} does not compile:\n{complaint}", file=sys.stderr)
    return worked


def may_match(program, pattern):
    """Whether tests of a program may be among those that are wanted: its name is what stands before the first slash."""
    if "|" in pattern or "(" in pattern:
        return True
    head, slash, _ = pattern.partition("/")
    return not slash or re.search(head + slash, program.name + "/") is not None


def environment(program, arguments, variant):
    """The environment of a program's tests."""
    values = {**os.environ, "PLINTH_DEVICE": arguments.device, **program.env, **variant}
    if values["PLINTH_DEVICE"] == "host":
        # A choice of GPUs would hide devices of the host device, which tests count.
        values.pop("CUDA_VISIBLE_DEVICES", None)
    if arguments.sanitizer == "address":
        # Huge requests are part of the tests, and must be answered, not end the process.
        values.setdefault("ASAN_OPTIONS", "allocator_may_return_null=1")
    return values


def launch(program, arguments):
    """The command that runs a program outside of valgrind."""
    return [*arguments.runner, str(arguments.build / program.name)]


def list_tests(program, arguments):
    """The names of a program's tests."""
    done = subprocess.run([*launch(program, arguments), "--list"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60, env=environment(program, arguments, {}),
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program.name} --list ended with {done.returncode}:\n{done.stdout}")
    tests = done.stdout.split()
    unknown = (program.alone | program.long | program.last) - {"all", *tests}
    if unknown:
        raise RuntimeError(f"{program.source.name} declares something of tests that it does not have: {sorted(unknown)}")
    return tests


# The tests that are running.
RUNNING = set()


def kill_group(process):
    """Ends a test and the processes that it started."""
    RUNNING.discard(process)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def give_up(number, _frame):
    """Leaves nothing running, which would disturb what comes after."""
    for process in list(RUNNING):
        kill_group(process)
    os._exit(128 + number)


def test_name(program, variant, test):
    """A test's name, with what its run has in the environment that the program's first run has not."""
    return "/".join([program.name, *(f"{name}={value}" for name, value in variant.items()), test])


def run_one(program, variant, test, arguments):
    """Runs one test, and takes the time."""
    started = time.monotonic()
    result = judge(program, variant, test, arguments)
    result.seconds = time.monotonic() - started
    return result


def wrong_device(program, arguments):
    """Whether a program's tests are about another kind of device."""
    return program.device is not None and arguments.device not in ("auto", program.device)


def time_limit(program, arguments):
    """The seconds that one test of a program may take."""
    return max(program.timeout or 0, arguments.timeout) * (SLOWNESS if arguments.valgrind or arguments.runner else 1)


def judge(program, variant, test, arguments):
    """Runs one test."""
    name = test_name(program, variant, test)
    if wrong_device(program, arguments):
        return Result(name, "skipped", f"is about the {program.device} device")
    limit = time_limit(program, arguments)
    command = [*(VALGRIND if arguments.valgrind else []), *launch(program, arguments), test]
    timed_out = False
    # A file, not a pipe: a process that outlives the test could hold a pipe open.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   start_new_session=True, env=environment(program, arguments, variant))
        RUNNING.add(process)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            timed_out = True
        kill_group(process)
        if timed_out:
            process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    if timed_out:
        return Result(name, "failed", f"took longer than {limit:.0f} s", text)
    if code == 0:
        return Result(name, "passed")
    if code == SKIPPED:
        return Result(name, "skipped", text.strip().removeprefix("skipped: "))
    if code < 0:
        return Result(name, "failed", f"was killed by {signal.Signals(-code).name}", text)
    return Result(name, "failed", f"exit status {code}", text)


class Company:
    """Tests of one program that share a process, and what came of them."""

    def __init__(self, program, variant, tests, arguments):
        self.program, self.variant, self.arguments = program, variant, arguments
        self.waiting = list(tests)
        self.results = []

    def run(self):
        """Runs the tests, in as many processes as it takes; returns a result for each."""
        while self.waiting:
            passed, failed, reason = self.run_process()
            if failed:
                self.run_again(failed, reason)
            elif reason:
                # The process itself ended badly, and any of its tests may be the cause.
                for result in passed:
                    self.results.remove(result)
                    self.run_again(result.name.rpartition("/")[2], reason)
        return self.results

    def run_again(self, test, reason):
        """Runs a test alone that failed in company."""
        result = run_one(self.program, self.variant, test, self.arguments)
        if result.outcome == "passed":
            result.warning = reason
        self.results.append(result)

    def finish(self, outcome, test, reason, started):
        """Notes how a test ended."""
        self.waiting.remove(test)
        result = Result(test_name(self.program, self.variant, test), outcome, reason)
        result.seconds = time.monotonic() - started
        self.results.append(result)
        return result

    def run_process(self):
        """Runs tests in one process until one fails. Returns the results of those before it, its name, and the reason."""
        reader, writer = os.pipe()
        command = [*launch(self.program, self.arguments), "--together", str(writer), *self.waiting]
        finished = []
        current, reason = None, ""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[writer],
                                       start_new_session=True, env=environment(self.program, self.arguments, self.variant))
            RUNNING.add(process)
            os.close(writer)
            started = time.monotonic()
            for event, test, detail in events_of(reader, process, time_limit(self.program, self.arguments)):
                if event == "start":
                    current, started = test, time.monotonic()
                elif event in ("passed", "skipped"):
                    finished.append(self.finish(event, test, detail, started))
                    current, started = None, time.monotonic()
                elif event == "left":
                    reason = f"left behind: {detail}"
                else:
                    reason = f"{event} in company"
            os.close(reader)
            code = process.poll()
            kill_group(process)
            process.wait()
            output.seek(0)
            text = output.read().decode(errors="replace").strip()
        if code not in (0, SKIPPED) and not reason:
            reason = f"in company: exit status {code}; {text[-300:]}"
        if current is None and not finished:
            # It did not even start.
            current = self.waiting[0]
        if current is None and self.waiting and code not in (0, SKIPPED):
            current = self.waiting[0]
        if current is not None:
            self.waiting.remove(current)
            reason = reason or f"ended its process in company, with exit status {code}"
        return finished, current, reason


def events_of(reader, process, limit):
    """Yields what a process reports: event, test and detail. The last event is `took too long` if no line came in time."""
    buffered = b""
    deadline = time.monotonic() + limit
    while True:
        ended = process.poll() is not None
        ready, _, _ = select.select([reader], [], [], 0 if ended else 0.1)
        if ready:
            block = os.read(reader, 65536)
            if not block:
                # Nobody can write any more: the process is about to end.
                try:
                    process.wait(max(1.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    yield "took too long to end", "", ""
                return
            buffered += block
            deadline = time.monotonic() + limit
            *lines, buffered = buffered.split(b"\n")
            for line in lines:
                event, _, rest = line.decode(errors="replace").partition(" ")
                test, _, detail = rest.partition(": ")
                yield event, test, detail
        elif ended:
            return
        elif time.monotonic() > deadline:
            yield f"took longer than {limit:.0f} s", "", ""
            return


def shares_process(program, test, arguments):
    """Whether a test runs in one process with others of its program."""
    if arguments.alone or arguments.sanitizer or arguments.valgrind or wrong_device(program, arguments):
        return False
    return arguments.together or not ({"all", test} & (program.alone | program.long | program.last))


def plan(tests, arguments):
    """What to run: functions that return a list of results each, and those to run one at a time after them. First come the
    long tests, then the processes with most tests, then the tests that are alone."""
    companies = {}
    long, tasks, last = [], [], []
    for program, variant, test in tests:
        if shares_process(program, test, arguments):
            companies.setdefault((program.name, *variant.items()), (program, variant, []))[2].append(test)
        else:
            where = long if {"all", test} & program.long else tasks
            if test in program.last and arguments.device == "cuda":
                where = last
            where.append(lambda one=(program, variant, test): [run_one(*one, arguments)])
    shared = sorted(companies.values(), key=lambda company: -len(company[2]))
    return long + [Company(*company, arguments).run for company in shared] + tasks, last


class Report:
    """Dots for what passes, and a line of its own for everything else."""

    def __init__(self):
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.times = []
        self.failures = []
        self.warnings = []
        self.column = 0

    def add(self, result):
        self.counts[result.outcome] += 1
        self.times.append((result.seconds, result.name))
        if result.warning:
            self.warnings.append(f"warning {result.name}: passed alone; {result.warning}")
        if result.outcome == "passed":
            print(".", end="", flush=True)
            self.column += 1
            if self.column == 100:
                self.end_line()
            return
        self.end_line()
        text = f"{result.outcome} {result.name}: {result.reason}"
        if result.outcome == "failed":
            if result.output.strip():
                text += "\n    " + result.output.rstrip().replace("\n", "\n    ")
            self.failures.append(text)
        print(text, flush=True)

    def end_line(self):
        if self.column:
            print()
        self.column = 0

    def show_slowest(self, count):
        """Prints the tests that took longest."""
        for seconds, name in sorted(self.times, reverse=True)[:count]:
            print(f"{seconds:8.1f} s  {name}")

    def close(self):
        """Prints the last line; returns the exit status."""
        self.end_line()
        for warning in self.warnings:
            print(warning.replace("\n", "\n    "))
        if self.warnings:
            print(f"{len(self.warnings)} tests passed only in a process of their own: clean up in the test, or declare `alone:`")
        # Again, because often only the end of an output is kept.
        for failure in self.failures:
            print(failure)
        print(f"{self.counts['passed']} passed, {self.counts['failed']} failed, {self.counts['skipped']} skipped")
        return 1 if self.counts["failed"] or not self.counts["passed"] else 0


def main():
    arguments = parse_arguments()
    arguments.lib, arguments.include, arguments.build = (
        folder.resolve() for folder in (arguments.lib, arguments.include, arguments.build))
    programs = [Program(source) for source in sorted([*HERE.glob("*.c"), *HERE.glob("*.cpp")])]
    programs = [program for program in programs if may_match(program, arguments.filter)]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, give_up)
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        if not arguments.no_build and not build(programs, arguments, pool):
            return 1
        built = time.monotonic()
        if arguments.build_only:
            return 0
        wanted = re.compile(arguments.filter)
        tests = [(program, variant, test) for program in programs for test in list_tests(program, arguments)
                 for variant in program.variants[:1 if arguments.first_variant else None]
                 if wanted.search(test_name(program, variant, test))]
        report = Report()
        tasks, last = plan(tests, arguments)
        for done in concurrent.futures.as_completed(pool.submit(task) for task in tasks):
            for result in done.result():
                report.add(result)
        for task in last:
            for result in task():
                report.add(result)
    report.end_line()
    report.show_slowest(arguments.slowest)
    print(f"on the device {arguments.device}, in {time.monotonic() - built:.1f} s, built in {built - started:.1f} s")
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
