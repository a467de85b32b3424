"""A*-PO: V* from a survey, then a regression."""

import math

import pytest
import torch

from rlvr.algorithms.base import Draw, Forward
from tests.algorithms.builders import laid, loss_and_gradient, make, make_batch, near, prepared

NEW = [[-0.5, -1.0, -0.2], [-0.7, -0.2], [-2.0, -0.1]]
REF = [[-0.9, -1.4, -0.6], [-0.6, -0.3], [-1.0, -0.3]]
V_STAR = [0.6112838273204921, 0.29351319141556, 0.0]
NAN = math.nan


def survey(scores: list[float], **keys: object) -> dict[str, float] | None:
    return make("astar_po", **keys).summarize(torch.tensor(scores))


@pytest.mark.parametrize(
    ("scores", "beta", "value"),
    [
        ([1.0] + [0.0] * 7, 0.5, 0.29351319141556),
        ([1.0] * 3 + [0.0] * 5, 0.5, 0.6112838273204921),
        ([0.0] * 8, 0.5, 0.0),
        ([1.0] * 8, 0.5, 1.0),
        ([1.0] + [0.0] * 7, 1e-3, 0.9979205584583203),
        ([1.0] + [0.0] * 7, 0.0, 0.125),  # 0 stands for the mean
        ([1.0, NAN, 0.0, NAN], 0.0, 0.5),
    ],
)
def test_value_of_a_prompt_equals_the_worked_example(scores: list[float], beta: float, value: float) -> None:
    facts = survey(scores, beta_value=beta)
    assert facts is not None
    assert facts["v_star"] == pytest.approx(value, rel=1e-12, abs=1e-15)


def test_value_is_that_of_rewards_and_facts_say_how_often_the_reference_was_right() -> None:
    facts = survey([1.0, 0.0, NAN, 0.0], beta_value=0.0, wrong_reward=-1.0)
    assert facts is not None
    assert facts == {"v_star": pytest.approx(-1 / 3), "ref_success": pytest.approx(1 / 3)}


def test_unsolved_prompts_are_dropped_on_request_and_unjudged_ones_always() -> None:
    assert survey([0.0, NAN]) == {"v_star": 0.0, "ref_success": 0.0}
    assert survey([0.0, NAN], drop_unsolved=True) is None
    assert survey([0.0, 1.0], drop_unsolved=True) is not None
    assert survey([NAN, NAN]) is None


def test_loss_and_gradient_equal_the_worked_example() -> None:
    astar = make("astar_po", group=1)
    batch = make_batch(NEW, [1.0, 0.0, 1.0], group=1, ref=REF)
    batch.facts["v_star"] = torch.tensor(V_STAR, dtype=torch.float64)
    batch = prepared(astar, batch)
    loss, gradient = loss_and_gradient(astar, batch, laid(NEW).requires_grad_())
    near(loss, 0.4126398058743737)
    slopes = [-0.00025834411511967197, 0.00019567546094370665, -0.0006672000000000001]
    near(gradient, laid([[slope] * len(row) for slope, row in zip(slopes, NEW, strict=True)]))
    metrics = astar.loss(Forward(logprobs_BT=laid(NEW)), batch)[1]
    near(metrics["residual"], (-0.3875161726795079 + 0.29351319141556 - 1.0008) / 3)


def test_the_entropy_bonus_is_a_mean_over_tokens() -> None:
    astar = make("astar_po", group=1, average="token", entropy_coef=0.001)
    batch = make_batch(NEW, [1.0, 0.0, 1.0], group=1, ref=REF)
    batch.facts["v_star"] = torch.tensor(V_STAR, dtype=torch.float64)
    entropy = laid([[1.0, 2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]).requires_grad_()
    loss, metrics = astar.loss(Forward(logprobs_BT=laid(NEW), entropy_BT=entropy), prepared(astar, batch))
    near(loss.detach(), 0.4126398058743737 - 0.001 * 4.0)
    near(metrics["regression_loss"], 0.4126398058743737)
    near(torch.autograd.grad(loss, entropy)[0], -0.001 / 7 * batch.mask_BT)
    assert astar.entropy_learns and not make("astar_po").entropy_learns


def test_with_one_beta_the_optimum_is_where_the_loss_is_zero() -> None:
    """pi* = ref exp(r / beta) / Z, and V* = beta log Z, over four completions of which one is right."""
    beta, rewards = 0.5, torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    facts = survey(rewards.tolist(), beta_value=beta)
    assert facts is not None
    ref = torch.full((4,), 0.25, dtype=torch.float64)
    optimum = ref * (rewards / beta).exp()
    optimum = (optimum / optimum.sum()).log()[:, None]
    astar = make("astar_po", group=4, beta_value=beta, beta_policy=beta)
    batch = make_batch(optimum.tolist(), rewards.tolist(), group=4, ref=ref.log()[:, None].tolist())
    batch.facts["v_star"] = torch.full((4,), facts["v_star"], dtype=torch.float64)
    assert loss_and_gradient(astar, prepared(astar, batch), optimum.requires_grad_())[0] < 1e-28


def test_only_the_reference_is_scored() -> None:
    astar = make("astar_po")
    assert astar.survey == Draw("reference", 8)
    assert astar.needs == {"ref_logprobs_BT"} and astar.signal_needs == set()
    assert astar.models == {"policy", "reference"}
