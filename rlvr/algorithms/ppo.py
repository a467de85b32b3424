"""PPO: a critic, generalized advantages, a clipped surrogate, and a KL penalty in the reward (arXiv:1707.06347)."""

from torch import Tensor

from rlvr.algorithms.base import Forward, Loss, Metrics
from rlvr.algorithms.policy_gradient import Clipped
from rlvr.batch import Batch
from rlvr.ops.advantage import at_the_end, gae, whiten
from rlvr.ops.policy import clipped_value_loss, masked_mean, value_clip_events
from rlvr.schema.algorithm import PPOConfig


class PPO(Clipped):
    """Every token is an action; the reward comes with the last one."""

    config: PPOConfig

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"values_BT"}

    @property
    def signal_needs(self) -> frozenset[str]:
        return super().signal_needs | {"values_BT"}

    @property
    def losses(self) -> dict[str, Loss]:
        return {"policy": self.loss, "critic": self.value_loss}

    def signal(self, batch: Batch) -> dict[str, Tensor]:
        """`advantages_BT`, whitened over the global batch; `returns_BT`, which are not; and the mask."""
        mask_BT, values_BT = self.counted(batch).mask_BT, batch.values_BT
        assert values_BT is not None  # `signal_needs` asks for them
        reward_BT = at_the_end(self.reward(batch), batch.length_B, mask_BT.shape[1]) - self.kl_cost(batch)
        advantages_BT, returns_BT = gae(reward_BT, values_BT, mask_BT, self.config.gamma, self.config.lam)
        whitened_BT = whiten(advantages_BT, mask_BT, total=batch.total)
        return {"advantages_BT": whitened_BT, "returns_BT": returns_BT, "mask_BT": mask_BT}

    def value_loss(self, new: Forward, batch: Batch) -> tuple[Tensor, Metrics]:
        """Half the squared error of the values, or of values clipped near the old ones if that is larger."""
        values, old, returns = new.values_BT, batch.values_BT, batch.returns_BT
        assert values is not None and old is not None and returns is not None
        loss = batch.token_mean(clipped_value_loss(values, old, returns, self.config.value_clip))
        clipped_BT = value_clip_events(values, old, returns, self.config.value_clip).to(values.dtype)
        seen = {"clip_fraction": clipped_BT, "value": values.detach(), "return": returns}
        return loss, {name: batch.sequence_mean(masked_mean(x_BT, batch.mask_BT, -1)) for name, x_BT in seen.items()}
