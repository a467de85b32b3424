"""Objectives, KL estimators, mixtures and mismatch weights: hand values, finite differences, extreme inputs."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rlvr.ops import policy

OLD = torch.tensor([[-1.2, -0.7, -2.0], [-0.9, -1.5, 0.0]], dtype=torch.float64)
REF = torch.tensor([[-1.25, -0.6, -2.3], [-1.0, -1.4, 0.0]], dtype=torch.float64)
NEW = torch.tensor([[-1.1, -0.45, -1.8], [-0.6, -2.0, 0.0]], dtype=torch.float64)
MASK = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], dtype=torch.float64)
ADVANTAGE = torch.tensor([[0.7], [-0.7]], dtype=torch.float64).expand(2, 3)


def close(got: Tensor, want: object, rtol: float = 1e-12) -> None:
    torch.testing.assert_close(got, torch.as_tensor(want, dtype=got.dtype), rtol=rtol, atol=1e-15)


def ratio(x: Tensor) -> Tensor:
    return policy.importance_ratio(x - OLD)


def conditional(x: Tensor) -> Tensor:
    correct_B, rate_B = torch.tensor([True, False]), torch.tensor([0.25, 0.0], dtype=x.dtype)
    return policy.conditional_sequence_log_ratio(
        x, OLD, REF, MASK, share=0.9, correct_B=correct_B, ref_success_B=rate_B
    )


OBJECTIVES: dict[str, Callable[[Tensor], Tensor]] = {
    "clipped": lambda x: policy.clipped_surrogate(ratio(x), ADVANTAGE, 0.2, 0.28),
    "dual_clipped": lambda x: policy.clipped_surrogate(ratio(x), ADVANTAGE, 0.2, 0.28, 1.3),
    "sequence_clipped": lambda x: policy.clipped_surrogate(
        policy.sequence_ratio(x - OLD, MASK), ADVANTAGE[:, 0], 0.3, 0.4
    ),
    "reinforce": lambda x: policy.reinforce_loss(x, ADVANTAGE, policy.cispo_weight(ratio(NEW), None, 1.28)),
    "k1": lambda x: policy.k1(x, REF),
    "k2": lambda x: policy.k2(x, REF),
    "k3": lambda x: policy.k3(x, REF),
    "mixture": lambda x: policy.importance_ratio(policy.mixture_log_ratio(x, OLD, REF, 0.9375)),
    "conditional": conditional,
    "value": lambda x: policy.clipped_value_loss(x, OLD, REF, 0.15),
    "rebel": lambda x: policy.rebel_loss(policy.masked_sum(x - OLD, MASK, -1), ADVANTAGE[:, 0], 0.5),
    "astar": lambda x: policy.astar_residual(policy.masked_sum(x - REF, MASK, -1), ADVANTAGE[:, 0], 0.3) ** 2,
    "entropy": lambda x: policy.entropy(x, 0.6),
    "exact_kl": lambda x: policy.kl_divergence(x.log_softmax(-1), REF.log_softmax(-1)),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradient_equals_finite_differences(name: str) -> None:
    assert torch.autograd.gradcheck(OBJECTIVES[name], NEW.clone().requires_grad_(), eps=1e-6, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_float32_stays_float32_and_agrees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = OBJECTIVES[name](NEW)
    for constant, value in (("OLD", OLD), ("REF", REF), ("MASK", MASK), ("ADVANTAGE", ADVANTAGE), ("NEW", NEW)):
        monkeypatch.setitem(globals(), constant, value.float())
    narrow = OBJECTIVES[name](NEW)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow.double(), wide, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("at", "advantage", "loss", "slope"),
    [
        (0.5, 1.0, -0.5, -0.5),
        (0.5, -1.0, 0.8, 0.0),
        (1.1, 1.0, -1.1, -1.1),
        (1.1, -1.0, 1.1, 1.1),
        (1.25, 1.0, -1.25, -1.25),  # between 1.2 and 1.28: clip-higher lets it through
        (1.6, 1.0, -1.28, 0.0),
        (1.6, -1.0, 1.6, 1.6),
        (5.0, -1.0, 3.0, 0.0),  # the dual clip at 3
    ],
)
def test_clipped_surrogate_in_each_region(at: float, advantage: float, loss: float, slope: float) -> None:
    log_ratio = torch.tensor(at, dtype=torch.float64).log().requires_grad_()
    ratio, advantages = policy.importance_ratio(log_ratio), torch.tensor(advantage, dtype=torch.float64)
    got = policy.clipped_surrogate(ratio, advantages, 0.2, 0.28, 3.0)
    close(got.detach(), loss)
    close(torch.autograd.grad(got, log_ratio)[0], slope)
    assert any(policy.clip_events(ratio, advantages, 0.2, 0.28, 3.0)) == (slope == 0)


@pytest.mark.parametrize("name", policy.KL)
@pytest.mark.parametrize("gap", [99.0, -99.0])
def test_kl_of_far_policies_is_finite_in_float32(name: str, gap: float) -> None:
    logp = torch.tensor([-100.0], requires_grad=True)
    value = policy.KL[name](logp, torch.tensor([-100.0 + gap]))
    (slope,) = torch.autograd.grad(value.sum(), logp)
    assert value.isfinite().all() and slope.isfinite().all()


def test_ratio_of_far_policies_is_finite_in_float32() -> None:
    log_ratio = torch.tensor([99.0, -2000.0], requires_grad=True)
    ratio = policy.importance_ratio(log_ratio)
    (slope,) = torch.autograd.grad(ratio.sum(), log_ratio)
    assert ratio.isfinite().all() and slope.isfinite().all() and ratio[1] == 0


def test_kl_estimators_at_tokens() -> None:
    logp = torch.tensor([-1.0, -0.2, -3.0], dtype=torch.float64)
    ref = torch.tensor([-1.2, -0.2, -1.0], dtype=torch.float64)
    close(policy.k1(logp, ref), [0.2, 0.0, -2.0])
    close(policy.k2(logp, ref), [0.02, 0.0, 2.0])
    close(policy.k3(logp, ref), [0.018730753077981888, 0.0, 4.38905609893065])


def test_expected_k1_and_k3_are_the_exact_kl() -> None:
    log_p = torch.tensor([0.3, -0.2, 1.1], dtype=torch.float64).log_softmax(-1)
    log_q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    exact = policy.kl_divergence(log_p, log_q)
    close(exact, 0.34822020429216394)
    for name in ("k1", "k3"):
        close((log_p.exp() * policy.KL[name](log_p, log_q)).sum(), exact)


def test_entropy_at_a_temperature() -> None:
    logits = torch.tensor([0.3, -0.2, 1.1], dtype=torch.float64)
    close(policy.entropy(logits), 0.9579306414382001)
    close(policy.entropy(logits, 0.6), 0.7558739422831305)


def mix(new: float, old: float, ref: float, share: float) -> Tensor:
    new_, old_, ref_ = torch.tensor([new, old, ref], dtype=torch.float64)
    return policy.importance_ratio(policy.mixture_log_ratio(new_, old_, ref_, share))


def test_mixture_ratio_in_its_limits() -> None:
    close(mix(math.log(0.3), math.log(0.2), math.log(0.25), 0.9375), 1.461538461538461)
    close(mix(math.log(0.3), math.log(0.2), math.log(0.25), 1.0), 1.5)
    close(mix(math.log(0.05), math.log(0.01), -2000.0, 0.9375), 5.0)  # the reference has no mass
    close(mix(math.log(0.3), math.log(0.2), math.log(0.2), 0.875), 1 + 0.875 * 0.5)
    close(mix(-800.0, -801.0, -799.0, 0.875), 1.8359111755848718)


def test_mixture_needs_a_share_of_the_policy() -> None:
    for share in (0.0, 1.5):
        with pytest.raises(ValueError, match="share"):
            mix(-1.0, -1.0, -1.0, share)


def test_mixture_bounds_are_where_the_mixture_ratio_is_clipped() -> None:
    old, ref, share = 0.01, 0.7, 0.875
    lower, upper = policy.mixture_bounds(torch.tensor(old), torch.tensor(ref), share, 0.2, 0.28)
    close(mix(math.log(upper), math.log(old), math.log(ref), share), 1.28, rtol=1e-6)
    close(lower, -0.012, rtol=1e-6)  # no probability reaches 0.8


def test_conditional_ratio_counts_the_reference_given_that_it_is_right() -> None:
    new, old, ref = (torch.tensor([[p], [p]], dtype=torch.float64).log() for p in (0.3, 0.2, 0.25))
    correct_B, rate_B = torch.tensor([True, False]), torch.tensor([0.1, 0.0], dtype=torch.float64)
    got = policy.conditional_sequence_log_ratio(
        new, old, ref, torch.ones(2, 1), share=0.9375, correct_B=correct_B, ref_success_B=rate_B
    )
    close(got.exp(), [1.2727272727272727, 1.5])


def test_gspo_ratio_is_the_geometric_mean_of_the_tokens_that_count() -> None:
    close(policy.sequence_ratio(NEW - OLD, MASK), [math.exp((0.1 + 0.25 + 0.2) / 3), math.exp(-0.1)])


def test_mismatch_weights() -> None:
    old = torch.tensor([[-1.0, -0.5, -2.0], [-0.7, -1.2, 0.0]], dtype=torch.float64)
    sampled = torch.tensor([[-1.1, -0.5, -3.2], [-0.6, -0.4, 0.0]], dtype=torch.float64, requires_grad=True)
    a, b, c, d = (math.exp(x) for x in (0.1, 1.2, -0.1, -0.8))
    want = {
        "none": ((0.0, 1.0), [[1, 1, 1], [1, 1, 1]]),
        "token_truncate": ((0.0, 2.0), [[a, 1, 2], [c, d, 1]]),
        "token_mask": ((0.5, 5.0), [[a, 1, b], [c, 0, 1]]),
        "sequence_truncate": ((0.0, 2.0), [[2, 2, 2], [c * d] * 3]),
        "sequence_mask": ((0.4, 2.0), [[0, 0, 0], [c * d] * 3]),
    }
    assert want.keys() == policy.MISMATCH.keys()
    for name, (bounds, weights) in want.items():
        got = policy.MISMATCH[name](old, sampled, MASK, *bounds)
        close(got, weights)
        assert not got.requires_grad


def test_mismatch_weight_of_a_long_sequence_does_not_overflow() -> None:
    old, sampled = torch.full((1, 2000), -1.0), torch.full((1, 2000), -2.0)
    for name in ("sequence_truncate", "sequence_mask"):
        assert policy.MISMATCH[name](old, sampled, torch.ones(1, 2000), 0.5, 2.0).isfinite().all()


def test_mismatch_statistics_leave_padding_out() -> None:
    old = torch.tensor([[-1.0, -0.5, -2.0], [-0.7, -1.2, 50.0]], dtype=torch.float64)
    sampled = torch.tensor([[-1.1, -0.5, -3.2], [-0.6, -0.4, 0.0]], dtype=torch.float64)
    stats = policy.mismatch_statistics(old, sampled, MASK)
    close(stats.k1, -0.08)
    close(stats.k3, 0.27589084459307534)
    close(stats.max_delta, 1.2)
    rho = [math.exp(x) for x in (0.1, 0.0, 1.2, -0.1, -0.8)]
    close(stats.ess, sum(rho) ** 2 / 5 / sum(r * r for r in rho))
    nothing = policy.mismatch_statistics(old, sampled, torch.zeros_like(MASK))
    assert [x.item() for x in nothing] == [0.0] * 4


def test_rebel_is_zero_when_log_ratios_differ_as_the_rewards_do() -> None:
    reward_B = torch.tensor([1.0, 0.0, 0.25, 0.75])
    close(policy.rebel_loss(0.5 * reward_B + torch.tensor([3.0, 3.0, -1.0, -1.0]), reward_B, 0.5), [0.0, 0.0])
    close(policy.rebel_loss(torch.tensor([0.33, -0.1]), torch.tensor([1.0, 0.0]), 1.0), [0.3249], rtol=1e-6)


def test_astar_residual_is_zero_at_the_optimum() -> None:
    target_B = torch.tensor([0.4, -0.3], dtype=torch.float64)
    close(policy.astar_residual(policy.optimal_log_ratio(target_B, 1e-3), target_B, 1e-3), [0.0, 0.0])


def test_clipped_value_loss_by_hand() -> None:
    values, old = (torch.tensor(x, dtype=torch.float64) for x in ([0.9, 0.55, 0.1], [0.5, 0.6, 0.4]))
    returns = torch.tensor([0.9, 1.0, 1.0], dtype=torch.float64)
    close(policy.clipped_value_loss(values, old, returns, 0.2), [0.5 * 0.2**2, 0.5 * 0.45**2, 0.5 * 0.9**2])
    assert policy.value_clip_events(values, old, returns, 0.2).tolist() == [True, False, False]
