"""A*-PO: V* is estimated from the reference before training; then one completion per prompt is regressed on r - V*.

arXiv:2505.20686, with the loss as in its released code: sequence sums, no factor 1/2, an entropy bonus.
"""

from torch import Tensor

from rlvr.algorithms.base import Algorithm, Draw, Forward, Metrics
from rlvr.algorithms.watch import watch
from rlvr.batch import Batch
from rlvr.ops.advantage import v_star
from rlvr.ops.policy import astar_residual, masked_sum
from rlvr.schema.algorithm import AStarPOConfig


class AStarPO(Algorithm):
    """Needs no old policy: the regression holds for samples of any."""

    config: AStarPOConfig

    @property
    def survey(self) -> Draw:  # type: ignore[override]
        return Draw("reference", self.config.survey_count)

    @property
    def entropy_learns(self) -> bool:  # type: ignore[override]
        return self.config.entropy_coef > 0

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"ref_logprobs_BT"})

    def summarize(self, score_N: Tensor) -> dict[str, float] | None:
        """`v_star`, and the reference's success rate; None where nothing was judged, or solved and `drop_unsolved`."""
        judged_N = score_N[~score_N.isnan()]
        if not len(judged_N) or (self.config.drop_unsolved and not (judged_N > 0).any()):
            return None
        value = v_star(self.worth(judged_N).double(), self.config.beta_value)
        return {"v_star": value.item(), "ref_success": (judged_N > 0).double().mean().item()}

    def signal(self, batch: Batch) -> dict[str, Tensor]:
        """`target_B`, reward - V*, and the mask."""
        target_B = self.reward(batch) - batch.facts["v_star"].to(batch.score_B.dtype)
        return {"target_B": target_B, "mask_BT": self.counted(batch).mask_BT}

    def loss(self, new: Forward, batch: Batch) -> tuple[Tensor, Metrics]:
        """Mean over sequences of (beta_policy log(pi / ref) - target)^2, less the entropy bonus."""
        ref, target_B = batch.ref_logprobs_BT, batch.target_B
        assert new.logprobs_BT is not None and ref is not None and target_B is not None
        log_ratio_B = masked_sum(new.logprobs_BT - ref, batch.mask_BT, -1)
        residual_B = astar_residual(log_ratio_B, target_B, self.config.beta_policy)
        loss = regression = batch.sequence_mean(residual_B.square())
        if self.entropy_learns:
            assert new.entropy_BT is not None
            loss = regression - self.config.entropy_coef * batch.token_mean(new.entropy_BT)
        told = {"regression_loss": regression, "residual": batch.sequence_mean(residual_B)}
        return loss, {name: value.detach() for name, value in told.items()} | watch(new, batch)
