"""The language-model head without its logits: log-probs and exact entropy, tile by tile.

A tile is the logits of some tokens over some words.  The forward goes through the tiles of a token with a running
maximum and sums relative to it; the backward makes each tile again.  What is as large as the vocabulary is the gradient
of the weights alone.

Letters in names:  M predicted tokens   D model width   V vocabulary   m, v tokens and words of a tile
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

WORDS = 4096  # of a tile: products are as fast as with all words, and what is done to a tile stays near the cache
LEAST = -1e30  # of a logit: that of a word whose bias is -inf, without the NaNs


class _Head(torch.autograd.Function):
    """Forward keeps no logits; backward makes them again."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_M: Tensor,
        temperature: float,
        chunk: int,
        entropy_learns: bool,
    ) -> tuple[Tensor, Tensor]:
        running_4M = hidden_MD.new_zeros(4, len(target_M), dtype=torch.float32)
        running_4M[0] = LEAST
        for words in _parts(len(weight_VD), WORDS):
            bias_v = None if bias_V is None else bias_V[words]
            for part in _parts(len(target_M), chunk):
                logits_mv = _logits(hidden_MD[part], weight_VD[words], bias_v, temperature)
                running_4M[:, part] = _more(running_4M[:, part], logits_mv, target_M[part] - words.start)
                del logits_mv  # before the next is made
        peak_M, mass_M, moment_M, picked_M = running_4M
        log_mass_M = mass_M.log()
        entropy_M = log_mass_M - moment_M / mass_M
        kept_M = entropy_M if entropy_learns else None
        ctx.save_for_backward(hidden_MD, weight_VD, bias_V, target_M, peak_M + log_mass_M, kept_M)
        ctx.temperature, ctx.chunk, ctx.entropy_learns = temperature, chunk, entropy_learns
        if not entropy_learns:
            ctx.mark_non_differentiable(entropy_M)
        return (picked_M - peak_M) - log_mass_M, entropy_M

    @staticmethod
    def backward(ctx: Any, grad_logprobs_M: Tensor, grad_entropy_M: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MD, weight_VD, bias_V, target_M, normalizer_M, entropy_M = ctx.saved_tensors
        grad_hidden_MD = torch.zeros_like(hidden_MD, dtype=torch.float32)
        grad_weight_VD = torch.zeros_like(weight_VD)
        grad_bias_V = None if bias_V is None else torch.zeros_like(bias_V, dtype=torch.float32)
        push_M = grad_logprobs_M / ctx.temperature
        push_entropy_M = grad_entropy_M / ctx.temperature if ctx.entropy_learns else None
        for words in _parts(len(weight_VD), WORDS):
            weight_vD, bias_v = weight_VD[words], None if bias_V is None else bias_V[words]
            grad_weight_vD = grad_weight_VD[words].float()  # itself in fp32
            for part in _parts(len(target_M), ctx.chunk):
                grad_mv = _logits(hidden_MD[part], weight_vD, bias_v, ctx.temperature).sub_(normalizer_M[part, None])
                entropies = None if push_entropy_M is None else (push_entropy_M[part, None], entropy_M[part, None])
                grad_mv = _gradient(grad_mv, push_M[part, None], entropies)
                _at_target(grad_mv, target_M[part] - words.start, push_M[part])
                if grad_bias_V is not None:
                    grad_bias_V[words] += grad_mv.sum(0)
                grad_mv = grad_mv.to(weight_vD.dtype)
                _add_product(grad_hidden_MD[part], grad_mv, weight_vD)
                _add_product(grad_weight_vD, grad_mv.T, hidden_MD[part])
                del grad_mv
            if grad_weight_vD.dtype != grad_weight_VD.dtype:
                grad_weight_VD[words] = grad_weight_vD
        bias_out = None if grad_bias_V is None or bias_V is None else grad_bias_V.to(bias_V.dtype)
        return grad_hidden_MD.to(hidden_MD.dtype), grad_weight_VD, bias_out, None, None, None, None


def _parts(total: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, total, size)]


def _logits(hidden_mD: Tensor, weight_vD: Tensor, bias_v: Tensor | None, temperature: float) -> Tensor:
    """(m, v) float32."""
    logits_mv = torch.nn.functional.linear(hidden_mD, weight_vD, bias_v).float()
    if bias_v is not None:
        logits_mv.clamp_(min=LEAST)
    return logits_mv if temperature == 1.0 else logits_mv.div_(temperature)


def _more(running_4m: Tensor, logits_mv: Tensor, place_m: Tensor) -> Tensor:
    """The running numbers of a token with one more tile, which is used up.

    They are the maximum of the logits, the sum of the exponentials of what a logit is above it, the sum of these
    exponentials times that, and the target's logit.
    """
    peak_m, mass_m, moment_m, picked_m = running_4m
    inside_m, column_m1 = _inside(logits_mv, place_m)
    picked_m = torch.where(inside_m, logits_mv.gather(1, column_m1)[:, 0], picked_m)
    higher_m = torch.maximum(peak_m, logits_mv.amax(1))
    above_mv = logits_mv.sub_(higher_m[:, None])
    exp_mv = above_mv.exp()
    lift_m = peak_m - higher_m
    shrunk_m = lift_m.exp()
    moment_m = (moment_m + lift_m * mass_m) * shrunk_m + above_mv.mul_(exp_mv).sum(1)
    return torch.stack([higher_m, mass_m * shrunk_m + exp_mv.sum(1), moment_m, picked_m])


def _gradient(logp_mv: Tensor, push_m1: Tensor, entropies: tuple[Tensor, Tensor] | None) -> Tensor:
    """In place of log-probs: the gradient of the logits but for the targets' own part.

    d log p(target) / d logits = onehot - p ;  d H / d logits = -p (log p + H)
    """
    if entropies is None:
        return logp_mv.exp_().mul_(-push_m1)
    push_entropy_m1, entropy_m1 = entropies
    prob_mv = logp_mv.exp()
    return logp_mv.add_(entropy_m1).mul_(-push_entropy_m1).sub_(push_m1).mul_(prob_mv)


def _at_target(grad_mv: Tensor, place_m: Tensor, push_m: Tensor) -> None:
    inside_m, column_m1 = _inside(grad_mv, place_m)
    grad_mv.scatter_add_(1, column_m1, torch.where(inside_m, push_m, 0.0)[:, None])


def _inside(tile_mv: Tensor, place_m: Tensor) -> tuple[Tensor, Tensor]:
    """Which targets lie among the words of a tile, and a column that exists for each."""
    last = tile_mv.shape[1] - 1
    return (place_m >= 0) & (place_m <= last), place_m.clamp(0, last)[:, None]


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, without the product where the numbers are of one kind."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


class ChunkedHead(nn.Module):
    """Stands in for a model's `lm_head` and owns its weight, so that ZeRO's hooks and its name stay as they are."""

    def __init__(self, linear: nn.Linear, chunk: int) -> None:
        super().__init__()
        self.weight, self.bias, self.chunk = linear.weight, linear.bias, chunk

    def forward(
        self, hidden_MD: Tensor, target_M: Tensor, temperature: float, entropy_learns: bool
    ) -> tuple[Tensor, Tensor]:
        """Log-prob of each target token and entropy of its distribution.

        Args:
            hidden_MD: last hidden states at the positions that predict the targets.
            target_M: int64 token ids.
            temperature: the logits are divided by it, as the sampler does.
            entropy_learns: keep the gradient of the entropy.

        Returns:
            float32 (M,) log-probs and (M,) exact entropies in nats; beside gradients it takes two tiles of `chunk`
            tokens x `WORDS` words at most, never M x V numbers.
        """
        return _Head.apply(hidden_MD, self.weight, self.bias, target_M, temperature, self.chunk, entropy_learns)
