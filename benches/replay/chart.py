"""Draws live and held memory of a replay as SVG: a chart for each trace, a line for each allocator. Standard library only."""
import html
import math

WIDTH, HEIGHT = 960, 470
LEFT, RIGHT, TOP, BOTTOM = 74, 20, 44, 54
LEGEND_ROW = 20
LEGEND_COLUMNS = 3
# Colours of medium lightness are readable on white and on black. Dashes distinguish the lines, too.
COLOURS = ["#0a84c6", "#d9662b", "#2c9c69", "#b8609a", "#a8891c", "#7a74d8", "#c44e52", "#5c8a8a"]
DASHES = ["", "7 3", "2 3", "9 3 2 3", "5 5", "12 4", "3 2", "8 2 2 2"]
GREY = "#808080"


class Series:
    """Points (event, bytes) with increasing events; a value holds from its event to the next."""

    def __init__(self, name, points):
        self.name = name
        self.points = points

    @property
    def peak(self):
        return max((value for _, value in self.points), default=0)


def nice_step(largest, ticks):
    """Returns a round step that divides `largest` into about `ticks` parts."""
    rough = largest / ticks
    power = 10 ** math.floor(math.log10(rough)) if rough > 0 else 1
    for factor in (1, 2, 2.5, 5, 10):
        if factor * power >= rough:
            return factor * power
    return 10 * power


def unit_of(largest):
    for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if largest >= size:
            return name, size
    return "bytes", 1


def thin(points, columns):
    """Keeps the first, smallest, largest and last point of each pixel column, which looks the same in a smaller file."""
    if not points:
        return []
    last_event = max(points[-1][0], 1)
    kept, bucket, current = [], [], 0
    for index, (event, value) in enumerate(points):
        column = event * columns // last_event
        if column != current and bucket:
            kept += bucket_edges(bucket)
            bucket = []
        current = column
        bucket.append((index, event, value))
    kept += bucket_edges(bucket)
    return [(event, value) for _, event, value in kept]


def bucket_edges(bucket):
    least = min(bucket, key=lambda point: point[2])
    most = max(bucket, key=lambda point: point[2])
    return sorted({bucket[0], least, most, bucket[-1]})


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Chart:
    def __init__(self, title, live, held, events, limit=0, axis="allocations and frees"):
        self.title, self.live, self.held, self.limit, self.axis = title, live, held, limit, axis
        self.events = max(events, 1)
        two_passes = any(series.points and series.points[-1][0] > events for series in held)
        self.last = self.events * (2 if two_passes else 1)
        self.rows = math.ceil((len(held) + 1) / LEGEND_COLUMNS)
        self.top = TOP + self.rows * LEGEND_ROW
        largest = max([live.peak, limit, 1] + [series.peak for series in held])
        self.unit, self.scale = unit_of(largest)
        self.step = nice_step(largest / self.scale, 6)
        self.highest = math.ceil(largest / self.scale / self.step) * self.step * self.scale
        self.parts = []

    def x(self, event):
        return LEFT + (WIDTH - LEFT - RIGHT) * event / self.last

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - self.top) * value / self.highest

    def add(self, tag, text=None, **attributes):
        written = " ".join(f'{key.replace("_", "-")}="{html.escape(str(value))}"' for key, value in attributes.items())
        self.parts.append(f"<{tag} {written}/>" if text is None else f"<{tag} {written}>{html.escape(text)}</{tag}>")

    def line(self, x1, y1, x2, y2, **attributes):
        self.add("line", x1=number(x1), y1=number(y1), x2=number(x2), y2=number(y2), stroke=GREY, **attributes)

    def text(self, x, y, text, **attributes):
        self.add("text", text, x=number(x), y=number(y), fill=GREY, **attributes)

    def steps(self, points):
        """Returns a path that holds each value until the next event."""
        path = []
        for event, value in thin(points, WIDTH - LEFT - RIGHT):
            x, y = number(self.x(event)), number(self.y(max(value, 0)))
            path.append(f"H{x}V{y}" if path else f"M{x} {y}")
        return "".join(path)

    def axes(self):
        steps = round(self.highest / self.scale / self.step)
        for i in range(steps + 1):
            y = self.y(i * self.step * self.scale)
            self.line(LEFT, y, WIDTH - RIGHT, y, stroke_opacity=0.8 if i == 0 else 0.25)
            self.text(LEFT - 8, y + 4, f"{i * self.step:g}", text_anchor="end")
        middle = (self.top + HEIGHT - BOTTOM) / 2
        self.text(18, middle, f"device memory, {self.unit}", text_anchor="middle",
                  transform=f"rotate(-90 18 {number(middle)})")
        step = nice_step(self.last, 8)
        for i in range(math.floor(self.last / step) + 1):
            x = self.x(i * step)
            self.line(x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 5)
            self.text(x, HEIGHT - BOTTOM + 20, f"{i * step:,.0f}", text_anchor="middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, self.axis, text_anchor="middle")
        if self.last > self.events:
            x = self.x(self.events)
            self.line(x, self.top, x, HEIGHT - BOTTOM, stroke_dasharray="3 3")
            self.text(x - 6, self.top + 12, "first pass", text_anchor="end")
            self.text(x + 6, self.top + 12, "second pass, with a filled cache")
        if self.limit:
            self.line(LEFT, self.y(self.limit), WIDTH - RIGHT, self.y(self.limit), stroke_width=1.5)
            self.text(WIDTH - RIGHT - 4, self.y(self.limit) - 5, "limit", text_anchor="end")

    def legend(self):
        labels = [(f"live: at most {self.size(self.live.peak)}", None, None)]
        for i, series in enumerate(self.held):
            labels.append((f"{series.name}: holds {self.size(series.peak)}", COLOURS[i % len(COLOURS)],
                           DASHES[i % len(DASHES)]))
        for i, (label, colour, dashes) in enumerate(labels):
            x = LEFT + (i % LEGEND_COLUMNS) * (WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS
            y = TOP + (i // LEGEND_COLUMNS) * LEGEND_ROW
            if colour is None:
                self.add("rect", x=number(x), y=y - 10, width=26, height=10, fill=GREY, fill_opacity=0.3)
            else:
                self.add("path", d=f"M{number(x)} {y - 5}h26", stroke=colour, stroke_width=2.2, fill="none",
                         stroke_dasharray=dashes or "none")
            self.text(x + 32, y, label)

    def size(self, value):
        return f"{value / self.scale:.2f} {self.unit}"

    def draw(self):
        self.text(LEFT, 22, self.title, font_size=15, font_weight="bold")
        self.axes()
        # Live memory is drawn as an area below the lines of held memory.
        path = self.steps(self.live.points)
        if path:
            end = self.x(self.live.points[-1][0])
            base, start = number(self.y(0)), number(self.x(self.live.points[0][0]))
            self.add("path", d=f"{path}H{number(end)}V{base}H{start}Z", fill=GREY, fill_opacity=0.3)
        for i, series in enumerate(self.held):
            self.add("path", d=self.steps(series.points), stroke=COLOURS[i % len(COLOURS)], stroke_width=1.8,
                     fill="none", stroke_linejoin="round", stroke_dasharray=DASHES[i % len(DASHES)] or "none")
        self.legend()
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
                f'height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="12" role="img">\n'
                f"<title>{html.escape(self.title)}</title>\n" + "\n".join(self.parts) + "\n</svg>\n")
