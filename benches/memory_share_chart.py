#!/usr/bin/env python3
"""Draws what memory_share wrote: the live bytes of all processes, what they hold together, and what each of them holds.

    benches/memory_share --csv samples.csv && benches/memory_share_chart.py samples.csv docs/pictures/memory_share.svg

Standard library only."""
import argparse
import csv
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "replay"))
import chart  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samples")
    parser.add_argument("picture")
    parser.add_argument("--title", default="Processes that share a device, whose peaks do not coincide")
    arguments = parser.parse_args()
    with open(arguments.samples, encoding="utf-8") as file:
        # Milliseconds, the bytes that were free, then live and held bytes of each process.
        rows = [[int(value) for value in row] for row in csv.reader(file)]
    processes = (len(rows[0]) - 2) // 2
    live = chart.Series("live", [(row[0], sum(row[2::2])) for row in rows])
    held = [chart.Series("all", [(row[0], sum(row[3::2])) for row in rows])]
    for process in range(processes):
        held.append(chart.Series(f"process {process}", [(row[0], row[3 + 2 * process]) for row in rows]))
    picture = chart.Chart(arguments.title, live, held, rows[-1][0], rows[0][1], axis="milliseconds")
    pathlib.Path(arguments.picture).write_text(picture.draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
