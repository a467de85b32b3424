"""DAPO: GRPO on mixed groups only, with clip-higher, a token mean and a soft length limit (arXiv:2503.14476).

Clip-higher and the token mean are values: `clip_high` and `average`.
"""

from torch import Tensor

from rlvr.algorithms.grpo import GRPO
from rlvr.batch import Batch
from rlvr.ops.advantage import mixed, overlong_penalty
from rlvr.schema.algorithm import DAPOConfig


class DAPO(GRPO):
    """GRPO with dynamic sampling (section 3.2) and the soft overlong penalty (section 3.4)."""

    config: DAPOConfig

    def gate(self, score_PN: Tensor) -> dict[str, Tensor]:
        """Judged scores must differ."""
        return {"not_mixed": ~mixed(score_PN)}

    def reward(self, batch: Batch) -> Tensor:
        """As `GRPO.reward`, less up to `overlong_factor` for the tokens inside the overlong buffer."""
        penalty_B = overlong_penalty(batch.length_B, batch.limit, self.config.overlong_buffer)
        return super().reward(batch) + self.config.overlong_factor * penalty_B
