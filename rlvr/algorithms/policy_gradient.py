"""What policy gradients share: where the KL penalty stands, how rollouts are corrected, what is recorded."""

import torch
from torch import Tensor

from rlvr.algorithms.base import Algorithm, Forward, Metrics
from rlvr.algorithms.watch import watch
from rlvr.batch import Batch
from rlvr.ops.policy import KL, MISMATCH, clip_events, clipped_surrogate, importance_ratio
from rlvr.schema.algorithm import ClippedConfig, PolicyGradientConfig


class PolicyGradient(Algorithm):
    """Pushes each token by its advantage.  What is derived from it says what advantages are, and the push."""

    config: PolicyGradientConfig

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | ({"ref_logprobs_BT"} if self.config.kl_coef > 0 else set())

    @property
    def signal_needs(self) -> frozenset[str]:
        return frozenset({"old_logprobs_BT", "ref_logprobs_BT"}) if self._kl_stands_in("reward") else frozenset()

    def _kl_stands_in(self, place: str) -> bool:
        return self.config.kl_coef > 0 and self.config.kl_in == place

    # -- what each completion should be pushed towards --------------------------------------

    def advantages(self, batch: Batch) -> Tensor:
        """(B, T) how much better than expected."""
        raise NotImplementedError

    def signal(self, batch: Batch) -> dict[str, Tensor]:
        """`advantages_BT`, and the mask of what counts in the loss."""
        return {"advantages_BT": self.advantages(batch), "mask_BT": self.counted(batch).mask_BT}

    def kl_cost(self, batch: Batch) -> Tensor:
        """(B, T) what the KL penalty takes from the reward of each token; 0 where it stands in the loss."""
        if not self._kl_stands_in("reward"):
            return torch.zeros_like(batch.mask_BT)
        old, ref = batch.old_logprobs_BT, batch.ref_logprobs_BT
        assert old is not None and ref is not None  # `signal_needs` asks for them
        return self.config.kl_coef * KL[self.config.kl_estimator](old, ref) * batch.mask_BT

    # -- what is minimised --------------------------------------------------------------------

    def log_ratio(self, new: Forward, batch: Batch) -> Tensor:
        """(B, T) log of the importance ratio."""
        assert new.logprobs_BT is not None and batch.old_logprobs_BT is not None  # `needs` asks for them
        return new.logprobs_BT - batch.old_logprobs_BT

    def push(self, new: Forward, ratio_BT: Tensor, batch: Batch) -> Tensor:
        """(B, T) the loss of each token."""
        raise NotImplementedError

    def bounds_hit(self, ratio_BT: Tensor, batch: Batch) -> dict[str, Tensor]:
        """(B, T) flags to record: where a bound of `push` holds a token, by the name of the bound."""
        return {}

    def loss(self, new: Forward, batch: Batch) -> tuple[Tensor, Metrics]:
        """The mean push, corrected for the sampler mismatch, plus the KL penalty if it stands in the loss."""
        assert new.logprobs_BT is not None
        ratio_BT = importance_ratio(self.log_ratio(new, batch))
        weight_BT = self.correction(batch)
        loss = policy_loss = batch.token_mean(weight_BT * self.push(new, ratio_BT, batch))
        if self._kl_stands_in("loss"):
            assert batch.ref_logprobs_BT is not None  # `needs` asks for it
            kl_BT = KL[self.config.kl_estimator](new.logprobs_BT, batch.ref_logprobs_BT)
            loss = policy_loss + self.config.kl_coef * batch.token_mean(kl_BT)
        told = watch(new, batch, ratio=ratio_BT, mismatch_weight=weight_BT, **self.bounds_hit(ratio_BT, batch))
        return loss, {"policy_loss": policy_loss.detach(), **told}

    def correction(self, batch: Batch) -> Tensor:
        """(B, T) detached weights for the sampler/learner mismatch; 1 on anchors, which the policy did not sample."""
        config, old = self.config, batch.old_logprobs_BT
        assert old is not None  # `needs` asks for it
        correct = MISMATCH[config.mismatch]
        weight_BT = correct(old, batch.sampled_logprobs_BT, batch.mask_BT, config.mismatch_low, config.mismatch_high)
        return torch.where(batch.anchor_B[:, None], 1.0, weight_BT)


class Clipped(PolicyGradient):
    """Policy gradients whose push is PPO's clipped surrogate."""

    config: ClippedConfig

    def push(self, new: Forward, ratio_BT: Tensor, batch: Batch) -> Tensor:
        assert batch.advantages_BT is not None  # `signal` made them
        low, high = self.config.clip_low, self.config.clip_high
        return clipped_surrogate(ratio_BT, batch.advantages_BT, low, high, self.config.dual_clip)

    def bounds_hit(self, ratio_BT: Tensor, batch: Batch) -> dict[str, Tensor]:
        assert batch.advantages_BT is not None
        low, high = self.config.clip_low, self.config.clip_high
        hit = clip_events(ratio_BT, batch.advantages_BT, low, high, self.config.dual_clip)
        flags = {"clip_low_fraction": hit.low, "clip_high_fraction": hit.high}
        return flags if self.config.dual_clip is None else flags | {"dual_clip_fraction": hit.dual}
