"""Draws times over message sizes as SVG: a panel for each operation, a line for each library. Standard library only."""

import math
import pathlib

WIDTH, HEIGHT, MARGIN, RIGHT = 400, 260, 56, 16
LEGEND_ROW = 13


def size_text(size):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {unit}"
    return f"{size} B"


class Panel:
    """The lines of one operation, {size: {name: microseconds}}, in a corner of the picture."""

    def __init__(self, title, rows, left, top, height):
        self.title, self.rows, self.left, self.top, self.height = title, rows, left, top, height
        self.sizes = sorted(rows)
        values = [value for row in rows.values() for value in row.values()]
        self.low, self.high = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05

    def place(self, size, value):
        first, last = math.log2(self.sizes[0]), math.log2(self.sizes[-1])
        across = (math.log2(size) - first) / max(1, last - first)
        up = (math.log10(value) - self.low) / (self.high - self.low)
        x = self.left + MARGIN + across * (WIDTH - MARGIN - RIGHT)
        return x, self.top + self.height - 34 - up * (HEIGHT - 64)

    def axes(self):
        yield f'<text x="{self.left + MARGIN}" y="{self.top + 16}" font-size="13">{self.title}</text>'
        ticks = [digit * 10**power for power in range(-1, 6) for digit in (1, 2, 5)]
        for value in (tick for tick in ticks if self.low <= math.log10(tick) <= self.high):
            x, y = self.place(self.sizes[0], value)
            yield f'<line x1="{x}" y1="{y:.1f}" x2="{self.left + WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
            yield f'<text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g} us</text>'
        for size in self.sizes[:: max(1, len(self.sizes) // 4)]:
            x, _ = self.place(size, 10**self.low)
            yield f'<text x="{x:.1f}" y="{self.top + self.height - 18}" text-anchor="middle">{size_text(size)}</text>'

    def lines(self, colours):
        """Draws the first names last, so that no other line hides theirs."""
        drawn = [name for name in colours if any(name in row for row in self.rows.values())]
        for number, name in reversed(list(enumerate(drawn))):
            places = [self.place(size, self.rows[size][name]) for size in self.sizes if name in self.rows[size]]
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            yield f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="2"/>'
            yield (f'<text x="{self.left + WIDTH - 20}" y="{self.top + 16 + LEGEND_ROW * number}" text-anchor="end" '
                   f'fill="{colours[name]}">{name}</text>')


def draw(operations, colours, path):
    """Draws {operation: {size: {name: microseconds}}}, two panels in a row, on logarithmic axes, with the colour of each name.
    """
    height = HEIGHT + LEGEND_ROW * max(0, len(colours) - 1)
    rows = -(-len(operations) // 2)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * 2} {height * rows}" '
             'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>']
    for index, (operation, table) in enumerate(operations.items()):
        panel = Panel(operation, table, index % 2 * WIDTH, index // 2 * height, height)
        lines += [*panel.axes(), *panel.lines(colours)]
    pathlib.Path(path).write_text("\n".join([*lines, "</svg>"]) + "\n", encoding="utf-8")
