#!/usr/bin/env python3
"""Compares fills with those of PyTorch 2.11 on an H200: `golden.py --library libplinth.so --device host|cuda`.

torch_h200.json.xz has the first and last bytes and the SHA-256 of 780 fills, all bytes of the small ones, and a sequence
of fills from one seed. On a GPU of that kind, every bit must be equal. The host device simulates that GPU; there, results
without transcendental functions must be bitwise equal, and those of logarithms and sines may differ by some units in the
last place (UNITS): in every element if all bytes are recorded, otherwise in the first and the last 64 bytes. The offset
afterwards must always be equal.
"""

import argparse
import hashlib
import json
import lzma
import math
import pathlib
import struct
import sys

import plinth

HERE = pathlib.Path(__file__).resolve().parent

# The fill of each recorded operation, and the fields of its arguments.
OPERATIONS = {
    "uniform": ("uniform", (0, 1)), "uniform_range": ("uniform", ("lo", "hi")),
    "normal": ("normal", (0, 1)), "normal_ms": ("normal", ("mean", "std")),
    "exponential": ("exponential", ("lambd",)), "log_normal": ("log_normal", ("mean", "std")),
    "cauchy": ("cauchy", ("median", "sigma")), "geometric": ("geometric", ("p",)), "bernoulli": ("bernoulli", ("p",)),
    "random": ("random", ()), "random_range": ("random_range", ("lo", "hi")), "randperm": ("randperm", ()),
}

# The permitted difference of the host device from the GPU, in units in the last place, and a scale. The units are those of
# the value, or of the scale if the value is smaller, because a sum near zero has the precision of its terms. The largest
# differences are those of the GPU's fast tangent near its poles and of its fast exponential. The limits are up to twice the
# measured differences.
UNITS = {
    ("normal", "float16"): (1, 1.0), ("normal", "bfloat16"): (1, 1.0),
    ("normal", "float32"): (8, 1.0), ("normal", "float64"): (4, 1.0),
    ("normal_ms", "float16"): (1, 1.5), ("normal_ms", "bfloat16"): (1, 1.5),
    ("normal_ms", "float32"): (16, 1.5), ("normal_ms", "float64"): (4, 1.5),
    ("exponential", "float16"): (1, 0.0), ("exponential", "bfloat16"): (1, 0.0),
    ("exponential", "float32"): (4, 0.5), ("exponential", "float64"): (4, 0.0),
    ("log_normal", "float16"): (1, 0.0), ("log_normal", "bfloat16"): (1, 0.0),
    ("log_normal", "float32"): (32, 0.0), ("log_normal", "float64"): (16, 0.0),
    ("cauchy", "float16"): (1, 0.0), ("cauchy", "bfloat16"): (1, 0.0),
    ("cauchy", "float32"): (256, 1.0), ("cauchy", "float64"): (4, 1.0),
    ("geometric", "float16"): (0, 0.0), ("geometric", "bfloat16"): (0, 0.0),
    ("geometric", "float32"): (0, 0.0), ("geometric", "float64"): (0, 0.0),
}

# The bits of the significand, including the leading one, and the exponent of the smallest number.
FORMATS = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149), "float64": (53, -1074)}

# The fills of the recorded sequence, with PyTorch's default arguments.
SEQUENCE = {"uniform_": ("uniform", (0.0, 1.0)), "normal_": ("normal", (0.0, 1.0)), "exponential_": ("exponential", (1.0,))}
SEQUENCE_SEED = 7


def unit(value, dtype):
    """Returns the distance of neighbouring numbers at a value."""
    digits, least = FORMATS[dtype]
    return 2.0 ** max(math.frexp(value)[1] - digits, least) if value else 2.0**least


def units_apart(ours, theirs, dtype, scale):
    """Returns the distance of two numbers in units in the last place; infinity if only one is finite."""
    if ours == theirs or (ours != ours and theirs != theirs):
        return 0.0
    if not (math.isfinite(ours) and math.isfinite(theirs)):
        return math.inf
    return abs(ours - theirs) / unit(max(abs(theirs), scale), dtype)


class Group:
    """The cases of one operation and dtype."""

    def __init__(self):
        self.cases = self.bits = 0
        self.worst = 0.0
        self.wrong = []


def arguments_of(case):
    name, fields = OPERATIONS[case["op"]]
    kind = float if plinth.FILLS.get(name, "q")[:1] == "d" else int
    return name, [kind(case[field] if isinstance(field, str) else field) for field in fields]


def run(library, case):
    """Runs a case. Returns the bytes and the offset afterwards."""
    name, arguments = arguments_of(case)
    with library.generator(0, case["seed"], case["offset"]) as generator:
        with library.tensor(case["dtype"], [case["n"]]) as tensor:
            tensor.write(b"\xA5" * tensor.size)
            library.fill(name, tensor, *arguments, generator=generator)
            return tensor.read(), generator.offset


def known_bytes(case):
    """Returns the recorded bytes of the result, as pairs of an offset and the bytes there."""
    if "raw" in case:
        return [(0, bytes.fromhex(case["raw"]))]
    last = bytes.fromhex(case["last"])
    return [(0, bytes.fromhex(case["first"])), (case["n"] * plinth.size_of(case["dtype"]) - len(last), last)]


def worst_units(case, raw, scale):
    worst = 0.0
    for at, theirs in known_bytes(case):
        ours = raw[at:at + len(theirs)]
        for one, other in zip(plinth.values(ours, case["dtype"]), plinth.values(theirs, case["dtype"])):
            worst = max(worst, units_apart(one, other, case["dtype"], scale))
    return worst


def first_difference(case, raw):
    """Describes the first recorded element that differs."""
    for at, theirs in known_bytes(case):
        ours = raw[at:at + len(theirs)]
        pairs = zip(plinth.values(ours, case["dtype"]), plinth.values(theirs, case["dtype"]))
        for index, (one, other) in enumerate(pairs):
            if struct.pack("d", one) != struct.pack("d", other):
                return f"element {at // plinth.size_of(case['dtype']) + index} is {one!r}, not {other!r}"
    return "the recorded elements are equal, but the SHA-256 of all bytes differs"


def judge(library, case, exact, group):
    group.cases += 1
    what = " ".join(f"{key}={value}" for key, value in case.items() if key not in ("sha256", "first", "last", "raw"))
    try:
        raw, offset = run(library, case)
    except plinth.Error as error:
        group.wrong.append(f"{what}: {error}")
        return
    if offset != case["offset_after"]:
        group.wrong.append(f"{what}: the offset afterwards is {offset}")
    if hashlib.sha256(raw).hexdigest() == case["sha256"]:
        group.bits += 1
        return
    allowed, scale = UNITS.get((case["op"], case["dtype"]), (0, 0.0))
    worst = worst_units(case, raw, scale) if case["dtype"] in FORMATS else math.inf
    group.worst = max(group.worst, worst)
    # If no difference is permitted, the recorded part may be equal while the SHA-256 differs.
    if exact or allowed == 0 and case["op"] != "geometric" or worst > allowed:
        group.wrong.append(f"{what}: {first_difference(case, raw)}")


def judge_sequence(library, sequence, exact):
    """Runs the fills of the sequence from one generator. Returns the errors."""
    wrong = []
    with library.generator(0, SEQUENCE_SEED) as generator:
        for index, step in enumerate(sequence):
            name, arguments = SEQUENCE[step["op"]]
            with library.tensor("float32", [step["n"]]) as tensor:
                library.fill(name, tensor, *arguments, generator=generator)
                same = hashlib.sha256(tensor.read()).hexdigest() == step["sha256"]
            if not same and (exact or name == "uniform"):
                wrong.append(f"sequence, step {index}, {step['op']} of {step['n']}: the numbers differ")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="target/release/libplinth.so", help="libplinth.so")
    parser.add_argument("--device", choices=["host", "cuda"], default="host", help="the kind of device")
    parser.add_argument("--golden", type=pathlib.Path, default=HERE / "torch_h200.json.xz", help="the recorded fills")
    parser.add_argument("--show", type=int, default=3, help="differences to print of each group")
    arguments = parser.parse_args()
    golden = json.loads(lzma.decompress(arguments.golden.read_bytes()))
    library = plinth.Library(arguments.library, arguments.device)
    properties = library.properties()
    name, shape = properties.name.decode(), (golden["sms"], golden["threads_per_sm"])
    if (properties.multi_processor_count, properties.max_threads_per_multi_processor) != shape:
        print(f"the recording is for {shape[0]} multiprocessors of {shape[1]} threads; {name} differs")
        return 77 if arguments.device == "cuda" else 1
    # Logarithms and sines depend on the GPU's architecture: that of the recording must agree, others should.
    exact = arguments.device == "cuda"
    print(f"{name} compared with {golden['device']}, PyTorch {golden['torch']}: "
          f"{'bitwise' if exact else 'bitwise, transcendental functions in units in the last place'}")
    groups = {}
    for case in golden["cases"]:
        judge(library, case, exact, groups.setdefault((case["op"], case["dtype"]), Group()))
    failed = 0
    for (operation, dtype), group in groups.items():
        limit = f", at most {group.worst:.3g} units away of {UNITS.get((operation, dtype), (0,))[0]}" if group.worst else ""
        print(f"{'FAILED' if group.wrong else 'ok':6} {operation:13} {dtype:8} {group.bits} of {group.cases} "
              f"bitwise equal{limit}")
        for line in group.wrong[:arguments.show]:
            print(f"       {line}")
        failed += len(group.wrong)
    wrong = judge_sequence(library, golden["sequence"], exact)
    print(f"{'FAILED' if wrong else 'ok':6} sequence of {len(golden['sequence'])} fills from one seed")
    for line in wrong:
        print(f"       {line}")
    failed += len(wrong)
    print(f"{len(golden['cases'])} cases and a sequence: {f'{failed} differences' if failed else 'all agree'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
