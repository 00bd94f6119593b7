#!/usr/bin/env python3
"""Random numbers of plinth beside PyTorch's, on a GPU: `against_torch.py --library libplinth.so --cases 2000 --seed 1`.

Each case (cases.py) is one fill or several in a row: PyTorch does them in one storage, plinth in a copy of it, both from
the same state of a generator. Afterwards all bytes of both storages must be the same, the gaps between the elements
included, and so must the offsets. Where PyTorch raises, plinth must refuse, and leave memory and offset as they were;
the table DELIBERATE says where the two are meant to part. A line for each case that differs, with what makes it again.
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

MARK = 0xA5


def is_nan(step):
    return any(isinstance(argument, float) and math.isnan(argument) for argument in step.arguments)


# Where one of the two refuses and the other need not: what is meant, which refuses, and how to tell. A tensor of
# probabilities outside 0 to 1 is not among the cases: in PyTorch it ends the use of the GPU for the whole process.
DELIBERATE = [
    ("plinth refuses parameters that are NaN; PyTorch fills with NaN", "plinth", is_nan),
    ("PyTorch does not look at the type of an empty tensor", "plinth", lambda step: 0 in step.layout.shape),
]


class Outcome:
    """What a step came to on one side: an error's text, or None, and the offset afterwards."""

    def __init__(self, error, offset):
        self.error, self.offset = error, offset


def storage_of(layout, dtype):
    """Bytes for a layout, with a mark in all of them."""
    size = plinth.size_of(dtype)
    return torch.full((max(1, layout.storage) * size,), MARK, dtype=torch.uint8, device="cuda")


def view_of(storage, layout, dtype):
    return torch.as_strided(storage.view(getattr(torch, dtype)), layout.shape, layout.strides, layout.begin)


def described(storage, layout, dtype):
    return plinth.descriptor(storage.data_ptr(), torch.cuda.current_device(), dtype, layout.shape, layout.strides,
                             layout.begin * plinth.size_of(dtype))


def probabilities(step, number):
    """The storage of a step's probabilities, with zeros and ones among them."""
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
    """What differs between two storages; None if nothing does."""
    if torch.equal(ours, theirs):
        return None
    size = plinth.size_of(step.dtype)
    wrong = (ours != theirs).view(-1, size).any(1)
    first = int(wrong.to(torch.uint8).argmax())
    values = [plinth.values(bytes(side[first * size:(first + 1) * size].tolist()), step.dtype)[0] for side in (ours, theirs)]
    return (f"{int(wrong.sum())} of {step.layout.count} elements differ, the first at place {first} of the storage: "
            f"{values[0]!r} instead of {values[1]!r}")


def judge(step, before, mine, its, ours, theirs):
    """Compares what came of a step on both sides. Returns what is wrong, and what is deliberate; both may be None."""
    if mine.error is None and its.error is None:
        found = difference(ours, theirs, step)
        if mine.offset != its.offset:
            found = f"the offset afterwards is {mine.offset} instead of {its.offset}" + (f"; {found}" if found else "")
        return found, None
    if mine.error is not None:
        if mine.offset != before:
            return f"refused ({mine.error}), but the offset went from {before} to {mine.offset}", None
        if not bool((ours == MARK).all()):
            return f"refused ({mine.error}), but something was written", None
        if its.error is not None:
            return None, None
    refuses = "plinth" if mine.error is not None else "torch"
    for reason, who, applies in DELIBERATE:
        if who == refuses and applies(step):
            return None, reason
    if refuses == "plinth":
        return f"PyTorch does it, plinth refuses: {mine.error}", None
    return f"PyTorch refuses ({its.error}), plinth does it", None


def run_case(case, number, theirs, ours):
    """Runs a case. Yields for each step the step, what is wrong and what is deliberate, and whether it was refused."""
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
            wrong = "the probabilities have changed"
        yield step, wrong, deliberate, mine.error is not None and its.error is not None
        if mine.offset != its.offset:
            # What one refused and the other did: from here on the same again.
            theirs.set_state(case.seed, mine.offset)
        del storage, copy, p, kept


def check_function(theirs, ours):
    """torch.bernoulli, the function that makes its own output, is the fill of a tensor like its probabilities."""
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
    parser.add_argument("--cases", type=int, default=2000, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--only", type=int, help="the case of this number alone")
    parser.add_argument("--big", type=float, default=0.01, help="the share of cases of more than 2 GiB")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--list", action="store_true", help="print the cases, and run none")
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
                          f"again: --seed {arguments.seed} --big {arguments.big} --only {number}", flush=True)
        if ran % 100 == 0:
            torch.cuda.empty_cache()
    for (operation, dtype), (good, bad) in sorted(tally.items()):
        if bad:
            print(f"{operation:16} {dtype:8} {good} agree, {bad} differ")
    for reason, times in deliberate.items():
        print(f"{times} times deliberate: {reason}")
    print(f"{ran} cases of {steps} fills, {len(tally)} pairs of fill and dtype, {refused} refused by both, "
          f"{time.monotonic() - begun:.0f} s: {f'{failed} differ' if failed else 'all agree to the bit'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
