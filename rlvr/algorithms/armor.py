"""ARMOR: a correct completion by the reference joins each group, and ratios are between mixtures with the reference.

arXiv:2607.10481, as in its released code.  Each of the dicts below is an ablation; "armor", "correct",
"mixture" and "all" are the published method.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rlvr.algorithms.base import Draw, Forward
from rlvr.algorithms.dapo import DAPO
from rlvr.algorithms.moving_reference import MovingReference
from rlvr.algorithms.qae import QAE
from rlvr.batch import Batch
from rlvr.ops.advantage import first, mixed
from rlvr.ops.policy import conditional_sequence_log_ratio, masked_mean, mixture_log_ratio
from rlvr.schema.algorithm import ARMORConfig, ARMORWithQAEConfig

# Which of the reference's completions, by their scores (P, M), joins the group: at most one per row.
ANCHORS: dict[str, Callable[[Tensor], Tensor]] = {
    "correct": lambda anchor_PM: first(anchor_PM > 0),
    "any": lambda anchor_PM: first(torch.ones_like(anchor_PM, dtype=torch.bool)),
    "none": lambda anchor_PM: torch.zeros_like(anchor_PM, dtype=torch.bool),
}

# What prompts are rejected for.
GATES = {"armor": ("not_mixed", "no_anchor"), "variance": ("not_mixed",), "anchor": ("no_anchor",), "none": ()}

# Rows or tokens whose ratio is one of mixtures, (B, 1).
MIX_ON: dict[str, Callable[[Batch], Tensor]] = {
    "all": lambda batch: torch.ones_like(batch.anchor_B)[:, None],
    "anchors": lambda batch: batch.anchor_B[:, None],
}

Ratio = Callable[["ARMOR", Tensor, Tensor, Batch], Tensor]


def _mixture(armor: "ARMOR", new: Tensor, old: Tensor, batch: Batch) -> Tensor:
    """(a pi + (1-a) ref) / (a old + (1-a) ref) of each token, own or anchor."""
    assert batch.ref_logprobs_BT is not None  # `needs` asks for it
    log_ratio_BT = mixture_log_ratio(new, old, batch.ref_logprobs_BT, armor.config.alpha)
    return torch.where(MIX_ON[armor.config.mix_on](batch), log_ratio_BT, new - old)


def _conditional_sequence(armor: "ARMOR", new: Tensor, old: Tensor, batch: Batch) -> Tensor:
    """The ratio of whole completions between mixtures whose anchors are the reference's *correct* completions.

    Their density is ref / ref_success on correct completions and 0 on others.  The first correct one of
    several tries keeps that law.  Where the reference never succeeded there is no such law: plain ratio.
    """
    assert batch.ref_logprobs_BT is not None
    success_B = batch.facts["ref_success"].to(new.dtype)
    log_ratio_B = conditional_sequence_log_ratio(
        new,
        old,
        batch.ref_logprobs_BT,
        batch.mask_BT,
        share=armor.config.alpha,
        correct_B=(armor.score(batch) > 0) & (success_B > 0),
        ref_success_B=success_B,
    )
    return log_ratio_B[:, None].expand_as(new)


RATIOS: dict[str, Ratio] = {
    "mixture": _mixture,
    "plain": lambda armor, new, old, batch: new - old,
    "conditional_sequence": _conditional_sequence,
    # With the old policy as the reference the mixture is 1 + alpha (r - 1): clip range / alpha, gradient * alpha.
    "wide_clip": lambda armor, new, old, batch: mixture_log_ratio(new, old, old, armor.config.alpha),
}


class ARMOR(MovingReference, DAPO):
    """G - 1 own completions and the first correct one of `anchor_tries` by the reference; correct is a score over 0."""

    config: ARMORConfig

    # -- which completions ------------------------------------------------------------------

    @property
    def draws(self) -> tuple[Draw, ...]:
        own = Draw("policy", self.config.group - self.config.anchored)
        return (own, Draw("reference", self.config.anchor_tries)) if self.config.draws_reference else (own,)

    def _parts(self, score_PN: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of own completions and of the reference's."""
        own = self.draws[0].count
        return score_PN[:, :own], score_PN[:, own:]

    def _picks(self, score_PN: Tensor) -> tuple[Tensor, Tensor]:
        """Which of both make the group, if the prompt is kept: G in all."""
        own_PN, anchor_PM = self._parts(score_PN)
        anchor_PM = ANCHORS[self.config.anchor](anchor_PM)
        room_P1 = self.config.group - anchor_PM.sum(-1, keepdim=True)
        return torch.arange(own_PN.shape[-1], device=own_PN.device) < room_P1, anchor_PM

    def gate(self, score_PN: Tensor) -> dict[str, Tensor]:
        """Own completions must be mixed, not counting the anchor, and the reference must have been right.

        Where an anchor is asked for, G - 1 of them are judged even if none joins the group, so that controls keep,
        of the same completions, the prompts that ARMOR keeps.
        """
        own_PN, anchor_PM = self._parts(score_PN)
        asked = GATES[self.config.gate]
        judged_PN = own_PN.masked_fill(~self._picks(score_PN)[0], torch.nan)
        judged_PN = judged_PN[:, : self.config.group - ("no_anchor" in asked)]
        reasons = {"not_mixed": ~mixed(judged_PN), "no_anchor": ~(anchor_PM > 0).any(-1)}
        return {reason: reasons[reason] for reason in asked}

    def select(self, score_PN: Tensor) -> Tensor:
        return super().select(score_PN) & torch.cat(self._picks(score_PN), dim=-1)

    def facts(self, score_PN: Tensor) -> dict[str, Tensor]:
        """`ref_success`, the reference's success rate, for ratios that condition on it.

        Estimated from the tries that the gate looked at, it is too high by 1 / P(at least one success).
        """
        if self.config.ratio != "conditional_sequence":
            return {}
        anchor_PM = self._parts(score_PN)[1]
        return {"ref_success": masked_mean((anchor_PM > 0).to(anchor_PM.dtype), ~anchor_PM.isnan(), -1)}

    # -- what is minimised ---------------------------------------------------------------------

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | ({"ref_logprobs_BT"} if self.config.mixes_reference else set())

    def log_ratio(self, new: Forward, batch: Batch) -> Tensor:
        assert new.logprobs_BT is not None and batch.old_logprobs_BT is not None  # `needs` asks for them
        return RATIOS[self.config.ratio](self, new.logprobs_BT, batch.old_logprobs_BT, batch)


class ARMORWithQAE(ARMOR, QAE):
    """ARMOR's rollouts and ratio with QAE's baseline, as in the paper's second variant."""

    config: ARMORWithQAEConfig
