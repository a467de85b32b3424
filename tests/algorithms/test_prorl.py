"""ProRL: penalties that come and go, a KL leash, and resets on a schedule."""

from typing import Any

import pytest
import torch

from rlvr.algorithms.base import Event, Forward
from rlvr.keys import ConfigError
from tests.algorithms.builders import ROOT, make, make_batch, moved, near, prepared, random_batch

REFERENCE, OPTIMIZER = Event.RESET_REFERENCE, Event.RESET_OPTIMIZER


def resets(name: str, steps: int, **keys: Any) -> list[int]:
    """Steps, counted from 1, after which the reference is reset."""
    algorithm = make(name, **keys)
    return [step + 1 for step in range(steps) if REFERENCE in algorithm.events(step, {})]


def test_schedules_of_both_released_recipes_of_armor() -> None:
    assert resets("armor", 400, reset_every=0) == []
    assert resets("armor", 400, reset_every=1, reset_until=180) == list(range(1, 181))


def test_resets_come_after_every_so_many_steps_up_to_the_last() -> None:
    assert resets("prorl", 1000, reset_every=300) == [300, 600, 900]
    assert resets("prorl", 1000, reset_every=300, reset_until=600) == [300, 600]
    assert resets("prorl", 1000, reset_every=300, reset_until=599) == [300]


def test_optimizer_is_cleared_in_version_1_and_kept_in_version_2() -> None:
    assert make("prorl", reset_every=2, reset_optimizer=True).events(1, {}) == (REFERENCE, OPTIMIZER)
    assert make("prorl", reset_every=2, reset_optimizer=False).events(1, {}) == (REFERENCE,)
    assert make("prorl", reset_every=2, reset_optimizer=True).events(2, {}) == ()


def test_a_reset_of_a_reference_that_nothing_reads_is_refused() -> None:
    make("prorl", reset_every=2, kl_coef=1e-4).config.check_across(ROOT)
    with pytest.raises(ConfigError, match=r"algorithm\.reset_every=2 moves a reference that nothing reads"):
        make("prorl", reset_every=2).config.check_across(ROOT)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_is_added_to_the_loss_by_the_chosen_estimator(estimator: str) -> None:
    batch = random_batch([1.0, 0.0], group=2)
    leash, free = make("prorl", kl_coef=1e-4, kl_estimator=estimator), make("prorl")
    new = Forward(logprobs_BT=moved(batch).detach())
    got, want = (algorithm.loss(new, prepared(algorithm, batch))[0] for algorithm in (leash, free))
    assert new.logprobs_BT is not None and batch.ref_logprobs_BT is not None
    delta = (new.logprobs_BT - batch.ref_logprobs_BT)[batch.mask_BT > 0]
    kl = {"k1": delta, "k2": delta**2 / 2, "k3": (-delta).exp() - 1 + delta}[estimator].mean()
    near(got - want, 1e-4 * kl, rtol=1e-9)


def test_k3_is_bounded_before_the_exponential() -> None:
    batch = make_batch([[-1.0]], [1.0], group=1, ref=[[0.0]])
    new = torch.tensor([[-500.0]], dtype=torch.float64, requires_grad=True)
    leash = make("prorl", kl_coef=1.0)
    loss = leash.loss(Forward(logprobs_BT=new), prepared(leash, batch))[0]
    assert loss.isfinite() and torch.autograd.grad(loss, new)[0] == 0


def test_unfinished_completions_pay() -> None:
    batch = make_batch([[-1.0] * 4, [-1.0] * 2], [1.0, 0.0], limit=4, truncated=[0])
    near(make("prorl", unfinished_penalty=0.5).reward(batch), [0.5, 0.0])


def test_length_penalty_is_half_a_cosine_that_comes_and_goes() -> None:
    batch = make_batch([[-1.0] * n for n in (1, 2, 4)], [1.0, 1.0, 1.0], group=3, limit=4)
    prorl = make("prorl", group=3, length_penalty=0.5, length_penalty_on=2, length_penalty_off=3)
    on = [1 - 0.25 * (1 - 0.5**0.5), 1 - 0.25, 1 - 0.5]
    for step in range(12):
        near(prorl.reward(batch), on if step % 5 < 2 else [1.0, 1.0, 1.0], rtol=1e-7)  # lengths are whole numbers
        prorl.events(step, {})


def test_length_penalty_goes_on_where_it_was_after_a_restart() -> None:
    batch = make_batch([[-1.0] * 4], [1.0], group=1, limit=4)
    keys = dict(group=1, length_penalty=0.5, length_penalty_on=2, length_penalty_off=3)
    before, after = make("prorl", **keys), make("prorl", **keys)
    for step in range(3):
        before.events(step, {})
    after.state = dict(before.state)
    assert after.reward(batch).tolist() == before.reward(batch).tolist() == [1.0]
    assert make("prorl", **keys).reward(batch).tolist() == [0.5]
