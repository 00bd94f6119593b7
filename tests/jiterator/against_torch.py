#!/usr/bin/env python3
"""Compares plinth's jiterator with PyTorch's, on a GPU: `against_torch.py --library libplinth.so --cases 300 --seed 1`.

Each case is a random program: an expression over some inputs and scalars, or several for several outputs, with a helper
function, for tensors of random types, shapes and strides. PyTorch and plinth compile it and call it with the same tensors.
The results must have the same type and shape. Integers and bools must be equal; floats may differ by a few units in the last
place, because the compilers may reorder operations. Prints a line for each case that differs, with the seed that reproduces
it. The exit status is 77 without PyTorch or a GPU.
"""

import argparse
import random
import sys
import time

import jiterating
import plinth

try:
    import torch
except ImportError:
    torch = None

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]
COMPLEX = ["complex64", "complex128"]
# The permitted relative error for each type: some units in the last place. Complex products are computed in different ways.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-13, "complex64": 1e-4, "complex128": 1e-12}


class Program:
    """A random function."""

    def __init__(self, chooser, kind):
        self.chooser, self.kind = chooser, kind
        self.inputs = chooser.choice([1, 1, 2, 2, 2, 3, 4, 8])
        self.outputs = chooser.choice([None, None, None, 1, 2, 3])
        self.names = [f"x{number}" for number in range(self.inputs)]
        self.scalars = {}
        for number in range(chooser.choice([0, 0, 1, 2])):
            self.scalars[f"s{number}"] = chooser.choice([chooser.randint(1, 9), chooser.choice([0.5, 1.25, 2.0, 3.5])])
        parameters = [f"T {name}" for name in self.names + list(self.scalars)]
        helper = f"template <typename T> T helper(T x, T y) {{ return {self.expression(1, ['x', 'y'])}; }}\n"
        if self.outputs is None:
            body, returned = f"return {self.expression(3)};", "T"
        else:
            parameters += [f"T &out{number}" for number in range(self.outputs)]
            body = " ".join(f"out{number} = {self.expression(2)};" for number in range(self.outputs))
            returned = "void"
        self.code = f"{helper}template <typename T> {returned} entry({', '.join(parameters)}) {{ {body} }}"

    def expression(self, depth, names=None):
        chooser = self.chooser
        top = names is None
        names = names or self.names + list(self.scalars)
        if depth == 0:
            return chooser.choice(names + [f"T({chooser.randint(1, 5)})"])
        one, other = (self.expression(depth - 1, None if top else names) for _ in range(2))
        forms = [f"({one} + {other})", f"({one} - {other})", f"({one} * {other})"]
        if top:
            forms.append(f"helper<T>({one}, {other})")
        if self.kind in ("float", "complex"):
            forms += [f"({one} * T(0.125))", f"std::exp({one} * T(0.01))", f"std::sin({one})"]
        if self.kind == "float":
            forms += [f"({one} < {other} ? {one} : {other})", f"std::sqrt(std::abs({one}))", f"std::tanh({one})",
                      f"({one} / (T(1) + {other} * {other}))", f"std::fmax({one}, {other})", f"std::floor({one})"]
        if self.kind == "integer":
            forms += [f"({one} < {other} ? {one} : {other})", f"T({one} & {other})", f"T({one} ^ {other})", f"T({one} | {other})"]
        return chooser.choice(forms)


def tensor_of(chooser, dtype, shape):
    """Returns a tensor with a random layout that has this shape or broadcasts to it."""
    own = [1 if size > 1 and chooser.random() < 0.15 else size for size in shape]
    if chooser.random() < 0.1:
        own = own[chooser.randint(0, len(own)):]
    order = list(range(len(own)))
    if chooser.random() < 0.4:
        chooser.shuffle(order)
    gap = chooser.choice([0, 0, 0, 1, 3])
    strides, stride = [0] * len(own), 1
    for dimension in reversed(order):
        strides[dimension] = stride
        stride *= own[dimension] + gap
    begin = chooser.choice([0, 0, 0, 1, 2])
    storage = torch.zeros(max(1, stride) + begin, dtype=getattr(torch, dtype), device="cuda")
    view = torch.as_strided(storage, own, strides, begin)
    numbers = torch.randint(-4 if dtype not in ("uint8", "bool") else 0, 6 if dtype != "bool" else 2, own, device="cuda")
    if dtype in FLOATS + COMPLEX and chooser.random() < 0.5:
        numbers = torch.randn(own, device="cuda", dtype=getattr(torch, dtype)) * 2
    view.copy_(numbers)
    return view


def described(tensor):
    name = str(tensor.dtype).removeprefix("torch.")
    return plinth.descriptor(tensor.data_ptr(), tensor.device.index, name, list(tensor.shape), list(tensor.stride()))


def types_of(chooser, kind, count):
    if kind == "integer":
        return [chooser.choice(INTEGERS) for _ in range(count)]
    if kind == "complex":
        return [chooser.choice(COMPLEX + ["float32"]) if number else chooser.choice(COMPLEX) for number in range(count)]
    mixed = FLOATS + FLOATS + ["int32", "bool", "uint8"]
    same = chooser.choice(FLOATS)
    return [same if chooser.random() < 0.6 or number == 0 else chooser.choice(mixed) for number in range(count)]


def difference(ours, theirs):
    """Describes the difference; None if there is none."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return f"{ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
    name = str(ours.dtype).removeprefix("torch.")
    if name not in TOLERANCE:
        wrong = ours != theirs
    else:
        tolerance = TOLERANCE[name]
        wrong = ~torch.isclose(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not bool(wrong.any()):
        return None
    place = int(wrong.flatten().to(torch.uint8).argmax())
    return (f"{int(wrong.sum())} of {ours.numel()} elements differ, the first is "
            f"{ours.flatten()[place].item()!r} instead of {theirs.flatten()[place].item()!r}")


def run_case(library, seed):
    """Runs a case. Returns the difference, or None, and whether PyTorch accepted the program."""
    chooser = random.Random(seed)
    torch.manual_seed(seed)
    kind = chooser.choice(["float", "float", "float", "integer", "complex"])
    program = Program(chooser, kind)
    rank = chooser.choice([0, 1, 1, 2, 2, 3, 4, 5])
    shape = [chooser.choice([1, 2, 3, 4, 7, 8, 16, 33, 64, 129][:10 if rank < 4 else 6]) for _ in range(rank)]
    if chooser.random() < 0.03 and rank:
        shape[chooser.randrange(rank)] = 0
    inputs = [tensor_of(chooser, dtype, shape) for dtype in types_of(chooser, kind, program.inputs)]
    given = {name: value for name, value in program.scalars.items() if chooser.random() < 0.3}
    description = f"{program.code} for {[(str(x.dtype), tuple(x.shape), x.stride()) for x in inputs]} with {program.scalars}"
    try:
        if program.outputs is None:
            jitted = torch.cuda.jiterator._create_jit_fn(program.code, **program.scalars)
        else:
            jitted = torch.cuda.jiterator._create_multi_output_jit_fn(program.code, program.outputs, **program.scalars)
        expected = jitted(*inputs, **given)
        torch.cuda.synchronize()
    except (RuntimeError, AssertionError, KeyError) as error:
        if "CUDA error" in str(error):
            raise
        return f"PyTorch fails: {str(error).splitlines()[0]}: {description}", False
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    outputs = [torch.full_like(one, 1) if chooser.random() < 0.7 else
               torch.full((*one.shape, 2), 1, dtype=one.dtype, device="cuda")[..., 0] for one in expected]
    try:
        function = jiterating.Function(library, program.code, program.outputs, **program.scalars)
        function.call([described(x) for x in inputs], [described(x) for x in outputs], **given)
        library.synchronize()
    except plinth.Error as error:
        return f"plinth fails: {error}: {description}", True
    for number, (ours, theirs) in enumerate(zip(outputs, expected)):
        found = difference(ours, theirs)
        if found:
            return f"output {number}: {found}: {description}", True
    return None, True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libplinth.so")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first case; the next cases use consecutive seeds")
    parser.add_argument("--seconds", type=float, default=1e9, help="time limit for starting cases")
    arguments = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        print("needs PyTorch and a GPU")
        sys.exit(77)
    torch.zeros(1, device="cuda")
    library = plinth.Library(arguments.library, "cuda")
    begin, done, failed, refused = time.monotonic(), 0, 0, 0
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        if time.monotonic() - begin > arguments.seconds:
            break
        found, compared = run_case(library, seed)
        done += compared
        refused += not compared
        if found:
            failed += compared
            print(f"seed {seed}: {found}")
    print(f"PyTorch {torch.__version__}: {done} programs compared, {failed} differ, {refused} rejected by PyTorch, "
          f"{time.monotonic() - begin:.0f} s")
    # If PyTorch rejects more than a third, the generator of programs is wrong.
    sys.exit(1 if failed or refused * 3 > done else 0)


if __name__ == "__main__":
    main()
