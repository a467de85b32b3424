"""Intervals over problems: how often they hold the truth, and that tests of differences are what they say."""

import importlib.util
import itertools
import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from rlvr.ops import stats
from rlvr.ops.intervals import holm, paired_interval, problem_interval, rate_interval, sign_flip_p
from rlvr.ops.student import student_t
from tests.ops.test_stats import BETTER, RATES

SCRIPT = Path(__file__).parents[2] / "scripts" / "coverage.py"


@pytest.fixture(scope="module")
def coverage():
    spec = importlib.util.spec_from_file_location("coverage_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("df", "quantile"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (5, 2.57058), (29, 2.04523), (499, 1.96473)]
)
def test_students_t(df, quantile):
    assert student_t(df) == pytest.approx(quantile, rel=2e-3 if df < 5 else 2e-4)


@pytest.mark.parametrize("name", ["mean 0.1   alike", "mean 0.2   wide", "mean 0.9   middling", "examination"])
def test_of_thirty_problems_the_interval_holds_the_truth_as_often_as_it_says(coverage, name):
    mean, draw = next((mean, draw) for told, mean, draw in coverage.benchmarks() if told == name)
    told = coverage.coverage(mean, draw, rounds=4000)
    assert 0.93 <= told["ours"] <= 0.97
    assert 0.93 <= coverage.paired_coverage(draw, 0.3, rounds=2000) <= 0.975


def test_naive_intervals_do_not(coverage):
    """What the method is for: of rarely solved problems, normal intervals miss the truth far too often."""
    mean, draw = next((mean, draw) for told, mean, draw in coverage.benchmarks() if told == "mean 0.05  wide")
    told = coverage.coverage(mean, draw, rounds=2000)
    assert told["normal"] < 0.86 < 0.92 < told["ours"]


def test_the_interval_of_the_worked_set_agrees_with_the_clustered_error_and_a_direct_bootstrap():
    low, high = problem_interval(RATES, 32)
    mean, se = sum(RATES) / 30, stats.clustered_se(RATES)
    normal, boot = stats.normal_interval(mean, se), stats.bootstrap_interval(RATES, seed=0)
    assert high - low == pytest.approx(normal[1] - normal[0], rel=0.03)
    assert high - low == pytest.approx(boot[1] - boot[0], rel=0.05)
    assert (low, high) == pytest.approx(boot, abs=0.025)
    assert low > normal[0] and high < 1  # pulled towards 1/2, as Wilson's


def test_wilsons_interval_where_it_belongs():
    binary = [1.0] * 8 + [0.0] * 2
    assert rate_interval(binary, 1) == (stats.wilson_interval(8, 10), "wilson")
    assert rate_interval(binary, 4)[1] == rate_interval([0.5] * 10, 1)[1] == "clustered"


def test_what_cannot_be_estimated_is_no_interval_and_certainty_is_never_claimed():
    assert problem_interval([0.5], 16) is None and rate_interval([1.0], 1)[0] is None
    assert problem_interval([0.0] * 30, 16) == pytest.approx((0, 0.122), abs=1e-3)
    assert problem_interval([1.0] * 30, 16) == pytest.approx((0.878, 1), abs=1e-3)
    low, high = problem_interval([0.5] * 30, 16)
    assert 0.44 < low < 0.5 < high < 0.56


def test_more_samples_of_equal_rates_do_not_narrow_a_claim_about_new_problems():
    assert problem_interval(RATES, 32) == problem_interval(RATES, 3200)


def test_the_paired_interval_of_the_worked_set():
    differences = [b - a for a, b in zip(RATES, BETTER, strict=True)]
    low, high = paired_interval(differences)
    assert (low + high) / 2 == pytest.approx(0.025)
    assert 1 < (high - low) / 2 / (2.0452 * 0.005685735326841775) < 1.02  # Student.s, and a little more
    assert paired_interval([0.5]) is None


def test_a_difference_of_few_problems_has_an_honest_interval():
    """By hand: one problem of three differs by 1/2, so that a variance of 1/12 is blended with 12 / 1.5^1.5 of 1/4."""
    weight = 12 / 1.5**1.5
    variance = (3 / 12 + weight / 4) / (3 + weight)
    half = student_t(2) * math.sqrt(variance / 3)
    assert paired_interval([0.0, 0.5, 0.0]) == pytest.approx((max(-1, 1 / 6 - half), min(1, 1 / 6 + half)))
    low, high = paired_interval([0.0] * 30)
    assert low == -high and high == pytest.approx(student_t(29) ** 2 / (30 + student_t(29) ** 2))
    assert paired_interval([1.0, -1.0]) == (-1.0, 1.0)


def test_differences_of_rarely_solved_problems_are_held(coverage):
    for told, _, draw in coverage.benchmarks():
        if told in ("mean 0.05  all or nothing", "mean 0.05  wide", "mean 0.95  alike"):
            assert coverage.paired_coverage(draw, 0.3, rounds=2000) >= 0.93


def test_sign_flips_are_counted_in_every_way():
    differences = [0.25, -0.5, 0.0, 1.0, 0.125, 0.25]
    flips = itertools.product((1, -1), repeat=6)
    sums = [abs(sum(s * d for s, d in zip(signs, differences, strict=True))) for signs in flips]
    exact = np.mean([total >= abs(sum(differences)) - 1e-12 for total in sums])
    assert sign_flip_p(differences) == (pytest.approx(exact), True)
    assert sign_flip_p([0.1] * 12) == (2 / 2**12, True)
    assert sign_flip_p([0.0] * 5) == (1.0, True)


def test_many_differences_are_flipped_at_random_and_never_impossible():
    differences = np.random.default_rng(1).normal(0.2, 1, 100).tolist()
    p, exact = sign_flip_p(differences)
    assert not exact and (p, exact) == sign_flip_p(differences)
    z = abs(sum(differences)) / sum(d * d for d in differences) ** 0.5  # the flips' sum is nearly normal
    assert p == pytest.approx(2 * (1 - NormalDist().cdf(z)), abs=0.01)
    assert sign_flip_p([1.0] * 40)[0] == pytest.approx(1e-5, rel=0.01)


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
