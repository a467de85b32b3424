"""GSPO: the ratio that is clipped is that of the whole sequence, normalised by its length (arXiv:2507.18071)."""

from torch import Tensor

from rlvr.algorithms.base import Forward
from rlvr.algorithms.grpo import GRPO
from rlvr.batch import Batch
from rlvr.ops.policy import masked_mean
from rlvr.schema.algorithm import GSPOConfig


class GSPO(GRPO):
    """GRPO on exp(mean_t log-ratio), laid on every token: the mean within a sequence gives it back (eq. 5 to 7)."""

    config: GSPOConfig

    def log_ratio(self, new: Forward, batch: Batch) -> Tensor:
        log_ratio_BT = super().log_ratio(new, batch)
        return masked_mean(log_ratio_BT, batch.mask_BT, -1)[:, None].expand_as(log_ratio_BT)
