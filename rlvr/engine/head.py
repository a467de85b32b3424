"""The language-model head without its logits: log-probs and exact entropy in chunks of tokens.

Letters in names:  M predicted tokens   D model width   V vocabulary
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class _Head(torch.autograd.Function):
    """Forward keeps no logits; backward makes them again, chunk by chunk."""

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
        logprobs_M = hidden_MD.new_empty(target_M.shape, dtype=torch.float32)
        entropy_M = torch.empty_like(logprobs_M)
        for part in _parts(len(target_M), chunk):
            logp_mV = _log_softmax(hidden_MD[part], weight_VD, bias_V, temperature)
            logprobs_M[part] = logp_mV.gather(1, target_M[part, None])[:, 0]
            entropy_M[part] = _entropy(logp_mV)
        ctx.save_for_backward(hidden_MD, weight_VD, bias_V, target_M)
        ctx.temperature, ctx.chunk, ctx.entropy_learns = temperature, chunk, entropy_learns
        if not entropy_learns:
            ctx.mark_non_differentiable(entropy_M)
        return logprobs_M, entropy_M

    @staticmethod
    def backward(ctx: Any, grad_logprobs_M: Tensor, grad_entropy_M: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MD, weight_VD, bias_V, target_M = ctx.saved_tensors
        grad_hidden_MD = torch.empty_like(hidden_MD)
        grad_weight_VD = torch.zeros(weight_VD.shape, dtype=torch.float32, device=weight_VD.device)
        grad_bias_V = None if bias_V is None else torch.zeros_like(bias_V, dtype=torch.float32)
        for part in _parts(len(target_M), ctx.chunk):
            logp_mV = _log_softmax(hidden_MD[part], weight_VD, bias_V, ctx.temperature)
            prob_mV = logp_mV.exp()
            # d log p(target) / d logits = onehot - p ;  d H / d logits = -p (log p + H)
            grad_mV = -grad_logprobs_M[part, None] * prob_mV
            if ctx.entropy_learns:
                entropy_m1 = _entropy(logp_mV)[:, None]
                grad_mV -= grad_entropy_M[part, None] * prob_mV * (logp_mV.clamp(min=-1e30) + entropy_m1)
            grad_mV.scatter_add_(1, target_M[part, None], grad_logprobs_M[part, None])
            grad_mV /= ctx.temperature
            if grad_bias_V is not None:
                grad_bias_V += grad_mV.sum(0)
            grad_mV = grad_mV.to(weight_VD.dtype)
            grad_hidden_MD[part] = grad_mV @ weight_VD
            grad_weight_VD += grad_mV.T @ hidden_MD[part]
        bias_out = None if grad_bias_V is None or bias_V is None else grad_bias_V.to(bias_V.dtype)
        return grad_hidden_MD, grad_weight_VD.to(weight_VD.dtype), bias_out, None, None, None, None


def _parts(total: int, chunk: int) -> list[slice]:
    return [slice(start, start + chunk) for start in range(0, total, chunk)]


def _log_softmax(hidden_mD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, temperature: float) -> Tensor:
    logits_mV = torch.nn.functional.linear(hidden_mD, weight_VD, bias_V).float()
    return torch.log_softmax(logits_mV.div_(temperature), dim=-1)


def _entropy(logp_mV: Tensor) -> Tensor:
    return -(logp_mV.exp() * logp_mV.clamp(min=-1e30)).sum(-1)


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
            float32 (M,) log-probs and (M,) exact entropies in nats; peak memory is `chunk` x V numbers, never M x V.
        """
        return _Head.apply(hidden_MD, self.weight, self.bias, target_M, temperature, self.chunk, entropy_learns)
