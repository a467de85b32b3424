"""Intervals of means over seeds and problems, from few seeds, by a bootstrap.

A family of S runs that differ by their seed alone answers the same X problems.  Its mean is uncertain because other
seeds would have trained other policies, and because other problems would have been harder or easier.  Seeds and
problems are drawn with replacement, each on its own, and the two deviations from the mean are added.

A bootstrap of n things underestimates by sqrt((n-1)/n) and knows nothing of Student's t: of 3 seeds its 95% intervals
hold in about 75% of all cases.  So deviations are widened by t(n-1)/z * sqrt(n/(n-1)), which goes to 1 for many.

Letters: T points of a curve, each with an interval of its own; S seeds; X problems; R resamples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rlvr.ops.student import student_t

Array = NDArray[np.float64]
FEWEST = 3  # seeds without which there is no interval
RESAMPLES = 4000
Z975 = 1.959964


@dataclass(frozen=True)
class Band:
    """A mean with its 95% interval at each of T points; no interval from fewer than `FEWEST` seeds."""

    mean_T: Array
    low_T: Array | None
    high_T: Array | None
    seeds: int

    def within(self, low: float, high: float) -> Band:
        """The same with an interval that leaves out impossible values."""
        if self.low_T is None or self.high_T is None:
            return self
        return replace(self, low_T=self.low_T.clip(low, high), high_T=self.high_T.clip(low, high))


def widening(n: int) -> float:
    """What deviations of a bootstrap of n things are multiplied by, so that their 95% interval is Student's.

    Raises:
        ValueError: of fewer than two.
    """
    if n < 2:
        raise ValueError(f"{n} thing(s) have no spread")
    return student_t(n - 1) / Z975 * math.sqrt(n / (n - 1))


def band(values_TSX: Array) -> Band:
    """Mean over seeds and problems; every point is resampled alike, so that the band is no rougher than the curve.

    Args:
        values_TSX: of X = 1 for what has no problems, such as a training reward, and where each seed has problems of
            its own: then the spread of the seeds has theirs in it.
    """
    mean_T = values_TSX.mean(axis=(1, 2))
    seeds = values_TSX.shape[1]
    if seeds < FEWEST:
        return Band(mean_T, None, None, seeds)
    by_seed_TR, by_problem_TR = _deviations(values_TSX.mean(axis=2), "seeds"), _by_problem(values_TSX)
    return _cut(mean_T, by_seed_TR + by_problem_TR, seeds)


def difference(first_TSX: Array, second_TSX: Array, paired: bool) -> Band:
    """Mean of second - first, of the same X problems (or X = 1).

    Args:
        first_TSX, second_TSX: S may differ if they are not paired.
        paired: whether the s-th seeds of both are the same one.  Their common luck then drops out.
    """
    if paired:
        return band(second_TSX - first_TSX)
    mean_T = second_TSX.mean(axis=(1, 2)) - first_TSX.mean(axis=(1, 2))
    seeds = min(first_TSX.shape[1], second_TSX.shape[1])
    if seeds < FEWEST:
        return Band(mean_T, None, None, seeds)
    by_seed_TR = _deviations(second_TSX.mean(axis=2), "seeds") - _deviations(first_TSX.mean(axis=2), "others")
    by_problem_TR = _by_problem(second_TSX[:, :seeds] - first_TSX[:, :seeds])
    return _cut(mean_T, by_seed_TR + by_problem_TR, seeds)


def _by_problem(values_TSX: Array) -> Array:
    """Deviations from drawing problems, without the noise of single answers, which those from drawing seeds have in
    them already: in a two-way layout its share of the variance of problem means is MS(residual) / MS(problems)."""
    seeds, problems = values_TSX.shape[1:]
    means_TX = values_TSX.mean(axis=1)
    deviations_TR = _deviations(means_TX, "problems")
    if seeds < 2 or problems < 2:
        return deviations_TR
    residual_TSX = values_TSX - means_TX[:, None] - values_TSX.mean(axis=2, keepdims=True)
    residual_TSX += values_TSX.mean(axis=(1, 2), keepdims=True)
    noise_T = (residual_TSX**2).sum(axis=(1, 2)) / ((seeds - 1) * (problems - 1))
    spread_T = seeds * means_TX.var(axis=1, ddof=1)
    share_T = np.divide(noise_T, spread_T, out=np.zeros_like(noise_T), where=spread_T > 0)
    return np.sqrt(np.clip(1 - share_T, 0, 1))[:, None] * deviations_TR


def _deviations(values_TN: Array, drawn: str) -> Array:
    """Deviations of resampled means from the mean, widened; zeros of a single thing."""
    n = values_TN.shape[1]
    if n < 2:
        return np.zeros((len(values_TN), RESAMPLES))
    return widening(n) * (values_TN @ _weights(n, drawn).T - values_TN.mean(axis=1, keepdims=True))


@cache
def _weights(n: int, drawn: str) -> Array:
    """(R, n): shares of n things in draws with replacement; always the same ones, independent between names."""
    draw = np.random.default_rng([n, *drawn.encode()])
    return draw.multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n


def _cut(mean_T: Array, deviations_TR: Array, seeds: int) -> Band:
    low_T, high_T = np.quantile(deviations_TR, [0.025, 0.975], axis=1)
    return Band(mean_T, mean_T + low_T, mean_T + high_T, seeds)
