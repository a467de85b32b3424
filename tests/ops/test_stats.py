"""pass@k, intervals and retention rates against exact and hand-worked numbers."""

import math
from fractions import Fraction

import pytest

from rlvr.ops import stats

RATES = [c / 32 for c in [32] * 6 + [28, 24, 20, 16, 12, 8, 6, 4, 3, 2, 1, 1] + [0] * 12]
BETTER = [c / 32 for c in [32] * 6 + [30, 26, 22, 18, 14, 10, 8, 6, 5, 4, 3, 3] + [0] * 12]


def test_pass_at_k_equals_the_count_of_subsets() -> None:
    for n in range(1, 13):
        for c in range(n + 1):
            for k in range(1, n + 1):
                exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
                assert stats.pass_at_k(n, c, k) == pytest.approx(float(exact), rel=1e-13, abs=0)


def test_pass_at_k_of_many_samples() -> None:
    assert stats.pass_at_k(256, 5, 64) == pytest.approx(0.7658075305687928, rel=1e-13)
    assert stats.pass_at_k(16, 3, 14) == 1.0
    assert stats.pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_pass_at_k_refuses_what_it_cannot_estimate(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k}"):
        stats.pass_at_k(n, c, k)


def test_standard_errors_of_thirty_problems() -> None:
    mean = sum(RATES) / 30
    assert stats.clustered_se(RATES) == pytest.approx(0.0755529682919229, rel=1e-12)
    assert stats.normal_interval(mean, 0.0755529682919229) == pytest.approx(
        (0.18212451548116446, 0.47829215118550217), rel=1e-12
    )
    assert stats.sampling_se(RATES, 32) == pytest.approx(0.007734263274870977, rel=1e-12)
    assert stats.one_sample_se(RATES) == pytest.approx(0.04306255543457164, rel=1e-12)
    assert stats.naive_se(mean, 960) == pytest.approx(0.015178479486134155, rel=1e-12)
    assert stats.paired_difference(RATES, BETTER) == pytest.approx((0.025, 0.005685735326841775), rel=1e-12)
    assert stats.unpaired_se(RATES, BETTER) == pytest.approx(0.10696143101649204, rel=1e-12)


def test_what_cannot_be_known_is_nan() -> None:
    assert math.isnan(stats.clustered_se([0.5]))
    assert math.isnan(stats.sampling_se([0.5, 0.5], 1))


def test_paired_difference_needs_the_same_problems() -> None:
    with pytest.raises(ValueError):
        stats.paired_difference([0.0, 1.0], [1.0])


def test_wilson_interval() -> None:
    low, high = stats.wilson_interval(8, 10)
    for bound in (low, high):  # the ends are where the score test is just rejected
        assert abs(bound - 0.8) / math.sqrt(bound * (1 - bound) / 10) == pytest.approx(stats.Z95, rel=1e-12)
    assert stats.wilson_interval(0, 10)[0] == 0.0 and stats.wilson_interval(10, 10)[1] == pytest.approx(1.0)
    assert stats.wilson_interval(0, 0) == (0.0, 1.0)


def test_bootstrap_interval_is_seeded_and_near_the_normal_one() -> None:
    first = stats.bootstrap_interval(RATES, seed=3)
    assert first == stats.bootstrap_interval(RATES, seed=3) != stats.bootstrap_interval(RATES, seed=4)
    assert first == pytest.approx(stats.normal_interval(sum(RATES) / 30, stats.clustered_se(RATES)), abs=0.02)
    assert stats.bootstrap_interval([0.25] * 5, seed=0) == (0.25, 0.25)


def test_what_the_gates_keep() -> None:
    assert sum(stats.binomial(15, 0.3)) == pytest.approx(1.0, rel=1e-12)
    assert stats.binomial(2, 0.25) == [0.5625, 0.375, 0.0625]
    assert stats.hit_probability(0.1, 4) == pytest.approx(0.3439, rel=1e-12)
    assert stats.mixed_probability(0.5, 16) == pytest.approx(1 - 2 * 0.5**16, rel=1e-12)
    assert stats.mixed_probability(0.1, 15) == pytest.approx(sum(stats.binomial(15, 0.1)[1:-1]), rel=1e-12)
    assert stats.anchored_probability(0.25, 0.25, 15, 4) == pytest.approx(0.674458570938441, rel=1e-12)
    assert stats.anchored_probability(0.25, 0.0, 15, 4) == 0.0
