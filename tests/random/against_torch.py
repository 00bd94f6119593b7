#!/usr/bin/env python3
"""Compares plinth's random numbers with PyTorch's, on a GPU: `against_torch.py --library libplinth.so --cases 2000 --seed 1`.

Each case (cases.py) is one or several consecutive fills: PyTorch fills a storage, plinth a copy of it, both from the same
generator state. Afterwards all bytes of both storages must be equal, including gaps between elements, and so must the
offsets. If PyTorch raises an error, plinth must return one and leave memory and offset unchanged; DELIBERATE lists the
intended differences. Prints a line for each case that differs, with the arguments that reproduce it.
"""

import argparse
import math
import struct
import sys
import time
import warnings

import cases
import plinth

try:
    import torch
except ImportError:
    torch = None

SENTINEL = 0xA5


def is_nan(step):
    return any(isinstance(argument, float) and math.isnan(argument) for argument in step.arguments)


# Intended differences in errors: the description, which side returns the error, and a predicate. No case has a tensor of
# probabilities outside of 0 to 1, because in PyTorch it makes the GPU unusable for the process.
DELIBERATE = [
    ("plinth rejects parameters that are NaN; PyTorch fills with NaN", "plinth", is_nan),
    ("PyTorch does not check the type of an empty tensor", "plinth", lambda step: 0 in step.layout.shape),
]


class Outcome:
    """The result of a step on one side: the error message, or None, and the offset afterwards."""

    def __init__(self, error, offset):
        self.error, self.offset = error, offset


def storage_of(layout, dtype):
    """Allocates the bytes of a layout, filled with the sentinel."""
    size = plinth.size_of(dtype)
    return torch.full((max(1, layout.storage) * size,), SENTINEL, dtype=torch.uint8, device="cuda")


def view_of(storage, layout, dtype):
    return torch.as_strided(storage.view(getattr(torch, dtype)), layout.shape, layout.strides, layout.begin)


def described(storage, layout, dtype):
    return plinth.descriptor(storage.data_ptr(), torch.cuda.current_device(), dtype, layout.shape, layout.strides,
                             layout.begin * plinth.size_of(dtype))


def probabilities(step, number):
    """Returns the storage of a step's probabilities, which include zeros and ones."""
    dtype, layout = step.p
    chooser = torch.Generator("cpu").manual_seed(number)
    wide = torch.rand(max(1, layout.storage), generator=chooser, dtype=torch.float64)
    wide = ((wide * 1.2) - 0.1).clamp_(0, 1)
    return wide.to(getattr(torch, dtype)).cuda().view(torch.uint8)


class Torch:
    """PyTorch's side."""

    def __init__(self):
        self.generator = torch.Generator("cuda")

    def set_state(self, seed, offset):
        self.generator.set_state(torch.tensor(list(struct.pack("<QQ", seed, offset)), dtype=torch.uint8))

    @property
    def offset(self):
        return struct.unpack("<QQ", bytes(self.generator.get_state().tolist()))[1]

    def run(self, step, storage, p):
        tensor = view_of(storage, step.layout, step.dtype)
        name, arguments, generator = step.operation, step.arguments, self.generator
        try:
            if name == "randperm":
                torch.randperm(step.layout.count, dtype=tensor.dtype, device="cuda", generator=generator, out=tensor)
            elif name == "bernoulli_tensor":
                tensor.bernoulli_(view_of(p, step.p[1], step.p[0]), generator=generator)
            elif name == "random_from":
                tensor.random_(arguments[0], None, generator=generator)
            elif name in ("random", "random_range"):
                tensor.random_(*arguments, generator=generator)
            else:
                getattr(tensor, name + "_")(*arguments, generator=generator)
            torch.cuda.synchronize()
        except (RuntimeError, NotImplementedError, ValueError, TypeError, OverflowError) as error:
            if "CUDA error" in str(error) or "out of memory" in str(error):
                raise
            return Outcome(str(error).splitlines()[0], self.offset)
        return Outcome(None, self.offset)


class Plinth:
    """plinth's side."""

    def __init__(self, path):
        self.library = plinth.Library(path, "cuda")
        self.generator = self.library.generator(torch.cuda.current_device())

    def set_state(self, seed, offset):
        self.generator.state = struct.pack("<QQ", seed, offset)

    @property
    def offset(self):
        return self.generator.offset

    def run(self, step, storage, p):
        tensor = described(storage, step.layout, step.dtype)
        arguments = [described(p, step.p[1], step.p[0])] if step.p else step.arguments
        try:
            self.library.fill(step.operation, tensor, *arguments, generator=self.generator)
        except plinth.Error as error:
            return Outcome(str(error), self.offset)
        self.library.synchronize()
        return Outcome(None, self.offset)


def difference(ours, theirs, step):
    """Describes the difference of two storages; None if they are equal."""
    if torch.equal(ours, theirs):
        return None
    size = plinth.size_of(step.dtype)
    wrong = (ours != theirs).view(-1, size).any(1)
    first = int(wrong.to(torch.uint8).argmax())
    values = [plinth.values(bytes(side[first * size:(first + 1) * size].tolist()), step.dtype)[0] for side in (ours, theirs)]
    return (f"{int(wrong.sum())} of {step.layout.count} elements differ, the first at index {first} of the storage: "
            f"{values[0]!r} instead of {values[1]!r}")


def judge(step, before, mine, its, ours, theirs):
    """Compares the results of a step on both sides. Returns the error and the intended difference; both may be None."""
    if mine.error is None and its.error is None:
        found = difference(ours, theirs, step)
        if mine.offset != its.offset:
            found = f"the offset afterwards is {mine.offset} instead of {its.offset}" + (f"; {found}" if found else "")
        return found, None
    if mine.error is not None:
        if mine.offset != before:
            return f"plinth failed ({mine.error}), but changed the offset from {before} to {mine.offset}", None
        if not bool((ours == SENTINEL).all()):
            return f"plinth failed ({mine.error}), but wrote to the memory", None
        if its.error is not None:
            return None, None
    failing = "plinth" if mine.error is not None else "torch"
    for reason, side, applies in DELIBERATE:
        if side == failing and applies(step):
            return None, reason
    if failing == "plinth":
        return f"only plinth fails: {mine.error}", None
    return f"only PyTorch fails: {its.error}", None


def run_case(case, number, theirs, ours):
    """Runs a case. Yields for each step: the step, the error, the intended difference, and whether both sides failed."""
    theirs.set_state(case.seed, case.offset)
    ours.set_state(case.seed, case.offset)
    for index, step in enumerate(case.steps):
        storage = storage_of(step.layout, step.dtype)
        copy = storage.clone()
        p = probabilities(step, number + index) if step.p else None
        kept = p.clone() if step.p else None
        before = ours.offset
        torch.cuda.synchronize()
        its = theirs.run(step, storage, p)
        mine = ours.run(step, copy, p)
        wrong, deliberate = judge(step, before, mine, its, copy, storage)
        if wrong is None and step.p and not torch.equal(p, kept):
            wrong = "the probabilities were changed"
        yield step, wrong, deliberate, mine.error is not None and its.error is not None
        if mine.offset != its.offset:
            # Only one side failed. Continue from the same state.
            theirs.set_state(case.seed, mine.offset)
        del storage, copy, p, kept


def check_function(theirs, ours):
    """Compares torch.bernoulli, which allocates its output, with a fill of a tensor like its probabilities."""
    wrong = []
    for dtype in plinth.FLOATING:
        for count in (1, 1000, 1_081_345):
            layout = cases.placed([count], [1], 0, 0)
            step = cases.Step("bernoulli_tensor", dtype, (), layout, (dtype, layout))
            p = probabilities(step, count)
            theirs.set_state(3, 4)
            ours.set_state(3, 4)
            made = torch.bernoulli(view_of(p, layout, dtype), generator=theirs.generator).view(torch.uint8)
            storage = storage_of(layout, dtype)
            mine = ours.run(step, storage, p)
            found = mine.error or difference(storage, made, step)
            if found or mine.offset != theirs.offset:
                wrong.append(f"torch.bernoulli {dtype} {count}: {found}; offsets {mine.offset}, {theirs.offset}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="target/release/libplinth.so", help="libplinth.so")
    parser.add_argument("--cases", type=int, default=2000, help="number of cases")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cases")
    parser.add_argument("--only", type=int, help="run only the case with this number")
    parser.add_argument("--big", type=float, default=0.01, help="share of cases of more than 2 GiB")
    parser.add_argument("--seconds", type=float, default=math.inf, help="time limit")
    parser.add_argument("--list", action="store_true", help="print the cases without running them")
    parser.add_argument("--show", type=int, default=40, help="differences to print")
    arguments = parser.parse_args()
    numbers = [arguments.only] if arguments.only is not None else range(arguments.cases)
    if arguments.list:
        for number in numbers:
            case = cases.make(arguments.seed, number, arguments.big)
            print(f"{number}: seed={case.seed} offset={case.offset}: " + "; ".join(map(str, case.steps)))
        return 0
    if torch is None or not torch.cuda.is_available():
        print("needs PyTorch and a GPU")
        return 77
    torch.cuda.init()
    warnings.simplefilter("ignore")
    theirs, ours = Torch(), Plinth(arguments.library)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, seed {arguments.seed}")
    begun, ran, steps, refused, failed = time.monotonic(), 0, 0, 0, 0
    deliberate, tally = {}, {}
    for line in check_function(theirs, ours):
        print(f"DIFFERS {line}")
        failed += 1
    for number in numbers:
        if time.monotonic() - begun > arguments.seconds:
            break
        case = cases.make(arguments.seed, number, arguments.big)
        ran += 1
        for index, (step, wrong, reason, both) in enumerate(run_case(case, number, theirs, ours)):
            steps += 1
            refused += both
            good, bad = tally.get((step.operation, step.dtype), (0, 0))
            tally[step.operation, step.dtype] = (good + (wrong is None), bad + (wrong is not None))
            if reason:
                deliberate[reason] = deliberate.get(reason, 0) + 1
            if wrong:
                failed += 1
                if failed <= arguments.show:
                    print(f"DIFFERS case {number} step {index}: seed={case.seed} offset={case.offset} {step}: {wrong}; "
                          f"reproduce: --seed {arguments.seed} --big {arguments.big} --only {number}", flush=True)
        if ran % 100 == 0:
            torch.cuda.empty_cache()
    for (operation, dtype), (good, bad) in sorted(tally.items()):
        if bad:
            print(f"{operation:16} {dtype:8} {good} agree, {bad} differ")
    for reason, times in deliberate.items():
        print(f"{times} intended differences: {reason}")
    print(f"{ran} cases of {steps} fills, {len(tally)} pairs of fill and dtype, {refused} rejected by both, "
          f"{time.monotonic() - begun:.0f} s: {f'{failed} differ' if failed else 'all are bitwise equal'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
