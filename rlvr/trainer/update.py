"""Mini-batches, micro-batches, learners: from a batch with a signal to new weights."""

from __future__ import annotations

import math
from functools import partial
from typing import NoReturn

import torch
from torch import Tensor

from rlvr.algorithms.base import Algorithm, Forward, Loss
from rlvr.batch import Batch
from rlvr.clock import Clock
from rlvr.engine.engines import Engines
from rlvr.engine.packing import piece
from rlvr.ops.policy import importance_ratio
from rlvr.schema.train import OptimConfig, TrainConfig
from rlvr.tally import Tally
from rlvr.trainer.health import Health
from rlvr.world import World


class EnginesDisagree(RuntimeError):
    """Sampler and learner give the same tokens different log-probs: they do not hold the same weights."""


class Gap:
    """Sums over the policy's own tokens of what two passes differ in."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0.0  # of |difference|, and of tokens
        self.weight, self.squares = 0.0, 0.0  # of the importance weights of the one against the other

    def add(self, micro: Batch, one_BT: Tensor | None, other_BT: Tensor | None) -> None:
        """Add a micro-batch; anchors are left out, since the reference sampled them."""
        assert one_BT is not None and other_BT is not None
        column_T = torch.arange(micro.mask_BT.shape[1], device=micro.mask_BT.device)
        own_BT = (column_T[None] < micro.length_B[:, None]) & ~micro.anchor_B[:, None]
        difference_N = (one_BT.detach() - other_BT)[own_BT]
        weight_N = importance_ratio(difference_N)
        self.total += float(difference_N.abs().sum())
        self.count += float(own_BT.sum())
        self.weight += float(weight_N.sum())
        self.squares += float(weight_N.square().sum())


class Updater:
    """Runs the optimizer updates of a step."""

    def __init__(
        self, algorithm: Algorithm, engines: Engines, config: TrainConfig, world: World, clock: Clock, health: Health
    ) -> None:
        self.algorithm, self.engines, self.config, self.world, self.clock = algorithm, engines, config, world, clock
        self.health = health

    @property
    def per_step(self) -> int:
        """Optimizer updates per step."""
        return self.config.algorithm.minibatches * self.config.algorithm.epochs

    def scored_before(self, step: int) -> frozenset[str]:
        """Fields that must be scored before the update of `step`, or that are due to be measured.

        With one update per step the policy's old log-probs are those of the update's own forward, so
        that a separate pass is only paid for where the signal reads them.
        """
        free = frozenset({"old_logprobs_BT"}) if self.per_step == 1 else frozenset()
        every = self.config.log.kl_every
        measured = frozenset({"ref_logprobs_BT"}) if every and step % every == 0 else frozenset()
        return self.algorithm.needs - (free - self.algorithm.signal_needs) | measured

    def update(self, batch: Batch, step: int, staleness: int = 0) -> dict[str, float]:
        """All updates of one step.

        Args:
            staleness: steps that the policy has learned from since it drew the batch.

        Returns:
            Metrics, equal on all ranks: means over the updates; the gap of learner and sampler is that of the first
            one, called `stale_gap` where the policy has moved on, for then it says nothing of their agreement.

        Raises:
            EnginesDisagree: if sampled and learned log-probs differ by more than health.mismatch.limit, and its action
                is to stop; or if two passes of the learner differ by more than hardware.mismatch_bound.
        """
        told = self._counted(batch)
        self.health.reward(told["reward"])
        metrics, done = Tally(), 0
        for _ in range(self.config.algorithm.epochs):
            for mini in batch.minibatches(self.config.algorithm.minibatches):
                share = schedule(self.config.optim, step * self.per_step + done, self.config.steps * self.per_step)
                for name, loss in self.algorithm.losses.items():
                    first = staleness if done == 0 and name == "policy" else None
                    metrics.add_all(self._one(name, loss, mini, share, first))
                done += 1
        self.engines.updated()
        return metrics.means() | told

    def _counted(self, batch: Batch) -> dict[str, float]:
        """Mean reward of the sequences that count, over all ranks, and the share of those that do not."""
        counts_B = batch.mask_BT.sum(-1) > 0
        reward_B = torch.where(counts_B, self.algorithm.reward(batch).double(), 0.0)
        sums = torch.stack([reward_B.sum(), counts_B.sum(), torch.tensor(len(batch), device=counts_B.device)])
        total, count, everything = self.world.sum(sums).tolist()
        return {"reward": total / max(1.0, count), "masked": 1.0 - count / everything}

    def _one(self, name: str, loss: Loss, mini: Batch, share: float, first: int | None) -> dict[str, float]:
        """One update of one model; `first` is the staleness in the policy's first one, where engines are compared."""
        learner = self.engines.learners[name]
        lr = share * {"policy": self.config.optim.lr, "critic": self.config.optim.critic_lr}[name]
        mini = mini.weighted(self.config.algorithm.average)
        sums: dict[str, Tensor] = {}
        sampled, scored = Gap(), Gap()
        cuts = learner.cuts(mini, self.algorithm.unit)
        for number, rows in enumerate(cuts):
            micro = piece(mini, rows, self.algorithm.unit)
            with self.clock("forward"):
                new = learner.forward(micro, self.algorithm.entropy_learns)
                micro = _with_old(micro.to(self.world.device), new)
                value, told = loss(new, micro)
            if first is not None and len(rows):
                sampled.add(micro, micro.old_logprobs_BT, micro.sampled_logprobs_BT)
                scored.add(micro, new.logprobs_BT, micro.old_logprobs_BT)
            with self.clock("backward"):
                learner.backward(value, last=number == len(cuts) - 1)
            for key, number_ in (told | {"loss": value.detach()}).items():
                sums[key] = sums.get(key, 0.0) + number_.detach()
        prefix = "" if name == "policy" else f"{name}/"
        metrics = {f"{prefix}{key}": value for key, value in self._global(sums).items()} | {f"{prefix}lr": lr}
        if first is not None:
            metrics |= self._checked(sampled, scored, first)
        with self.clock("optimizer"):
            norm = learner.update(lr, partial(self._admits, metrics, f"{prefix}grad_norm"))
        return metrics | {f"{prefix}grad_norm": norm}

    def _admits(self, metrics: dict[str, float], norm_name: str, norm: float) -> bool:
        return self.health.admits({f"train/{name}": value for name, value in (metrics | {norm_name: norm}).items()})

    def _checked(self, sampled: Gap, scored: Gap, staleness: int) -> dict[str, float]:
        """The mean gap of sampler and learner, after all ranks agreed that it is near zero, as is the learner's own.

        What is not a number is no disagreement, and left to the guards.
        """
        guard = self.config.health.mismatch
        mean = self._mean(sampled)
        if not staleness and guard.action == "stop" and mean > guard.limit:
            self._disagree(
                mean, f"health.mismatch.limit={guard.limit}", "the sampler does not hold the learner's weights"
            )
        own, bound = self._mean(scored), self.config.hardware.mismatch_bound
        if own > bound:
            self._disagree(own, f"hardware.mismatch_bound={bound}", "the policy ratio is not 1 before the first update")
        return {"stale_gap": mean, "stale_ess": self._effective(sampled)} if staleness else {"mismatch_gap": mean}

    def _mean(self, gap: Gap) -> float:
        total, count = self.world.sum(torch.tensor([gap.total, gap.count], dtype=torch.float64)).tolist()
        return total / max(1.0, count)

    def _effective(self, gap: Gap) -> float:
        """Effective sample size of the weights before any bound, as a fraction of the tokens."""
        told = torch.tensor([gap.weight, gap.squares, gap.count], dtype=torch.float64)
        weight, squares, count = self.world.sum(told).tolist()
        return weight**2 / (squares * count) if squares and count else 0.0

    def _disagree(self, mean: float, bound: str, fault: str) -> NoReturn:
        raise EnginesDisagree(
            f"two passes over the same tokens differ by {mean:.3g} nats per token on average, above {bound}: {fault}. "
            f"{self.engines.diagnose()}"
        )

    def _global(self, sums: dict[str, Tensor]) -> dict[str, float]:
        names = sorted(sums)
        values = self.world.sum(torch.stack([sums[n].detach().double().cpu() for n in names])).tolist()
        return dict(zip(names, values, strict=True))


def _with_old(micro: Batch, new: Forward) -> Batch:
    if micro.old_logprobs_BT is not None or new.logprobs_BT is None:
        return micro
    return micro.having(old_logprobs_BT=new.logprobs_BT.detach())


def schedule(optim: OptimConfig, update: int, total: int) -> float:
    """Share of the peak learning rate: linear warm-up, then constant, or linear or cosine decay to 0 at `total`."""
    if update < optim.warmup:
        return (update + 1) / (optim.warmup + 1)
    return DECAYS[optim.schedule]((update - optim.warmup) / max(1, total - optim.warmup))


DECAYS = {
    "constant": lambda share: 1.0,
    "linear": lambda share: 1.0 - share,
    "cosine": lambda share: 0.5 * (1.0 + math.cos(math.pi * share)),
}
