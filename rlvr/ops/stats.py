"""What may be said of a result: pass@k, standard errors and intervals over problems, retention rates.

`rates` are per-problem success rates, one number in [0, 1] per problem.  Plain floats in and out.
"""

import math
from collections.abc import Sequence

import numpy as np

Z95 = 1.96  # half-width of a 95% interval, in standard errors

Interval = tuple[float, float]


# -- one problem ---------------------------------------------------------------------


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased chance that one of k answers is right, from c right ones of n: 1 - C(n-c, k) / C(n, k).

    In the product form of arXiv:2107.03374, which neither overflows nor cancels.

    Raises:
        ValueError: unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} of {c} right answers of {n}: needs 0 <= c <= n and 1 <= k <= n")
    if n - c < k:
        return 1.0
    return 1 - math.prod(1 - k / i for i in range(n - c + 1, n + 1))


def wilson_interval(successes: int, trials: int, z: float = Z95) -> Interval:
    """Interval of a success rate from independent trials (Wilson 1927); (0, 1) of no trial."""
    if trials == 0:
        return 0.0, 1.0
    rate, shrink = successes / trials, 1 + z**2 / trials
    centre = (rate + z**2 / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / trials + z**2 / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)


# -- many problems (arXiv:2411.00640) ---------------------------------------------------


def clustered_se(rates: Sequence[float]) -> float:
    """Standard error of the mean rate as a claim about *new* problems; NaN of fewer than two."""
    if len(rates) < 2:
        return math.nan
    return float(np.std(rates, ddof=1)) / math.sqrt(len(rates))


def normal_interval(mean: float, se: float, z: float = Z95) -> Interval:
    """mean -+ z standard errors."""
    return mean - z * se, mean + z * se


def sampling_se(rates: Sequence[float], samples: int) -> float:
    """Standard error of the mean rate for the *same* problems sampled again; NaN of a single sample each.

    Args:
        rates: one per problem.
        samples: answers behind each rate.
    """
    if samples < 2:
        return math.nan
    return one_sample_se(rates) / math.sqrt(samples - 1)


def one_sample_se(rates: Sequence[float]) -> float:
    """The same, if each of these problems were answered once (plug-in)."""
    return math.sqrt(math.fsum(p * (1 - p) for p in rates)) / len(rates)


def naive_se(mean: float, trials: int) -> float:
    """Standard error if all answers were independent, which answers to one problem are not: too small."""
    return math.sqrt(mean * (1 - mean) / trials)


def paired_difference(rates_a: Sequence[float], rates_b: Sequence[float]) -> tuple[float, float]:
    """Mean of b - a over the same problems, and its standard error.

    Raises:
        ValueError: if the two do not have the same number of problems.
    """
    differences = [b - a for a, b in zip(rates_a, rates_b, strict=True)]
    return math.fsum(differences) / len(differences), clustered_se(differences)


def unpaired_se(rates_a: Sequence[float], rates_b: Sequence[float]) -> float:
    """Standard error of the difference of two means over different problems."""
    return math.hypot(clustered_se(rates_a), clustered_se(rates_b))


def bootstrap_interval(rates: Sequence[float], *, seed: int, resamples: int = 10_000, level: float = 0.95) -> Interval:
    """Percentile interval of the mean rate, problems drawn with replacement; the same for the same seed."""
    drawn = np.random.default_rng(seed).choice(np.asarray(rates, dtype=float), size=(resamples, len(rates)))
    low, high = np.quantile(drawn.mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


# -- what a filter keeps ----------------------------------------------------------------


def binomial(n: int, p: float) -> list[float]:
    """Chances of 0, 1, ..., n successes in n trials."""
    return [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]


def hit_probability(p: float, n: int) -> float:
    """Chance of at least one success in n trials."""
    return 1 - (1 - p) ** n


def mixed_probability(p: float, n: int) -> float:
    """Chance of both a success and a failure in n trials: what DAPO's dynamic sampling keeps."""
    return 1 - p**n - (1 - p) ** n


def anchored_probability(own: float, reference: float, own_count: int, anchor_tries: int) -> float:
    """Chance that ARMOR's gate keeps a prompt: own answers mixed and at least one anchor correct.

    Args:
        own, reference: success rates of the policy and of the reference on the prompt.
        own_count, anchor_tries: completions drawn from each.
    """
    return mixed_probability(own, own_count) * hit_probability(reference, anchor_tries)
