"""DAPO: worked losses, dynamic sampling and the soft length limit."""

import pytest
import torch

from rlvr.algorithms.base import Forward
from tests.algorithms.builders import laid, loss_and_gradient, make, make_batch, near, prepared
from tests.algorithms.test_grpo import NEW, OLD

WORKED = {
    (1.0, 0.0): (
        -0.2572526145484492,
        [[-0.13024545756201622, 0.0, -0.1439434919089963, -0.08557736368647972], [0.15908216110408002, 0.0]],
    ),
    (0.0, 1.0): (
        0.29746389687291425,
        [[0.13024545756201622, 0.15132363255536388, 0.1439434919089963, 0.0], [0.0, -0.07148022265842523]],
    ),
}


@pytest.mark.parametrize("scores", WORKED)
def test_loss_and_gradient_equal_the_worked_example(scores: tuple[float, float]) -> None:
    dapo = make("dapo")
    batch = prepared(dapo, make_batch(OLD, scores))
    loss, gradient = loss_and_gradient(dapo, batch, laid(NEW).requires_grad_())
    near(loss, WORKED[scores][0])
    near(gradient, laid(WORKED[scores][1]))


def test_only_mixed_groups_are_trained_on() -> None:
    nan = torch.nan
    rows = {
        (1.0, 0.0, 0.0, 1.0): True,
        (1.0, 1.0, 1.0, 1.0): False,
        (0.0, 0.0, 0.0, 0.0): False,
        (1.0, nan, 0.0, 1.0): True,
        (1.0, nan, 1.0, 1.0): False,
        (1.0, nan, nan, nan): False,
        (nan, nan, nan, nan): False,
        (0.5, 0.5, 0.25, 0.5): True,
    }
    dapo, scores = make("dapo", group=4), torch.tensor(list(rows))
    assert dapo.select(scores).tolist() == [[kept] * 4 for kept in rows.values()]
    assert {name: why.tolist() for name, why in dapo.gate(scores).items()} == {
        "not_mixed": [not kept for kept in rows.values()]
    }


def test_length_penalty_grows_over_the_buffer_up_to_the_factor() -> None:
    lengths = [4, 6, 7, 8, 10]
    batch = make_batch([[-1.0] * n for n in lengths], [1.0] * 5, group=5, limit=10)
    dapo = make("dapo", group=5, wrong_reward=-1.0, overlong_buffer=4, overlong_factor=0.5)
    near(dapo.reward(batch), [1.0, 1.0, 1 - 0.125, 1 - 0.25, 0.5])
    assert make("dapo", group=5, overlong_buffer=0).reward(batch).tolist() == [1.0] * 5


def test_length_penalty_comes_on_top_of_counting_truncated_as_wrong() -> None:
    batch = make_batch([[-1.0] * 4, [-1.0] * 2], [1.0, 1.0], limit=4, truncated=[0])
    dapo = make("dapo", wrong_reward=-1.0, truncated="wrong", overlong_buffer=2, overlong_factor=1.0)
    near(dapo.reward(batch), [-2.0, 1.0])


def test_dual_clip_bounds_the_loss_of_a_negative_advantage() -> None:
    dapo = make("dapo", dual_clip=3.0)
    batch = prepared(dapo, make_batch([[-3.0], [-3.0]], [1.0, 0.0]))
    new = torch.tensor([[-3.0], [-1.0]], dtype=torch.float64, requires_grad=True)  # a ratio of 7.4
    loss, gradient = loss_and_gradient(dapo, batch, new)
    advantage = dapo.signal(batch)["advantages_BT"][0, 0]
    near(loss, (-advantage + 3 * advantage) / 2)
    assert gradient[1] == 0
    assert dapo.loss(Forward(logprobs_BT=new), batch)[1]["dual_clip_fraction"] == 0.5
