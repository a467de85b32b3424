"""What is minimised: ratios, clipped objectives, KL estimators, mixtures, mismatch weights, regressions.

Log-probabilities are natural logarithms of sampled tokens.  Functions named `*_loss` and
`clipped_surrogate` return one term per token or sequence, to be averaged by the caller.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# The largest log-ratio that is exponentiated: e^20 = 4.9e8 leaves float32 room for products and sums.
MAX_LOG_RATIO = 20.0


# -- masked sums ---------------------------------------------------------------------


def masked_sum(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum where `mask` is positive; whatever stands elsewhere, NaN included, is ignored."""
    return torch.where(mask > 0, x, 0.0).sum(dim)


def masked_mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean where `mask` is positive; 0 where nothing is."""
    return masked_sum(x, mask, dim) / (mask > 0).sum(dim).clamp(min=1)


# -- ratios --------------------------------------------------------------------------


def importance_ratio(log_ratio: Tensor) -> Tensor:
    """exp(log_ratio), bounded at e^20 before the exponential, so that value and gradient stay finite."""
    return log_ratio.clamp(max=MAX_LOG_RATIO).exp()


def sequence_ratio(log_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B,) length-normalised ratio exp(mean_t log-ratio): GSPO, arXiv:2507.18071, eq. 7."""
    return importance_ratio(masked_mean(log_ratio_BT, mask_BT, -1))


def cispo_weight(ratio: Tensor, low: float | None, high: float) -> Tensor:
    """CISPO's detached weight (arXiv:2506.13585, eq. 5): the ratio inside [low, high].

    Both bounds are values of the ratio itself, not distances from 1; `low` None is no lower bound.
    """
    return ratio.clamp(min=low, max=high).detach()


# -- objectives ----------------------------------------------------------------------


def clipped_surrogate(
    ratio: Tensor, advantage: Tensor, low: float, high: float, dual_clip: float | None = None
) -> Tensor:
    """PPO's clipped surrogate as a loss (arXiv:1707.06347, eq. 7), with separate bounds (DAPO).

    Args:
        ratio, advantage: of one shape, per token or per sequence.
        low, high: the ratio is clipped to [1 - low, 1 + high].
        dual_clip: where the advantage is negative, the loss is at most this times |advantage|
            (arXiv:1912.09729, eq. 8); None for no such bound.
    """
    loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
    if dual_clip is None:
        return loss
    return torch.where(advantage < 0, torch.minimum(loss, -dual_clip * advantage), loss)


class ClipEvents(NamedTuple):
    """Where `clipped_surrogate` is flat, so that a token has no gradient; three disjoint bool tensors."""

    low: Tensor
    high: Tensor
    dual: Tensor


def clip_events(
    ratio: Tensor, advantage: Tensor, low: float, high: float, dual_clip: float | None = None
) -> ClipEvents:
    """Which bound of `clipped_surrogate` holds a term, if any; same arguments."""
    return ClipEvents(
        low=(advantage < 0) & (ratio < 1 - low),
        high=(advantage > 0) & (ratio > 1 + high),
        dual=(advantage < 0) & (ratio > (math.inf if dual_clip is None else dual_clip)),
    )


def reinforce_loss(logprobs: Tensor, advantage: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """-weight * advantage * log-probability: RLOO with weight 1, CISPO with `cispo_weight`; weights are constants."""
    return -weight * advantage * logprobs


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """0.5 * max((V - R)^2, (V_clipped - R)^2) with V_clipped within `clip` of the old value (PPO's critic)."""
    near = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.maximum((values - returns) ** 2, (near - returns) ** 2)


def value_clip_events(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Bool: where `clipped_value_loss` is flat because the clipped term is the larger one."""
    moved = values - old_values
    near = old_values + moved.clamp(-clip, clip)
    # inside the range `near` is the value itself but for rounding, which must not count
    return (moved.abs() > clip) & ((near - returns) ** 2 > (values - returns) ** 2)


def rebel_loss(log_ratio_B: Tensor, reward_B: Tensor, eta: float) -> Tensor:
    """(B/2,) squared error of a pair's reward difference: REBEL, arXiv:2404.16767, eq. 4.

    Args:
        log_ratio_B: sequence sums of log pi - log pi_t; neighbours are completions of one prompt.
        reward_B: their rewards.
        eta: the paper's step size; log-ratios are divided by it.
    """
    moved = log_ratio_B.view(-1, 2).diff(dim=-1).squeeze(-1) / eta
    wanted = reward_B.view(-1, 2).diff(dim=-1).squeeze(-1)
    return (moved - wanted) ** 2


def astar_residual(log_ratio_B: Tensor, target_B: Tensor, beta: float) -> Tensor:
    """(B,) beta * log(pi/ref) - target, whose square is A*-PO's loss (arXiv:2505.20686, stage 2).

    Args:
        log_ratio_B: sequence sums of log pi - log ref.
        target_B: reward - V*.
    """
    return beta * log_ratio_B - target_B


def optimal_log_ratio(target_B: Tensor, beta: float) -> Tensor:
    """(B,) log(pi*/ref) = (reward - V*) / beta, where `astar_residual` is zero."""
    return target_B / beta


# -- KL and entropy ------------------------------------------------------------------


def k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """log pi - log ref: unbiased; as a loss its expected gradient is zero, so use it in the reward."""
    return logprobs - ref_logprobs


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """(log pi - log ref)^2 / 2: biased value; as a loss its expected gradient is that of KL(pi | ref)."""
    return 0.5 * (logprobs - ref_logprobs) ** 2


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """ref/pi - 1 - log(ref/pi): unbiased and never negative; as a loss it follows the forward KL.

    log(ref/pi) is bounded at 20 before the exponential: past it the value is a constant and the
    gradient zero, not infinite.
    """
    log_ratio = (ref_logprobs - logprobs).clamp(max=MAX_LOG_RATIO)
    return torch.expm1(log_ratio) - log_ratio


# Estimators of KL(pi | ref) from samples of pi (J. Schulman, "Approximating KL divergence", 2020).
KL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Exact KL(p | q) of categorical distributions, whose log-probabilities fill the last axis."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def entropy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Exact entropy in nats of softmax(logits / temperature) over the last axis."""
    scaled = logits / temperature
    return scaled.logsumexp(-1) - (scaled.softmax(-1) * scaled).sum(-1)


# -- mixtures with the reference (ARMOR, arXiv:2607.10481) -----------------------------


def log_mixture(own: Tensor, ref: Tensor, share: float) -> Tensor:
    """log(share * exp(own) + (1 - share) * exp(ref)), without leaving log space.

    Raises:
        ValueError: unless 0 < share <= 1.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share={share}: the policy's share of a mixture must lie in (0, 1]")
    if share == 1:
        return own
    return torch.logaddexp(own + math.log(share), ref + math.log1p(-share))


def mixture_log_ratio(new: Tensor, old: Tensor, ref: Tensor, share: float) -> Tensor:
    """Log of (a pi + (1-a) ref) / (a old + (1-a) ref), per token, with a = share."""
    return log_mixture(new, ref, share) - log_mixture(old, ref, share)


def mixture_bounds(old: Tensor, ref: Tensor, share: float, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Probabilities of the policy at which the mixture ratio reaches 1 - low and 1 + high (eq. 6).

    `old` and `ref` are probabilities.  A lower bound <= 0 or an upper one >= 1 can never clip.
    """
    pull = (1 - share) / share * ref
    return (1 - low) * old - low * pull, (1 + high) * old + high * pull


def conditional_sequence_log_ratio(
    new_BT: Tensor,
    old_BT: Tensor,
    ref_BT: Tensor,
    mask_BT: Tensor,
    *,
    share: float,
    correct_B: Tensor,
    ref_success_B: Tensor,
) -> Tensor:
    """(B,) log-ratio between mixtures whose anchors are the reference's *correct* completions.

    Accepted anchors follow ref(y|x) / ref_success on correct completions and have no mass elsewhere,
    so a wrong completion's ratio is the plain pi / old.

    Args:
        new_BT, old_BT, ref_BT: token log-probabilities.
        share: the policy's share of the mixture.
        correct_B: bool.
        ref_success_B: the reference's success rate on the row's prompt; read on correct rows only.
    """
    new_B, old_B, ref_B = (masked_sum(x, mask_BT, -1) for x in (new_BT, old_BT, ref_BT))
    # A rate of 0 on a wrong row would send NaN through the branch that is not taken.
    anchor_B = ref_B - torch.where(correct_B, ref_success_B, 1.0).log()
    return torch.where(correct_B, mixture_log_ratio(new_B, old_B, anchor_B, share), new_B - old_B)


# -- the sampler is not quite the learner ----------------------------------------------


def _token_rho(old_BT: Tensor, sampled_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return importance_ratio(old_BT - sampled_BT)


def _sequence_rho(old_BT: Tensor, sampled_BT: Tensor, mask_BT: Tensor) -> Tensor:
    rho_B = importance_ratio(masked_sum(old_BT - sampled_BT, mask_BT, -1))
    return rho_B[:, None].expand_as(old_BT)


def _within(rho: Tensor, low: float, high: float) -> Tensor:
    return torch.where((rho >= low) & (rho <= high), rho, 0.0)


Correction = Callable[[Tensor, Tensor, Tensor, float, float], Tensor]


def _uncorrected(old_BT: Tensor, sampled_BT: Tensor, mask_BT: Tensor, low: float, high: float) -> Tensor:
    return torch.ones_like(old_BT)


def _truncated(rho_of: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Correction:
    def weight(old_BT: Tensor, sampled_BT: Tensor, mask_BT: Tensor, low: float, high: float) -> Tensor:
        return rho_of(old_BT, sampled_BT, mask_BT).clamp(max=high).detach()

    return weight


def _masked(rho_of: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Correction:
    def weight(old_BT: Tensor, sampled_BT: Tensor, mask_BT: Tensor, low: float, high: float) -> Tensor:
        return _within(rho_of(old_BT, sampled_BT, mask_BT), low, high).detach()

    return weight


# Detached weights (B, T) by rho = p_learner / p_sampler, of a token or of its whole sequence:
# `truncate` is min(rho, high) (truncated importance sampling, Yao et al. 2025);
# `mask` is rho inside [low, high] and 0 outside (IcePop).
# Call as MISMATCH[name](old_logprobs_BT, sampled_logprobs_BT, mask_BT, low, high).
MISMATCH: dict[str, Correction] = {
    "none": _uncorrected,
    "token_truncate": _truncated(_token_rho),
    "token_mask": _masked(_token_rho),
    "sequence_truncate": _truncated(_sequence_rho),
    "sequence_mask": _masked(_sequence_rho),
}


class Mismatch(NamedTuple):
    """How far the learner's log-probabilities are from the sampler's; scalars over the tokens that count."""

    k1: Tensor  # mean of log sampler - log learner, an estimate of KL(sampler | learner)
    k3: Tensor  # the same KL by the k3 estimator
    max_delta: Tensor  # largest |log sampler - log learner|
    ess: Tensor  # effective sample size of the token weights rho, as a fraction of the tokens


def mismatch_statistics(old_BT: Tensor, sampled_BT: Tensor, mask_BT: Tensor) -> Mismatch:
    """Mismatch of the learner's `old_BT` and the sampler's `sampled_BT` log-probabilities; zeros without tokens."""
    rho = _token_rho(old_BT, sampled_BT, mask_BT)
    squares = masked_mean(rho**2, mask_BT)
    return Mismatch(
        k1=masked_mean(k1(sampled_BT, old_BT), mask_BT),
        k3=masked_mean(k3(sampled_BT, old_BT), mask_BT),
        max_delta=torch.where(mask_BT > 0, (sampled_BT - old_BT).abs(), 0.0).amax(),
        ess=torch.where(squares > 0, masked_mean(rho, mask_BT) ** 2 / squares, 0.0),
    )
