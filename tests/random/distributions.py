#!/usr/bin/env python3
"""Tests the distributions of the fills: `distributions.py --library libplinth.so --device host|cuda`.

The numbers of each fill are tested by moments, Kolmogorov-Smirnov, chi-square, and correlations between neighbours, lanes
(256 and a whole grid apart) and calls, each at a significance of one in a million (judge.py). The seeds are fixed, so runs
are reproducible. First, deliberately bad generators must be rejected, which shows that the tests are effective.
"""

import argparse
import math
import random
import sys

import judge
import plinth

# The size of a sample, and of one that is several times as long as the lag of a whole grid.
SAMPLE, LONG = 1 << 16, 600_000
SEEDS = [1, 2**63 + 11]

# Fills, their arguments, and the expected distribution.
CONTINUOUS = [
    ("uniform", (0.0, 1.0), judge.uniform(0, 1)), ("uniform", (-3.0, 7.0), judge.uniform(-3, 7)),
    ("normal", (0.0, 1.0), judge.normal(0, 1)), ("normal", (1.5, 2.0), judge.normal(1.5, 2)),
    ("log_normal", (1.0, 2.0), judge.log_normal(1, 2)), ("exponential", (1.5,), judge.exponential(1.5)),
    ("cauchy", (0.5, 2.0), judge.cauchy(0.5, 2)),
]
DIGITS = {"float16": 11, "bfloat16": 8}
LEAST = {"float16": -24, "bfloat16": -133}


def edge_of(dtype):
    """Returns a function for the upper end of the interval that rounds to a number; None if rounding is negligible."""
    if dtype not in DIGITS:
        return None

    def edge(number):
        if not math.isfinite(number):
            return number
        unit = 2.0 ** max(math.frexp(number)[1] - DIGITS[dtype], LEAST[dtype])
        return number + unit / 2

    return edge


def folded(distribution, low, high, dtype):
    """Returns the CDF of rounded uniform numbers: those that round to `high` become `low`."""
    unit = 2.0 ** (math.frexp(high)[1] - (0 if math.frexp(high)[0] > 0.5 else 1) - DIGITS[dtype])
    moved = 1 - distribution.cdf(high - unit / 2)
    return lambda x: min(1.0, distribution.cdf(x) + moved) if x >= low else 0.0


class Report:
    """Prints a line for each sample, and counts failures."""

    def __init__(self):
        self.samples = self.rows = self.failed = 0

    def add(self, name, rows):
        bad = judge.failures(rows)
        worst = max(rows, key=lambda row: row[1] / row[2] if row[2] else math.inf)
        print(f"{'FAILED' if bad else 'ok':6} {name:44} {len(rows):3} statistics; closest to its limit: "
              f"{worst[0]} {worst[1]:.3g} of {worst[2]:.3g}")
        for row in bad:
            print(f"       {row[0]}: {row[1]:.6g}, at most {row[2]:.6g}")
        self.samples += 1
        self.rows += len(rows)
        self.failed += bool(bad)


def continuous(library, report, lanes):
    for name, arguments, distribution in CONTINUOUS:
        for dtype in plinth.FLOATING:
            # The tail of one distribution overflows 16-bit formats: infinities are expected, and tested like numbers.
            rows = []
            for seed in SEEDS:
                with library.tensor(dtype, [SAMPLE]) as tensor:
                    library.fill(name, tensor, *arguments, seed=seed)
                    numbers = tensor.values()
                edge = edge_of(dtype)
                cdf = folded(distribution, *arguments, dtype) if edge and name == "uniform" else distribution.cdf
                rows += judge.kolmogorov(numbers, cdf, edge)
                if not edge:
                    rows += judge.moments(numbers, distribution)
                    rows += judge.independent(numbers, distribution.cdf, [1, 256])
            report.add(f"{name}{arguments} {dtype}", rows)
    for name, arguments, distribution in CONTINUOUS[:3:2]:
        with library.tensor("float32", [LONG]) as tensor:
            library.fill(name, tensor, *arguments, seed=5)
            numbers = tensor.values()
        report.add(f"{name}{arguments} float32, {LONG} numbers", judge.independent(numbers, distribution.cdf, [lanes]))


def sequences(library, report):
    """Tests the independence of consecutive calls, and of generators with neighbouring seeds."""
    for title, seeds in [("calls", None), ("seeds", range(100, 356))]:
        rows, numbers = [], []
        with library.generator(0, 9) as generator, library.tensor("float32", [256]) as tensor:
            for index in range(256):
                seed = seeds[index] if seeds else None
                library.fill("uniform", tensor, 0.0, 1.0, generator=generator, seed=seed)
                numbers += tensor.values()
        rows += judge.kolmogorov(numbers, judge.uniform(0, 1).cdf)
        rows += judge.independent(numbers, judge.uniform(0, 1).cdf, [1, 255, 256, 257])
        report.add(f"uniform float32, 256 {title} of 256", rows)


def geometric(library, report):
    distribution = judge.geometric(0.3)
    for dtype in plinth.FLOATING + ["int64", "int32", "int16", "int8", "uint8"]:
        rows = []
        for seed in SEEDS:
            with library.tensor(dtype, [SAMPLE]) as tensor:
                library.fill("geometric", tensor, 0.3, seed=seed)
                numbers = tensor.values()
            rows += judge.kolmogorov(numbers, distribution.cdf, lambda number: number)
            rows += judge.moments(numbers, distribution)
            chances = [0.3 * 0.7**k for k in range(20)]
            counts = judge.histogram((min(20, int(number) - 1) for number in numbers), 21)
            rows += judge.chi_square(counts, chances + [0.7**20, 0.0])
        report.add(f"geometric(0.3) {dtype}", rows)


def bernoulli(library, report):
    for dtype in plinth.FLOATING + plinth.INTEGERS[:5] + ["bool"]:
        rows = []
        for p in (0.3, 0.001, 0.5):
            with library.tensor(dtype, [SAMPLE]) as tensor:
                library.fill("bernoulli", tensor, p, seed=3)
                counts = judge.histogram(map(int, tensor.values()), 2)
            rows += judge.chi_square(counts, [1 - p, p, 0.0], f"chi2 of {p}")[:1]
        report.add(f"bernoulli {dtype}", rows)
    # A probability for each element: eight values, broadcast.
    chances = [0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 0.875, 1.0]
    with library.tensor("float32", [SAMPLE // 8, 8]) as tensor, library.tensor("float64", [8]) as p:
        p.write(b"".join(memoryview(plinth.ctypes.c_double(chance)).cast("B").tobytes() for chance in chances))
        library.fill("bernoulli_tensor", tensor, p, seed=4)
        numbers = tensor.values()
    rows = []
    for index, chance in enumerate(chances):
        counts = judge.histogram(map(int, numbers[index::8]), 2)
        if 0 < chance < 1:
            rows += judge.chi_square(counts, [1 - chance, chance, 0.0], f"chi2 of {chance}")[:1]
        else:
            rows.append((f"values other than {chance:g}", counts[1 if chance == 0 else 0], 0.5))
    report.add("bernoulli_tensor, 8 probabilities", rows)


def integers(library, report):
    widths = {"int8": 7, "uint8": 8, "int16": 15, "int32": 31, "int64": 63, "float16": 11, "bfloat16": 8, "float32": 24,
              "float64": 53}
    for dtype, width in widths.items():
        with library.tensor(dtype, [SAMPLE]) as tensor:
            library.fill("random", tensor, seed=6)
            numbers = list(map(int, tensor.values()))
            # Floating-point results may be the power of two itself, which has negligible probability.
            limit = 2**width if dtype in plinth.FLOATING and dtype != "float64" else 2**width - 1
            rows = [("outside", sum(not 0 <= number <= limit for number in numbers), 0.5)]
            if dtype not in plinth.FLOATING:
                rows += judge.bits(numbers, width)
            else:
                rows += judge.kolmogorov([number / 2**width for number in numbers], judge.uniform(0, 1).cdf,
                                         None if width > 16 else lambda x, step=2.0**-width: x + step)
            library.fill("random_range", tensor, -5 if dtype != "uint8" else 3, 100, seed=8)
            low = -5 if dtype != "uint8" else 3
            rows += judge.even(judge.histogram((int(number) - low for number in tensor.values()), 100 - low), "range")
        report.add(f"random and random_range {dtype}", rows)
    rows = []
    for low, high in [(0, 2**28 - 1), (-(2**28), 2**28), (0, 3 * 2**40), (-(2**62), 2**62 + 5), (-(2**63), 2**63 - 1)]:
        with library.tensor("int64", [SAMPLE]) as tensor:
            library.fill("random_range", tensor, low, high, seed=10)
            scaled = [(number - low) / (high - low) for number in tensor.values()]
        rows += judge.kolmogorov(scaled, judge.uniform(0, 1).cdf) + judge.independent(scaled, lambda x: x, [1])
    with library.tensor("int64", [SAMPLE]) as tensor:
        library.fill("random_from", tensor, -(2**63), seed=12)
        rows += judge.bits([number % 2**64 for number in tensor.values()], 64)
    report.add("random_range and random_from of wide ranges, int64", rows)


def permutations(library, report):
    for count in (4, 5):
        with library.generator(0, 13) as generator, library.tensor("int64", [count]) as tensor:
            seen = {}
            for _ in range(60 * math.factorial(count)):
                library.fill("randperm", tensor, generator=generator)
                order = tuple(tensor.values())
                seen[order] = seen.get(order, 0) + 1
        orders = math.factorial(count)
        invalid = sum(times for order, times in seen.items() if sorted(order) != list(range(count)))
        rows = [("invalid permutations", invalid, 0.5)]
        rows += judge.chi_square(list(seen.values()) + [0] * max(0, orders - len(seen)), name=f"orders of {count}")
        report.add(f"randperm of {count}, {60 * orders} times", rows)
    for count in (1000, 100_003):
        with library.tensor("int64", [count]) as tensor:
            library.fill("randperm", tensor, seed=14)
            report.add(f"randperm of {count}", judge.permutation(tensor.values()))


def controls(lanes):
    """Yields bad generators: names, and the rows of their tests."""
    good = random.Random(1)
    even = [good.random() for _ in range(SAMPLE)]
    uniform, normal = judge.uniform(0, 1), judge.normal(0, 1)
    state, congruent = 1, []
    for _ in range(SAMPLE):
        state = (state * 65539) % 2**31
        congruent.append(state)
    long_row = [good.random() for _ in range(lanes)]
    biased = list(range(100_003))
    for index in range(len(biased) // 2):
        other = good.randrange(len(biased))
        biased[index], biased[other] = biased[other], biased[index]
    yield "all rows of a grid are equal", judge.independent(long_row * 2, uniform.cdf, [lanes])
    yield "all blocks of 256 are equal", judge.independent((even[:256] * 256)[:SAMPLE], uniform.cdf, [1, 256])
    yield "each number depends on its predecessor", judge.independent(
        [(one + 0.02 * other) % 1.0 for one, other in zip(even, even[1:])], uniform.cdf, [1]) + judge.independent(
            [(one + 0.9 * other) / 1.9 for one, other in zip(even, even[1:])], uniform.cdf, [1])
    yield "numbers that are too uniform", judge.even(judge.histogram((index % 100 for index in range(SAMPLE)), 100))
    yield "a standard deviation of 1.02", judge.moments([good.gauss(0, 1.02) for _ in range(SAMPLE)], normal)
    yield "a mean of 0.03", judge.moments([good.gauss(0.03, 1) for _ in range(SAMPLE)], normal)
    yield "a normal instead of a Cauchy distribution", judge.kolmogorov(
        [good.gauss(0.5, 2) for _ in range(SAMPLE)], judge.cauchy(0.5, 2).cdf)
    yield "one NaN", judge.kolmogorov(even[:-1] + [math.nan], uniform.cdf)
    yield "a range that is one too long", judge.even(judge.histogram((good.randrange(101) for _ in range(SAMPLE)), 100))
    yield "a range that is one too short", judge.even(judge.histogram((good.randrange(99) for _ in range(SAMPLE)), 100))
    yield "the low bits of a poor congruential generator", judge.bits(congruent, 31)
    yield "the probability 0.32 instead of 0.3", judge.chi_square(
        judge.histogram((good.random() < 0.32 for _ in range(SAMPLE)), 2), [0.7, 0.3, 0.0])
    yield "an incomplete shuffle", judge.permutation(biased)
    yield "a number twice", judge.permutation(list(range(999)) + [5])
    yield "a geometric distribution from 0", judge.kolmogorov(
        [math.floor(math.log(1 - good.random()) / math.log(0.7)) for _ in range(SAMPLE)], judge.geometric(0.3).cdf,
        lambda number: number)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="target/release/libplinth.so", help="libplinth.so")
    parser.add_argument("--device", choices=["host", "cuda"], default="host", help="the kind of device")
    arguments = parser.parse_args()
    library = plinth.Library(arguments.library, arguments.device)
    properties = library.properties()
    lanes = properties.multi_processor_count * properties.max_threads_per_multi_processor
    passed = [name for name, rows in controls(lanes) if not judge.failures(rows)]
    for name in passed:
        print(f"FAILED a bad generator passes: {name}")
    if passed:
        return 1
    print(f"all bad generators are rejected; {properties.name.decode()}, {lanes} lanes, "
          f"{SAMPLE} numbers each, significance {judge.ALPHA:g}")
    report = Report()
    continuous(library, report, lanes)
    sequences(library, report)
    geometric(library, report)
    bernoulli(library, report)
    integers(library, report)
    permutations(library, report)
    print(f"{report.samples} samples, {report.rows} statistics: "
          f"{f'{report.failed} samples failed' if report.failed else 'all within their limits'}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
