#!/usr/bin/env python3
"""Draws a command's output in a terminal as SVG: tools/terminal_picture.py COMMAND... > picture.svg

The command runs in a pseudo-terminal, so that it writes colours and fits its output to the width. With --file FILE the
output is read from the file, and COMMAND is only shown at the prompt. --columns N is the width of the terminal.
"""
import argparse
import fcntl
import html
import os
import pty
import re
import struct
import sys
import termios

CHARACTER, LINE, MARGIN, BAR = 8.0, 18, 14, 26
COLORS = {30: "#6e7681", 31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#56d4dd",
          37: "#c9d1d9"}
BACKGROUND = "#0d1117"
SEQUENCE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")


def run(command, columns):
    """Runs a command in a pseudo-terminal; returns its output."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    output = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        output += part
    os.waitpid(pid, 0)
    # A progress bar returns to the start of its line, and is overwritten.
    return re.sub(r"[^\n]*\r", "", output.decode(errors="replace").replace("\r\n", "\n"))


def spans(line, style):
    """Splits a line into spans of text and style. `style` is the style at its start, and is updated to that at its end."""
    at, found_spans = 0, []
    for found in SEQUENCE.finditer(line):
        if found.start() > at:
            found_spans.append((line[at:found.start()], dict(style)))
        at = found.end()
        if found[2] != "m":
            continue
        # Of the 256 colours only the first 16 are used.
        codes = re.sub(r"38;5;(\d+)", lambda color: str(30 + int(color[1]) % 8), found[1])
        for code in (int(part or 0) for part in codes.split(";")):
            if code == 0:
                style.clear()
            elif code == 1:
                style["font-weight"] = "bold"
            elif code == 2:
                style["fill-opacity"] = "0.6"
            elif code == 4:
                style["text-decoration"] = "underline"
            elif code == 7:
                style["reverse"] = "yes"
            elif 30 <= code <= 37:
                style["fill"] = COLORS[code]
            elif 90 <= code <= 97:
                style["fill"] = COLORS[code - 60]
            elif code == 39:
                style.pop("fill", None)
    if at < len(line):
        found_spans.append((line[at:], dict(style)))
    return found_spans


def draw(prompt, output):
    """Returns the picture as SVG."""
    lines = [[("$ ", {"fill": COLORS[32]}), (prompt, {"font-weight": "bold"})]]
    style = {}
    lines += [spans(line, style) for line in output.rstrip("\n").split("\n")]
    columns = max(sum(len(text) for text, _ in line) for line in lines)
    width, height = columns * CHARACTER + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN + BAR
    picture = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
               f'viewBox="0 0 {width:.0f} {height}">',
               f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>']
    picture += [f'<circle cx="{18 + 18 * index}" cy="16" r="5.5" fill="{color}"/>'
                for index, color in enumerate(["#ff5f57", "#febc2e", "#28c840"])]
    picture.append('<g font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="13" '
                   'fill="#c9d1d9">')
    for row, line in enumerate(lines):
        column = 0
        for text, text_style in line:
            reverse = text_style.pop("reverse", None)
            if reverse:
                picture.append(f'<rect x="{MARGIN + column * CHARACTER:.0f}" y="{BAR + MARGIN + row * LINE - 4}" '
                               f'width="{len(text) * CHARACTER:.0f}" height="{LINE}" fill="{COLORS[37]}"/>')
                text_style["fill"] = BACKGROUND
            if text.strip():
                attributes = "".join(f' {name}="{value}"' for name, value in text_style.items())
                # textLength keeps columns aligned in every font; browsers would join plain spaces.
                text = text.replace(" ", "\u00a0")
                picture.append(f'<text x="{MARGIN + column * CHARACTER:.0f}" y="{BAR + MARGIN + row * LINE + 10}" '
                               f'textLength="{len(text) * CHARACTER:.0f}" lengthAdjust="spacingAndGlyphs"{attributes}>'
                               f"{html.escape(text)}</text>")
            column += len(text)
    return "\n".join(picture + ["</g>", "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", help="a file with the output; no command is run")
    parser.add_argument("--columns", type=int, default=150)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.file:
        with open(arguments.file, encoding="utf-8") as file:
            output = file.read().replace("\r\n", "\n")
    else:
        output = run(arguments.command, arguments.columns)
    sys.stdout.write(draw(" ".join([os.path.basename(arguments.command[0]), *arguments.command[1:]]), output))


main()
