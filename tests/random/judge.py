"""Statistical tests of random numbers.

A test returns rows of (name, statistic, limit): the numbers pass if no statistic is above its limit. Good numbers exceed a
limit once in a million times, if the distribution of the statistic is known.
"""

import math
import operator

ALPHA = 1e-6
# A normal deviate is above this, on either side, with probability ALPHA.
DEVIATE = 4.8916384757
# The corresponding limit of the Kolmogorov distribution, approximated by its first term.
KOLMOGOROV = math.sqrt(-math.log(ALPHA / 2) / 2)


def normal_cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


class Distribution:
    """The CDF of a distribution, and its mean, variance and fourth central moment, if they exist."""

    def __init__(self, cdf, mean=None, variance=None, fourth=None):
        self.cdf, self.mean, self.variance, self.fourth = cdf, mean, variance, fourth


def uniform(low, high):
    width = high - low
    return Distribution(lambda x: min(1.0, max(0.0, (x - low) / width)), (low + high) / 2, width**2 / 12, width**4 / 80)


def normal(mean, std):
    return Distribution(lambda x: normal_cdf((x - mean) / std), mean, std**2, 3 * std**4)


def log_normal(mean, std):
    # The fourth moment is too large for useful limits, so only the CDF is tested.
    return Distribution(lambda x: normal_cdf((math.log(x) - mean) / std) if x > 0 else 0.0)


def exponential(rate):
    return Distribution(lambda x: 1 - math.exp(-rate * x) if x > 0 else 0.0, 1 / rate, rate**-2, 9 * rate**-4)


def cauchy(median, sigma):
    return Distribution(lambda x: 0.5 + math.atan((x - median) / sigma) / math.pi)


def geometric(p):
    q = 1 - p
    variance = q / p**2
    return Distribution(lambda x: 1 - q ** math.floor(x) if x >= 1 else 0.0, 1 / p, variance, variance**2 * (9 + p * p / q))


def kolmogorov(numbers, cdf, edge=None):
    """Tests the largest distance between the numbers' distribution and the CDF. For rounded numbers, `edge` returns the
    upper end of the interval that rounds to a number, and only distances there count. Exact for discrete distributions."""
    ordered = sorted(numbers)
    count = len(ordered)
    worst = 0.0
    for index, number in enumerate(ordered):
        if edge is None:
            expected = cdf(number)
            worst = max(worst, expected - index / count, (index + 1) / count - expected)
        elif index + 1 == count or ordered[index + 1] != number:
            worst = max(worst, abs((index + 1) / count - cdf(edge(number))))
    # NaN cannot be sorted, and always fails.
    if worst != worst or any(number != number for number in numbers):
        worst = math.inf
    return [("KS", worst * math.sqrt(count), KOLMOGOROV)]


def moments(numbers, distribution):
    """Tests mean and variance, in units of their standard deviations."""
    if distribution.mean is None:
        return []
    count = len(numbers)
    first = math.fsum(numbers) / count
    second = math.fsum((number - distribution.mean) ** 2 for number in numbers) / count
    spread = math.sqrt((distribution.fourth - distribution.variance**2) / count)
    return [("mean", abs(first - distribution.mean) / math.sqrt(distribution.variance / count), DEVIATE),
            ("variance", abs(second - distribution.variance) / spread, DEVIATE)]


def chi_square_limit(freedom, deviate):
    """Returns the chi-square quantile for a normal deviate, by Wilson and Hilferty; exact for one degree of freedom."""
    if freedom == 1:
        return deviate**2 if deviate > 0 else 0.0
    part = 2 / (9 * freedom)
    return freedom * max(0.0, 1 - part + deviate * math.sqrt(part)) ** 3


def chi_square(counts, probabilities=None, name="chi2"):
    """Tests counts against their probabilities, by default equal ones. Counts that fit too well fail too."""
    total = sum(counts)
    expected = [total / len(counts)] * len(counts) if probabilities is None else [total * p for p in probabilities]
    if any(mean == 0 and count for count, mean in zip(counts, expected)):
        return [(name, math.inf, 1.0)]
    statistic = sum((count - mean) ** 2 / mean for count, mean in zip(counts, expected) if mean)
    freedom = sum(1 for mean in expected if mean) - 1
    high, low = chi_square_limit(freedom, DEVIATE), chi_square_limit(freedom, -DEVIATE)
    return [(name, statistic, high), (name + ", low", low, max(statistic, 1e-9))]


def histogram(indices, bins):
    """Counts the indices. Those outside of `bins` are counted in an additional bin, of probability 0."""
    counts = [0] * (bins + 1)
    for index in indices:
        counts[index if 0 <= index < bins else bins] += 1
    return counts


def even(counts, name="chi2"):
    """Tests a histogram with equally likely bins and an empty additional bin."""
    bins = len(counts) - 1
    return chi_square(counts, [1 / bins] * bins + [0.0], name)


def correlation(numbers, lag, mean, variance):
    """Tests the correlation of each number with the one `lag` later, in standard deviations."""
    count = len(numbers) - lag
    centred = [number - mean for number in numbers]
    total = sum(map(operator.mul, centred[:count], centred[lag:]))
    return [(f"correlation at {lag}", abs(total) / (variance * math.sqrt(count)), DEVIATE)]


def pairs(numbers, lag, bins=16):
    """Tests whether pairs of numbers of [0, 1) and those `lag` later fill a square uniformly."""
    indices = [min(bins - 1, int(number * bins)) for number in numbers]
    counts = histogram(map(lambda one, other: one * bins + other, indices, indices[lag:]), bins * bins)
    return even(counts, f"pairs at {lag}")


def independent(numbers, cdf, lags):
    """Tests the independence of numbers of a continuous distribution, which the CDF makes uniform, at some lags."""
    # The CDF of extreme values may round to the ends of the open interval.
    flat = [min(max(cdf(number), 0.0), 1 - 2**-53) for number in numbers]
    rows = []
    for lag in lags:
        if lag < len(flat):
            rows += correlation(flat, lag, 0.5, 1 / 12)
            rows += pairs(flat, lag)
            # Numbers may be uncorrelated although their distances from the middle depend, as in a wrong Box-Muller pair.
            rows += [(name + " of squares", value, limit) for name, value, limit in
                     correlation([(number - 0.5) ** 2 for number in flat], lag, 1 / 12, 1 / 180)]
    return rows


def bits(numbers, count):
    """Tests how often each of the low bits is set, and how often neighbouring bits differ."""
    rows = []
    total = len(numbers)
    for bit in range(count):
        ones = sum(number >> bit & 1 for number in numbers)
        rows.append((f"bit {bit}", abs(ones - total / 2) / math.sqrt(total / 4), DEVIATE))
        if bit:
            different = sum((number >> bit ^ number >> (bit - 1)) & 1 for number in numbers)
            rows.append((f"bits {bit - 1}, {bit}", abs(different - total / 2) / math.sqrt(total / 4), DEVIATE))
    return rows


def permutation(numbers):
    """Tests whether numbers are a permutation, and the distribution of their positions."""
    count, bins = len(numbers), 16
    if sorted(numbers) != list(range(count)):
        return [("not a permutation", math.inf, 1.0)]
    cells = (index * bins // count * bins + number * bins // count for index, number in enumerate(numbers))
    middle, variance = (count - 1) / 2, (count * count - 1) / 12
    total = sum((index - middle) * (number - middle) for index, number in enumerate(numbers))
    rows = even(histogram(cells, bins * bins), "positions")
    # The sums of rows and columns are fixed, so the statistic has fewer degrees of freedom and the limit is conservative.
    return rows[:1] + [("correlation with the position", abs(total) / (variance * math.sqrt(count - 1)), DEVIATE)] + [
        (name.replace("correlation", "neighbours"), value, limit)
        for name, value, limit in correlation(numbers, 1, middle, variance)]


def failures(rows):
    """Returns the rows whose statistic is above its limit or is NaN."""
    return [row for row in rows if not row[1] <= row[2]]
