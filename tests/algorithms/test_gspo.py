"""GSPO: one ratio per sequence, clipped as a whole."""

import torch

from rlvr.algorithms.base import Forward
from tests.algorithms.builders import laid, loss_and_gradient, make, make_batch, near, prepared

NEW = [[-0.999, -0.5004, -1.9996, -0.2502], [-0.801, -1.401]]
OLD = [[-1.0, -0.5, -2.0, -0.25], [-0.8, -1.4]]


def test_loss_and_gradient_equal_the_worked_example() -> None:
    gspo = make("gspo")
    batch = prepared(gspo, make_batch(OLD, [1.0, 0.0]))
    loss, gradient = loss_and_gradient(gspo, batch, laid(NEW).requires_grad_())
    near(loss, -0.00017678351682626214)
    near(gradient, laid([[-0.08840590206090722] * 4, [0.0, 0.0]]))
    metrics = gspo.loss(Forward(logprobs_BT=laid(NEW)), batch)[1]
    near(metrics["ratio"], (1.0002000200013335 + 0.9990004998333749) / 2)
    assert metrics["clip_low_fraction"] == 0.5 and metrics["clip_high_fraction"] == 0


def test_padding_is_not_part_of_the_mean() -> None:
    gspo = make("gspo")
    batch = make_batch(OLD, [1.0, 0.0])
    noise = laid(NEW) + 7 * (1 - batch.mask_BT)
    got = gspo.log_ratio(Forward(logprobs_BT=noise), batch)
    assert torch.equal(got, gspo.log_ratio(Forward(logprobs_BT=laid(NEW)), batch))
