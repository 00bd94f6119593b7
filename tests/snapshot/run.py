#!/usr/bin/env python3
# Tests the files of snapshots. SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes snapshots of a simulated training, and checks them with several readers.

  run.py --lib FOLDER [--include FOLDER] --build FOLDER [--device host] [--torch FOLDER] [--screenshots FOLDER] [--no-browser]

training.c writes the snapshots; check.py checks pickle, JSON and statistics; page.py and page_use.py test the page in a headless
Chromium, if one is installed, the latter also with the pages of engine.cpp and large.c; PyTorch's own tool reads the pickle, if
PyTorch is installed, or unpacked in the folder of --torch.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import pickle
import subprocess
import sys

import browser
import check
import page
import page_use

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", type=pathlib.Path, required=True, help="folder of libplinth.so")
    parser.add_argument("--include", type=pathlib.Path, default=ROOT / "include", help="folder of plinth.h")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder for output")
    parser.add_argument("--device", default="host", help="PLINTH_DEVICE")
    parser.add_argument("--torch", type=pathlib.Path, help="folder in which PyTorch's wheel is unpacked")
    parser.add_argument("--screenshots", type=pathlib.Path, help="folder for screenshots of every view")
    parser.add_argument("--no-browser", action="store_true", help="do not test the page")
    return parser.parse_args()


def build(arguments):
    """Compiles the programs, and links the library's soname to the library next to them."""
    options = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{arguments.include}"]
    libraries = [f"-L{arguments.lib}", "-lplinth", f"-Wl,-rpath,{arguments.lib.resolve()}", f"-Wl,-rpath,{arguments.build.resolve()}"]
    for source, compiler in (("training.c", ["gcc", "-std=c11"]), ("large.c", ["gcc", "-std=c11"]), ("engine.cpp", ["g++", "-std=c++17"])):
        program = arguments.build / source.split(".")[0]
        subprocess.run([*compiler, *options, str(HERE / source), "-o", str(program), *libraries], check=True)
    dynamic = subprocess.run(["readelf", "-d", str(arguments.lib / "libplinth.so")], capture_output=True, text=True, check=True)
    soname = next(line.split("[")[1].split("]")[0] for line in dynamic.stdout.splitlines() if "SONAME" in line)
    link = arguments.build / soname
    link.unlink(missing_ok=True)
    link.symlink_to((arguments.lib / "libplinth.so").resolve())


def check_folder(folder):
    stats = sorted(folder.glob("stats.*.json"), key=lambda path: int(path.name.split(".")[1]))
    snapshot, _ = check.check(folder / "snapshot.pickle", folder / "snapshot.json", stats)
    check_training(snapshot, check.resolve(json.loads((folder / "pool.json").read_text())))
    return snapshot


def check_training(snapshot, pool):
    """Checks that the snapshot contains what training.c did."""
    trace = snapshot["device_traces"][0]
    functions = {frame["name"] for entry in trace for frame in entry["frames"]}
    for name in ("make_weights", "attention", "convolution", "backward", "optimizer_step", "too_large_a_batch", "main"):
        check.expect(name in functions, f"no stack has {name}")
    files = {frame["filename"] for entry in trace for frame in entry["frames"] if frame["name"] == "attention"}
    check.expect(all(name.endswith("training.c") for name in files), f"attention is in {files}")
    check.expect({entry["user_metadata"] for entry in trace} >= {"", "attention", "convolution"}, "tags are missing")
    ooms = [entry for entry in trace if entry["action"] == "oom"]
    check.expect([entry["size"] for entry in ooms] == [1 << 50], f"out of memory: {ooms}")
    names = [annotation["name"] for annotation in snapshot["external_annotations"]]
    check.expect(set(names) == {"step", "forward", "backward", "optimizer"}, f"annotations: {sorted(set(names))}")
    begun = sum(annotation["stage"] == "START" for annotation in snapshot["external_annotations"])
    check.expect(2 * begun == len(names), f"{begun} of {len(names)} annotations are starts")
    streams = {entry["stream"] for entry in trace if entry["action"] == "alloc"}
    check.expect(len(streams) == 2 and 0 in streams, f"streams: {streams}")
    pools = {segment["segment_pool_id"] for segment in pool["segments"]}
    check.expect(len(pools) == 1 and (0, 0) not in pools, f"the pool's snapshot has segments of {pools}")
    inside = [entry for entry in pool["device_traces"][0] if entry["action"] == "alloc"]
    check.expect([entry["size"] for entry in inside] == [3 << 20, 100 << 10], f"allocated in the pool: {inside}")
    check.check_segments(pool["segments"])
    check.check_trace(pool["device_traces"][0], pool["segments"])


def check_checker(folder):
    """Checks that check.py detects errors: each function below corrupts a valid snapshot."""
    snapshot = pickle.loads((folder / "snapshot.pickle").read_bytes())

    def gap(copy):
        copy["segments"][0]["blocks"][0]["size"] -= 512

    def unknown_state(copy):
        copy["segments"][0]["blocks"][0]["state"] = "active_awaiting_free"

    def lost_free(copy):
        trace = copy["device_traces"][0]
        trace.remove(next(entry for entry in trace if entry["action"] == "free_completed"))

    def lost_alloc(copy):
        copy["segments"][-1]["blocks"] = copy["segments"][-1]["blocks"][1:]

    def lost_segment(copy):
        trace = copy["device_traces"][0]
        trace.remove(next(entry for entry in reversed(trace) if entry["action"] == "segment_unmap"))

    def large_number(copy):
        copy["segments"][0]["stream"] = 1 << 60

    for corrupt in (gap, unknown_state, lost_free, lost_alloc, lost_segment, large_number):
        copy = pickle.loads(pickle.dumps(snapshot, 4))
        corrupt(copy)
        path = folder / "corrupt.pickle"
        path.write_bytes(pickle.dumps(copy, 4))
        try:
            check.check(path)
        except (SystemExit, KeyError):
            continue
        sys.exit(f"run.py: check.py does not detect {corrupt.__name__}")


# Enough events that a list of them is higher than a browser can scroll.
MANY_EVENTS = 500_000


def test_use(arguments):
    environment = {**os.environ, "PLINTH_DEVICE": arguments.device}
    large = arguments.build / "large.html"
    subprocess.run([str(arguments.build / "engine"), str(arguments.build)], check=True, env=environment)
    subprocess.run([str(arguments.build / "large"), str(large), str(MANY_EVENTS)], check=True, env=environment)
    page_use.test_use(arguments.build / "expandable" / "snapshot.html", arguments.build / "engine.html", large, arguments.screenshots)
    print("windows, keyboard, colours, functions, names and long lists: as expected")


def main():
    arguments = parse_arguments()
    arguments.build.mkdir(parents=True, exist_ok=True)
    build(arguments)
    has_browser = not arguments.no_browser and browser.find() is not None
    for name, settings in (("expandable", "expandable_segments:True"), ("segments", "expandable_segments:False")):
        folder = arguments.build / name
        folder.mkdir(exist_ok=True)
        environment = {**os.environ, "PLINTH_DEVICE": arguments.device, "PLINTH_ALLOC_CONF": settings}
        subprocess.run([str(arguments.build / "training"), str(folder)], check=True, env=environment)
        snapshot = check_folder(folder)
        check.expect(snapshot["allocator_settings"]["expandable_segments"] == (name == "expandable"), "expandable_segments")
        entries = len(snapshot["device_traces"][0])
        print(f"{name}: pickle, JSON and statistics agree on {len(snapshot['segments'])} segments and {entries} entries")
        if not has_browser:
            print(f"{name}: skipped the page: " + ("--no-browser" if arguments.no_browser else "no Chromium"))
            continue
        screenshots = arguments.screenshots if name == "expandable" else None
        if screenshots:
            screenshots.mkdir(parents=True, exist_ok=True)
        page.test_page(folder / "snapshot.html", snapshot, screenshots, search="attention", dark=name == "segments")
        print(f"{name}: every view of the page agrees with the pickle, without errors")
    if has_browser:
        test_use(arguments)
    check_checker(arguments.build / "expandable")
    print("corrupt snapshots are detected")
    tool = arguments.torch and arguments.torch / "torch/cuda/_memory_viz.py"
    if importlib.util.find_spec("torch") is None and not (tool and tool.exists()):
        print("skipped torch's own tool: no PyTorch")
    else:
        named = ["--tool", str(tool)] if tool and tool.exists() else []
        path = arguments.build / "expandable" / "snapshot.pickle"
        subprocess.run([sys.executable, str(HERE / "torch_viz.py"), str(path), *named], check=True)


if __name__ == "__main__":
    try:
        main()
    except browser.Failure as failure:
        sys.exit(f"run.py: the page: {failure}")
