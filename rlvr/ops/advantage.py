"""What a completion is worth next to its neighbours: baselines, quantiles, GAE, whitening, V*, gates.

Groups are rows of (P, G).  `valid_PG` (bool) marks the samples that could be judged: the others are
left out of every statistic and get 0.  A group with fewer than 2 valid samples, or with equal rewards,
gets exactly 0, whatever rounding does to its mean.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from rlvr.ops.policy import masked_mean, masked_sum

# -- groups --------------------------------------------------------------------------


def mixed(score_PG: Tensor) -> Tensor:
    """(P,) bool: does the group hold at least two different scores; NaN (not judged) is left out."""
    unjudged = score_PG.isnan()
    return score_PG.masked_fill(unjudged, -math.inf).amax(-1) > score_PG.masked_fill(unjudged, math.inf).amin(-1)


def moments(reward_PG: Tensor, valid_PG: Tensor | None = None, ddof: int = 1) -> tuple[Tensor, Tensor]:
    """(P, 1) mean and standard deviation of the valid rewards; deviation 0 with `ddof` or fewer of them."""
    valid_PG = _all_valid(reward_PG) if valid_PG is None else valid_PG
    mean_P1 = masked_mean(reward_PG, valid_PG, -1)[:, None]
    freedom_P = (valid_PG.sum(-1) - ddof).clamp(min=1)
    variance_P = masked_sum((reward_PG - mean_P1) ** 2, valid_PG, -1) / freedom_P
    return mean_P1, variance_P.sqrt()[:, None]


def centred(reward_PG: Tensor, valid_PG: Tensor | None = None, *, baseline_P1: Tensor | None = None) -> Tensor:
    """Reward minus the group's mean (Dr. GRPO, arXiv:2503.20783), or minus another baseline such as its `quantile`."""
    baseline_P1 = moments(reward_PG, valid_PG)[0] if baseline_P1 is None else baseline_P1
    return _where_informative(reward_PG - baseline_P1, reward_PG, valid_PG)


def standardized(
    reward_PG: Tensor,
    valid_PG: Tensor | None = None,
    *,
    baseline_P1: Tensor | None = None,
    ddof: int = 1,
    eps: float = 1e-6,
) -> Tensor:
    """(reward - baseline) / (deviation + eps) within the group: GRPO, arXiv:2402.03300, section 4.1.2.

    Args:
        reward_PG: rewards.
        valid_PG: bool; None is all.
        baseline_P1: instead of the group's mean, for example its `quantile` (QAE).
        ddof: of the standard deviation.
        eps: added to it.
    """
    mean_P1, deviation_P1 = moments(reward_PG, valid_PG, ddof)
    baseline_P1 = mean_P1 if baseline_P1 is None else baseline_P1
    return _where_informative((reward_PG - baseline_P1) / (deviation_P1 + eps), reward_PG, valid_PG)


def leave_one_out(reward_PG: Tensor, valid_PG: Tensor | None = None) -> Tensor:
    """Reward minus the mean of the *other* rewards of the group: RLOO, arXiv:2402.14740."""
    valid_PG = _all_valid(reward_PG) if valid_PG is None else valid_PG
    count_P1 = valid_PG.sum(-1, keepdim=True)
    return centred(reward_PG, valid_PG) * count_P1 / (count_P1 - 1).clamp(min=1)


def quantile(reward_PG: Tensor, share: float, valid_PG: Tensor | None = None) -> Tensor:
    """(P, 1) inf{x: F(x) >= share}, F the group's distribution: QAE's baseline, arXiv:2509.22611.

    It is always one of the group's rewards, never interpolated: between two of them both right and
    wrong answers would get a non-zero advantage.  `share` is read as the decimal it is written as, so
    that 2 of 5 does reach 0.4, which is not so for the binary float.

    Raises:
        ValueError: unless 0 <= share <= 1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share={share}: a quantile must lie in [0, 1]")
    valid_PG = _all_valid(reward_PG) if valid_PG is None else valid_PG
    rank_of = [max(0, math.ceil(Fraction(str(share)) * count) - 1) for count in range(reward_PG.shape[-1] + 1)]
    count_P = valid_PG.sum(-1)
    rank_P = torch.tensor(rank_of, device=reward_PG.device)[count_P]
    ordered_PG = reward_PG.masked_fill(~valid_PG, math.inf).sort(-1).values
    return torch.where(count_P[:, None] > 0, ordered_PG.gather(-1, rank_P[:, None]), 0.0)


def _all_valid(reward_PG: Tensor) -> Tensor:
    return torch.ones_like(reward_PG, dtype=torch.bool)


def _where_informative(advantage_PG: Tensor, reward_PG: Tensor, valid_PG: Tensor | None) -> Tensor:
    valid_PG = _all_valid(reward_PG) if valid_PG is None else valid_PG
    told_PG = valid_PG & mixed(reward_PG.masked_fill(~valid_PG, math.nan))[:, None]
    return torch.where(told_PG, advantage_PG, 0.0)


# -- the whole batch -----------------------------------------------------------------


def whiten(
    x: Tensor, mask: Tensor, *, ddof: int = 1, eps: float = 1e-8, total: Callable[[Tensor], Tensor] = lambda x: x
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) over everything that counts; 0 elsewhere.

    Args:
        x, mask: of one shape; over tokens, long completions weigh more.
        ddof: of the variance.
        eps: added to it.
        total: adds a tensor over ranks, so that the statistics are those of the global batch.
    """
    mean, variance = _global_moments(x, mask, ddof, total)
    return torch.where(mask > 0, (x - mean) / (variance + eps).sqrt(), 0.0)


def reinforce_pp(
    reward_PG: Tensor,
    valid_PG: Tensor | None = None,
    *,
    eps: float = 1e-8,
    total: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    """(reward - mean) / (deviation + eps) over the whole batch: REINFORCE++, arXiv:2501.03262."""
    valid_PG = _all_valid(reward_PG) if valid_PG is None else valid_PG
    mean, variance = _global_moments(reward_PG, valid_PG, 1, total)
    return torch.where(valid_PG, (reward_PG - mean) / (variance.sqrt() + eps), 0.0)


def reinforce_pp_baseline(
    reward_PG: Tensor,
    valid_PG: Tensor | None = None,
    *,
    eps: float = 1e-8,
    total: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    """Rewards centred in their group, then normalised over the whole batch: REINFORCE++-baseline, same paper.

    The batch's mean is that of groups, 0, and is not subtracted: equal rewards stay exactly 0.
    """
    valid_PG = _all_valid(reward_PG) if valid_PG is None else valid_PG
    return scaled_by_batch(centred(reward_PG, valid_PG), valid_PG, total, eps=eps)


# -- what centred rewards are divided by ------------------------------------------------


def scaled_by_group(
    centred_PG: Tensor, valid_PG: Tensor, total: Callable[[Tensor], Tensor] = lambda x: x, *, eps: float = 1e-6
) -> Tensor:
    """Divided by the standard deviation within the group + eps: GRPO; for a mean as baseline, `standardized`."""
    return centred_PG / (moments(centred_PG, valid_PG)[1] + eps)


def scaled_by_batch(
    centred_PG: Tensor, valid_PG: Tensor, total: Callable[[Tensor], Tensor] = lambda x: x, *, eps: float = 1e-8
) -> Tensor:
    """Divided by the standard deviation over the global batch + eps, which `total` adds up: REINFORCE++-baseline."""
    return centred_PG / (_global_moments(centred_PG, valid_PG, 1, total)[1].sqrt() + eps)


def unscaled(centred_PG: Tensor, valid_PG: Tensor, total: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
    """As they are: Dr. GRPO."""
    return centred_PG


SCALES: dict[str, Callable[[Tensor, Tensor, Callable[[Tensor], Tensor]], Tensor]] = {
    "group": scaled_by_group,
    "batch": scaled_by_batch,
    "none": unscaled,
}


def _global_moments(x: Tensor, mask: Tensor, ddof: int, total: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    count = total((mask > 0).sum().to(x.dtype))
    mean = total(masked_sum(x, mask)) / count.clamp(min=1)
    return mean, total(masked_sum((x - mean) ** 2, mask)) / (count - ddof).clamp(min=1)


# -- along a completion ----------------------------------------------------------------


def at_the_end(x_B: Tensor, length_B: Tensor, width: int) -> Tensor:
    """(B, width) with each number on the last token of its completion and 0 elsewhere; of no tokens, nowhere."""
    last_BT = torch.arange(width, device=x_B.device)[None] == length_B[:, None] - 1
    return torch.where(last_BT, x_B[:, None], 0.0)


def to_go(reward_BT: Tensor) -> Tensor:
    """(B, T) undiscounted sum of the rewards of each token and of all later ones."""
    return reward_BT.flip(-1).cumsum(-1).flip(-1)


def gae(reward_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """(B, T) generalized advantage estimates, arXiv:1506.02438, eq. 16, and returns (advantage + value).

    Both are 0 on tokens that do not count.  A completion ends with its last token that counts: the value
    behind it is 0.  Tokens in between that do not count are stepped over.
    """
    advantage_BT = torch.zeros_like(values_BT)
    running_B = torch.zeros_like(values_BT[:, 0])
    upcoming_B = torch.zeros_like(running_B)
    for t in reversed(range(values_BT.shape[1])):
        counts_B = mask_BT[:, t] > 0
        delta_B = reward_BT[:, t] + gamma * upcoming_B - values_BT[:, t]
        running_B = torch.where(counts_B, delta_B + gamma * lam * running_B, running_B)
        upcoming_B = torch.where(counts_B, values_BT[:, t], upcoming_B)
        advantage_BT[:, t] = running_B
    advantage_BT = torch.where(mask_BT > 0, advantage_BT, 0.0)
    return advantage_BT, torch.where(mask_BT > 0, advantage_BT + values_BT, 0.0)


def cosine_penalty(length_B: Tensor, limit: int) -> Tensor:
    """(B,) 0 for no tokens, falling as half a cosine to -1 at `limit` (ProRL v2; arXiv:2502.03373)."""
    return 0.5 * (torch.cos(torch.pi * (length_B / limit).clamp(max=1)) - 1)


def overlong_penalty(length_B: Tensor, limit: int, buffer: int) -> Tensor:
    """(B,) DAPO's soft length penalty, arXiv:2503.14476, eq. 13.

    0 until `buffer` tokens before `limit`, then falling linearly to -1 at the limit and staying there.
    With buffer 0 only completions longer than the limit are penalised.
    """
    return -((length_B - (limit - buffer)) / max(buffer, 1)).clamp(0, 1)


# -- optimal values (A*-PO, arXiv:2505.20686) --------------------------------------------


def v_star(reward_N: Tensor, beta: float, probability_N: Tensor | None = None) -> Tensor:
    """beta * log E[exp(reward / beta)] over the last axis, in log space so that small betas do not overflow.

    Args:
        reward_N: rewards.
        beta: temperature; 0 stands for the mean (the reference's own value), the limit of a *large* beta.
        probability_N: of each reward; None is one sample each.

    Raises:
        ValueError: if beta is negative.
    """
    if beta < 0:
        raise ValueError(f"beta={beta}: the temperature of V* must not be negative")
    if probability_N is None:
        probability_N = torch.full_like(reward_N, 1 / reward_N.shape[-1])
    if beta == 0:
        return (probability_N * reward_N).sum(-1)
    return beta * (reward_N / beta + probability_N.log()).logsumexp(-1)


def binary_v_star(success: float, beta: float) -> float:
    """V* of a 0/1 reward with the given success rate: beta * log(1 + success * (exp(1 / beta) - 1))."""
    rewards, rates = torch.tensor([[0.0, 1.0], [1 - success, success]], dtype=torch.float64)
    return v_star(rewards, beta, rates).item()


# -- ARMOR's gate (arXiv:2607.10481) -----------------------------------------------------


def anchor_gate(own_PN: Tensor, anchor_PM: Tensor) -> tuple[Tensor, Tensor]:
    """Which prompts to keep, and which anchor: own answers mixed, and a correct one by the reference.

    Args:
        own_PN: scores of the policy's completions; NaN where not judged.
        anchor_PM: scores of the reference's, in the order of generation; correct is > 0.

    Returns:
        keep_P bool, and first_PM bool: the first correct anchor of each kept prompt, nothing of the others.
    """
    correct_PM = anchor_PM > 0
    keep_P = mixed(own_PN) & correct_PM.any(-1)
    return keep_P, first(correct_PM) & keep_P[:, None]


def first(flag_PM: Tensor) -> Tensor:
    """(P, M) bool: of the flags of each row only the first one."""
    return flag_PM & (flag_PM.cumsum(-1) == 1)
