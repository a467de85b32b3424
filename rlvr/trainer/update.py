"""Mini-batches, micro-batches, learners: from a batch with a signal to new weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlvr.algorithms.base import Algorithm, Forward, Loss
from rlvr.batch import Batch
from rlvr.clock import Clock
from rlvr.engine.engines import Engines
from rlvr.engine.packing import piece
from rlvr.schema.train import OptimConfig, TrainConfig
from rlvr.tally import Tally
from rlvr.world import World


class EnginesDisagree(RuntimeError):
    """Sampler and learner give the same tokens different log-probs: they do not hold the same weights."""


class Gap:
    """Mean difference of two passes over the policy's own tokens."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0.0

    def add(self, micro: Batch, one_BT: Tensor | None, other_BT: Tensor | None) -> None:
        """Add a micro-batch; anchors are left out, since the reference sampled them."""
        assert one_BT is not None and other_BT is not None
        column_T = torch.arange(micro.mask_BT.shape[1], device=micro.mask_BT.device)
        own_BT = (column_T[None] < micro.length_B[:, None]) & ~micro.anchor_B[:, None]
        self.total += float((one_BT.detach() - other_BT)[own_BT].abs().sum())
        self.count += float(own_BT.sum())


class Updater:
    """Runs the optimizer updates of a step."""

    def __init__(self, algorithm: Algorithm, engines: Engines, config: TrainConfig, world: World, clock: Clock) -> None:
        self.algorithm, self.engines, self.config, self.world, self.clock = algorithm, engines, config, world, clock

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

    def update(self, batch: Batch, step: int) -> dict[str, float]:
        """All updates of one step.

        Returns:
            Metrics, equal on all ranks: means over the updates; the sampler/learner mismatch is that of the first one.

        Raises:
            EnginesDisagree: if sampled and learned log-probs differ by more than hardware.mismatch_bound.
            FloatingPointError: if a loss or a gradient is not finite.
        """
        metrics, done = Tally(), 0
        for _ in range(self.config.algorithm.epochs):
            for mini in batch.minibatches(self.config.algorithm.minibatches):
                share = schedule(self.config.optim, step * self.per_step + done, self.config.steps * self.per_step)
                for name, loss in self.algorithm.losses.items():
                    told = self._one(name, loss, mini, share, first=done == 0 and name == "policy")
                    metrics.add_all(told, "" if name == "policy" else f"{name}/")
                done += 1
        self.engines.updated()
        return metrics.means() | {"reward": self._reward(batch)}

    def _reward(self, batch: Batch) -> float:
        """Mean reward of the sequences that count, over all ranks."""
        counts_B = (batch.mask_BT.sum(-1) > 0).double()
        total, count = self.world.sum(
            torch.stack([(self.algorithm.reward(batch) * counts_B).sum(), counts_B.sum()])
        ).tolist()
        return total / max(1.0, count)

    def _one(self, name: str, loss: Loss, mini: Batch, share: float, first: bool) -> dict[str, float]:
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
            if first and len(rows):
                sampled.add(micro, micro.old_logprobs_BT, micro.sampled_logprobs_BT)
                scored.add(micro, new.logprobs_BT, micro.old_logprobs_BT)
            with self.clock("backward"):
                learner.backward(value, last=number == len(cuts) - 1)
            for key, number_ in (told | {"loss": value.detach()}).items():
                sums[key] = sums.get(key, 0.0) + number_.detach()
        if first:
            sums["mismatch_gap"] = self._checked(sampled, "the sampler does not hold the learner's weights")
            self._checked(scored, "the policy ratio is not 1 before the first update")
        with self.clock("optimizer"):
            norm = learner.update(lr)
        return self._global(sums) | {"grad_norm": norm, "lr": lr}

    def _checked(self, gap: Gap, fault: str) -> Tensor:
        """This rank's share of a mean gap that is to be near zero, after all ranks agreed that it is."""
        total, count = self.world.sum(torch.tensor([gap.total, gap.count], dtype=torch.float64)).tolist()
        mean, bound = total / max(1.0, count), self.config.hardware.mismatch_bound
        if not mean <= bound:
            raise EnginesDisagree(
                f"two passes over the same tokens differ by {mean:.3g} nats per token on average, above "
                f"hardware.mismatch_bound={bound}: {fault}. {self.engines.diagnose()}"
            )
        return torch.tensor(mean / self.world.size)

    def _global(self, sums: dict[str, Tensor]) -> dict[str, float]:
        names = sorted(sums)
        values = self.world.sum(torch.stack([sums[n].detach().double().cpu() for n in names])).tolist()
        for name, value in zip(names, values, strict=True):
            if name == "loss" and not math.isfinite(value):
                raise FloatingPointError(f"the loss is {value}")
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
