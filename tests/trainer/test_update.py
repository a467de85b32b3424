"""The updates of a step on made-up learners: what the guards see, when, and what comes of their answer."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from rlvr.algorithms.base import Forward
from rlvr.tally import Tally
from rlvr.trainer.health import Health
from rlvr.trainer.update import EnginesDisagree, Gap, Updater
from tests.engine.test_packing import batch_of
from tests.trainer.scripted import ALONE, small

ROWS = [([5, 6], [7, 8]), ([5], [9]), ([6], [7, 8, 9]), ([4], [3])]


class Learner:
    """Applies what is admitted; its k-th gradient has the k-th norm."""

    def __init__(self, norms, gap=0.0):
        self.norms, self.gap, self.applied = list(norms), gap, []

    def cuts(self, batch, unit):
        return torch.arange(len(batch)).split(2)

    def forward(self, micro, entropy_learns):
        return Forward(logprobs_BT=torch.zeros(micro.mask_BT.shape) - self.gap)

    def backward(self, loss, last):
        pass

    def update(self, lr, admits):
        norm = self.norms.pop(0)
        self.applied.append(admits(norm))
        return norm


def update(policy, critic, losses=(0.5,) * 4, *overrides, staleness=0):
    """One step of two updates of policy and critic."""
    config = small("algorithm=ppo", "algorithm.minibatches=2", "algorithm.epochs=1", "optim.warmup=0", *overrides)
    health, given = Health(config.health, ALONE), list(losses)
    health.begin(SimpleNamespace(tally=Tally(), rows=[]))

    def loss(new, batch):
        return batch.sequence_mean(torch.full((len(batch),), given.pop(0))), {}

    algorithm = SimpleNamespace(
        losses={"policy": loss, "critic": loss}, unit=1, entropy_learns=False, reward=lambda batch: batch.score_B
    )
    engines = SimpleNamespace(
        learners={"policy": policy, "critic": critic}, updated=lambda: None, diagnose=lambda: "diagnosed"
    )
    updater = Updater(algorithm, engines, config, ALONE, lambda phase: nullcontext(), health)
    return updater.update(batch_of(*ROWS), step=0, staleness=staleness), health


def test_metrics_are_means_over_the_updates_under_the_name_of_their_model():
    metrics, health = update(Learner([1.0, 3.0]), Learner([10.0, 30.0]))
    assert metrics == {
        "loss": 0.5,
        "grad_norm": 2.0,
        "lr": pytest.approx(metrics["lr"]),
        "mismatch_gap": 0.0,
        "critic/loss": 0.5,
        "critic/grad_norm": 20.0,
        "critic/lr": pytest.approx(metrics["critic/lr"]),
        "reward": 1.0,
        "masked": 0.0,
    }
    assert health.counted() == {}


def test_only_the_update_that_is_not_finite_is_left_out():
    policy, critic = Learner([1.0, 1.0]), Learner([1.0, float("inf")])
    _, health = update(policy, critic, (0.5, 0.5, float("nan"), 0.5))
    assert policy.applied == [True, False] and critic.applied == [True, False]
    assert health.counted() == {"health/nonfinite": 2.0, "health/skipped": 2.0}
    assert health.in_a_row == 2


def test_after_a_stop_nothing_of_the_step_is_applied():
    policy, critic = Learner([float("inf"), 1.0]), Learner([1.0, 1.0])
    update(policy, critic, (0.5,) * 4, "health.nonfinite.action=stop")
    assert policy.applied == critic.applied == [False, False]


def test_engines_that_disagree_stop_the_run_with_a_diagnosis_or_are_left_to_the_guard():
    with pytest.raises(EnginesDisagree, match=r"health\.mismatch\.limit=0\.0001: the sampler does not .*\. diagnosed"):
        update(Learner([1.0, 1.0], gap=0.1), Learner([1.0, 1.0]))
    policy = Learner([1.0, 1.0], gap=0.1)
    metrics, health = update(policy, Learner([1.0, 1.0]), (0.5,) * 4, "health.mismatch.action=skip")
    assert metrics["mismatch_gap"] == pytest.approx(0.1) and policy.applied == [False, True]


def test_a_policy_that_has_moved_on_is_no_disagreement():
    metrics, _ = update(Learner([1.0, 1.0], gap=0.1), Learner([1.0, 1.0]), staleness=1)
    assert metrics["stale_gap"] == pytest.approx(0.1) and "mismatch_gap" not in metrics
    assert metrics["stale_ess"] == pytest.approx(1.0)  # all tokens have the same weight


def test_the_effective_sample_size_is_that_of_weights_that_differ():
    gap, batch = Gap(), batch_of(*ROWS[:2])
    gap.add(batch, torch.log(torch.tensor([[1.0, 1.0], [3.0, 9.0]])), torch.zeros(2, 2))
    updater = Updater.__new__(Updater)
    updater.world = ALONE
    assert updater._effective(gap) == pytest.approx((1 + 1 + 3) ** 2 / (3 * (1 + 1 + 9)))
