#!/usr/bin/env python3
# Measures the page of a large snapshot. SPDX-License-Identifier: MIT OR Apache-2.0
"""Opens the page of a large snapshot in a headless Chromium, and measures load time, memory, and the time of frames.

  large FILE.html EVENTS        # large.c: writes the page
  large.py FILE.html [--screenshots FOLDER]

A frame is the time from an action to the end of the frame that shows it, without a graphics processor. The processor time of
the page's process is also reported: it changes little when the machine is busy. Memory is that of the same process: resident
at the end of loading, and at most.
"""

import argparse
import datetime
import os
import pathlib
import platform
import statistics
import sys
import time

import browser
from page_use import open_page

# Runs `act` once a frame, and waits until the frame is drawn.
FRAMES = """(async () => {
  const times = [];
  for (let turn = 0; turn < %d; turn++) {
    const start = performance.now();
    %s;
    await new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));
    times.push(performance.now() - start);
  }
  return times;
})()"""
MOVE = """((canvas, box) => canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.x + 100 + 8 * turn, clientY: box.y + box.height * (0.4 + 0.01 * turn)})))
  (document.getElementById('timeline-canvas'), document.getElementById('timeline-canvas').getBoundingClientRect())"""
ACTIONS = [
    ("timeline", "timeline: point at a block", MOVE),
    ("timeline", "timeline: zoom in and out", "zoom(turn < 15 ? 0.7 : 1 / 0.7)"),
    ("timeline", "timeline: all events, drawn anew", "showAll()"),
    ("timeline", "timeline: select a moment", "setMoment(page.model.n * (turn + 1) / 40)"),
    ("map", "map: select a moment", "setMoment(page.model.n * (turn + 1) / 40)"),
    ("map", "map: scroll", "document.getElementById('map-scroll').scrollTop += 40"),
    ("stacks", "stacks: select a moment", "setMoment(page.model.n * (turn + 1) / 40)"),
    ("blocks", "blocks: scroll", "document.getElementById('blocks-scroll').scrollTop += 100"),
    ("events", "events: drag the scroll bar",
     "(scroll => { scroll.scrollTop = scroll.scrollHeight * turn / 30; })(document.getElementById('events-scroll'))"),
    ("events", "events: turn the wheel",
     "document.getElementById('events-scroll').dispatchEvent(new WheelEvent('wheel', {deltaY: 100, cancelable: true}))"),
]
TURNS = 30
ONCE = [
    ("events", "events: the first search", "page.search = new Search('attention stream'); page.changed('search')"),
    ("events", "events: only segments", "(select => { select.value = 'segment'; select.onchange(); })(document.getElementById('events-actions'))"),
    ("timeline", "timeline: layers by stack", "(select => { select.value = 'stack'; select.onchange(); })(document.getElementById('layers'))"),
]


def page_process(group):
    """Returns the process of a browser's group that uses the most memory: that of the page."""
    def resident(pid):
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])

    pids = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(path.name)) == group and "--type=renderer" in (path / "cmdline").read_text():
                pids.append(int(path.name))
        except (ProcessLookupError, FileNotFoundError, PermissionError):
            continue
    return max(pids, key=resident)


def memory(pid):
    """Returns the resident memory of a process in MiB: now, and at most."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return [int(fields[key].split()[0]) >> 10 for key in ("VmRSS", "VmHWM")]


def processor_time(pid):
    """Returns the processor time of a process in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(path, screenshots):
    size = path.stat().st_size
    start = time.monotonic()
    with open_page(path, width=1280, height=800, timeout=600) as page:
        loaded = time.monotonic() - start
        page.frame()
        events = int(page.run("document.body.dataset.events"))
        pid = page_process(page.process.pid)
        used, (now, most) = processor_time(pid), memory(pid)
        print(f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
              f"{page.call('Browser.getVersion')['product']}")
        print(f"file: {size / 1e6:.0f} MB, {events:,} events, {size / events:.1f} bytes an event")
        print(f"load: {loaded:.1f} s, from the start of the browser to the first picture of the timeline; {used:.1f} s of processor time")
        print(f"memory: {now} MiB after loading, {most} MiB at most")
        for view, name, action in ACTIONS:
            page.run(f"showView('{view}')")
            page.frame()
            before = processor_time(pid)
            times = page.run(FRAMES % (TURNS, action))
            used = 1000 * (processor_time(pid) - before) / TURNS
            print(f"{name}: median {statistics.median(times):.0f} ms, longest {max(times):.0f} ms; {used:.0f} ms of processor time")
            if screenshots:
                page.screenshot(screenshots / f"large-{view}.png")
        for view, name, action in ONCE:
            page.run(f"showView('{view}')")
            page.frame()
            before = processor_time(pid)
            print(f"{name}: {page.run(FRAMES % (1, action))[0]:.0f} ms, once; {1000 * (processor_time(pid) - before):.0f} ms of processor time")
        page.check()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--screenshots", type=pathlib.Path, help="folder for screenshots")
    arguments = parser.parse_args()
    if browser.find() is None:
        print("skipped: no Chromium")
        return 77
    try:
        measure(arguments.page, arguments.screenshots)
    except browser.Failure as failure:
        print(f"large.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
