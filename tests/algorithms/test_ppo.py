"""PPO: advantages along a completion, the critic's loss, and a KL that is counted once."""

import pytest
import torch

from rlvr.algorithms.base import Forward
from rlvr.batch import Batch
from tests.algorithms.builders import laid, loss_and_gradient, make, make_batch, moved, near, prepared

VALUES = [0.5, 0.6, 0.4, 0.7]
RETURNS = [0.9379625, 0.95575, 0.985, 1.0]
WHITENED = [0.14753889360039663, -0.5158439833162399, 1.334002749639685, -0.965697659923842]


def four_tokens(**more: object) -> Batch:
    return make_batch([[-1.0] * 4], [1.0], group=1, **more).having(values_BT=laid([VALUES]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lam", "returns", "whitened"),
    [
        (0.95, RETURNS, WHITENED),
        (1.0, [1.0] * 4, [0.38729821843129353, -0.38729821843129353, 1.1618946552938807, -1.1618946552938807]),
    ],
)
def test_signal_equals_the_worked_example(lam: float, returns: list[float], whitened: list[float]) -> None:
    made = make("ppo", group=1, lam=lam).signal(four_tokens())
    near(made["returns_BT"], [returns])
    near(made["advantages_BT"], [whitened])


def test_value_loss_equals_the_worked_example() -> None:
    batch = four_tokens().having(returns_BT=laid([RETURNS])).weighted("token")
    values = laid([[0.9, 0.55, 0.1, 0.75]]).requires_grad_()
    loss, metrics = make("ppo", group=1).losses["critic"](Forward(values_BT=values), batch)
    near(loss.detach(), 0.13337302673828125)
    near(torch.autograd.grad(loss, values)[0], [[0.0, -0.10143749999999999, -0.22125, -0.0625]])
    assert metrics["clip_fraction"] == 0.25
    near(metrics["value"], 0.575)
    wide = make("ppo", group=1, value_clip=100.0).losses["critic"](Forward(values_BT=values), batch)[0]
    near(wide.detach(), 0.12647490173828124)


def test_reward_stands_on_the_last_token_and_padding_counts_nowhere() -> None:
    batch = make_batch([[-1.0] * 2, [-1.0] * 4], [1.0, 0.0], group=1)
    garbage = laid([[0.5, 0.25, 9.0, -9.0], [0.0] * 4])
    made = make("ppo", group=1, lam=1.0).signal(batch.having(values_BT=garbage))
    near(made["returns_BT"], [[1.0, 1.0, 0.0, 0.0], [0.0] * 4])
    assert made["advantages_BT"][0, 2:].tolist() == [0.0, 0.0]


def test_kl_is_taken_from_the_reward_and_not_from_the_loss() -> None:
    batch = four_tokens(ref=[[-1.1, -1.2, -1.3, -1.4]])
    plain, leash = make("ppo", group=1, lam=1.0), make("ppo", group=1, lam=1.0, kl_coef=0.5)
    assert leash.needs == leash.signal_needs == {"old_logprobs_BT", "ref_logprobs_BT", "values_BT"}
    near(leash.signal(batch)["returns_BT"], [[1 - 0.5, 1 - 0.45, 1 - 0.35, 1 - 0.2]])
    ready = prepared(plain, batch)
    assert loss_and_gradient(leash, ready, moved(ready))[0] == loss_and_gradient(plain, ready, moved(ready))[0]


def test_a_critic_is_built_and_scored_before_the_signal() -> None:
    ppo = make("ppo")
    assert ppo.models == {"policy", "critic"} and ppo.signal_needs == {"values_BT"}
    assert make("ppo", kl_coef=0.1).models == {"policy", "critic", "reference"}
