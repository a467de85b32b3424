"""What an algorithm is: five questions the training loop asks, and nothing else.

    draws, survey, gate, select   which completions are collected
    needs                         which extra values are scored on them
    signal                        what each sequence should be pushed towards
    losses                        what is minimised on one micro-batch
    events                        what happens to the models between steps

An algorithm sees tensors of one batch and its own config.  It never sees ranks, engines, files or
the loop; a test calls it on the CPU with five made-up numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlvr.batch import Batch
from rlvr.records import Source
from rlvr.schema.triggers import Event


@dataclass(frozen=True)
class Draw:
    """`count` completions of every prompt, sampled from `source`."""

    source: Source
    count: int


class Forward(NamedTuple):
    """What a model said about one micro-batch; float32, aligned to completion tokens."""

    logprobs_BT: Tensor | None = None  # policy, at the sampling temperature
    entropy_BT: Tensor | None = None  # policy, exact; has a gradient only if `entropy_learns`
    values_BT: Tensor | None = None  # critic


Metrics = dict[str, Tensor]
Loss = Callable[[Forward, Batch], tuple[Tensor, Metrics]]

# Which model fills each field of `Algorithm.needs`.
SCORED_BY = {"old_logprobs_BT": "policy", "ref_logprobs_BT": "reference", "values_BT": "critic"}


class Algorithm:
    unit: int = 1  # neighbouring sequences that a micro-batch may not part
    entropy_learns: bool = False  # does the loss push on Forward.entropy_BT
    survey: Draw | None = None  # drawn once for every prompt, before training

    def __init__(self, config: Any) -> None:
        self.config = config  # this algorithm's own section
        self.state: dict[str, float] = {}  # goes into checkpoints; equal on all ranks

    # -- which completions ------------------------------------------------------------

    @property
    def draws(self) -> tuple[Draw, ...]:
        return (Draw("policy", self.config.group),)

    def summarize(self, score_N: Tensor) -> dict[str, float] | None:
        """What the survey taught about one prompt: facts by name; None drops the prompt.

        Args:
            score_N: float32, the completions that the survey drew; NaN where the verifier could not judge.
        """
        return {}

    def gate(self, score_PN: Tensor) -> dict[str, Tensor]:
        """Why prompts are not trained on: (P,) bool by reason, True where it holds; scores as in `select`."""
        return {}

    def select(self, score_PN: Tensor) -> Tensor:
        """Which of the drawn completions to train on: all of the prompts that `gate` has nothing against.

        Args:
            score_PN: float32, the N completions of each prompt in the order of `draws`; NaN where
                the verifier could not judge.

        Returns:
            (P, N) bool; a row picks G of them, or none: then the prompt is replaced by another.
        """
        rejected_P = torch.zeros(len(score_PN), dtype=torch.bool, device=score_PN.device)
        for reason_P in self.gate(score_PN).values():
            rejected_P = rejected_P | reason_P
        return ~rejected_P[:, None].expand_as(score_PN)

    def facts(self, score_PN: Tensor) -> dict[str, Tensor]:
        """What the draws of this step taught about each prompt: (P,) float32 by name; scores as in `select`."""
        return {}

    # -- what is known about them ------------------------------------------------------

    @property
    def needs(self) -> frozenset[str]:
        """Fields that the loss reads: of "old_logprobs_BT", "ref_logprobs_BT", "values_BT"."""
        return frozenset({"old_logprobs_BT"})

    @property
    def signal_needs(self) -> frozenset[str]:
        """The part of `needs` that `signal` reads too; the rest may be filled in by the update's first forward."""
        return frozenset()

    def score(self, batch: Batch) -> Tensor:
        """(B,) the verifier's score; 0 for truncated completions where they count as wrong."""
        return batch.score_B.masked_fill(batch.truncated_B, 0.0) if self.config.truncated == "wrong" else batch.score_B

    def worth(self, score: Tensor) -> Tensor:
        """The reward of a score: wrong_reward for 0, 1 for 1, linear between."""
        return self.config.wrong_reward + (1 - self.config.wrong_reward) * score

    def reward(self, batch: Batch) -> Tensor:
        """(B,) what a completion earned."""
        return self.worth(self.score(batch))

    def counted(self, batch: Batch) -> Batch:
        """Without the tokens of truncated completions where they are masked; such a completion still has a reward."""
        if self.config.truncated != "mask":
            return batch
        return batch.having(mask_BT=batch.mask_BT * ~batch.truncated_B[:, None])

    def signal(self, batch: Batch) -> dict[str, Tensor]:
        """Fields to add to the batch: advantages, returns, a regression target, another mask."""
        raise NotImplementedError

    # -- what is minimised --------------------------------------------------------------

    @property
    def losses(self) -> dict[str, Loss]:
        """One per trained model."""
        return {"policy": self.loss}

    def loss(self, new: Forward, batch: Batch) -> tuple[Tensor, Metrics]:
        """The loss of one micro-batch, and detached metrics.

        Both are sums of `batch.token_mean` and `batch.sequence_mean` terms, so that adding over
        micro-batches and ranks gives the mean over the whole update.
        """
        raise NotImplementedError

    # -- what happens between steps -------------------------------------------------------

    def events(self, step: int, metrics: dict[str, float]) -> tuple[Event, ...]:
        """What to do after `step`, given its metrics."""
        return ()

    @property
    def models(self) -> frozenset[str]:
        """Which models to build; follows from the answers above."""
        sources = {draw.source for draw in (*self.draws, *filter(None, [self.survey]))}
        return frozenset({SCORED_BY[need] for need in self.needs} | sources | set(self.losses))
