"""GRPO: a group of completions per prompt; its mean reward is the baseline (arXiv:2402.03300)."""

import torch
from torch import Tensor

from rlvr.algorithms.base import Algorithm, Forward, Metrics
from rlvr.batch import Batch
from rlvr.ops.advantage import centred, standardized
from rlvr.ops.policy import KL, MISMATCH, clip_events, clipped_surrogate, importance_ratio, masked_mean, masked_sum
from rlvr.schema.algorithm import GRPOConfig


class GRPO(Algorithm):
    """Clipped policy gradient on group-relative advantages, with a KL penalty in the loss or in the reward.

    What is derived from it overrides `reward`, `advantage` or `log_ratio`.
    """

    config: GRPOConfig

    # -- what is known about the completions ----------------------------------------------

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | ({"ref_logprobs_BT"} if self.config.kl_coef > 0 else set())

    @property
    def signal_needs(self) -> frozenset[str]:
        return frozenset({"old_logprobs_BT", "ref_logprobs_BT"}) if self._kl_stands_in("reward") else frozenset()

    def _kl_stands_in(self, place: str) -> bool:
        return self.config.kl_coef > 0 and self.config.kl_in == place

    # -- what each completion should be pushed towards --------------------------------------

    def reward(self, batch: Batch) -> Tensor:
        """As `Algorithm.reward`; a truncated completion may count as wrong."""
        if self.config.truncated == "wrong":
            batch = batch.having(score_B=batch.score_B.masked_fill(batch.truncated_B, 0.0))
        return super().reward(batch)

    def advantage(self, reward_PG: Tensor, judged_PG: Tensor) -> Tensor:
        """(P, G): section 4.1.2 of the paper, or Dr. GRPO (arXiv:2503.20783) without the division."""
        return (standardized if self.config.scale_advantages else centred)(reward_PG, judged_PG)

    def signal(self, batch: Batch) -> dict[str, Tensor]:
        """`advantages_BT`, and `mask_BT` where truncated completions are masked out of the loss.

        Masked completions still count in the baseline of their group.
        """
        reward_B = self.reward(batch)
        if self._kl_stands_in("reward"):
            reward_B = reward_B - self.config.kl_coef * self._sampled_kl(batch)
        advantage_PG = self.advantage(batch.grouped(reward_B), batch.grouped(batch.judged_B))
        made = {"advantages_BT": batch.spread(advantage_PG.flatten())}
        if self.config.truncated == "mask":
            made["mask_BT"] = batch.mask_BT * ~batch.truncated_B[:, None]
        return made

    def _sampled_kl(self, batch: Batch) -> Tensor:
        """(B,) KL(old | ref) summed over each completion."""
        old, ref = batch.old_logprobs_BT, batch.ref_logprobs_BT
        assert old is not None and ref is not None  # `signal_needs` asks for them
        return masked_sum(KL[self.config.kl_estimator](old, ref), batch.mask_BT, -1)

    # -- what is minimised --------------------------------------------------------------------

    def log_ratio(self, new: Forward, batch: Batch) -> Tensor:
        """(B, T) log of the importance ratio that is clipped."""
        assert new.logprobs_BT is not None and batch.old_logprobs_BT is not None  # `needs` asks for them
        return new.logprobs_BT - batch.old_logprobs_BT

    def loss(self, new: Forward, batch: Batch) -> tuple[Tensor, Metrics]:
        """Eq. 3 of the paper, negated, times the correction of the sampler mismatch."""
        config, advantage_BT = self.config, batch.advantages_BT
        assert new.logprobs_BT is not None and advantage_BT is not None  # `signal` made them
        ratio_BT = importance_ratio(self.log_ratio(new, batch))
        push_BT = clipped_surrogate(ratio_BT, advantage_BT, config.clip_low, config.clip_high, config.dual_clip)
        weight_BT = self.correction(batch)
        loss = policy_loss = batch.token_mean(weight_BT * push_BT)
        if self._kl_stands_in("loss"):
            assert batch.ref_logprobs_BT is not None  # `needs` asks for it
            kl_BT = KL[config.kl_estimator](new.logprobs_BT, batch.ref_logprobs_BT)
            loss = policy_loss + config.kl_coef * batch.token_mean(kl_BT)
        return loss, {"policy_loss": policy_loss.detach(), **self._diagnostics(new, batch, ratio_BT, weight_BT)}

    def correction(self, batch: Batch) -> Tensor:
        """(B, T) detached weights for the sampler/learner mismatch; 1 on anchors, which the policy did not sample."""
        config, old = self.config, batch.old_logprobs_BT
        assert old is not None  # `needs` asks for it
        correct = MISMATCH[config.mismatch]
        weight_BT = correct(old, batch.sampled_logprobs_BT, batch.mask_BT, config.mismatch_low, config.mismatch_high)
        return torch.where(batch.anchor_B[:, None], 1.0, weight_BT)

    # -- what is watched ------------------------------------------------------------------------

    @torch.no_grad()
    def _diagnostics(self, new: Forward, batch: Batch, ratio_BT: Tensor, weight_BT: Tensor) -> Metrics:
        """Means over sequences of the mean over tokens, so that they mean the same under every `average`."""
        config, old, ref = self.config, batch.old_logprobs_BT, batch.ref_logprobs_BT
        assert new.logprobs_BT is not None and old is not None and batch.advantages_BT is not None
        clip = clip_events(ratio_BT, batch.advantages_BT, config.clip_low, config.clip_high, config.dual_clip)
        sampled_BT = torch.where(batch.anchor_B[:, None], old, batch.sampled_logprobs_BT)
        watched_BT = {
            "ratio": ratio_BT,
            "clip_low_fraction": clip.low,
            "clip_high_fraction": clip.high,
            "kl_step": KL["k3"](old, new.logprobs_BT),
            "mismatch_k1": KL["k1"](sampled_BT, old),
            "mismatch_k3": KL["k3"](sampled_BT, old),
            "mismatch_weight": weight_BT,
        }
        if config.dual_clip is not None:
            watched_BT["dual_clip_fraction"] = clip.dual
        if ref is not None:
            watched_BT |= {f"kl_ref_{name}": KL[name](new.logprobs_BT, ref) for name in ("k1", "k3")}
        if new.entropy_BT is not None:
            watched_BT["entropy"] = new.entropy_BT
        means = {name: masked_mean(x_BT.to(ratio_BT.dtype), batch.mask_BT, -1) for name, x_BT in watched_BT.items()}
        return {name: batch.sequence_mean(mean_B) for name, mean_B in means.items()}
