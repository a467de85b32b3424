"""GRPO: a group of completions per prompt; its mean reward is the baseline (arXiv:2402.03300)."""

from torch import Tensor

from rlvr.algorithms.policy_gradient import Clipped
from rlvr.batch import Batch
from rlvr.ops.advantage import SCALES, centred
from rlvr.schema.algorithm import GRPOConfig


class GRPO(Clipped):
    """Clipped policy gradient (eq. 3) on advantages within groups (section 4.1.2).

    With `scale_advantages` batch, REINFORCE++ with a group baseline (arXiv:2501.03262); with none and
    `average` budget, Dr. GRPO (arXiv:2503.20783).  What is derived from it overrides `reward`,
    `baseline` or `log_ratio`.
    """

    config: GRPOConfig

    def baseline(self, reward_PG: Tensor, judged_PG: Tensor) -> Tensor | None:
        """(P, 1) what an average completion of each group earns; None for the mean."""
        return None

    def advantages(self, batch: Batch) -> Tensor:
        """Masked completions still count in the baseline of their group; those that could not be judged do not."""
        reward_PG = batch.grouped(self.reward(batch) - self.kl_cost(batch).sum(-1))
        judged_PG = batch.grouped(batch.judged_B)
        centred_PG = centred(reward_PG, judged_PG, baseline_P1=self.baseline(reward_PG, judged_PG))
        scaled_PG = SCALES[self.config.scale_advantages](centred_PG, judged_PG, batch.total)
        return batch.spread(scaled_PG.flatten())
