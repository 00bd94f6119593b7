"""Random cases for against_torch.py: the operation, memory layout, arguments and generator state of each fill.

Each case is generated from the run's seed and the case's number, so that a single case can be reproduced.
"""

import dataclasses
import math
import random

import plinth

SEEDS = [0, 1, 42, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
# With the last offsets, the 64-bit counter carries between its words, within a fill or before it.
OFFSETS = [0, 0, 0, 4, 8, 400, 2**34 - 4, 2**34 - 8, 2**34, 2**40, 2**62]
BLOCK, H200_LANES = 256, 256 * 1056

FLOAT_OPERATIONS = ["uniform", "normal", "log_normal", "exponential", "cauchy"]
OPERATIONS = FLOAT_OPERATIONS + ["geometric", "bernoulli", "bernoulli_tensor", "random", "random_from", "random_range",
                                 "randperm"]
SIGNED = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
MOST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38,
        "float64": 1.7976931348623157e308, "complex64": 3.4028234663852886e38, "complex128": 1.7976931348623157e308}
# Dtypes; more important ones are repeated.
COMMON = plinth.FLOATING * 2 + ["uint8", "int8", "int16", "int32", "int64", "bool"]


@dataclasses.dataclass
class Layout:
    """A tensor in a storage. Strides, begin and the storage's size are in elements."""
    shape: list
    strides: list
    begin: int
    storage: int

    @property
    def count(self):
        return math.prod(self.shape)


@dataclasses.dataclass
class Step:
    """A fill. `p` is the dtype and layout of a tensor of probabilities, if the operation takes one."""
    operation: str
    dtype: str
    arguments: tuple
    layout: Layout
    p: tuple = None

    def __str__(self):
        text = f"{self.operation}{self.arguments} {self.dtype} {layout_text(self.layout)}"
        return text + (f" p {self.p[0]} {layout_text(self.p[1])}" if self.p else "")


@dataclasses.dataclass
class Case:
    """Consecutive fills from one generator."""
    seed: int
    offset: int
    steps: list


def layout_text(layout):
    return f"shape={layout.shape} strides={layout.strides} begin={layout.begin}"


def contiguous(shape):
    strides, step = [], 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= max(1, extent)
    return strides


def placed(shape, strides, begin, tail):
    """Returns the layout of a shape and strides, with `begin` elements before it and `tail` elements after it."""
    span = sum((extent - 1) * stride for extent, stride in zip(shape, strides) if extent > 1) + 1
    return Layout(list(shape), list(strides), begin, begin + (span if math.prod(shape) else 0) + tail)


def some_count(rng):
    """Returns an element count: a small one, one near a power of two, or one near a multiple of a whole grid."""
    kind = rng.randrange(10)
    if kind < 4:
        return rng.randrange(1, 3000)
    if kind < 6:
        return max(1, 2 ** rng.randrange(21) + rng.randrange(-1, 2))
    if kind < 7:
        return rng.choice([1, 2, 3, 255, 256, 257, 511, 513, 1023, 1025])
    return max(1, H200_LANES * rng.choice([1, 2, 3, 4, 5, 8, 9]) + rng.choice([-257, -1, 0, 1, 3, 256, 1000]))


def some_shape(rng):
    if rng.random() < 0.35:
        return [some_count(rng)]
    rank = rng.randrange(7)
    shape = [1] * rank
    left = rng.choice([50, 3000, 300_000, 3_000_000])
    for d in rng.sample(range(rank), rank):
        shape[d] = rng.choice([1, 1, 2, 3, 5, 7, 16, 33, 64, 100, 257, 1056, 4096])
        shape[d] = min(shape[d], max(1, left))
        left //= shape[d]
    if rank and rng.random() < 0.06:
        shape[rng.randrange(rank)] = 0
    return shape


def some_layout(rng, shape=None, most=40_000_000):
    """Returns a layout in which no two elements overlap."""
    shape = some_shape(rng) if shape is None else shape
    begin, tail = rng.choice([0, 0, 1, 2, 3, 5, 8, 13]), rng.choice([0, 1, 7, 64])
    kind = rng.randrange(6)
    if kind < 2:
        strides = contiguous(shape)
    elif kind == 2 and len(shape) == 4:
        n, c, h, w = [max(1, extent) for extent in shape]
        strides = [c * h * w, 1, w * c, c]
    else:
        # Dimensions in any memory order, with steps and gaps.
        strides, step = [0] * len(shape), rng.choice([1, 1, 1, 2, 3])
        for d in rng.sample(range(len(shape)), len(shape)):
            strides[d] = step
            step = step * max(1, shape[d]) + (rng.choice([0, 0, 1, 5]) if kind > 3 else 0)
    for d, extent in enumerate(shape):
        # The stride of a dimension of one element is irrelevant, so any value is valid.
        if extent == 1 and rng.random() < 0.4:
            strides[d] = rng.choice([0, 1, 7, 12345, 10**12])
    layout = placed(shape, strides, begin, tail)
    return layout if layout.storage <= most else placed(shape, contiguous(shape), begin, tail)


def some_float(rng, *special):
    return rng.choice(special) if special and rng.random() < 0.5 else rng.choice([-1, 1]) * 10 ** rng.uniform(-4, 4)


def bounds_of(dtype):
    """Returns the smallest and the largest random integer of a dtype."""
    if dtype == "bool":
        return 0, 1
    if dtype in SIGNED:
        return -(2 ** (SIGNED[dtype] - 1)), 2 ** (SIGNED[dtype] - 1) - 1
    if dtype in UNSIGNED:
        return 0, min(2 ** UNSIGNED[dtype], 2**63) - 1
    return -(2 ** DIGITS[dtype]), 2 ** DIGITS[dtype]


def some_range(rng, dtype):
    """Returns the bounds of a half-open range of integers, of any width."""
    least, most = bounds_of(dtype)
    if rng.random() < 0.15:
        return least, min(most + 1, 2**63 - 1)
    width = min(rng.choice([1, 2, 3, 10, 2**28 - 1, 2**28, 2**28 + 1, 2**32 - 1, 2**32, 2**32 + 1,
                            rng.randrange(1, 2 ** rng.randrange(1, 64) + 1)]), most + 1 - least, 2**63 - 1)
    low = rng.randint(least, most + 1 - width)
    if rng.random() < 0.3:
        low = max(least, min(0, most + 1 - width))
    return low, min(low + width, 2**63 - 1) if low + width > low else low + 1


def some_arguments(rng, operation, dtype):
    """Returns arguments that PyTorch accepts."""
    if operation == "uniform":
        half = min(MOST[dtype], 1e30) / 2
        low, high = rng.choice([(0.0, 1.0), (-1.0, 1.0), (0.0, 0.0), (5.0, 5.0), (-3.0, 7.0), (0.1, 0.7), (1.0, 1.001),
                                (1e-8, 1.0), (-half, half), (0.0, half), sorted([some_float(rng), some_float(rng)])])
        return low, high
    if operation in ("normal", "log_normal"):
        least = 0.0 if operation == "normal" else 1e-3
        return some_float(rng, 0.0, 1.5, -1.0), rng.choice([1.0, 2.0, least, abs(some_float(rng))])
    if operation == "exponential":
        return (abs(some_float(rng, 1.0, 1.5, 1e-3, 1e3)),)
    if operation == "cauchy":
        return some_float(rng, 0.0, 1.0), abs(some_float(rng, 1.0, 0.5))
    if operation == "geometric":
        # Numbers that overflow the dtype are undefined, so a narrow dtype needs probabilities that yield small numbers.
        narrow = dtype in ("int8", "uint8")
        return (rng.choice([0.3, 0.5, 0.999, 1e-3, 1e-6, rng.uniform(0.01, 0.99)]) if not narrow else
                rng.choice([0.5, 0.7, 0.999, rng.uniform(0.4, 0.99)]),)
    if operation == "bernoulli":
        return (rng.choice([0.0, 1.0, 0.3, 0.5, 1e-9, 1 - 1e-9, rng.random()]),)
    if operation == "random_range":
        if dtype in DIGITS and rng.random() < 0.1:
            # Bounds wider than the significand: PyTorch warns, and rounds them.
            low, high = sorted([rng.randrange(-(2**40), 2**40), rng.randrange(-(2**40), 2**40)])
            return (low, high + 1) if dtype != "float16" else (-3000, 5000)
        return some_range(rng, dtype)
    if operation == "random_from":
        if dtype in ("int64", "float32", "float64", "bfloat16") and rng.random() < 0.3:
            return (-(2**63),)
        return (some_range(rng, dtype)[0],)
    return ()


# Arguments that PyTorch rejects for every dtype; those of the first entry need a floating-point dtype.
INVALID = {
    "uniform": [(1.0, 0.0), (math.nan, 1.0), (0.0, math.nan), (-3e38 * 1e300, 0.0), (0.0, math.inf)],
    "normal": [(0.0, -1.0), (0.0, -1e-30), (math.nan, 1.0)],
    "log_normal": [(0.0, 0.0), (0.0, -1.0)], "exponential": [(0.0,), (-1.0,)], "cauchy": [(0.0, 0.0), (0.0, -2.0)],
    "geometric": [(0.0,), (1.0,), (-0.5,), (2.0,)], "bernoulli": [(-0.1,), (1.1,), (math.nan,)],
    "random_range": [(5, 5), (7, 3), (-(2**62), 2**62), (0, 2**63 - 1)], "random_from": [(2**62,), (-(2**62),)],
}


def some_p(rng, layout):
    """Returns the dtype and layout of probabilities that broadcast to a layout's shape."""
    shape = list(layout.shape)
    for d in range(len(shape)):
        if rng.random() < 0.3:
            shape[d] = 1
    while shape and shape[0] == 1 and rng.random() < 0.5:
        del shape[0]
    if rng.random() < 0.3:
        shape = list(layout.shape)
    return rng.choice(plinth.FLOATING), some_layout(rng, shape)


def some_step(rng):
    operation = rng.choice(OPERATIONS)
    dtype = rng.choice(plinth.FLOATING if operation in FLOAT_OPERATIONS else COMMON)
    if operation == "randperm":
        return some_permutation(rng)
    if operation not in FLOAT_OPERATIONS and rng.random() < 0.05:
        dtype = rng.choice(["uint16", "uint32", "uint64"])
    if operation in FLOAT_OPERATIONS and rng.random() < 0.02:
        dtype = rng.choice(["int32", "bool"])
    if operation in ("uniform", "normal") and rng.random() < 0.15:
        dtype = rng.choice(["complex64", "complex128"])
    layout = some_layout(rng)
    if rng.random() < 0.02 and any(extent > 1 for extent in layout.shape):
        # An expanded tensor with overlapping elements, which every fill must reject.
        d = rng.choice([d for d, extent in enumerate(layout.shape) if extent > 1])
        layout.strides[d] = 0
    invalid = INVALID.get(operation)
    arguments = some_arguments(rng, operation, dtype if dtype in MOST or operation not in FLOAT_OPERATIONS else "float32")
    if invalid and rng.random() < 0.05:
        arguments = rng.choice(invalid)
    return Step(operation, dtype, arguments, layout, some_p(rng, layout) if operation == "bernoulli_tensor" else None)


def some_permutation(rng):
    dtype = rng.choice(["int64"] * 4 + ["int32", "int16", "int8", "uint8", "float16", "float32", "float64"])
    count = rng.choice([0, 1, 2, 3, 5, 100, 255, 256, 257, 1000, 2048, 2049, 29_999, 30_000, 30_001, 2**20,
                        rng.randrange(3000), rng.randrange(300_000), 2 ** rng.randrange(25) + rng.randrange(-1, 2)])
    # Mostly limited to the numbers that the dtype represents.
    if rng.random() < 0.9 and dtype != "int64":
        least, most = bounds_of(dtype)
        count = min(count, most + 1)
    stride, begin = rng.choice([1, 1, 1, 2]), rng.choice([0, 0, 1, 3])
    return Step("randperm", dtype, (), placed([max(0, count)], [stride], begin, rng.choice([0, 5])))


def big_step(rng):
    """Returns a fill of a tensor with sizes or offsets beyond 31 bits, which PyTorch fills in parts."""
    operation, dtype = rng.choice([("uniform", "float32"), ("normal", "float16"), ("random", "uint8"),
                                   ("bernoulli", "uint8"), ("random_range", "int64"), ("uniform", "float64"),
                                   ("exponential", "bfloat16"), ("bernoulli_tensor", "float32")])
    size = plinth.size_of(dtype)
    limit = 2**31 // size
    shape, strides = rng.choice([
        ([limit + 7], None), ([limit + 5], None), ([limit], None), ([limit - 1], None), ([2 * limit + 3], None),
        ([3, limit // 2 + 11], None), ([3, 5], [limit // 2 + 64, 1]), ([2, 3], [limit + 64, 1]),
        ([1000, 30], [limit // 900, 1]), ([30, 1000], [1, limit // 900]), ([5, 7, 11], [limit // 3, 1, limit // 50]),
        ([limit // 64, 3], [70, 2])])
    layout = placed(shape, strides or contiguous(shape), rng.choice([0, 1, 3]), rng.choice([0, 9]))
    p = (rng.choice(plinth.FLOATING), placed([shape[-1]] if len(shape) > 1 else [1], [1], 0, 0))
    return Step(operation, dtype, some_arguments(rng, operation, dtype), layout, p if operation == "bernoulli_tensor" else None)


def make(seed, number, big_share):
    """Returns the case with a number in the run of a seed."""
    rng = random.Random(f"{seed}/{number}")
    state = rng.choice(SEEDS + [rng.getrandbits(64)] * 8), rng.choice(OFFSETS + [4 * rng.getrandbits(20)] * 3)
    if rng.random() < big_share:
        return Case(*state, [big_step(rng)])
    return Case(*state, [some_step(rng) for _ in range(rng.choice([1, 1, 2, 4]))])
