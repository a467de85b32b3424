"""RLOO: leave-one-out advantages on whole sequences."""

import pytest

from rlvr.keys import ConfigError
from tests.algorithms.builders import ROOT, laid, loss_and_gradient, make, make_batch, near, prepared

NEW = [[-0.5, -1.0], [-0.7, -0.2, -1.1], [-2.0], [-0.4, -0.9]]
REF = [[-0.6, -0.8], [-0.7, -0.3, -1.0], [-1.5], [-0.5, -1.1]]
WORKED = {
    0.0: (-0.2, [-1 / 6, 1 / 6, 1 / 6, -1 / 6]),
    0.05: (-0.1958333333333332, [-0.1670833333333333, 0.16791666666666663, 0.1595833333333333, -0.16041666666666668]),
}


@pytest.mark.parametrize("kl_coef", WORKED)
def test_loss_and_gradient_equal_the_worked_example(kl_coef: float) -> None:
    rloo = make("rloo", group=4, kl_coef=kl_coef)
    batch = prepared(rloo, make_batch(NEW, [1.0, 0.0, 0.0, 1.0], group=4, ref=REF))
    loss, gradient = loss_and_gradient(rloo, batch, laid(NEW).requires_grad_())
    want, slope_B = WORKED[kl_coef]
    near(loss, want)
    near(gradient, laid([[slope] * len(row) for slope, row in zip(slope_B, NEW, strict=True)]))


def test_one_correct_of_four() -> None:
    batch = make_batch([[-1.0]] * 4, [1.0, 0.0, 0.0, 0.0], group=4)
    near(make("rloo", group=4).signal(batch)["advantages_BT"][:, 0], [1.0, -1 / 3, -1 / 3, -1 / 3])


def test_a_single_completion_has_nothing_to_leave_out() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.group=1"):
        make("rloo", group=1).config.check_across(ROOT)
