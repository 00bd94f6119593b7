"""Statistical judges: each looks at numbers and says how far a statistic lies from what it should be.

A judge returns rows of (name, statistic, limit): the numbers pass if no statistic is above its limit. The limits are
those that good numbers pass but once in a million times, where the distribution of the statistic is known.
"""

import math
import operator

ALPHA = 1e-6
# A normal deviate is above this, on either side, with probability ALPHA.
DEVIATE = 4.8916384757
# The same of the Kolmogorov distribution, to the accuracy of its first term.
KOLMOGOROV = math.sqrt(-math.log(ALPHA / 2) / 2)


def normal_cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


class Distribution:
    """A distribution's CDF, and the moments that it has: mean, variance, fourth central moment."""

    def __init__(self, cdf, mean=None, variance=None, fourth=None):
        self.cdf, self.mean, self.variance, self.fourth = cdf, mean, variance, fourth


def uniform(low, high):
    width = high - low
    return Distribution(lambda x: min(1.0, max(0.0, (x - low) / width)), (low + high) / 2, width**2 / 12, width**4 / 80)


def normal(mean, std):
    return Distribution(lambda x: normal_cdf((x - mean) / std), mean, std**2, 3 * std**4)


def log_normal(mean, std):
    # Its fourth moment says little for any sample: only its CDF is judged.
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
    """The largest distance between the numbers' distribution and the CDF. Where numbers are rounded, `edge` gives the
    upper end of what rounds to a number, and the distance is looked at there alone; exact for distributions in steps."""
    ordered = sorted(numbers)
    count = len(ordered)
    worst = 0.0
    for index, number in enumerate(ordered):
        if edge is None:
            truth = cdf(number)
            worst = max(worst, truth - index / count, (index + 1) / count - truth)
        elif index + 1 == count or ordered[index + 1] != number:
            worst = max(worst, abs((index + 1) / count - cdf(edge(number))))
    # NaN is in no order and has no distribution.
    if worst != worst or any(number != number for number in numbers):
        worst = math.inf
    return [("KS", worst * math.sqrt(count), KOLMOGOROV)]


def moments(numbers, distribution):
    """Mean and variance, in their standard deviations."""
    if distribution.mean is None:
        return []
    count = len(numbers)
    first = math.fsum(numbers) / count
    second = math.fsum((number - distribution.mean) ** 2 for number in numbers) / count
    spread = math.sqrt((distribution.fourth - distribution.variance**2) / count)
    return [("mean", abs(first - distribution.mean) / math.sqrt(distribution.variance / count), DEVIATE),
            ("variance", abs(second - distribution.variance) / spread, DEVIATE)]


def chi_square_limit(freedom, deviate):
    """The quantile of chi-square that belongs to a normal deviate, by Wilson and Hilferty; exact for one degree."""
    if freedom == 1:
        return deviate**2 if deviate > 0 else 0.0
    part = 2 / (9 * freedom)
    return freedom * max(0.0, 1 - part + deviate * math.sqrt(part)) ** 3


def chi_square(counts, probabilities=None, name="chi2"):
    """Counts beside their probabilities, alike if not told. Counts that fit too well to be random are no good either."""
    total = sum(counts)
    expected = [total / len(counts)] * len(counts) if probabilities is None else [total * p for p in probabilities]
    if any(truth == 0 and count for count, truth in zip(counts, expected)):
        return [(name, math.inf, 1.0)]
    statistic = sum((count - truth) ** 2 / truth for count, truth in zip(counts, expected) if truth)
    freedom = sum(1 for truth in expected if truth) - 1
    high, low = chi_square_limit(freedom, DEVIATE), chi_square_limit(freedom, -DEVIATE)
    return [(name, statistic, high), (name + ", low", low, max(statistic, 1e-9))]


def histogram(indices, bins):
    """How often each index comes; one that is none of `bins` goes into a place of its own, of probability 0."""
    counts = [0] * (bins + 1)
    for index in indices:
        counts[index if 0 <= index < bins else bins] += 1
    return counts


def even(counts, name="chi2"):
    """Chi-square of a histogram whose bins are alike, with nothing outside."""
    bins = len(counts) - 1
    return chi_square(counts, [1 / bins] * bins + [0.0], name)


def correlation(numbers, lag, mean, variance):
    """Between each number and the one `lag` later; in standard deviations."""
    count = len(numbers) - lag
    centred = [number - mean for number in numbers]
    total = sum(map(operator.mul, centred[:count], centred[lag:]))
    return [(f"correlation at {lag}", abs(total) / (variance * math.sqrt(count)), DEVIATE)]


def pairs(numbers, lag, bins=16):
    """Whether numbers of [0, 1) and those `lag` later fill a square evenly."""
    places = [min(bins - 1, int(number * bins)) for number in numbers]
    counts = histogram(map(lambda one, other: one * bins + other, places, places[lag:]), bins * bins)
    return even(counts, f"pairs at {lag}")


def independent(numbers, cdf, lags):
    """Numbers of any distribution without steps, made uniform by their CDF, beside those that come later."""
    # The outermost floats may round beyond the open interval.
    flat = [min(max(cdf(number), 0.0), 1 - 2**-53) for number in numbers]
    rows = []
    for lag in lags:
        if lag < len(flat):
            rows += correlation(flat, lag, 0.5, 1 / 12)
            rows += pairs(flat, lag)
            # A dependence of the distance from the middle has no correlation: the two numbers of Box and Muller.
            rows += [(name + " of squares", value, limit) for name, value, limit in
                     correlation([(number - 0.5) ** 2 for number in flat], lag, 1 / 12, 1 / 180)]
    return rows


def bits(numbers, count):
    """How often each of the low bits is set, and each pair of neighbouring ones alike."""
    rows = []
    total = len(numbers)
    for bit in range(count):
        ones = sum(number >> bit & 1 for number in numbers)
        rows.append((f"bit {bit}", abs(ones - total / 2) / math.sqrt(total / 4), DEVIATE))
        if bit:
            alike = sum((number >> bit ^ number >> (bit - 1)) & 1 for number in numbers)
            rows.append((f"bits {bit - 1}, {bit}", abs(alike - total / 2) / math.sqrt(total / 4), DEVIATE))
    return rows


def permutation(numbers):
    """A long permutation: whether it is one, and where its numbers lie."""
    count, bins = len(numbers), 16
    if sorted(numbers) != list(range(count)):
        return [("is no permutation", math.inf, 1.0)]
    places = (index * bins // count * bins + number * bins // count for index, number in enumerate(numbers))
    middle, variance = (count - 1) / 2, (count * count - 1) / 12
    total = sum((index - middle) * (number - middle) for index, number in enumerate(numbers))
    rows = even(histogram(places, bins * bins), "places")
    # Rows and columns are full: the statistic has fewer degrees of freedom, and stays below the limit all the more.
    return rows[:1] + [("correlation with the place", abs(total) / (variance * math.sqrt(count - 1)), DEVIATE)] + [
        (name.replace("correlation", "neighbours"), value, limit)
        for name, value, limit in correlation(numbers, 1, middle, variance)]


def failures(rows):
    """The rows whose statistic is above its limit, or is no number."""
    return [row for row in rows if not row[1] <= row[2]]
