"""The laws that every algorithm in the table keeps, whatever it does."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlvr.algorithms import ALGORITHMS
from rlvr.algorithms.base import SCORED_BY, Algorithm, Forward
from rlvr.batch import Batch
from tests.algorithms.builders import make, make_batch, moved, near, prepared, random_batch

SCORES = [1.0, 0.0, None, 1.0, 1.0, 0.0, 0.0, 0.25, 0.5, 0.5, 0.5, 0.5]
CORRECTED = dict(mismatch="token_truncate")
WITH_KL = CORRECTED | dict(kl_coef=0.1)
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # with as much switched on as goes together
    "armor": ("armor", WITH_KL | dict(overlong_buffer=4, dual_clip=10.0)),
    "armor_sequence": ("armor", dict(ratio="conditional_sequence", average="sequence")),
    "armor_anchors_mixed": ("armor", dict(mix_on="anchors")),
    "armor_wide_clip": ("armor", dict(ratio="wide_clip", anchor="none", gate="variance")),
    "armor_qae": ("armor_qae", WITH_KL),
    "astar_po": ("astar_po", dict(entropy_coef=0.1)),
    "cispo": ("cispo", WITH_KL),
    "dapo": ("dapo", WITH_KL),
    "grpo": ("grpo", WITH_KL | dict(kl_in="reward")),
    "grpo_budget": ("grpo", WITH_KL | dict(average="budget", scale_advantages="none")),
    "grpo_batch": ("grpo", WITH_KL | dict(average="token", scale_advantages="batch")),
    "gspo": ("gspo", WITH_KL),
    "ppo": ("ppo", WITH_KL),
    "prorl": ("prorl", WITH_KL | dict(length_penalty=0.5, unfinished_penalty=0.5)),
    "qae": ("qae", WITH_KL),
    "rebel": ("rebel", dict(eta=0.5)),
    "reinforce_pp": ("reinforce_pp", WITH_KL),
    "rloo": ("rloo", WITH_KL),
}
each_case = pytest.mark.parametrize("case", CASES)
GROUPED = ("armor", "armor_qae", "cispo", "dapo", "grpo", "gspo", "prorl", "qae", "rloo")


def algorithm_of(case: str, **changed: Any) -> Algorithm:
    name, keys = CASES[case]
    return make(name, **(dict(group=4) | keys | changed))


def rollouts(**more: Any) -> Batch:
    return random_batch(SCORES, group=4, anchors=[3, 7], **more)


def forward_of(batch: Batch) -> Forward:
    """Leaves in the shape of a batch: a policy that has moved, its entropies, and a critic's values."""
    assert batch.values_BT is not None
    entropy_BT = batch.values_BT.flip(0).clone().requires_grad_()
    return Forward(moved(batch), entropy_BT, (batch.values_BT + 0.3).detach().requires_grad_())


def part_of(new: Forward, rows: Tensor) -> Forward:
    return Forward(*[x.detach()[rows].requires_grad_() for x in new if x is not None])


def outcome(algorithm: Algorithm, batch: Batch, new: Forward) -> dict[str, Tensor]:
    """Losses, metrics and gradients of one piece of a prepared batch, by name."""
    told: dict[str, Tensor] = {}
    for model, loss_of in algorithm.losses.items():
        loss, metrics = loss_of(new, batch)
        leaves = [x for x in new if x is not None]
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        told |= {f"{model} loss": loss.detach()}
        told |= {f"{model} metric {name}": value for name, value in metrics.items()}
        told |= {f"{model} gradient {i}": gradient for i, gradient in enumerate(gradients)}
    assert not any(value.requires_grad for value in told.values())
    return told


def joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Pieces put together again: losses and metrics add up, gradients stand one below the other."""
    return {
        name: torch.cat([part[name] for part in parts])
        if "gradient" in name
        else torch.stack([part[name] for part in parts]).sum()
        for name in parts[0]
    }


def agree(got: dict[str, Tensor], want: dict[str, Tensor]) -> None:
    assert got.keys() == want.keys()
    for name in want:
        torch.testing.assert_close(got[name], want[name], rtol=1e-11, atol=1e-14, msg=name)


# -- where a batch is cut changes nothing -----------------------------------------------------------


@each_case
@pytest.mark.parametrize("truncated", ["keep", "mask", "wrong"])
def test_cutting_into_micro_batches_changes_nothing(case: str, truncated: str) -> None:
    algorithm = algorithm_of(case, truncated=truncated)
    batch = prepared(algorithm, rollouts(truncated=[3]))
    new = forward_of(batch)
    whole = outcome(algorithm, batch, new)
    assert whole["policy gradient 0"].abs().sum() > 0
    units = torch.arange(len(batch)).view(-1, algorithm.unit)
    for size in (1, 5):
        pieces = [piece.flatten() for piece in units.split(size)]
        parts = [outcome(algorithm, batch.take(rows), part_of(new, rows)) for rows in pieces]
        agree(joined(parts), whole)


class TwoRanks:
    """Adds up over two threads in lockstep, each of which holds a part of the batch."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=20)
        self.given: dict[int, Tensor] = {}

    def total(self, rank: int) -> Callable[[Tensor], Tensor]:
        def add(x: Tensor) -> Tensor:
            self.given[rank] = x
            self.barrier.wait()
            both = self.given[0] + self.given[1]
            self.barrier.wait()
            return both

        return add

    def run(self, work: Callable[[int], dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        done: dict[int, dict[str, Tensor]] = {}
        threads = [threading.Thread(target=lambda r=rank: done.update({r: work(r)})) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [done[rank] for rank in range(2)]


@each_case
def test_two_ranks_have_the_gradient_of_one(case: str) -> None:
    algorithm = algorithm_of(case, truncated="mask")
    batch = rollouts(truncated=[3])
    new = forward_of(batch)
    ranks, share = TwoRanks(), [torch.arange(8), torch.arange(8, 12)]

    def work(rank: int) -> dict[str, Tensor]:
        mine = replace(batch.take(share[rank]), total=ranks.total(rank))
        return outcome(algorithm, prepared(algorithm, mine), part_of(new, share[rank]))

    agree(joined(ranks.run(work)), outcome(algorithm, prepared(algorithm, batch), new))


@each_case
def test_shuffled_prompts_shuffle_the_signal(case: str) -> None:
    algorithm, batch = algorithm_of(case), rollouts()
    rows = torch.arange(len(batch)).view(-1, 4)[[2, 0, 1]].flatten()
    plain, shuffled = algorithm.signal(batch), algorithm.signal(batch.take(rows))
    for name, value in plain.items():
        torch.testing.assert_close(value[rows], shuffled[name], rtol=1e-12, atol=1e-15)


# -- what does not count does not push -----------------------------------------------------------------


@each_case
def test_tokens_that_do_not_count_have_no_gradient(case: str) -> None:
    algorithm = algorithm_of(case, truncated="mask")
    batch = prepared(algorithm, rollouts(truncated=[3]))
    told = outcome(algorithm, batch, forward_of(batch))
    inside_BT = torch.arange(batch.mask_BT.shape[1])[None] < batch.length_B[:, None]
    assert not batch.mask_BT[[2, 3]].any() and (batch.mask_BT[inside_BT] == 0).any()
    for name in [name for name in told if "gradient" in name]:
        assert (told[name][batch.mask_BT == 0] == 0).all(), name
    assert (told["policy gradient 0"][batch.mask_BT > 0] != 0).any()


@each_case
def test_everything_masked_is_a_zero_loss_with_a_finite_gradient(case: str) -> None:
    algorithm = algorithm_of(case, truncated="mask")
    batch = prepared(algorithm, rollouts(truncated=range(len(SCORES))))
    new = forward_of(batch)
    far = Forward(torch.full_like(batch.mask_BT, 99.0).requires_grad_(), new.entropy_BT, new.values_BT)
    for name, value in outcome(algorithm, batch, far).items():
        assert (value == 0).all(), name


@each_case
def test_far_policies_give_finite_numbers_in_float32(case: str) -> None:
    algorithm = algorithm_of(case, group=2)
    far = [[-1.0, -100.0], [-100.0, -1.0]]
    batch = make_batch(far, [1.0, 0.0], ref=[[-1.0, -1.0], [-1.0, -1.0]], sampled=[[-1.0, -1.0], [-1.0, -1.0]])
    batch = replace(batch, values_BT=batch.mask_BT, facts={"v_star": torch.ones(2), "ref_success": torch.ones(2)})
    batch = batch.having(**{k: v.float() for k, v in vars(batch).items() if getattr(v, "dtype", None) == torch.float64})
    batch = prepared(algorithm, batch)
    new = torch.tensor([[-100.0, -1.0], [-1.0, -100.0]], requires_grad=True)
    told = outcome(
        algorithm, batch, Forward(new, (0 * new.detach()).requires_grad_(), (2 * new.detach()).requires_grad_())
    )
    for name, value in told.items():
        assert value.dtype == torch.float32 and value.isfinite().all(), name


@pytest.mark.parametrize("name", GROUPED)
def test_equal_rewards_give_exactly_zero(name: str) -> None:
    for score in (0.0, 0.1, 1.0):
        batch = make_batch([[-1.0]] * 3 + [[-1.0], [-2.0], [-3.0]], [score] * 3 + [1.0, 0.0, 0.1], group=3)
        advantages_BT = make(name, group=3).signal(batch)["advantages_BT"]
        assert (advantages_BT[:3] == 0).all() and advantages_BT[3:].any()


@pytest.mark.parametrize("name", GROUPED)
def test_group_statistics_ignore_what_could_not_be_judged(name: str) -> None:
    with_it = make_batch([[-1.0]] * 4, [1.0, None, 0.0, 0.0], group=4)
    without = make_batch([[-1.0]] * 3, [1.0, 0.0, 0.0], group=3)
    got, want = (make(name, group=b.group).signal(b)["advantages_BT"] for b in (with_it, without))
    near(got[[0, 2, 3]], want, rtol=1e-12)
    assert got[1] == 0


@each_case
def test_a_gradient_step_raises_the_better_completion(case: str) -> None:
    name, keys = CASES[case]
    plain = {key: value for key, value in keys.items() if key not in ("kl_coef", "mismatch", "entropy_coef")}
    algorithm = make(name, **plain)
    logits = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    tokens_BT = torch.tensor([[0, 1, 1], [2, 3, 3]])
    before = logits.log_softmax(-1)[tokens_BT]
    rows = before.detach().tolist()
    batch = make_batch(rows, [1.0, 0.0], ref=rows)
    facts = {"v_star": torch.full((2,), 0.5), "ref_success": torch.full((2,), 0.5)}
    batch = prepared(algorithm, replace(batch, values_BT=torch.full_like(before, 0.5).detach(), facts=facts))
    loss, _ = algorithm.loss(Forward(logprobs_BT=before), batch)
    with torch.no_grad():
        logits -= 0.1 * torch.autograd.grad(loss, logits)[0]
    better, worse = (logits.log_softmax(-1)[tokens_BT] - before).sum(-1)
    # The quantile of two rewards at 0.4 is the lower one: a wrong answer among two is not pushed down.
    assert better > 0 and better > worse and (worse < 0 or "qae" in name)


# -- what the loop is told ---------------------------------------------------------------------------------


@each_case
def test_select_picks_a_whole_group_or_nothing(case: str) -> None:
    algorithm = algorithm_of(case)
    scores = torch.tensor([0.0, 1.0, torch.nan])
    score_PN = torch.cartesian_prod(*[scores] * sum(draw.count for draw in algorithm.draws))
    chosen_PN = algorithm.select(score_PN)
    assert chosen_PN.dtype == torch.bool and chosen_PN.shape == score_PN.shape
    assert set(chosen_PN.sum(-1).tolist()) <= {0, 4} and chosen_PN.any()
    rejected_P = torch.zeros(len(score_PN), dtype=torch.bool)
    for reason_P in algorithm.gate(score_PN).values():
        assert reason_P.dtype == torch.bool and reason_P.shape == rejected_P.shape
        rejected_P |= reason_P
    assert torch.equal(rejected_P, ~chosen_PN.any(-1))  # each rejection has a reason


@each_case
def test_fields_that_are_not_asked_for_are_not_missed(case: str) -> None:
    algorithm = algorithm_of(case)
    batch = rollouts()
    assert algorithm.signal_needs <= algorithm.needs <= set(SCORED_BY)
    late = algorithm.needs - algorithm.signal_needs
    scored = {name: getattr(batch, name) for name in SCORED_BY}
    early = replace(batch, **{name: x if name in algorithm.signal_needs else None for name, x in scored.items()})
    ready = replace(early, **algorithm.signal(early), **{name: scored[name] for name in late})
    told = outcome(algorithm, ready.weighted(algorithm.config.average), forward_of(batch))
    full = outcome(algorithm, prepared(algorithm, batch), forward_of(batch))
    agree(told, {name: value for name, value in full.items() if name in told})
    assert {SCORED_BY[need] for need in algorithm.needs} <= algorithm.models


@each_case
def test_state_survives_a_file(case: str) -> None:
    algorithm, again = algorithm_of(case), algorithm_of(case)
    for step in range(3):
        algorithm.events(step, {})
    again.state = json.loads(json.dumps(algorithm.state))
    agree(again.signal(rollouts()), algorithm.signal(rollouts()))
    assert again.events(3, {}) == algorithm.events(3, {}) and again.state == algorithm.state


def test_every_algorithm_is_among_the_cases() -> None:
    assert {name for name, _ in CASES.values()} == set(ALGORITHMS)
