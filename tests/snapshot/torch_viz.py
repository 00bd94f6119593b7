#!/usr/bin/env python3
# Tests a snapshot with PyTorch's own tools. SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads a snapshot that plinth wrote with torch/cuda/_memory_viz.py, and opens it in torch's viewer.

  torch_viz.py snapshot.pickle [--tool _memory_viz.py] [--viewer FILE --d3 FILE] [--out FOLDER] [--picture FILE [--without TEXT]]

The tool is that of the installed PyTorch, or the file of --tool; no GPU is needed. With --out, the tool's pages
(trace_plot.html, segment_plot.html) are written to FOLDER. They load torch's viewer and d3 from a network.

To test the viewer without a network, --viewer names torch's MemoryViz.js (torch/utils/viz in its sources; its wheels lack it),
and --d3 the d3.min.js of the version that the viewer's first lines import: 5 until the end of 2025, 7 since (dist/d3.min.js in
npm's package d3). If --viewer is a folder, it has both files. Then every view is opened in a headless Chromium, and must draw
the whole snapshot without errors. --out saves these pages and screenshots of them, --picture a screenshot of the active memory
timeline with a selected block and its stack; --without removes a text from the stack's paths. The exit status is 77 if neither
the tool nor the viewer is available.
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
# The largest number of blocks that the viewer draws; the smallest others become one grey band.
MAX_DRAWN = 15000


def find_tool(path):
    """Loads torch's _memory_viz.py from a file or from PyTorch; returns None if there is neither."""
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
    """Runs every command of torch's tool on the unpickled snapshot."""
    snapshot = pickle.loads(path.read_bytes())
    live = sum(block["size"] for segment in snapshot["segments"] for block in segment["blocks"]
               if block["state"] == "active_allocated")
    check.expect(f"segments: {len(snapshot['segments'])}" in tool.segsum(snapshot), "segsum counts a different number of segments")
    entries = sum(len(trace) for trace in snapshot["device_traces"])
    traced = sum(int(line.split()[0]) for line in tool.trace(snapshot).splitlines() if line.endswith(" entries"))
    check.expect(traced == entries, f"trace shows {traced} entries of {entries}")
    held = sum(segment["total_size"] for segment in snapshot["segments"])
    for name in ("segments", "memory"):
        # As text, because the flame graph needs a script from a network.
        lines = getattr(tool, name)(snapshot, format_flamegraph=str).splitlines()
        # Each line ends with its number of bytes.
        expected = {"active_allocated": live, "": held}
        for state, size in expected.items():
            found = sum(int(line.rsplit(" ", 1)[1]) for line in lines if state in line)
            check.expect(found == size, f"{name} finds {found} bytes {state} of {size}")
    check.expect(tool.compare(snapshot["segments"], snapshot["segments"], format_flamegraph=str) == "", "compare finds a difference")
    for name in ("trace_plot", "segment_plot"):
        html = getattr(tool, name)(snapshot)
        check.expect("MemoryViz.js" in html, f"{name} does not return torch's page")
        if out:
            (out / f"{name}.html").write_text(html)
    print(f"{path}: every command of torch's _memory_viz.py reads it")


def write_viewer(path, viewer, d3_path, target, view):
    """Writes a page with torch's viewer and the snapshot, as one file."""
    script = viewer.read_text()
    # d3's bundle has all that the viewer imports from a network. Use the bundle object itself, because `d3.event` changes.
    script = re.sub(r"import \* as d3 from \"[^\"]+\";", "const d3 = globalThis.d3;", script)
    script = re.sub(r"import (\{[^}]+\}) from \"https:[^\"]+\";", r"const \1 = globalThis.d3;", script)
    # The viewer's head comment may contain an HTML page.
    script = script.replace("export function", "function").replace("</script", "<\\/script")
    # Newer versions of the viewer import a file next to it.
    local_imports = {name: f"data:text/javascript;base64,{base64.b64encode((viewer.parent / name).read_bytes()).decode()}"
                     for name in re.findall(r"import \{[^}]+\} from \"(\./[^\"]+)\";", script)}
    files = json.dumps([{"name": path.name, "base64": base64.b64encode(path.read_bytes()).decode()}])
    page = ["<!DOCTYPE html><html><head><meta charset=utf-8>", f"<script>{d3_path.read_text()}</script>",
            f"<script type=importmap>{json.dumps({'imports': local_imports})}</script></head><body>",
            f"<script type=module>{script}", f"add_local_files({files}, {json.dumps(view)});</script></body></html>"]
    target.write_text("\n".join(page))
    return target


def drawn_device(snapshot):
    """Returns the device that the viewer shows first: the one with most events."""
    return max(range(len(snapshot["device_traces"])), key=lambda device: len(snapshot["device_traces"][device]))


def count_blocks(snapshot, device):
    """Counts all blocks of the history and the snapshot, which the active memory timeline draws."""
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


# Selects a block for the picture: the one with most bytes times steps among those that were allocated after a third of the
# time and were live for less than half of it.
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
# Clicks on an event of the history, by its number. The first <pre> is the description of the selected event.
POINT = """(event => ['mouseover', 'mousedown', 'click'].forEach(
    kind => event.dispatchEvent(new MouseEvent(kind, {{bubbles: true, view: window}}))
))([...document.querySelectorAll('pre')].at({}))"""


def check_timeline(page, snapshot, device):
    """Checks that every block is drawn, and that a click on a block shows its description."""
    # In addition to the blocks: the band of the small ones and the overview below.
    expected = min(count_blocks(snapshot, device), MAX_DRAWN) + 2
    shapes = page.run("document.querySelectorAll('polygon').length")
    check.expect(shapes == expected and shapes > 2, f"the timeline shows {shapes} shapes of {expected}")
    size = page.run(CHOOSE)
    page.frame()
    text = page.run("document.querySelector('pre').textContent")
    check.expect("Addr: b" in text and f"({size} bytes)" in text, f"the description of the block of {size} bytes is: {text[:200]}")
    return shapes


def check_history(page, snapshot, device):
    """Checks that the first and the last event can be selected, and that all blocks of that time are drawn."""
    # For the first event, the viewer replays the whole history backwards.
    for event in (1, -1):
        page.run(POINT.format(event))
        page.frame()
        text = page.run("document.querySelector('pre').textContent")
        check.expect(" allocated / " in text and " reserved)" in text, f"the description of event {event} is: {text[:200]}")
    # The last event has the segments of the end, and two rectangles for each block: the block, and its rounding.
    segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
    blocks = sum(block["state"] != "inactive" for segment in segments for block in segment["blocks"])
    shapes = page.run("document.querySelectorAll('rect').length")
    check.expect(shapes == len(segments) + 2 * blocks and shapes > 0,
                 f"the history shows {shapes} rectangles for {len(segments)} segments with {blocks} blocks")
    return shapes


def check_shapes(page, _snapshot, _device):
    """Checks that some shapes are drawn: segments are drawn only with their last size, and pools as one shape."""
    shapes = page.run("document.querySelectorAll('polygon').length")
    check.expect(shapes > 2, f"only {shapes} shapes are shown")
    return shapes


# The views of torch's viewer: the name, an element that shows that the view is drawn, and the check.
VIEWS = {"timeline": ("Active Memory Timeline", "polygon", check_timeline),
         "history": ("Allocator State History", "rect", check_history),
         "segments": ("Active Cached Segment Timeline", "polygon", check_shapes),
         "pools": ("Allocated Memory (incl. Private Pools)", "polygon", check_shapes)}


# Removes a text from the description of the block.
SHORTEN = "(text => text.textContent = text.textContent.replaceAll({}, ''))(document.querySelector('pre'))"


def show(path, viewer, d3, out, picture=None, without=""):
    """Opens and checks each view. Older versions of the viewer lack that of the pools."""
    snapshot = pickle.loads(path.read_bytes())
    device = drawn_device(snapshot)
    for name, (view, shape, check_view) in VIEWS.items():
        if view not in viewer.read_text():
            continue
        target = write_viewer(path, viewer, d3, out / f"{name}.html", view)
        with browser.Browser(timeout=120.0) as page:
            page.open(target)
            page.wait_for(f"document.querySelectorAll('{shape}').length > 1", 120.0)
            shapes = check_view(page, snapshot, device)
            page.frame()
            page.check()
            page.screenshot(out / f"{name}.png")
            if picture and name == "timeline":
                page.run(SHORTEN.format(json.dumps(without)))
                page.frame()
                page.screenshot(picture)
        print(f"{view}: torch's viewer draws {shapes} shapes, without errors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snapshot", type=pathlib.Path, help="the pickle")
    parser.add_argument("--tool", type=pathlib.Path, help="torch's _memory_viz.py, if PyTorch is not installed")
    parser.add_argument("--viewer", type=pathlib.Path, help="torch's MemoryViz.js, or its folder")
    parser.add_argument("--d3", type=pathlib.Path, help="d3.min.js; by default that of the viewer's folder")
    parser.add_argument("--out", type=pathlib.Path, help="folder for pages and screenshots")
    parser.add_argument("--picture", type=pathlib.Path, help="PNG file for the active memory timeline")
    parser.add_argument("--without", default="", metavar="TEXT", help="text to remove from the picture's paths")
    arguments = parser.parse_args()
    viewer = arguments.viewer
    if viewer and viewer.is_dir():
        viewer = viewer / "MemoryViz.js"
    if viewer and browser.find() is None:
        print("skipped the viewer: no Chromium")
        viewer = None
    tool = find_tool(arguments.tool)
    if tool is None and viewer is None:
        print("skipped: no PyTorch")
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
