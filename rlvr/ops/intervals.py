"""Intervals of a benchmark's mean, and tests of differences: claims about new problems, not about new samples.

`rates` are per-problem values in [0, 1] (a success rate, or an unbiased pass@k).  scripts/coverage.py measures how
often these intervals hold what they should.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlvr.ops.stats import Interval, wilson_interval
from rlvr.ops.student import student_t

PRIOR = 12.0  # weight of the all-or-nothing problems that the variance is blended with; see `problem_interval`
ENUMERATED = 20  # most differences whose signs are flipped in every way
FLIPS = 100_000  # random sign flips otherwise


def problem_interval(rates: Sequence[float], samples: int, level: float = 0.95) -> Interval | None:
    """Interval of the mean rate over the problems that these were drawn from; None of fewer than two.

    Wilson's, for as many independent answers as the problems are worth: m (1 - m) / (variance of the mean), between
    the number of problems and that of all answers, with Student's t in place of the normal quantile.  Where every rate
    is 0 or 1, that number is the number of problems.  Where few problems carry the mean, the variance is underrated
    just when those that are rare are missing; it is therefore blended with 12 / (K + 1/2)^1.5 problems that are all or
    nothing (of mean m with half a problem solved and half not), which is next to nothing for large K.  K is how many
    problems carry the mean: Kish's effective number (sum d)^2 / (sum d^2) of the distances d from 0, or from 1 where
    the mean is above 1/2.

    Args:
        rates: one per problem.
        samples: answers behind each rate.
    """
    problems = len(rates)
    if problems < 2:
        return None
    values = np.asarray(rates, dtype=float)
    mean = float(values.mean())
    smooth = (mean * problems + 0.5) / (problems + 1)
    weight = _prior(values if mean < 0.5 else 1 - values)
    variance = (float(values.var()) * problems + weight * smooth * (1 - smooth)) / (problems + weight)
    worth = mean * (1 - mean) * problems / variance
    return _wilson(mean, min(max(worth, problems), problems * samples), student_t(problems - 1, level))


def _prior(distances: NDArray[np.float64]) -> float:
    """Weight of what a variance is blended with, by Kish's effective number of the things that make a sum."""
    carriers = float(distances.sum() ** 2 / (distances @ distances)) if distances.any() else 0.0
    return PRIOR / (carriers + 0.5) ** 1.5


def _wilson(rate: float, trials: float, z: float) -> Interval:
    """Wilson's interval of a number of trials that need not be whole."""
    shrink = 1 + z**2 / trials
    centre = (rate + z**2 / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / trials + z**2 / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def rate_interval(rates: Sequence[float], samples: int) -> tuple[Interval | None, str]:
    """The 95% interval of a mean rate and the name of its method: Wilson's where each problem has one binary answer."""
    if samples == 1 and len(rates) > 1 and all(rate in (0.0, 1.0) for rate in rates):
        return wilson_interval(round(sum(rates)), len(rates)), "wilson"
    return problem_interval(rates, samples), "clustered"


# -- differences of two evaluations on the same problems ------------------------------------------


def paired_interval(differences: Sequence[float], level: float = 0.95) -> Interval | None:
    """Student's interval of the mean difference over the problems that these were drawn from; None of fewer than two.

    Where few problems differ, their variance is underrated just when those that are rare are missing; it is blended as
    in `problem_interval`, with problems that differ by as much as these do (sum d^2 / sum |d|), half of them each way.
    Where none differs, the interval is as far as Wilson's of no such problem among as many.

    Args:
        differences: one per problem, in [-1, 1].
    """
    problems, values = len(differences), np.asarray(differences, dtype=float)
    if problems < 2:
        return None
    mean, t, sizes = float(values.mean()), student_t(problems - 1, level), np.abs(values)
    if not sizes.any():
        _, high = _wilson(0.0, problems, t)
        return -high, high
    weight, size = _prior(sizes), float(values @ values / sizes.sum())
    variance = (float(values.var(ddof=1)) * problems + weight * size**2) / (problems + weight)
    half = t * math.sqrt(variance / problems)
    return max(-1.0, mean - half), min(1.0, mean + half)


def sign_flip_p(differences: Sequence[float], seed: int = 0) -> tuple[float, bool]:
    """Two-sided p of the hypothesis that each problem's difference could as well have had the other sign.

    Returns:
        p and whether it is exact: with up to 20 differences that are not 0, all ways to flip them are counted;
        otherwise 100,000 random ones, the observed one among them, so that p is never 0.
    """
    sizes = np.abs(np.asarray([d for d in differences if d], dtype=float))
    if not len(sizes):
        return 1.0, True
    observed = abs(math.fsum(differences)) - 1e-9 * float(sizes.max())
    if len(sizes) <= ENUMERATED:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums + size, sums - size])
        return float(np.mean(np.abs(sums) >= observed)), True
    draw, extreme = np.random.default_rng(seed), 0
    for _ in range(0, FLIPS, 1000):
        signs = draw.integers(0, 2, size=(1000, len(sizes))) * 2 - 1
        extreme += int((np.abs(signs @ sizes) >= observed).sum())
    return (extreme + 1) / (FLIPS + 1), False


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for their number (Holm 1979), in the given order."""
    adjusted, worst = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        worst = max(worst, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = worst
    return adjusted
