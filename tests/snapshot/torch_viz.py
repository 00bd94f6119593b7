#!/usr/bin/env python3
# A snapshot of plinth's in PyTorch's own tools. SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads a snapshot that plinth wrote with torch/cuda/_memory_viz.py, and shows it in torch's viewer.

  torch_viz.py snapshot.pickle [--tool _memory_viz.py] [--viewer FILE --d3 FILE] [--out FOLDER] [--picture FILE [--without TEXT]]

The tool is that of the installed PyTorch, or the file that --tool names; no GPU is needed. With --out, FOLDER gets the pages
that it makes (trace_plot.html, segment_plot.html), which load torch's viewer and d3 from a network.

Where there is none, --viewer names torch's MemoryViz.js (torch/utils/viz in its sources; its wheels lack it), and --d3 the
d3.min.js of the version that the viewer's first lines import: 5 until the end of 2025, 7 since (dist/d3.min.js in npm's
package d3); a folder for --viewer has both files. Then every view of the viewer is opened in a headless Chromium, must draw all
that is in the snapshot, and must not complain. --out keeps these pages and pictures of them, --picture a picture of the active
memory timeline, with one block chosen and its stack; --without leaves a part of the paths out. Ends with 77 where there is
neither the tool nor the viewer.
"""

import argparse
import base64
import importlib.util
import json
import pathlib
import pickle
import re
import sys
import tempfile

import browser
import check

SKIPPED = 77
# How many blocks the viewer draws; the smallest of more become one grey band.
MOST_DRAWN = 15000


def find_tool(path):
    """torch's _memory_viz.py as a module: a file, or PyTorch's own; None without."""
    if path is None:
        if importlib.util.find_spec("torch") is None:
            return None
        from torch.cuda import _memory_viz

        return _memory_viz
    spec = importlib.util.spec_from_file_location("_memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_with_torch(path, tool, out=None):
    """Every command of torch's tool, on the pickle as Python reads it."""
    snapshot = pickle.loads(path.read_bytes())
    live = sum(block["size"] for segment in snapshot["segments"] for block in segment["blocks"]
               if block["state"] == "active_allocated")
    check.expect(f"segments: {len(snapshot['segments'])}" in tool.segsum(snapshot), "segsum counts other segments")
    entries = sum(len(trace) for trace in snapshot["device_traces"])
    told = sum(int(line.split()[0]) for line in tool.trace(snapshot).splitlines() if line.endswith(" entries"))
    check.expect(told == entries, f"trace tells {told} entries of {entries}")
    held = sum(segment["total_size"] for segment in snapshot["segments"])
    for name in ("segments", "memory"):
        # As text: the picture needs a script from a network.
        lines = getattr(tool, name)(snapshot, format_flamegraph=str).splitlines()
        # A line ends with its bytes.
        expected = {"active_allocated": live, "": held}
        for state, size in expected.items():
            found = sum(int(line.rsplit(" ", 1)[1]) for line in lines if state in line)
            check.expect(found == size, f"{name} finds {found} bytes {state} of {size}")
    check.expect(tool.compare(snapshot["segments"], snapshot["segments"], format_flamegraph=str) == "", "compare finds something")
    for name in ("trace_plot", "segment_plot"):
        html = getattr(tool, name)(snapshot)
        check.expect("MemoryViz.js" in html, f"{name} is no page of torch's")
        if out:
            (out / f"{name}.html").write_text(html)
    print(f"{path}: every command of torch's _memory_viz.py reads it")


def write_viewer(path, viewer, d3_path, target, view):
    """torch's viewer with the snapshot in it, as one file."""
    script = viewer.read_text()
    # What it imports from a network is all in d3's bundle. As that itself, for `d3.event` is another at each event.
    script = re.sub(r"import \* as d3 from \"[^\"]+\";", "const d3 = globalThis.d3;", script)
    script = re.sub(r"import (\{[^}]+\}) from \"https:[^\"]+\";", r"const \1 = globalThis.d3;", script)
    # Its head comment may show a page.
    script = script.replace("export function", "function").replace("</script", "<\\/script")
    # A file of its own beside it, which newer ones import.
    beside = {name: f"data:text/javascript;base64,{base64.b64encode((viewer.parent / name).read_bytes()).decode()}"
              for name in re.findall(r"import \{[^}]+\} from \"(\./[^\"]+)\";", script)}
    files = json.dumps([{"name": path.name, "base64": base64.b64encode(path.read_bytes()).decode()}])
    page = ["<!DOCTYPE html><html><head><meta charset=utf-8>", f"<script>{d3_path.read_text()}</script>",
            f"<script type=importmap>{json.dumps({'imports': beside})}</script></head><body>",
            f"<script type=module>{script}", f"add_local_files({files}, {json.dumps(view)});</script></body></html>"]
    target.write_text("\n".join(page))
    return target


def drawn_device(snapshot):
    """The device that the viewer shows first: 0, or where most happened."""
    return max(range(len(snapshot["device_traces"])), key=lambda device: len(snapshot["device_traces"][device]))


def lives(snapshot, device):
    """How many blocks lived at any time that the snapshot knows of: what the active memory timeline draws."""
    count, live = 0, set()
    for entry in snapshot["device_traces"][device]:
        if entry["action"] == "alloc":
            count += 1
            live.add(entry["addr"])
        elif entry["action"] == "free_completed":
            count += entry["addr"] not in live
            live.discard(entry["addr"])
    blocks = (block for segment in snapshot["segments"] if segment["device"] == device for block in segment["blocks"])
    return count + sum(block["state"] == "active_allocated" and block["address"] not in live for block in blocks)


# The block with most bytes times steps among those that came after a third of the time and lived for less than half of it:
# one that has a story.
CHOOSE = """(() => {
    const shapes = [...document.querySelectorAll('polygon')].filter(shape => Number.isInteger(shape.__data__?.elem));
    const steps = shape => shape.__data__.timesteps.at(-1) - shape.__data__.timesteps[0];
    const end = Math.max(...shapes.map(shape => shape.__data__.timesteps.at(-1)));
    const passing = shapes.filter(shape => steps(shape) < end / 2 && shape.__data__.timesteps[0] > end / 3);
    const weight = shape => shape.__data__.size * steps(shape);
    const chosen = (passing.length ? passing : shapes).reduce((best, shape) => weight(shape) > weight(best) ? shape : best);
    for (const kind of ['mouseover', 'mousedown', 'click']) {
        chosen.dispatchEvent(new MouseEvent(kind, {bubbles: true, view: window}));
    }
    return chosen.__data__.size;
})()"""
# A click on an event of the history, by its number. Before the events stands the text of the one that is chosen.
POINT = """(event => ['mouseover', 'mousedown', 'click'].forEach(
    kind => event.dispatchEvent(new MouseEvent(kind, {{bubbles: true, view: window}}))
))([...document.querySelectorAll('pre')].at({}))"""


def look_at_timeline(page, snapshot, device):
    """Every block is drawn, and one tells of itself."""
    # Beside the blocks, the band of the small ones and the small picture below.
    expected = min(lives(snapshot, device), MOST_DRAWN) + 2
    shapes = page.run("document.querySelectorAll('polygon').length")
    check.expect(shapes == expected and shapes > 2, f"the timeline shows {shapes} shapes of {expected}")
    size = page.run(CHOOSE)
    page.frame()
    text = page.run("document.querySelector('pre').textContent")
    check.expect("Addr: b" in text and f"({size} bytes)" in text, f"the block of {size} bytes tells: {text[:200]}")
    return shapes


def look_at_history(page, snapshot, device):
    """The first event and the last can be chosen, and all that was there then is drawn."""
    # The viewer plays everything backwards for the first.
    for event in (1, -1):
        page.run(POINT.format(event))
        page.frame()
        chosen = page.run("document.querySelector('pre').textContent")
        check.expect(" allocated / " in chosen and " reserved)" in chosen, f"event {event} tells: {chosen[:200]}")
    # The last event's are the segments of the end, and two for each block: itself, and what rounding cost.
    segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
    blocks = sum(block["state"] != "inactive" for segment in segments for block in segment["blocks"])
    shapes = page.run("document.querySelectorAll('rect').length")
    check.expect(shapes == len(segments) + 2 * blocks and shapes > 0,
                 f"the history shows {shapes} rectangles for {len(segments)} segments with {blocks} blocks")
    return shapes


def look_at_shapes(page, _snapshot, _device):
    """Segments that grow and shrink are told of by their last shape alone, and pools are drawn as one: there may be few."""
    shapes = page.run("document.querySelectorAll('polygon').length")
    check.expect(shapes > 2, f"{shapes} shapes are shown")
    return shapes


# What torch's viewer calls its views, and what shows that one is there.
VIEWS = {"timeline": ("Active Memory Timeline", "polygon", look_at_timeline),
         "history": ("Allocator State History", "rect", look_at_history),
         "segments": ("Active Cached Segment Timeline", "polygon", look_at_shapes),
         "pools": ("Allocated Memory (incl. Private Pools)", "polygon", look_at_shapes)}


# Removes a text from the description of the block.
SHORTEN = "(told => told.textContent = told.textContent.replaceAll({}, ''))(document.querySelector('pre'))"


def show(path, viewer, d3, out, picture=None, without=""):
    """Opens each view that torch's viewer has; that of the pools is new."""
    snapshot = pickle.loads(path.read_bytes())
    device = drawn_device(snapshot)
    for name, (view, shape, look) in VIEWS.items():
        if view not in viewer.read_text():
            continue
        target = write_viewer(path, viewer, d3, out / f"{name}.html", view)
        with browser.Browser(timeout=120.0) as page:
            page.open(target)
            page.wait_for(f"document.querySelectorAll('{shape}').length > 1", 120.0)
            shapes = look(page, snapshot, device)
            page.frame()
            page.check()
            page.screenshot(out / f"{name}.png")
            if picture and name == "timeline":
                page.run(SHORTEN.format(json.dumps(without)))
                page.frame()
                page.screenshot(picture)
        print(f"{view}: torch's viewer draws {shapes} shapes, without a complaint")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snapshot", type=pathlib.Path, help="the pickle")
    parser.add_argument("--tool", type=pathlib.Path, help="torch's _memory_viz.py, where there is no PyTorch")
    parser.add_argument("--viewer", type=pathlib.Path, help="torch's MemoryViz.js, or a folder that has it")
    parser.add_argument("--d3", type=pathlib.Path, help="d3.min.js; else that of the viewer's folder")
    parser.add_argument("--out", type=pathlib.Path, help="a folder for pages and pictures")
    parser.add_argument("--picture", type=pathlib.Path, help="a PNG of the active memory timeline")
    parser.add_argument("--without", default="", metavar="TEXT", help="what the picture's paths are shown without")
    arguments = parser.parse_args()
    viewer = arguments.viewer
    if viewer and viewer.is_dir():
        viewer = viewer / "MemoryViz.js"
    if viewer and browser.find() is None:
        print("skipped the viewer: there is no chromium")
        viewer = None
    tool = find_tool(arguments.tool)
    if tool is None and viewer is None:
        print("skipped: there is no PyTorch")
        return SKIPPED
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
    if tool:
        read_with_torch(arguments.snapshot, tool, arguments.out)
    if viewer:
        with tempfile.TemporaryDirectory() as folder:
            show(arguments.snapshot, viewer, arguments.d3 or viewer.parent / "d3.min.js", arguments.out or pathlib.Path(folder),
                 arguments.picture, arguments.without)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except browser.Failure as failure:
        sys.exit(f"torch_viz.py: {failure}")
