"""RLOO: REINFORCE with the other completions' mean reward as the baseline (arXiv:2402.14740)."""

from torch import Tensor

from rlvr.algorithms.base import Forward
from rlvr.algorithms.policy_gradient import PolicyGradient
from rlvr.batch import Batch
from rlvr.ops.advantage import leave_one_out
from rlvr.ops.policy import reinforce_loss
from rlvr.schema.algorithm import RLOOConfig


class RLOO(PolicyGradient):
    """A completion is one action: no ratio, no clip, and log-probs summed over it."""

    config: RLOOConfig

    def advantages(self, batch: Batch) -> Tensor:
        reward_PG = batch.grouped(self.reward(batch) - self.kl_cost(batch).sum(-1))
        return batch.spread(leave_one_out(reward_PG, batch.grouped(batch.judged_B)).flatten())

    def push(self, new: Forward, ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Times the number of tokens, since `average` takes the mean within a sequence."""
        assert new.logprobs_BT is not None and batch.advantages_BT is not None
        return reinforce_loss(new.logprobs_BT, batch.advantages_BT) * batch.mask_BT.sum(-1, keepdim=True)
