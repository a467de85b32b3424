"""CISPO: weights are bounded, gradients are not cut off."""

import pytest
import torch

from rlvr.algorithms.base import Forward
from tests.algorithms.builders import laid, loss_and_gradient, make, make_batch, near, prepared
from tests.algorithms.test_grpo import NEW, OLD

WORKED = {  # clip_low, clip_high: loss, gradient
    "upper bound alone": (
        (1.0, 0.28),
        0.28983842392516346,
        [
            [-0.13024545756201625, -0.1508492333200985, -0.14394349190899633, -0.08557736368647972],
            [0.1508492333200985, 0.07148022265842523],
        ],
    ),
    "both bounds": (
        (0.2, 0.28),
        0.24963344001781154,
        [
            [-0.13024545756201625, -0.1508492333200985, -0.14394349190899633, -0.09428077082506155],
            [0.1508492333200985, 0.09428077082506155],
        ],
    ),
    "a cap of 5": (
        (1.0, 4.0),
        0.28511214691064396,
        [
            [-0.13024545756201625, -0.15132363255536388, -0.14394349190899633, -0.08557736368647972],
            [0.15908216110408002, 0.07148022265842523],
        ],
    ),
}


@pytest.mark.parametrize("name", WORKED)
def test_loss_and_gradient_equal_the_worked_example(name: str) -> None:
    (low, high), loss, gradient = WORKED[name]
    cispo = make("cispo", clip_low=low, clip_high=high)
    batch = prepared(cispo, make_batch(OLD, [1.0, 0.0]))
    got_loss, got_gradient = loss_and_gradient(cispo, batch, laid(NEW).requires_grad_())
    near(got_loss, loss)
    near(got_gradient, laid(gradient))


def test_every_token_has_a_gradient_and_bounded_ones_are_counted() -> None:
    cispo = make("cispo", clip_low=0.2, clip_high=0.28)
    batch = prepared(cispo, make_batch(OLD, [1.0, 0.0]))
    _, gradient = loss_and_gradient(cispo, batch, laid(NEW).requires_grad_())
    assert torch.equal(gradient != 0, batch.mask_BT > 0)
    metrics = cispo.loss(Forward(logprobs_BT=laid(NEW)), batch)[1]
    near(metrics["clip_high_fraction"], (1 / 4 + 1 / 2) / 2)
    near(metrics["clip_low_fraction"], (1 / 4 + 1 / 2) / 2)
