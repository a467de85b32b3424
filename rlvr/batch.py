"""A training batch: this rank's share of the rollouts of one step, as tensors.

Letters in names:  P prompts   G completions per prompt   B = P*G sequences
                   S prompt+completion tokens             T completion tokens

Rows are prompt-major, so `x_B.view(P, G)` is the grouping.  A batch is a view of one *global*
batch: `total` adds up over all of it, so code that takes a mean over the batch never needs to
know how many ranks there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from rlvr.records import Completion, Prompt, Verdict


@dataclass(frozen=True, kw_only=True)
class Batch:
    # what was sampled
    tokens_BS: Tensor  # int64, prompt from column 0, completion right behind it, then padding
    prompt_length_B: Tensor  # int64, tokens of the prompt
    length_B: Tensor  # int64, tokens of the completion, its stop token included
    mask_BT: Tensor  # float32, 1 on completion tokens that count in the loss
    sampled_logprobs_BT: Tensor  # float32, by the sampler, at the sampling temperature
    score_B: Tensor  # float32, the verifier's, 0 to 1; 0 where it could not judge
    judged_B: Tensor  # bool, False where the verifier could not judge
    truncated_B: Tensor  # bool, ended by the length limit
    anchor_B: Tensor  # bool, sampled from the reference, not the policy
    group: int  # G
    limit: int  # most completion tokens the sampler would allow
    facts: dict[str, Tensor] = field(default_factory=dict)  # per prompt, repeated to (B,)

    # what was scored, when the algorithm needs it; float32, aligned to completion tokens
    old_logprobs_BT: Tensor | None = None
    ref_logprobs_BT: Tensor | None = None
    values_BT: Tensor | None = None

    # what `signal` made
    advantages_BT: Tensor | None = None
    returns_BT: Tensor | None = None
    target_B: Tensor | None = None

    # the averaging weights of the current update, set by `weighted`
    token_weight_BT: Tensor | None = None
    sequence_weight_B: Tensor | None = None

    # adds a tensor over all ranks; the identity in tests and on one rank
    total: Callable[[Tensor], Tensor] = lambda x: x

    def __len__(self) -> int:
        return self.score_B.shape[0]

    @classmethod
    def of(
        cls,
        prompts: Sequence[Prompt],
        completions: Sequence[Completion],
        verdicts: Sequence[Verdict],
        *,
        group: int,
        limit: int,
        total: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> Batch:
        """Lay out one rank's rollouts.

        Args:
            prompts: one per completion, prompt-major: `group` neighbours share a prompt.
            completions, verdicts: of the same length.
            group: completions per prompt.
            limit: the sampler's length limit.
            total: sum over ranks.

        Raises:
            ValueError: if the rows do not form whole groups of one prompt each.
        """
        if len({len(prompts), len(completions), len(verdicts)}) != 1 or len(prompts) % max(1, group):
            raise ValueError(
                f"{len(prompts)} prompts, {len(completions)} completions, {len(verdicts)} verdicts in groups of {group}"
            )
        for row, prompt in enumerate(prompts):
            if prompt.tokens != prompts[row - row % group].tokens:
                raise ValueError(
                    f"row {row} ({prompt.id}) is in a group of another prompt ({prompts[row - row % group].id})"
                )
        rows = [p.tokens + c.tokens for p, c in zip(prompts, completions, strict=True)]
        length_B = torch.tensor([len(c.tokens) for c in completions], dtype=torch.int64)
        judged_B = torch.tensor([v.score is not None for v in verdicts], dtype=torch.bool)
        width = int(length_B.max()) if rows else 0
        mask_BT = (torch.arange(width)[None] < length_B[:, None]).float() * judged_B[:, None]
        facts = {name: torch.tensor([p.facts[name] for p in prompts]) for name in (prompts[0].facts if prompts else ())}
        return cls(
            tokens_BS=padded([torch.tensor(r, dtype=torch.int64) for r in rows]),
            prompt_length_B=torch.tensor([len(p.tokens) for p in prompts], dtype=torch.int64),
            length_B=length_B,
            mask_BT=mask_BT,
            sampled_logprobs_BT=padded([torch.tensor(c.logprobs, dtype=torch.float32) for c in completions]),
            score_B=torch.tensor([v.score or 0.0 for v in verdicts], dtype=torch.float32),
            judged_B=judged_B,
            truncated_B=torch.tensor([c.truncated for c in completions], dtype=torch.bool),
            anchor_B=torch.tensor([c.source == "reference" for c in completions], dtype=torch.bool),
            group=group,
            limit=limit,
            facts=facts,
            total=total,
        )

    def having(self, **made: Tensor) -> Batch:
        """The same batch with more fields filled in."""
        return replace(self, **dict[str, Any](made))

    # -- views ---------------------------------------------------------------------

    def grouped(self, x_B: Tensor) -> Tensor:
        """(B,) seen as (P, G)."""
        return x_B.view(-1, self.group)

    def spread(self, x_B: Tensor) -> Tensor:
        """One number per sequence laid on each of its completion tokens that count: (B, T)."""
        return x_B[:, None] * self.mask_BT

    # -- means over the global update -----------------------------------------------

    def token_mean(self, x_BT: Tensor) -> Tensor:
        """This micro-batch's part of the mean over the global update; a scalar to be summed, never averaged."""
        assert self.token_weight_BT is not None, "call `weighted` first"
        return torch.where(self.mask_BT > 0, x_BT * self.token_weight_BT, 0.0).sum()

    def sequence_mean(self, x_B: Tensor) -> Tensor:
        """As `token_mean`, for one number per sequence."""
        assert self.sequence_weight_B is not None, "call `weighted` first"
        return torch.where(self.sequence_weight_B > 0, x_B * self.sequence_weight_B, 0.0).sum()

    def weighted(self, average: str) -> Batch:
        """Fix the weights from global counts, so that sums over micro-batches and ranks are global means.

        With every token masked all weights are zero: the loss is 0 and its gradient finite.
        """
        kept_B = self.mask_BT.sum(-1)
        alive_B = (kept_B > 0).to(self.mask_BT.dtype)
        sequences = self.total(alive_B.sum()).clamp(min=1)
        share = AVERAGES[average](self, kept_B, sequences)
        return replace(
            self,
            token_weight_BT=self.mask_BT * share / sequences,
            sequence_weight_B=alive_B / sequences,
        )

    # -- rows ------------------------------------------------------------------------

    def take(self, rows: Tensor) -> Batch:
        """Select sequences; every per-sequence tensor follows."""
        picked = {
            f.name: getattr(self, f.name)[rows] for f in fields(self) if isinstance(getattr(self, f.name), Tensor)
        }
        return replace(self, **picked, facts={name: fact[rows] for name, fact in self.facts.items()})

    def to(self, device: torch.device) -> Batch:
        """The same batch with its tensors on `device`."""
        moved = {
            f.name: getattr(self, f.name).to(device) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)
        }
        return replace(self, **moved, facts={name: fact.to(device) for name, fact in self.facts.items()})

    def minibatches(self, count: int) -> list[Batch]:
        """`count` contiguous pieces of whole groups; the last ones are smaller if they do not divide."""
        groups = torch.arange(len(self)).view(-1, self.group)
        return [self.take(piece.flatten()) for piece in groups.tensor_split(count)]


def _token_share(batch: Batch, kept_B: Tensor, sequences: Tensor) -> Tensor:
    return sequences / batch.total(kept_B.sum()).clamp(min=1)


def _sequence_share(batch: Batch, kept_B: Tensor, sequences: Tensor) -> Tensor:
    return 1 / kept_B.clamp(min=1)[:, None]


def _budget_share(batch: Batch, kept_B: Tensor, sequences: Tensor) -> Tensor:
    return torch.full_like(kept_B, 1 / batch.limit)[:, None]


# How a token is weighed: over all tokens (DAPO), within its sequence first (GRPO), over the length limit (Dr. GRPO).
AVERAGES = {"token": _token_share, "sequence": _sequence_share, "budget": _budget_share}


def padded(rows: Sequence[Tensor]) -> Tensor:
    """(B, longest) of 1-D tensors, zeros behind the end; (0, 0) of nothing."""
    if not rows:
        return torch.zeros(0, 0)
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
