#!/usr/bin/env python3
"""Compares collectives of plinth with torch.cuda.comm, on GPUs: `against_torch.py --library libplinth.so --cases 2000 --seed 1`.

Each case is one call with tensors of random types, shapes and strides, on random devices. All bytes of the results must be
equal. Sums are compared with PyTorch's own additions, because NCCL adds in another order: plinth is set to PyTorch's order,
and NCCL is disabled in PyTorch. Prints a line for each case that differs, with the arguments that reproduce it.
"""

import argparse
import ctypes
import pathlib
import random
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "random"))

import plinth

try:
    import torch
    from torch.cuda import comm
except ImportError:
    torch = None

DTYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
          "bool"]
ORDER_TORCH = 1


def numbers(chooser, dtype, count):
    """Returns random elements of several magnitudes."""
    if dtype == "bool":
        return torch.tensor([chooser.random() < 0.5 for _ in range(count)], dtype=torch.bool)
    generator = torch.Generator().manual_seed(chooser.getrandbits(40))
    kind = getattr(torch, dtype)
    if kind.is_floating_point or kind.is_complex:
        wide = torch.complex128 if kind.is_complex else torch.float64
        return (torch.randn(count, generator=generator, dtype=wide) * 10.0 ** chooser.randint(-3, 3)).to(kind)
    return torch.randint(-100, 100, (count,), generator=generator).to(kind)


def tensor_of(chooser, dtype, shape, device):
    """Returns a tensor of a shape: contiguous, permuted, with gaps, or with an offset."""
    count = 1
    for size in shape:
        count *= size
    layout = chooser.choice(["dense", "dense", "permuted", "gaps", "offset"])
    if layout == "permuted" and len(shape) > 1:
        order = list(range(len(shape)))
        chooser.shuffle(order)
        back = [order.index(dimension) for dimension in range(len(shape))]
        return numbers(chooser, dtype, count).reshape([shape[dimension] for dimension in order]).permute(back).to(device)
    if layout == "gaps" and shape:
        wide = list(shape)
        wide[-1] += 3
        extra = count // shape[-1] * wide[-1] if shape[-1] else 0
        if extra:
            return numbers(chooser, dtype, extra).reshape(wide).to(device)[..., 1:1 + shape[-1]]
    if layout == "offset":
        return numbers(chooser, dtype, count + 1).to(device)[1:].reshape(shape)
    return numbers(chooser, dtype, count).reshape(shape).to(device)


# PyTorch's empty tensors have a null pointer, and plinth allocates outputs with a null pointer, so they get this address.
NON_NULL = 256


def described(tensor):
    device = tensor.device.index if tensor.is_cuda else 0
    return plinth.descriptor(tensor.data_ptr() or NON_NULL, device, str(tensor.dtype).removeprefix("torch."), list(tensor.shape),
                             list(tensor.stride()), 0, plinth.CUDA if tensor.is_cuda else plinth.CPU)


def array_of(descriptors):
    return (plinth.DLTensor * max(1, len(descriptors)))(*descriptors)


def as_given(results, dtype):
    """Converts results to the inputs' type: PyTorch returns complex tensors as pairs of real numbers."""
    if dtype not in ("complex64", "complex128"):
        return list(results)
    return [result if result.is_complex() else torch.view_as_complex(result.clone(memory_format=torch.contiguous_format)) for result in results]


def like(tensor, device=None, shape=None):
    """Returns an output for plinth with PyTorch's own layout, so that only the elements can differ."""
    place = tensor.device if device is None else torch.device("cuda", device)
    return torch.empty_like(tensor, device=place) if shape is None else torch.empty(shape, dtype=tensor.dtype, device=place)


class Case:
    """One call on both sides. The method of the operation yields PyTorch's results and then plinth's outputs."""

    def __init__(self, library, chooser, devices):
        self.library, self.chooser, self.devices = library, chooser, devices
        self.dtype = chooser.choice(DTYPES)
        self.rank = chooser.randint(0, 4)
        self.shape = [chooser.choice([0, 1, 2, 3, 5, 8, 17, 33] if chooser.random() < 0.9 else [64, 100])
                      for _ in range(self.rank)]
        self.dim = chooser.randint(-self.rank - 1, self.rank)
        self.operation = chooser.choice(["broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter",
                                         "gather"])
        if self.dtype.startswith("complex") and self.operation in ("scatter", "gather"):
            # PyTorch treats the two parts of a complex number as an additional last dimension.
            self.dim = abs(self.dim) % self.rank if self.rank else 0
            self.dtype = self.dtype if self.rank else "float64"

    def __str__(self):
        return f"{self.operation} of {self.dtype} {self.shape} dim {self.dim}"

    def pick(self, count=None):
        count = count or self.chooser.randint(1, 6)
        return [self.chooser.randrange(self.devices) for _ in range(count)]

    def broadcast(self):
        source = tensor_of(self.chooser, self.dtype, self.shape, self.chooser.choice(["cpu", "cuda:0", "cuda:1"]))
        devices = self.pick()
        yield as_given(comm.broadcast(source, devices), self.dtype)
        outputs = [like(source, device) for device in devices]
        yield outputs
        self.library.call("comm_broadcast", ctypes.byref(described(source)), array_of([described(out) for out in outputs]),
                          ctypes.c_size_t(len(outputs)))

    def lists(self):
        count = self.chooser.randint(1, 40)
        shapes = [[self.chooser.choice([1, 2, 5, 30]) for _ in range(self.chooser.randint(0, 3))] for _ in range(count)]
        return [(self.chooser.choice(DTYPES), shape) for shape in shapes]

    def broadcast_coalesced(self):
        devices = self.chooser.sample(range(self.devices), self.chooser.randint(1, self.devices))
        sources = [tensor_of(self.chooser, dtype, shape, f"cuda:{devices[0]}") for dtype, shape in self.lists()]
        yield [tensor for row in comm.broadcast_coalesced(sources, devices) for tensor in row]
        outputs = [like(source, device, source.shape) for device in devices for source in sources]
        yield outputs
        self.library.call("comm_broadcast_coalesced", array_of([described(one) for one in sources]),
                          ctypes.c_size_t(len(sources)), (ctypes.c_int32 * len(devices))(*devices),
                          ctypes.c_size_t(len(devices)), ctypes.c_size_t(10485760), array_of([described(one) for one in outputs]))

    def reduce_add(self):
        devices = self.chooser.sample(range(self.devices), self.chooser.randint(1, self.devices))
        devices += self.pick(1) if self.chooser.random() < 0.2 else []
        inputs = [tensor_of(self.chooser, self.dtype, self.shape, f"cuda:{device}") for device in devices]
        root = self.chooser.choice(devices)
        yield [comm.reduce_add(inputs, root)]
        outputs = [like(inputs[0], root, self.shape)]
        yield outputs
        self.library.call("comm_reduce_add", array_of([described(one) for one in inputs]), ctypes.c_size_t(len(inputs)),
                          ctypes.byref(described(outputs[0])))

    def reduce_add_coalesced(self):
        devices = self.chooser.sample(range(self.devices), self.chooser.randint(1, self.devices))
        kinds = self.lists()
        inputs = [[tensor_of(self.chooser, dtype, shape, f"cuda:{device}").contiguous() for dtype, shape in kinds]
                  for device in devices]
        root = self.chooser.choice(devices)
        yield list(comm.reduce_add_coalesced(inputs, root))
        outputs = [like(one, root, one.shape) for one in inputs[0]]
        yield outputs
        self.library.call("comm_reduce_add_coalesced", array_of([described(one) for row in inputs for one in row]),
                          ctypes.c_size_t(len(kinds)), ctypes.c_size_t(len(devices)), ctypes.c_size_t(10485760),
                          array_of([described(one) for one in outputs]))

    def scatter(self):
        source = tensor_of(self.chooser, self.dtype, self.shape, self.chooser.choice(["cpu", "cuda:0", "cuda:1"]))
        devices, sizes = self.pick(), None
        if self.rank and -self.rank <= self.dim < self.rank and self.chooser.random() < 0.4:
            cuts = sorted(self.chooser.randint(0, self.shape[self.dim]) for _ in devices[1:])
            sizes = [end - begin for begin, end in zip([0, *cuts], [*cuts, self.shape[self.dim]])]
        theirs = as_given(comm.scatter(source, devices, sizes, self.dim), self.dtype)
        yield theirs
        if not theirs:
            yield []
            return
        # If PyTorch returns fewer chunks, plinth's last ones are empty.
        empty = list(theirs[0].shape)
        empty[self.dim] = 0
        theirs += [theirs[0].new_empty(empty, device=f"cuda:{device}") for device in devices[len(theirs):]]
        outputs = [like(one, device, one.shape) for one, device in zip(theirs, devices)]
        yield outputs
        self.library.call("comm_scatter", ctypes.byref(described(source)), array_of([described(one) for one in outputs]),
                          ctypes.c_size_t(len(outputs)), None, ctypes.c_int32(self.dim), None)

    def gather(self):
        devices, inputs = self.pick(), []
        for device in devices:
            shape = list(self.shape)
            if self.rank and -self.rank <= self.dim < self.rank:
                shape[self.dim] = self.chooser.randint(0, 9)
            inputs.append(tensor_of(self.chooser, self.dtype, shape, f"cuda:{device}"))
        destination = self.chooser.choice([*range(self.devices), "cpu"])
        theirs, = as_given([comm.gather(inputs, self.dim, torch.device(destination))], self.dtype)
        yield [theirs]
        output = torch.empty_like(theirs)
        yield [output]
        self.library.call("comm_gather", array_of([described(one) for one in inputs]), ctypes.c_size_t(len(inputs)),
                          ctypes.c_int32(self.dim), ctypes.byref(described(output)))

    def run(self):
        """Runs the case. Returns the error, or None, and whether PyTorch rejected the call."""
        steps = getattr(self, self.operation)()
        try:
            theirs = next(steps)
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            if "CUDA error" in str(error) or "out of memory" in str(error):
                raise
            return None, True
        ours = next(steps)
        for device in range(self.devices):
            torch.cuda.synchronize(device)
        try:
            next(steps, None)
        except plinth.Error as error:
            return f"plinth fails: {error}", False
        for device in range(self.devices):
            torch.cuda.synchronize(device)
        for index, (mine, its) in enumerate(zip(ours, theirs, strict=True)):
            its, = as_given([its], str(mine.dtype).removeprefix("torch."))
            if mine.shape != its.shape or mine.dtype != its.dtype:
                return f"result {index} is {mine.dtype} {list(mine.shape)} instead of {its.dtype} {list(its.shape)}", False
            mine, its = bytes_of(mine), bytes_of(its)
            if not torch.equal(mine, its):
                return f"result {index} differs in {int((mine != its).sum())} of {mine.numel()} bytes", False
        return None, False


def bytes_of(tensor):
    """The elements' bytes. A copy, since contiguous() leaves a single element the stride that view() refuses."""
    copy = tensor.cpu().clone(memory_format=torch.contiguous_format)
    return copy.flatten().view(torch.uint8) if copy.numel() else copy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="target/release/libplinth.so", help="libplinth.so")
    parser.add_argument("--cases", type=int, default=2000, help="number of cases")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cases")
    parser.add_argument("--only", type=int, help="run only the case with this number")
    parser.add_argument("--split", action="store_true", help="divide messages of every size among the devices")
    parser.add_argument("--show", type=int, default=40, help="differences to print")
    arguments = parser.parse_args()
    if torch is None or not torch.cuda.is_available() or torch.cuda.device_count() < 2:
        print("needs PyTorch and two GPUs")
        return 77
    warnings.simplefilter("ignore")
    torch.cuda.nccl.is_available = lambda *_: False
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)
    library = plinth.Library(arguments.library, "cuda")
    library.call("comm_set_reduction_order", ctypes.c_int32(ORDER_TORCH))
    if arguments.split:
        for which in range(4):
            library.call("comm_set_threshold", ctypes.c_int32(which), ctypes.c_size_t(1024))
    devices = torch.cuda.device_count()
    print(f"{devices} times {torch.cuda.get_device_name()}, PyTorch {torch.__version__}, seed {arguments.seed}")
    begun, refused, failed = time.monotonic(), 0, 0
    ran = {}
    for number in [arguments.only] if arguments.only is not None else range(arguments.cases):
        case = Case(library, random.Random(f"{arguments.seed} {number}"), devices)
        wrong, both = case.run()
        refused += both
        ran[case.operation] = ran.get(case.operation, 0) + 1
        if wrong:
            failed += 1
            if failed <= arguments.show:
                print(f"DIFFERS case {number}: {case}: {wrong}; reproduce: --seed {arguments.seed} --only {number}", flush=True)
    print(f"{sum(ran.values())} cases ({', '.join(f'{count} {name}' for name, count in sorted(ran.items()))}), {refused} "
          f"rejected by PyTorch, {time.monotonic() - begun:.0f} s: {f'{failed} differ' if failed else 'all are bitwise equal'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
