"""REINFORCE++ with and without a group baseline."""

import torch

from tests.algorithms.builders import make, make_batch, near

RAGGED = [[-1.0] * 2, [-1.0] * 3, [-1.0], [-1.0] * 4]
SCORES = [1.0, 0.0, 1.0, 1.0]


def test_group_baseline_equals_the_worked_example_with_equal_groups_at_zero() -> None:
    batch = make_batch(RAGGED, SCORES)
    got = make("grpo", scale_advantages="batch").signal(batch)["advantages_BT"]
    near(got[:, 0], [1.2247448413915898, -1.2247448413915898, 0.0, 0.0])
    assert (got[2:] == 0).all()


def test_completions_of_one_token_equal_the_worked_example_of_sequences() -> None:
    got = make("reinforce_pp").signal(make_batch([[-1.0]] * 4, SCORES))["advantages_BT"][:, 0]
    near(got, [0.5, -1.5, 0.5, 0.5], rtol=3e-8)  # the two differ in where a small constant is added


def test_statistics_are_those_of_tokens() -> None:
    got = make("reinforce_pp").signal(make_batch(RAGGED, SCORES))["advantages_BT"]
    deviation = ((7 * 0.3**2 + 3 * 0.7**2) / 9 + 1e-8) ** 0.5
    near(got[:, 0], [0.3 / deviation, -0.7 / deviation, 0.3 / deviation, 0.3 / deviation])
    assert got[0].tolist() == [got[0, 0], got[0, 0], 0.0, 0.0]


def test_each_token_pays_for_its_own_kl_and_for_that_of_later_ones() -> None:
    batch = make_batch([[-1.0, -1.0], [-1.0]], [1.0, 0.0], ref=[[-1.1, -1.3], [-1.2]])
    reinforce = make("reinforce_pp", kl_coef=0.5)
    assert reinforce.needs == reinforce.signal_needs == {"old_logprobs_BT", "ref_logprobs_BT"}
    returns = torch.tensor([1 - 0.5 * 0.4, 1 - 0.5 * 0.3, 0 - 0.5 * 0.2], dtype=torch.float64)
    got = reinforce.signal(batch)["advantages_BT"]
    near(got[batch.mask_BT > 0], (returns - returns.mean()) / (returns.var() + 1e-8).sqrt())
