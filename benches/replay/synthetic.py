#!/usr/bin/env python3
"""Writes traces of programs that nobody recorded: `synthetic.py FOLDER`.

random_mix: random sizes on one stream, log-normal from a byte to 256 MiB, while 16 GiB are in use. threads: sixteen
streams with 64 blocks each, of 512 B to 1 MiB, one of which is replaced at each step. The same traces each time.
Standard library only.
"""

import pathlib
import random
import struct
import sys

STEPS = 30_000
MAX_SIZE = 256 << 20
LIVE = 16 << 30
STREAMS = 16
BLOCKS_OF_STREAM = 64


class Trace:
    """A trace in the format of benches/traces/README.md."""

    def __init__(self):
        self.events, self.blocks = [], 0

    def allocate(self, stream, size):
        """Adds an allocation and returns its block."""
        self.events.append(struct.pack("<IHHQ", self.blocks, 0, stream, size))
        self.blocks += 1
        return self.blocks - 1, size

    def free(self, block):
        identity, size = block
        self.events.append(struct.pack("<IHHQ", identity, 1, 0, size))

    def content(self):
        return b"".join(self.events)


def random_mix():
    """Returns a trace of random sizes. Each step frees random blocks with some probability, and others until the new
    block fits into the bytes that may be live."""
    trace, generator, live, live_bytes = Trace(), random.Random(7), [], 0

    def free_one():
        index = generator.randrange(len(live))
        live[index], live[-1] = live[-1], live[index]
        block = live.pop()
        trace.free(block)
        return block[1]

    for _ in range(STEPS):
        size = int(min(max(1.0, generator.lognormvariate(13.5, 3.0)), MAX_SIZE))
        if live and generator.random() < 0.48:
            live_bytes -= free_one()
        while live_bytes + size > LIVE:
            live_bytes -= free_one()
        live.append(trace.allocate(0, size))
        live_bytes += size
    return trace.content()


def threads():
    """Returns a trace of many streams, each of which replaces its blocks in random order."""
    trace, generator = Trace(), random.Random(7)

    def allocate(stream):
        return trace.allocate(stream, 512 << generator.randrange(12))

    live = [[allocate(stream) for _ in range(BLOCKS_OF_STREAM)] for stream in range(STREAMS)]
    for step in range(STEPS):
        blocks, index = live[step % STREAMS], generator.randrange(BLOCKS_OF_STREAM)
        trace.free(blocks[index])
        blocks[index] = allocate(step % STREAMS)
    return trace.content()


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: synthetic.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for trace in (random_mix, threads):
        (folder / f"{trace.__name__}.trace").write_bytes(trace())


if __name__ == "__main__":
    main()
