"""REBEL: the difference of two completions' log-ratios is regressed on that of their rewards (arXiv:2404.16767)."""

from torch import Tensor

from rlvr.algorithms.base import Algorithm, Forward, Metrics
from rlvr.algorithms.watch import watch
from rlvr.batch import Batch
from rlvr.ops.policy import masked_sum, rebel_loss
from rlvr.schema.algorithm import REBELConfig


class REBEL(Algorithm):
    """Neighbours are pairs: G / 2 of them per prompt.  A pair with a completion that does not count is left out."""

    config: REBELConfig
    unit = 2

    def signal(self, batch: Batch) -> dict[str, Tensor]:
        """`target_B`, the rewards, and the mask of complete pairs."""
        mask_BT = self.counted(batch).mask_BT
        complete_B = (mask_BT.sum(-1) > 0).view(-1, 2).all(-1).repeat_interleave(2)
        return {"target_B": self.reward(batch), "mask_BT": mask_BT * complete_B[:, None]}

    def loss(self, new: Forward, batch: Batch) -> tuple[Tensor, Metrics]:
        """Eq. 4 of the paper, averaged over pairs; the released code has eta^2 times this."""
        old, target_B = batch.old_logprobs_BT, batch.target_B
        assert new.logprobs_BT is not None and old is not None and target_B is not None
        log_ratio_B = masked_sum(new.logprobs_BT - old, batch.mask_BT, -1)
        loss = batch.sequence_mean(rebel_loss(log_ratio_B, target_B, self.config.eta).repeat_interleave(2))
        return loss, watch(new, batch)
