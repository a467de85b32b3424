"""CISPO: REINFORCE with clipped, constant importance weights, so that all tokens have a gradient (arXiv:2506.13585).

`clip_high` means here what it means for GRPO: the weight is at most 1 + clip_high.  The paper gives no value.  The
same cap elsewhere: 1.28 is clip_ratio_high 0.28 in verl and clip_higher 0.28 in open-instruct, but epsilon_high 1.28
in TRL, which caps at the number itself; TRL's 5.0 (ScaleRL) is clip_high 4.0.  `clip_low` 1 is no lower bound, as in
the paper; verl's clip_ratio_low 10 is the same.
"""

from torch import Tensor

from rlvr.algorithms.base import Forward
from rlvr.algorithms.grpo import GRPO
from rlvr.batch import Batch
from rlvr.ops.policy import cispo_weight, reinforce_loss
from rlvr.schema.algorithm import CISPOConfig


class CISPO(GRPO):
    """GRPO's advantages, pushed by eq. 4 and 5 of the paper."""

    config: CISPOConfig

    def push(self, new: Forward, ratio_BT: Tensor, batch: Batch) -> Tensor:
        assert new.logprobs_BT is not None and batch.advantages_BT is not None
        weight_BT = cispo_weight(ratio_BT, 1 - self.config.clip_low, 1 + self.config.clip_high)
        return reinforce_loss(new.logprobs_BT, batch.advantages_BT, weight_BT)

    def bounds_hit(self, ratio_BT: Tensor, batch: Batch) -> dict[str, Tensor]:
        low, high = 1 - self.config.clip_low, 1 + self.config.clip_high
        return {"clip_low_fraction": ratio_BT < low, "clip_high_fraction": ratio_BT > high}
