#!/usr/bin/env python3
# Tests the use of the page of a snapshot. SPDX-License-Identifier: MIT OR Apache-2.0
"""Opens pages that plinth wrote in a headless Chromium, and tests what a person needs to use them.

  page_use.py training.html engine.html large.html [--screenshots FOLDER]

Small windows, the keyboard alone, colours that differ for colour-blind people, user functions first, names of streams and
blocks, and lists of any length. training.c, engine.cpp and large.c write the pages.
"""

import argparse
import itertools
import pathlib
import sys

import browser
from page import PageTest, expect

SIZES = ((800, 600), (1280, 800), (1920, 1080), (600, 900))
VIEWS = ("timeline", "map", "stacks", "blocks", "events")
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
        "ArrowRight": 39, "ArrowDown": 40}


def open_page(path, timeout=180.0, **options):
    page = browser.Browser(timeout=timeout, **options)
    page.open(path)
    page.wait_for("document.body.dataset.ready === 'true' || document.body.dataset.problem")
    expect(not page.run("document.body.dataset.problem"), page.run("document.body.dataset.problem"))
    return page


class UseTest(PageTest):
    """Operates a page as a person does."""

    def press(self, *keys):
        for key in keys:
            self.page.key(key, number=KEYS.get(key, 0))

    def focused(self):
        return self.page.run("document.activeElement.id")

    def focus(self, id):
        self.page.run(f"document.getElementById('{id}').focus()")

    def rows(self, view):
        return self.page.run(f"[...document.querySelectorAll('#{view}-scroll .line')].map(line => line.textContent)")

    # ---- windows of all sizes

    def layout(self, size):
        """Nothing overlaps or leaves the window, and nothing covers the chart while the pointer is on it."""
        for view in VIEWS:
            self.show(view)
            for details in (False, True):
                self.page.run(f"openDetails({str(details).lower()})")
                self.page.frame()
                where = f"{view} at {size[0]}x{size[1]}{', with details' if details else ''}"
                boxes = self.page.run(f"""[...document.querySelectorAll('header, nav, section:not([hidden]) > *, #readout, aside')]
                    .filter(one => one.offsetParent).map(one => [one.id || one.className || one.tagName, one.getBoundingClientRect()])
                    .map(([name, {{left, top, right, bottom}}]) => [name, left, top, right, bottom])""")
                for name, left, top, right, bottom in boxes:
                    expect(0 <= left < right <= size[0] + 0.5 and 0 <= top < bottom <= size[1] + 0.5,
                           f"{where}: {name} is at {left, top, right, bottom}")
                for one, other in itertools.combinations(boxes, 2):
                    across = min(one[3], other[3]) - max(one[1], other[1])
                    down = min(one[4], other[4]) - max(one[2], other[2])
                    expect(across <= 0.5 or down <= 0.5, f"{where}: {one[0]} and {other[0]} overlap")
                if view in ("timeline", "map"):
                    self.uncovered(f"#{view}-canvas" if view == "timeline" else "#map-scroll", where, size)

    def uncovered(self, selector, where, size):
        x, y = self.point(selector, 0.5, 0.5)
        self.page.mouse("mouseMoved", x, y)
        self.page.frame()
        expect(len(self.text("readout")) > 20, f"{where}: nothing describes what is under the pointer")
        height, covered = self.page.run(f"""(() => {{
            const chart = document.querySelector('{selector}'), box = chart.getBoundingClientRect(), at = [0.02, 0.2, 0.4, 0.6, 0.8, 0.98];
            return [box.height, at.flatMap(x => at.map(y => document.elementFromPoint(box.x + x * box.width, box.y + y * box.height)))
              .filter(found => !chart.contains(found)).map(found => found?.outerHTML.slice(0, 60))];
        }})()""")
        expect(not covered, f"{where}: the chart is covered by {covered}")
        expect(height >= 0.3 * size[1], f"{where}: the chart is {height} high")

    # ---- the keyboard

    def tab_order(self):
        self.show("timeline")
        self.page.run("openDetails(true)")
        self.page.run("document.activeElement.blur()")
        expected = ["device", "tab-timeline", "search", "to-peak", "to-end", "to-oom", "to-keys", "to-details", "layers", "axis",
                    "zoom-in", "zoom-out", "zoom-all", "timeline-canvas", "details", "close-details"]
        order = []
        for _ in expected:
            self.press("Tab")
            order.append(self.focused())
            outline = self.page.run("(style => [style.outlineStyle, parseFloat(style.outlineWidth)])(getComputedStyle(document.activeElement))")
            expect(outline[0] != "none" and outline[1] >= 2, f"{order[-1]} does not show the focus: {outline}")
        expect(order == expected, f"Tab visits {order}")

    def timeline_keys(self):
        self.show("timeline")
        self.focus("timeline-canvas")
        self.press("0", "p")
        peak = self.page.run("page.moment")
        self.press("ArrowLeft")
        expect(self.page.run("page.moment") < peak, "the left arrow does not select an earlier moment")
        before = self.page.run("page.moment")
        self.page.run("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', shiftKey: true, bubbles: true}))")
        expect(self.page.run("page.moment") == before + 1, "Shift and the right arrow do not select the next event")
        self.press("ArrowUp")
        first = self.page.run("page.selected")
        expect(first is not None and "address" in self.details(), "the up arrow does not select a block")
        expect("in stream" in self.text("readout"), f"the block is not described: {self.text('readout')!r}")
        self.press("ArrowUp")
        expect(self.page.run("page.selected") != first, "the up arrow does not select the next block")
        self.press("ArrowDown")
        expect(self.page.run("page.selected") == first, "the down arrow does not select the block before")
        self.press("Escape")
        expect(self.page.run("page.selected") is None and self.focused() == "timeline-canvas", "Escape does not end the selection")

    def map_keys(self):
        self.show("map")
        self.focus("map-scroll")
        address = "map.cursor && map.cursor.block.address"
        self.press("ArrowRight")
        first = self.page.run(address)
        self.press("ArrowRight")
        second = self.page.run(address)
        expect(first is not None and second > first, f"the right arrow moves from {first} to {second}")
        self.press("ArrowLeft")
        expect(self.page.run(address) == first, "the left arrow does not move back")
        for _ in range(8):
            self.press("ArrowDown")
        expect(self.page.run(address) > second, "the down arrow does not move to another row")
        expect("address" in self.details(), self.details())
        expect(self.page.run("""(() => {
            const scroll = document.getElementById('map-scroll'), {segment, block} = map.cursor;
            const row = map.rows.find(row => row.segment === segment && !row.title && segment.address + row.from + row.bytes > block.address);
            return row.y >= scroll.scrollTop && row.y + ROW <= scroll.scrollTop + scroll.clientHeight;
        })()"""), "the block is outside of the visible part of the map")
        self.press("Escape")
        expect(self.page.run(address) is None, "Escape does not end the selection")

    def list_keys(self, view):
        self.show(view)
        list_of = f"document.getElementById('{view}-scroll').list"
        self.focus(f"{view}-scroll")
        self.press("Home")
        current = f"{list_of}.current"
        expect(self.page.run(current) == 0, f"{view}: Home does not move to the first row")
        self.press("ArrowDown")
        expect(self.page.run(current) == 1, f"{view}: the down arrow does not move to the next row")
        self.press("PageDown")
        expect(self.page.run(current) > 3, f"{view}: Page Down moves to row {self.page.run(current)}")
        self.press("End")
        last = self.page.run(f"{list_of}.count") - 1
        expect(self.page.run(current) == last, f"{view}: End does not move to the last row")
        expect(self.page.run(f"document.getElementById('{view}-scroll').getAttribute('aria-activedescendant')") == f"{view}-scroll-{last}",
               f"{view}: the current row is not announced")
        inside = self.page.run(f"""(() => {{
            const line = document.getElementById('{view}-scroll-{last}').getBoundingClientRect();
            const box = document.getElementById('{view}-scroll').getBoundingClientRect();
            return line.top >= box.top && line.bottom <= box.bottom + 1;
        }})()""")
        expect(inside, f"{view}: the last row is not visible")
        expect("Nothing" not in self.details(), f"{view}: a row is not selected with its details")

    def other_keys(self):
        self.show("timeline")
        self.focus("timeline-canvas")
        self.press("?")
        expect(self.page.run("document.getElementById('keys').open"), "? does not list the keys")
        self.screenshot("keys")
        self.press("Escape")
        expect(not self.page.run("document.getElementById('keys').open"), "Escape does not close the list of keys")
        self.press("/")
        expect(self.focused() == "search", "/ does not move to the search")
        self.type("main")
        self.page.wait_for("!page.search.isEmpty")
        self.press("Escape")
        expect(self.page.run("page.search.isEmpty") and self.focused() == "timeline-canvas", "Escape does not end the search")
        hidden = self.page.run("document.getElementById('details').hidden")
        self.press("d")
        expect(self.page.run("document.getElementById('details').hidden") != hidden, "d does not show or hide the details")

    # ---- colours

    def colours(self):
        """Colours differ by sight of every kind, styles by colour or pattern, and states by both."""
        palette = self.page.run("[...PALETTE, NEUTRAL]")
        expect(least_difference(["#b04030", "#5a7a20"]) < DIFFERENCE, "the test accepts a red and a green")
        for one, other in itertools.combinations(palette, 2):
            expect(least_difference([one, other]) >= DIFFERENCE, f"{one} and {other} differ by {least_difference([one, other]):.1f}")
        tiles = self.page.run("Array.from({length: STYLES + 1}, (_, style) => TILES.slice(style * 64, style * 64 + 64).join())")
        expect(len(set(tiles)) == len(tiles) > 50, f"{len(set(tiles))} of {len(tiles)} styles differ")
        states = self.page.run("STATE_STYLES.map(style => [styleParts(style).colour, styleParts(style).pattern])")
        expect(states[1][1] != states[2][1] and len({colour for colour, _ in states}) == 3, f"states: {states}")
        expect("▼" in self.text("timeline-legend"), "the mark of out-of-memory errors is not named")
        self.choose("layers", "stack")
        names = self.page.run("timeline.layers.names")
        legend = self.text("timeline-legend")
        expect(all(name in legend for name in names) and len(names) > 3, f"the legend lacks layers: {legend}")
        shown = self.page.run("document.querySelectorAll('#timeline-legend .swatch').length")
        expect(shown == len(names), f"{shown} of {len(names)} layers have a swatch")
        self.choose("layers", "block")

    # ---- names and functions

    def program(self):
        """The page of engine.cpp begins each stack with the program's functions, and shows its names."""
        for name, short in (("main", "main"), ("(anonymous namespace)::train(int)", "(anonymous namespace)::train"), ("", "?"),
                            ("void engine::Layer<int, f(int)>::run<float>(int) const", "engine::Layer<int, f(int)>::run<float>"),
                            ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()"),
                            ("operator new(unsigned long)", "operator new")):
            shown = self.page.run(f"shortName({name!r})")
            expect(shown == short, f"{name!r} is shown as {shown!r}")
        self.show("stacks")
        labels = self.page.run("document.getElementById('stacks').table.rows.map(row => stackLabel(row.stack))")
        expect(sorted(label.split(" ")[0] for label in labels) == ["engine::fill_cache", "engine::load_weights"], f"stacks: {labels}")
        self.show("events")
        lines = self.rows("events")
        for line in lines:
            expect("plinth::" not in line and "std::" not in line, f"a function of a library is shown first: {line}")
        for name, stream in (("weights", "default"), ("scratch", "copies")):
            expect(any(f'"{name}"' in line and stream in line and "alloc" in line for line in lines), f"no event names {name}: {lines}")
        self.page.run("[...document.querySelectorAll('#events-scroll .line')].find(line => line.textContent.includes('\"weights\"')).click()")
        self.page.frame()
        details = self.details()
        expect("weights" in details and "engine::load_weights" in details and "plinth::" not in details, details)
        self.page.run("document.querySelector('#details-content button').click()")
        self.page.frame()
        expect("plinth::" in self.details() and "std::" in self.details(), f"the whole stack is not shown: {self.details()}")
        self.page.run("document.getElementById('to-end').click()")
        self.show("blocks")
        expect(any("weights" in row for row in self.rows("blocks")) and any("copies" in row for row in self.rows("blocks")), self.rows("blocks"))
        self.type("weights")
        self.page.wait_for("!page.search.isEmpty")
        expect(len(self.rows("blocks")) == 1, f"the search for a name finds {self.rows('blocks')}")
        self.type("")
        self.page.wait_for("page.search.isEmpty")
        self.show("timeline")
        for layers, name in (("stream", "copies"), ("name", "weights")):
            self.choose("layers", layers)
            expect(name in self.text("timeline-legend"), f"layers by {layers}: {self.text('timeline-legend')}")
        self.choose("layers", "block")
        self.show("map")
        expect(self.page.run("map.segments.some(segment => segmentName(segment).includes('copies'))"), "the map does not name the stream")

    # ---- many events

    def large(self):
        """Lists contain only visible rows; the wheel passes over no line, and every line can be reached."""
        count = int(self.data()["events"])
        expect(count * self.page.run("LINE") > self.page.run("MAX_HEIGHT"), f"{count} events are too few for this test")
        lists = {"events": count, "blocks": int(self.data()["blocks"])}
        for view, expected in lists.items():
            self.show(view)
            expect(self.page.run(f"document.getElementById('{view}-scroll').list.count") == expected, f"{view} lacks rows")
            lines = len(self.rows(view))
            expect(0 < lines < 100, f"{view}: the page contains {lines} lines")
            self.list_keys(view)
        self.show("events")
        self.focus("events-scroll")
        self.press("Home")
        x, y = self.point("#events-scroll", 0.5, 0.5)
        top = "Number(document.querySelector('#events-scroll .line').dataset.event)"
        for turn in range(3):
            before, lines = self.page.run(top), len(self.rows("events"))
            self.page.mouse("mouseWheel", x, y, deltaX=0, deltaY=100)
            self.page.wait_for(f"{top} > {before}")
            self.page.frame()
            expect(self.page.run(top) < before + lines, f"turn {turn} of the wheel moves from line {before} to {self.page.run(top)}")
        self.page.run("(scroll => { scroll.scrollTop = scroll.scrollHeight; })(document.getElementById('events-scroll'))")
        self.page.frame()
        last = self.page.run("Number([...document.querySelectorAll('#events-scroll .line')].at(-1).dataset.event)")
        expect(last == count - 1, f"the end of the list is event {last} of {count}")
        self.screenshot("large-events")
        self.live_blocks()

    def live_blocks(self):
        """The live blocks found by the index are those found without it; likewise the busiest moments."""
        wrong = self.page.run("""(() => {
            const {model} = page, {born, gone, count} = model.blocks, wrong = [];
            for (let part = 0; part <= 20; part++) {
                const moment = Math.floor(model.n * part / 20), ids = [];
                for (let id = 0; id < count; id++) if (born[id] < moment && gone[id] >= moment) ids.push(id);
                if (String(ids) !== String(liveAt(model, moment))) wrong.push(moment);
                const from = Math.max(0, moment - 5000);
                let most = 0;
                for (let m = from; m <= moment; m++) most = Math.max(most, model.active[m]);
                if (model.active[busiest(model, from, moment)] !== most) wrong.push(-moment);
            }
            return wrong;
        })()""")
        expect(not wrong, f"wrong blocks at the moments {wrong}")


# The least accepted difference of two colours (CIE 1976), for sight of every kind. 2 is just noticeable.
DIFFERENCE = 15
# Machado, Oliveira and Fernandes 2009, severity 1: linear RGB as protanopes, deuteranopes and tritanopes see it.
SIGHT = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))


def multiply(matrix, vector):
    return [sum(factor * value for factor, value in zip(row, vector)) for row in matrix]


def to_lab(colour, sight):
    channels = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    xyz = multiply(TO_XYZ, [min(1, max(0, value)) for value in multiply(SIGHT[sight], linear)])
    x, y, z = (value / white for value, white in zip(xyz, (0.95047, 1, 1.08883)))
    fx, fy, fz = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def least_difference(pair):
    """Returns the difference of two colours for those who see the least of it."""
    return min(sum((a - b) ** 2 for a, b in zip(*(to_lab(colour, sight) for colour in pair))) ** 0.5 for sight in SIGHT)


def test_use(training, engine, large, screenshots=None):
    for size in SIZES:
        with open_page(training, width=size[0], height=size[1]) as page:
            test = UseTest(page, None, screenshots)
            test.layout(size)
            page.check()
    with open_page(training, width=1280, height=800) as page:
        test = UseTest(page, None, screenshots)
        test.tab_order()
        test.timeline_keys()
        test.map_keys()
        for view in ("stacks", "blocks", "events"):
            test.list_keys(view)
        test.other_keys()
        test.colours()
        page.check()
    with open_page(engine, width=1280, height=800) as page:
        UseTest(page, None, screenshots).program()
        page.check()
    with open_page(large, width=1280, height=800) as page:
        UseTest(page, None, screenshots).large()
        page.check()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("training", "engine", "large"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--screenshots", type=pathlib.Path, help="folder for screenshots")
    arguments = parser.parse_args()
    if browser.find() is None:
        print("skipped: no Chromium")
        return 77
    try:
        test_use(arguments.training, arguments.engine, arguments.large, arguments.screenshots)
    except browser.Failure as failure:
        print(f"page_use.py: {failure}", file=sys.stderr)
        return 1
    print("windows, keyboard, colours, functions, names and long lists: as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
