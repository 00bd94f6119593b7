#!/usr/bin/env python3
# Tests the page of a snapshot. SPDX-License-Identifier: MIT OR Apache-2.0
"""Opens a page that plinth wrote in a headless Chromium, and operates every view.

  page.py snapshot.html snapshot.pickle [--screenshots FOLDER]

The page must show the content of the pickle of the same moment. An error or warning on the console, an exception, or a
request to anything but the file itself is a failure.
"""

import argparse
import pathlib
import pickle
import sys

import browser


def expect(condition, message):
    if not condition:
        raise browser.Failure(message)


def totals(snapshot, device):
    """Computes the totals that the page shows for a device, from the pickle."""
    segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
    blocks = [block for segment in segments for block in segment["blocks"] if block["state"] != "inactive"]
    # Another snapshot was taken between the page and the pickle, so entries of snapshots may differ.
    trace = [entry for entry in snapshot["device_traces"][device] if entry["action"] != "snapshot"]
    return {
        "segments": len(segments), "blocks": len(blocks), "inUse": sum(block["size"] for block in blocks),
        "held": sum(segment["total_size"] - segment["asleep_size"] for segment in segments),
        "events": len(trace), "ooms": sum(entry["action"] == "oom" for entry in trace),
    }


def active_over_time(trace, end):
    """Returns the bytes in use after each entry. The bytes in use before the history follow from those at its end."""
    def rounded(size):
        return -(-size // 512) * 512

    changes = [0]
    for entry in trace:
        sign = {"alloc": 1, "free_completed": -1}.get(entry["action"], 0)
        changes.append(changes[-1] + sign * rounded(entry["size"]))
    return [change + end - changes[-1] for change in changes]


class PageTest:
    """Operates the page and checks what it shows."""

    def __init__(self, page, snapshot, screenshots):
        self.page, self.snapshot, self.screenshots = page, snapshot, screenshots

    def screenshot(self, name):
        if self.screenshots:
            self.page.frame()
            self.page.screenshot(self.screenshots / f"{name}.png")

    def data(self):
        return self.page.run("({...document.body.dataset})")

    def show(self, view):
        self.page.run(f"document.getElementById('tab-{view}').click()")
        self.page.frame()
        shown = self.page.run("[...document.querySelectorAll('section.view:not([hidden])')].map(section => section.id)")
        expect(shown == [view], f"the tab {view} shows {shown}")

    def point(self, selector, across, down):
        """Returns a point of an element, from fractions of its width and height."""
        box = self.page.run(f"(({{x, y, width, height}}) => [x, y, width, height])"
                            f"(document.querySelector('{selector}').getBoundingClientRect())")
        return box[0] + across * box[2], box[1] + down * box[3]

    def details(self):
        return self.page.run("document.getElementById('details').innerText")

    def text(self, id):
        return self.page.run(f"document.getElementById('{id}').textContent")

    def check_totals(self, device):
        data, expected = self.data(), totals(self.snapshot, device)
        for key, value in expected.items():
            shown = int(data[key])
            if key == "events":
                snapshots = len(self.snapshot["device_traces"][device]) - value
                expect(value <= shown <= value + snapshots + 3, f"the page shows {shown} events, the pickle has {value}")
            else:
                expect(shown == value, f"{key}: the page shows {shown}, the pickle has {value}")
        trace = [entry for entry in self.snapshot["device_traces"][device] if entry["action"] != "snapshot"]
        peak = max(active_over_time(trace, expected["inUse"]))
        expect(int(data["peak"]) == peak, f"the peak is {data['peak']} on the page, {peak} in the pickle")

    def timeline(self):
        self.show("timeline")
        expect(int(self.page.run("document.getElementById('timeline-canvas').dataset.columns")) > 300, "no columns")
        colours = self.page.run("""(() => {
            const canvas = document.getElementById('timeline-canvas');
            const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(data.buffer)).size;
        })()""")
        expect(colours > 8, f"the timeline has {colours} colours")
        self.screenshot("timeline")
        # Point at the block at the bottom, and click on it.
        x, y = self.point("#timeline-canvas", 0.5, 0.92)
        self.page.mouse("mouseMoved", x, y)
        self.page.frame()
        expect("in use" in self.text("readout"), f"the lines below the chart show {self.text('readout')!r}")
        self.page.click(x, y)
        expect("Block" in self.details() or "Nothing" in self.details(), self.details())
        # Zoom with the wheel, move by dragging, reset with the button.
        width = "timeline.to - timeline.from"
        whole = self.page.run(width)
        self.page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-400)
        self.page.frame()
        expect(self.page.run(width) < whole, "the wheel does not zoom")
        before = self.page.run("timeline.from")
        self.page.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.page.mouse("mouseMoved", x - 120, y, button="left", buttons=1)
        self.page.mouse("mouseReleased", x - 120, y, button="left", clickCount=1)
        self.page.frame()
        expect(self.page.run("timeline.from") > before, "dragging does not move")
        self.page.run("document.getElementById('zoom-all').click()")
        self.page.frame()
        expect(self.page.run(width) == whole, "All does not show all")
        for layers in ("stack", "stream", "pool", "thread", "tag", "name", "block"):
            self.choose("layers", layers)
        self.choose("axis", "time")
        self.choose("axis", "event")

    def choose(self, id, value):
        self.page.run(f"(select => {{ select.value = '{value}'; select.dispatchEvent(new Event('change')); }})"
                      f"(document.getElementById('{id}'))")
        self.page.frame()

    def moments(self):
        """Tests the tables at the peak, at out of memory and at the end."""
        self.show("blocks")
        self.page.run("document.getElementById('to-peak').click()")
        self.page.frame()
        title = self.text("blocks-title")
        expect("event" in title, title)
        at_peak = self.page.run("page.model.active[page.moment]")
        expect(at_peak == int(self.data()["peak"]), "the moment of the peak is wrong")
        rows = self.page.run("document.getElementById('blocks').table.rows.length")
        expect(rows == self.page.run("page.model.live[page.moment]"), f"{rows} blocks are listed at the peak")
        if int(self.data()["ooms"]) > 0:
            self.page.key("o")
            expect("Out of memory" in self.details() and "requested" in self.details(), self.details())
            self.screenshot("oom")
        self.page.key("End")
        expect(self.page.run("page.moment === page.model.n"), "End is not the end")

    def map(self):
        self.show("map")
        expect("segments" in self.text("map-scale"), self.text("map-scale"))
        expect(self.page.run("map.segments.length") == int(self.data()["segments"]), "the map lacks segments")
        self.screenshot("map")
        x, y = self.point("#map-canvas", 0.02, 0)
        self.page.click(x, y + 4 + 20 + 7)
        expect("address" in self.details(), self.details())
        self.choose("map-colours", "stack")
        for button in ("map-closer", "map-further"):
            self.page.run(f"document.getElementById('{button}').click()")
            self.page.frame()
        # At an earlier moment, the map must show the memory that was held and in use then.
        if int(self.data()["events"]) > 10:
            self.page.run("setMoment(page.model.peak)")
            self.page.frame()
            expect(self.page.run("map.segments.reduce((sum, segment) => sum + segment.size, 0) === page.model.held[page.moment]"),
                   "the map at the peak does not show the memory held then")
            expect(self.page.run("map.segments.flatMap(segment => segment.blocks).filter(block => block.state !== 0)"
                                 ".reduce((sum, block) => sum + block.size, 0) === page.model.active[page.moment]"),
                   "the map at the peak does not show the memory in use then")
            self.page.run("setMoment(page.model.n)")

    def stacks(self):
        self.show("stacks")
        rows = "document.getElementById('stacks').table.rows"
        sums = self.page.run(f"{rows}.map(row => [row.bytes, row.count])")
        expect(sum(size for size, _ in sums) == int(self.data()["inUse"]), "the stacks do not account for all memory in use")
        expect([size for size, _ in sums] == sorted((size for size, _ in sums), reverse=True), "stacks are not sorted")
        self.page.run("document.getElementById('stacks-scroll').focus()")
        self.page.key("ArrowDown", number=40)
        expect("Stack" in self.details(), self.details())
        self.screenshot("stacks")
        self.page.run("document.querySelectorAll('#stacks .head button')[2].click()")
        self.page.frame()
        counts = self.page.run(f"{rows}.map(row => row.count)")
        expect(counts == sorted(counts, reverse=True), "a click on Blocks does not sort by them")

    def search(self, word):
        self.show("stacks")
        before = self.page.run("document.getElementById('stacks').table.rows.length")
        self.type(word)
        self.page.wait_for("document.getElementById('stacks-title').textContent.includes('found')")
        found = self.page.run("document.getElementById('stacks').table.rows.length")
        expect(0 < found < before, f"{word!r} finds {found} of {before} stacks")
        self.type("")
        self.page.wait_for("!document.getElementById('stacks-title').textContent.includes('found')")

    def type(self, text):
        self.page.run(f"(input => {{ input.value = {text!r}; input.dispatchEvent(new Event('input')); }})"
                      "(document.getElementById('search'))")

    def events(self):
        self.show("events")
        count = int(self.data()["events"])
        expect(self.text("events-count").startswith(f"{count:,} of "), self.text("events-count"))
        lines = self.page.run("document.querySelectorAll('#events-scroll [data-event]').length")
        expect(0 < lines < 100, f"the page contains {lines} lines")
        self.screenshot("events")
        self.page.run("document.getElementById('events-scroll').scrollTop = 0")
        self.page.frame()
        expect(self.page.run("document.querySelector('#events-scroll [data-event]').dataset.event") == "0", "the first line is not 0")
        self.page.run("document.querySelector('#events-scroll [data-event]').click()")
        expect(self.page.run("page.moment") == 0, "a click on an event does not select its moment")
        self.choose("events-actions", "oom")
        expect(self.text("events-count").startswith(f"{self.data()['ooms']} of "), self.text("events-count"))
        self.choose("events-actions", "")

    def keyboard(self):
        """Tests the keyboard: arrow keys between tabs, and zoom."""
        self.show("timeline")
        self.page.run("document.getElementById('tab-timeline').focus()")
        self.page.key("ArrowRight", number=39)
        expect(self.page.run("document.activeElement.id") == "tab-map", "the arrow key does not select the next tab")
        self.page.key("ArrowLeft", number=37)
        self.page.run("document.getElementById('timeline-canvas').focus()")
        whole = self.page.run("timeline.to - timeline.from")
        self.page.key("+")
        expect(self.page.run("timeline.to - timeline.from") < whole, "plus does not zoom")
        self.page.key("0")
        expect(self.page.run("timeline.to - timeline.from") == whole, "0 does not show all")


def test_page(path, snapshot, screenshots=None, search=None, dark=False):
    with browser.Browser(dark=dark) as page:
        page.open(path)
        page.wait_for("document.body.dataset.ready === 'true' || document.body.dataset.problem")
        test = PageTest(page, snapshot, screenshots)
        expect("problem" not in test.data(), test.data().get("problem"))
        for device in range(len(snapshot["device_traces"])):
            test.choose("device", str(device))
            test.check_totals(device)
        test.choose("device", "0")
        test.timeline()
        test.moments()
        test.map()
        test.stacks()
        if search:
            test.search(search)
        test.events()
        test.keyboard()
        page.check()
        others = [url for url in page.requests if not url.startswith(("file:", "about:", "data:"))]
        expect(not others, f"the page requests {others}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("pickle", type=pathlib.Path)
    parser.add_argument("--screenshots", type=pathlib.Path, help="folder for screenshots")
    parser.add_argument("--search", help="a word that some but not all stacks contain")
    parser.add_argument("--dark", action="store_true")
    arguments = parser.parse_args()
    if browser.find() is None:
        print("skipped: no Chromium")
        return 77
    try:
        test_page(arguments.page, pickle.loads(arguments.pickle.read_bytes()), arguments.screenshots, arguments.search, arguments.dark)
    except browser.Failure as failure:
        print(f"page.py: {failure}", file=sys.stderr)
        return 1
    print(f"{arguments.page}: every view agrees with the pickle, without errors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
