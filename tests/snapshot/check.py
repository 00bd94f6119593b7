#!/usr/bin/env python3
# Checks a snapshot for torch's viewers. SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks a pickle that plinth wrote.

  check.py snapshot.pickle [snapshot.json [stats.0.json ...]]

The unpickler of https://pytorch.org/memory_viz must support all opcodes, and represent all numbers. Python's unpickler must
return the structure of torch.cuda.memory._snapshot(). Blocks must tile their segments. Replaying the history backwards from
the blocks must be consistent. The JSON must have the same content, and sums must equal those of plinth_memory_stats.
"""

import bisect
import json
import pathlib
import pickle
import pickletools
import sys

# The opcodes that the viewer's unpickler supports, from its source.
OPCODES = {
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "EMPTY_DICT", "EMPTY_LIST",
    "EMPTY_TUPLE", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "LIST", "DICT", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NONE",
    "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE",
}
STATES = {"active_allocated", "active_pending_free", "inactive"}
ACTIONS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
           "snapshot", "oom"}
SETTINGS = {"PYTORCH_CUDA_ALLOC_CONF", "max_split_size", "garbage_collection_threshold", "expandable_segments",
            "pinned_num_register_threads", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register",
            "graph_capture_record_stream_reuse", "roundup_power2_divisions"}
# PyTorch's own since 2.13.
NEWER_SETTINGS = {"max_round_threshold", "max_cached_size"}


def expect(condition, message):
    if not condition:
        sys.exit(f"check.py: {message}")


def check_opcodes(data):
    """Checks that the viewer's unpickler supports every opcode. Returns the opcodes."""
    seen = set()
    for opcode, argument, position in pickletools.genops(data):
        seen.add(opcode.name)
        expect(opcode.name in OPCODES, f"the viewer does not support {opcode.name}, at byte {position}")
        if opcode.name == "PROTO":
            expect(2 <= argument <= 4, f"protocol {argument}")
        if opcode.name == "LONG1":
            expect(abs(argument) < 2**53, f"JavaScript cannot represent {argument}, at byte {position}")
    return seen


def check_frames(frames):
    for frame in frames:
        expect(set(frame) == {"name", "filename", "line"}, f"a frame has {sorted(frame)}")
        expect(isinstance(frame["name"], str) and isinstance(frame["filename"], str) and isinstance(frame["line"], int), frame)


def check_segments(segments):
    addresses = [(segment["address"], segment["device"]) for segment in segments]
    expect(addresses == sorted(addresses), "segments are not sorted by address")
    for segment in segments:
        required = {"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
                    "segment_pool_id", "is_expandable", "frames", "blocks"}
        expect(required <= set(segment), f"a segment lacks {required - set(segment)}")
        expect(segment["segment_type"] in ("small", "large"), segment["segment_type"])
        sums = dict.fromkeys(STATES, 0)
        at = segment["address"]
        for block in segment["blocks"]:
            expect(set(block) == {"address", "size", "requested_size", "state", "frames"}, f"a block has {sorted(block)}")
            expect(block["address"] == at and block["size"] > 0, f"the blocks of {at:#x} leave a gap, or overlap")
            expect(block["requested_size"] <= block["size"], f"{block} is smaller than requested")
            check_frames(block["frames"])
            sums[block["state"]] += block["size"]
            at += block["size"]
        expect(at == segment["address"] + segment["total_size"], "blocks do not fill their segment")
        expect(sums["active_allocated"] == segment["allocated_size"], "allocated_size")
        expect(sums["active_allocated"] + sums["active_pending_free"] == segment["active_size"], "active_size")
        requested = sum(block["requested_size"] for block in segment["blocks"] if block["state"] != "inactive")
        expect(requested == segment["requested_size"], "requested_size")


class Mapped:
    """The mapped ranges while the viewer replays the history backwards. Adjacent ranges of a stream merge and split."""

    def __init__(self, segments):
        self.runs = sorted([segment["address"], segment["address"] + segment["total_size"], segment["stream"]] for segment in segments)

    def index(self, address, end):
        """Returns the index of the range that contains [address, end). The viewer fails if there is none."""
        at = bisect.bisect_right(self.runs, address, key=lambda run: run[0]) - 1
        expect(at >= 0 and end <= self.runs[at][1], f"no segment contains {address:#x} to {end:#x} at this moment")
        return at

    def add(self, address, end, stream, merge):
        at = bisect.bisect_right(self.runs, address, key=lambda run: run[0])
        self.runs.insert(at, [address, end, stream])
        for left in (at, at - 1):
            if merge and 0 <= left < len(self.runs) - 1 and self.runs[left][1:] == [self.runs[left + 1][0], self.runs[left + 1][2]]:
                self.runs[left][1] = self.runs.pop(left + 1)[1]

    def remove(self, address, end):
        run = self.runs.pop(self.index(address, end))
        parts = [[run[0], address, run[2]], [end, run[1], run[2]]]
        for part in parts:
            if part[0] < part[1]:
                bisect.insort(self.runs, part)


def check_trace(trace, segments):
    """Replays the history backwards from the blocks, as the viewers do: every block must always be in a segment."""
    live = {block["address"]: block for segment in segments for block in segment["blocks"] if block["state"] != "inactive"}
    mapped = Mapped(segments)
    before = None
    for entry in reversed(trace):
        action = entry["action"]
        expect(action in ACTIONS, f"action {action!r}")
        key = "device_free" if action == "oom" else "addr"
        required = {"action", key, "size", "stream", "time_us", "compile_context", "user_metadata"}
        required |= set() if action == "snapshot" else {"frames"}  # PyTorch's have no stack
        expect(required <= set(entry), f"an entry of {action} lacks {required - set(entry)}")
        expect(before is None or entry["time_us"] <= before, "entries are not ordered by time")
        before = entry["time_us"]
        check_frames(entry.get("frames", []))
        address, end = entry.get("addr", 0), entry.get("addr", 0) + entry["size"]
        if action == "alloc":
            block = live.pop(address, None)
            expect(block is not None, f"the block allocated at {address:#x} is neither live nor freed later")
            expect(block["requested_size"] == entry["size"], f"the requested size {entry['size']} became {block['requested_size']}")
        elif action == "free_completed":
            expect(address not in live, f"the block freed at {address:#x} is live")
            mapped.index(address, end)
            live[address] = {"requested_size": entry["size"], "state": "active_pending_free"}
        elif action == "free_requested":
            expect(address in live, f"the block freed at {address:#x} is not pending")
            expect(live[address]["state"] == "active_pending_free", f"{address:#x} was freed and is live")
            live[address]["state"] = "active_allocated"
        elif action in ("segment_map", "segment_alloc"):
            mapped.remove(address, end)
            inside = [block for block in live if address <= block < end]
            expect(not inside, f"blocks exist before {address:#x} was mapped: {inside[:3]}")
        elif action in ("segment_unmap", "segment_free"):
            mapped.add(address, end, entry["stream"], action == "segment_unmap")


def resolve(json_snapshot):
    """Replaces stack indices in the JSON by the stacks, as in the pickle."""
    stacks = json_snapshot.pop("stacks")
    expect(stacks[0] == [], "stack 0 is not empty")

    def walk(value):
        if isinstance(value, list):
            return [walk(item) for item in value]
        if not isinstance(value, dict):
            return value
        value = {key: stacks[item] if key == "frames" else walk(item) for key, item in value.items()}
        for key in ("segment_pool_id", "pool_id"):
            if key in value:
                value[key] = tuple(value[key])
        return value

    return walk(json_snapshot)


def without_times(snapshot):
    """Removes what differs between two consecutive snapshots."""
    traces = [[entry for entry in trace if entry["action"] != "snapshot"] for trace in snapshot["device_traces"]]
    # Each snapshot reads the clock itself, and the clock may be adjusted between them.
    strip = [[{key: value for key, value in entry.items() if key != "time_us"} for entry in trace] for trace in traces]
    annotations = [{key: value for key, value in one.items() if key != "time_us"} for one in snapshot["external_annotations"]]
    own = {key: value for key, value in snapshot["plinth"].items() if key != "time_us"}
    return {**snapshot, "device_traces": strip, "external_annotations": annotations, "plinth": own}


def check_stats(segments, stats):
    blocks = [block for segment in segments for block in segment["blocks"]]
    live = [block for block in blocks if block["state"] == "active_allocated"]
    active = [block for block in blocks if block["state"] != "inactive"]
    for key, value in {
        "allocated_bytes.all.current": sum(block["size"] for block in live),
        "allocation.all.current": len(live),
        "active_bytes.all.current": sum(block["size"] for block in active),
        "active.all.current": len(active),
        "requested_bytes.all.current": sum(block["requested_size"] for block in live),
        "reserved_bytes.all.current": sum(segment["total_size"] - segment["asleep_size"] for segment in segments),
    }.items():
        expect(stats[key] == value, f"{key} is {stats[key]}, but {value} in the snapshot")


def check(path, json_path=None, stats_paths=()):
    data = pathlib.Path(path).read_bytes()
    seen = check_opcodes(data)
    snapshot = pickle.loads(data)
    expect({"segments", "device_traces", "allocator_settings", "external_annotations"} <= set(snapshot), sorted(snapshot))
    settings = set(snapshot["allocator_settings"])
    expect(settings in (SETTINGS, SETTINGS | NEWER_SETTINGS), sorted(settings))
    expect(len(snapshot["allocator_settings"]["roundup_power2_divisions"]) == 16, "roundup_power2_divisions")
    check_segments(snapshot["segments"])
    for device, trace in enumerate(snapshot["device_traces"]):
        check_trace(trace, [segment for segment in snapshot["segments"] if segment["device"] == device])
    if json_path is not None:
        other = resolve(json.loads(pathlib.Path(json_path).read_text()))
        expect(without_times(other) == without_times(snapshot), "the JSON differs from the pickle")
    for device, stats in enumerate(stats_paths):
        segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
        check_stats(segments, json.loads(pathlib.Path(stats).read_text()))
    return snapshot, seen


def main():
    snapshot, seen = check(sys.argv[1], *(sys.argv[2:3]), stats_paths=sys.argv[3:])
    entries = sum(len(trace) for trace in snapshot["device_traces"])
    print(f"{sys.argv[1]}: {len(snapshot['segments'])} segments, {entries} entries, opcodes {' '.join(sorted(seen))}")


if __name__ == "__main__":
    main()
