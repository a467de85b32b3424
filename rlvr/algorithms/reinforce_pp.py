"""REINFORCE++: PPO without a critic; returns are normalised over the whole batch, not within groups (arXiv:2501.03262).

The paper's form with a group baseline is GRPO with `scale_advantages` batch: conf/algorithm/reinforce_pp_baseline.yaml.
"""

from torch import Tensor

from rlvr.algorithms.policy_gradient import Clipped
from rlvr.batch import Batch
from rlvr.ops.advantage import to_go, whiten
from rlvr.schema.algorithm import ReinforcePPConfig


class ReinforcePP(Clipped):
    """A token's return is the reward at the end less the KL cost from there on; statistics are over tokens."""

    config: ReinforcePPConfig

    def advantages(self, batch: Batch) -> Tensor:
        return_BT = batch.spread(self.reward(batch)) - to_go(self.kl_cost(batch))
        return whiten(return_BT, self.counted(batch).mask_BT, total=batch.total)
