"""REBEL: pairs of neighbours, regressed on their rewards."""

import pytest
import torch

from rlvr.keys import ConfigError
from tests.algorithms.builders import (
    ROOT,
    laid,
    loss_and_gradient,
    make,
    make_batch,
    moved,
    near,
    prepared,
    random_batch,
)
from tests.algorithms.test_grpo import NEW, OLD


def test_loss_and_gradient_equal_the_worked_example() -> None:
    rebel = make("rebel")
    batch = prepared(rebel, make_batch(OLD, [1.0, 0.0]))
    loss, gradient = loss_and_gradient(rebel, batch, laid(NEW).requires_grad_())
    near(loss, 0.3249)
    near(gradient, laid([[-1.14] * 4, [1.14] * 2]))


def test_eta_divides_log_ratios() -> None:
    rebel = make("rebel", eta=2.0)
    loss, _ = loss_and_gradient(rebel, prepared(rebel, make_batch(OLD, [1.0, 0.0])), laid(NEW).requires_grad_())
    near(loss, (0.43 / 2 - 1) ** 2)


def test_a_group_of_four_is_two_pairs() -> None:
    rebel = make("rebel", group=4)
    batch = prepared(rebel, make_batch([[-1.0]] * 4, [1.0, 0.0, 1.0, 1.0], group=4))
    loss, gradient = loss_and_gradient(rebel, batch, torch.full((4, 1), -1.0, dtype=torch.float64, requires_grad=True))
    near(loss, 0.5)
    near(gradient[:, 0], [-1.0, 1.0, 0.0, 0.0])
    assert rebel.unit == 2 and make("rebel", group=4).draws[0].count == 4


def test_a_pair_with_a_missing_half_neither_pushes_nor_counts() -> None:
    rebel = make("rebel")
    broken = prepared(rebel, random_batch([1.0, None, 1.0, 0.0], group=2))
    new = moved(broken)
    loss, gradient = loss_and_gradient(rebel, broken, new)
    rows = torch.tensor([2, 3])
    whole = prepared(rebel, random_batch([1.0, None, 1.0, 0.0], group=2).take(rows))
    want, slope = loss_and_gradient(rebel, whole, new.detach()[rows].requires_grad_())
    near(loss, want)
    near(gradient[rows], slope)
    assert (gradient[:2] == 0).all()


def test_an_odd_group_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.group=3: pairs"):
        make("rebel", group=3).config.check_across(ROOT)
