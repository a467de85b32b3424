"""Intervals over seeds and problems: how often they hold, what pairing is worth, and that few seeds have none."""

import math

import numpy as np
import pytest

from rlvr.ops.resample import FEWEST, band, difference, widening
from rlvr.ops.student import student_t

DATASETS = 400


def families(seeds: int, problems: int, by_seed: float, by_problem: float, seed: int = 0) -> np.ndarray:
    """(T, S, X) single binary answers at a mean success rate of 1/2; every t is a family with problems of its own."""
    draw = np.random.default_rng(seed)
    luck = draw.normal(0, by_seed, (DATASETS, seeds, 1)) + draw.normal(0, by_problem, (DATASETS, 1, problems))
    return (draw.random((DATASETS, seeds, problems)) < np.clip(0.5 + luck, 0, 1)).astype(float)


def held(found, truth: float) -> float:
    return float(np.mean((found.low_T <= truth) & (truth <= found.high_T)))


@pytest.mark.parametrize("seeds", [3, 5, 8])
@pytest.mark.parametrize(("by_seed", "by_problem"), [(0.08, 0.2), (0.0, 0.3), (0.1, 0.0)])
def test_intervals_hold_at_least_as_often_as_they_say(seeds, by_seed, by_problem):
    """Of 400 data sets, 95% is 95% -+ 1.1% (one standard error): the bound stands three below."""
    found = band(families(seeds, 64, by_seed, by_problem))
    assert held(found, 0.5) >= 0.917


def test_a_bootstrap_that_is_not_widened_would_not(monkeypatch):
    """Three seeds that differ: the range of their resampled means leaves the truth out far too often."""
    data = families(3, 64, 0.15, 0.0).mean(axis=2, keepdims=True)
    assert held(band(data), 0.5) > 0.9
    monkeypatch.setattr("rlvr.ops.resample.widening", lambda n: 1.0)
    assert held(band(data), 0.5) < 0.85


def test_many_seeds_have_the_interval_of_a_plain_bootstrap():
    values = np.random.default_rng(3).normal(0.6, 0.1, 200)
    found = band(values[None, :, None])
    draws = np.random.default_rng(4).choice(values, (4000, 200)).mean(axis=1)
    direct = np.quantile(draws, [0.025, 0.975])
    assert (found.low_T[0], found.high_T[0]) == pytest.approx(tuple(direct), abs=0.003)


def test_few_seeds_have_the_interval_of_students_t():
    values = np.random.default_rng(5).normal(0.6, 0.1, 9)
    found = band(values[None, :, None])
    half = student_t(8) * values.std(ddof=1) / 3
    assert found.high_T[0] - found.low_T[0] == pytest.approx(2 * half, rel=0.1)


def test_fewer_than_three_seeds_have_no_interval():
    for seeds in range(1, FEWEST):
        found = band(np.full((2, seeds, 5), 0.5))
        assert (found.low_T, found.high_T, found.seeds) == (None, None, seeds)
        assert found.within(0, 1) is found
    assert difference(np.ones((1, 2, 5)), np.ones((1, 9, 5)), paired=False).low_T is None


def test_what_is_paired_drops_out():
    """The same luck of seeds and problems on both sides, and 0.1 between them: unpaired, it would drown."""
    draw = np.random.default_rng(6)
    first = (0.5 + draw.normal(0, 0.2, (5, 1)) + draw.normal(0, 0.2, (1, 64)))[None]
    second = first + 0.1 + draw.normal(0, 0.02, (1, 5, 64))
    paired, unpaired = difference(first, second, paired=True), difference(first, second, paired=False)
    assert paired.mean_T[0] == pytest.approx(unpaired.mean_T[0])
    assert paired.mean_T[0] == pytest.approx(0.1, abs=0.01)
    assert 0.08 < paired.low_T[0] < paired.high_T[0] < 0.12
    assert unpaired.low_T[0] < 0 < unpaired.high_T[0]


def test_widening_goes_to_one():
    assert widening(3) == pytest.approx(4.303 / 1.96 * math.sqrt(1.5), rel=1e-3)
    assert widening(18) == pytest.approx(2.110 / 1.96 * math.sqrt(18 / 17), rel=1e-3)  # the first without a table
    assert widening(10_000) == pytest.approx(1, abs=1e-3)
    with pytest.raises(ValueError, match="no spread"):
        widening(1)


def test_equal_data_have_equal_intervals():
    data = families(4, 16, 0.1, 0.1)
    assert np.array_equal(band(data).low_T, band(data.copy()).low_T)
