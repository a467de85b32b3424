"""QAE: the baseline is a reward of the group, so that one class of answers has no advantage."""

import pytest
import torch

from tests.algorithms.builders import make, make_batch, near


def advantages(correct: int, size: int, quantile: float) -> torch.Tensor:
    batch = make_batch([[-1.0]] * size, [1.0] * correct + [0.0] * (size - correct), group=size)
    return make("qae", group=size, quantile=quantile).signal(batch)["advantages_BT"][:, 0]


@pytest.mark.parametrize(
    ("correct", "quantile", "of_correct", "of_wrong"),
    [
        (1, 0.4, 2.8284191247688173, 0.0),
        (3, 0.45, 1.9321798328324717, 0.0),
        (4, 0.4, 1.8708251933935185, 0.0),
        (4, 0.6, 0.0, -1.8708251933935185),
        (5, 0.4, 0.0, -1.9321798328324717),  # an interpolated quantile would be 0.8 here
        (7, 0.4, 0.0, -2.8284191247688173),
    ],
)
def test_worked_groups_of_eight(correct: int, quantile: float, of_correct: float, of_wrong: float) -> None:
    near(advantages(correct, 8, quantile), [of_correct] * correct + [of_wrong] * (8 - correct))


@pytest.mark.parametrize("quantile", [0.4, 0.45, 0.6])
@pytest.mark.parametrize("size", [5, 8, 16])
def test_the_baseline_is_0_while_at_most_1_minus_k_are_right(size: int, quantile: float) -> None:
    for correct in range(1, size):
        hard = round(100 * correct) <= round(100 * (1 - quantile)) * size
        pushed = advantages(correct, size, quantile) != 0
        assert pushed.tolist() == [hard] * correct + [not hard] * (size - correct)


def test_the_deviation_can_be_left_out() -> None:
    batch = make_batch([[-1.0]] * 4, [1.0, 0.0, 0.0, None], group=4)
    got = make("qae", group=4, scale_advantages="none").signal(batch)["advantages_BT"][:, 0]
    assert got.tolist() == [1.0, 0.0, 0.0, 0.0]
