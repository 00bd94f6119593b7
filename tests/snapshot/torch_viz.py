#!/usr/bin/env python3
# A snapshot of plinth's in PyTorch's own tools. SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads a snapshot that plinth wrote with torch/cuda/_memory_viz.py, and shows it in torch's viewer.

  torch_viz.py --pickle snapshot.pickle [--out FOLDER]         needs PyTorch, and no GPU
  torch_viz.py --train LIBPLINTH [--out FOLDER] [--steps 4]    trains on a GPU with plinth as PyTorch's allocator first

With --out, FOLDER gets the pages that torch makes (trace_plot.html, segment_plot.html) and, after a training, the dumps
(snapshot.pickle, snapshot.json, snapshot.html). torch's pages load its viewer and d3 from a network. Where there is none,
--viewer names torch's MemoryViz.js (torch/utils/viz in its sources; its wheels lack it) and --d3 a d3.min.js of version 5
(npm's package d3@5, dist/d3.min.js): then timeline.html, history.html and segments.html need nothing else, and are opened in a
Chromium, which leaves pictures of them. Ends with 77 without PyTorch, or without a GPU to train on.
"""

import argparse
import base64
import importlib.util
import json
import pathlib
import pickle
import re
import sys

import browser
import check

SKIPPED = 77


def read_with_torch(path, out):
    """Every command of torch's tool, on the pickle as Python reads it."""
    from torch.cuda import _memory_viz as viz

    snapshot = pickle.loads(path.read_bytes())
    live = sum(block["size"] for segment in snapshot["segments"] for block in segment["blocks"]
               if block["state"] == "active_allocated")
    check.expect(f"segments: {len(snapshot['segments'])}" in viz.segsum(snapshot), "segsum counts other segments")
    entries = sum(len(trace) for trace in snapshot["device_traces"])
    told = sum(int(line.split()[0]) for line in viz.trace(snapshot).splitlines() if line.endswith(" entries"))
    check.expect(told == entries, f"trace tells {told} entries of {entries}")
    held = sum(segment["total_size"] for segment in snapshot["segments"])
    for name in ("segments", "memory"):
        # As text: the picture needs a script from a network.
        lines = getattr(viz, name)(snapshot, format_flamegraph=str).splitlines()
        # A line ends with its bytes.
        expected = {"active_allocated": live, "": held}
        for state, size in expected.items():
            found = sum(int(line.rsplit(" ", 1)[1]) for line in lines if state in line)
            check.expect(found == size, f"{name} finds {found} bytes {state} of {size}")
    check.expect(viz.compare(snapshot["segments"], snapshot["segments"], format_flamegraph=str) == "", "compare finds something")
    for name in ("trace_plot", "segment_plot"):
        html = getattr(viz, name)(snapshot)
        check.expect("MemoryViz.js" in html, f"{name} is no page of torch's")
        if out:
            (out / f"{name}.html").write_text(html)
    print(f"{path}: every command of torch's _memory_viz.py reads it")


def write_viewer(path, viewer, d3_path, target, view):
    """torch's viewer with the snapshot in it, as one file."""
    script = viewer.read_text()
    # What it imports from a network is all in d3's bundle. As that itself, for `d3.event` is another at each event.
    script = re.sub(r"import \* as d3 from \"[^\"]+\";", "const d3 = globalThis.d3;", script)
    script = re.sub(r"import (\{[^}]+\}) from \"[^\"]+\";", r"const \1 = globalThis.d3;", script)
    script = script.replace("export function", "function")
    files = json.dumps([{"name": path.name, "base64": base64.b64encode(path.read_bytes()).decode()}])
    page = ["<!DOCTYPE html><html><head><meta charset=utf-8>", f"<script>{d3_path.read_text()}</script></head><body>",
            f"<script type=module>{script}", f"add_local_files({files}, {json.dumps(view)});</script></body></html>"]
    target.write_text("\n".join(page))
    return target


# What torch's viewer calls its views, and what must be drawn in each for it to show anything.
VIEWS = {"timeline": ("Active Memory Timeline", "polygon"), "history": ("Allocator State History", "rect"),
         "segments": ("Active Cached Segment Timeline", "polygon")}


def show(path, viewer, d3, out, segments):
    """Opens each view of torch's viewer."""
    for name, (view, shape) in VIEWS.items():
        target = write_viewer(path, viewer, d3, out / f"{name}.html", view)
        with browser.Browser(timeout=60.0) as page:
            page.open(target)
            page.wait_for(f"document.querySelectorAll('{shape}').length > 1", 60.0)
            if name == "history":
                # From the last event to the first: the viewer plays everything backwards.
                page.run("document.querySelector('pre').dispatchEvent(new MouseEvent('mousedown', {bubbles: true}))")
                page.run("[...document.querySelectorAll('pre')].at(-2).dispatchEvent(new MouseEvent('mousedown', {bubbles: true}))")
            page.frame()
            page.check()
            shapes = page.run(f"document.querySelectorAll('{shape}').length")
            check.expect(name != "history" or shapes > segments, f"the history shows {shapes} rectangles")
            page.screenshot(out / f"{name}.png")
        print(f"{target}: torch's viewer draws {shapes} shapes, without a complaint")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--pickle", type=pathlib.Path)
    what.add_argument("--train", metavar="LIBPLINTH")
    parser.add_argument("--out", type=pathlib.Path, help="a folder for pages and dumps")
    parser.add_argument("--d3", type=pathlib.Path, help="d3.min.js of version 5, beside --viewer")
    parser.add_argument("--viewer", type=pathlib.Path, help="torch's MemoryViz.js")
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("skipped: there is no PyTorch")
        return SKIPPED
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.pickle
    if arguments.train:
        import torch

        if not torch.cuda.is_available():
            print("skipped: there is no GPU")
            return SKIPPED
        if arguments.out is None:
            parser.error("--train needs --out")
        path = train(arguments.train, arguments.out, arguments.steps)
        check.check(path, arguments.out / "snapshot.json")
    read_with_torch(path, arguments.out)
    if arguments.viewer and arguments.d3 and arguments.out and browser.find():
        snapshot = pickle.loads(path.read_bytes())
        show(path, arguments.viewer, arguments.d3, arguments.out, len(snapshot["segments"]))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except browser.Failure as failure:
        sys.exit(f"torch_viz.py: {failure}")
