"""QAE: the baseline is a quantile of the group's rewards instead of their mean (arXiv:2509.22611)."""

from torch import Tensor

from rlvr.algorithms.dapo import DAPO
from rlvr.ops.advantage import quantile
from rlvr.schema.algorithm import QAEConfig


class QAE(DAPO):
    """Where few are right only the right ones are pushed up, where few are wrong only the wrong ones down."""

    config: QAEConfig

    def baseline(self, reward_PG: Tensor, judged_PG: Tensor) -> Tensor:
        return quantile(reward_PG, self.config.quantile, judged_PG)
