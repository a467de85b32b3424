"""ProRL: DAPO's sampling and clipping, a KL leash, and a reference that is moved up (arXiv:2507.12507, 2505.24864)."""

from torch import Tensor

from rlvr.algorithms.base import Event
from rlvr.algorithms.dapo import DAPO
from rlvr.algorithms.moving_reference import MovingReference
from rlvr.batch import Batch
from rlvr.ops.advantage import cosine_penalty
from rlvr.schema.algorithm import ProRLConfig


class ProRL(MovingReference, DAPO):
    """DAPO with a KL penalty, reference resets, and penalties for length that come and go.

    `state["steps"]` counts the steps that are done.
    """

    config: ProRLConfig

    def reward(self, batch: Batch) -> Tensor:
        """As `DAPO.reward`, less what unfinished and, while their penalty is on, long completions pay."""
        config, cycle = self.config, self.config.length_penalty_on + self.config.length_penalty_off
        on = self.state.get("steps", 0) % cycle < config.length_penalty_on
        pay_B = config.unfinished_penalty * batch.truncated_B
        return super().reward(batch) - pay_B + config.length_penalty * on * cosine_penalty(batch.length_B, batch.limit)

    def events(self, step: int, metrics: dict[str, float]) -> tuple[Event, ...]:
        self.state["steps"] = step + 1
        return super().events(step, metrics)
