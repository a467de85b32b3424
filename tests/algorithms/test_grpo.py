"""GRPO against hand-worked losses and gradients, and the laws every loss must keep."""

from typing import Any

import pytest
import torch

from rlvr.algorithms.base import Forward
from tests.algorithms.builders import laid, loss_and_gradient, make, make_batch, near, prepared

NEW = [[-1.1, -0.45, -1.8, -0.62], [-0.6, -2.0]]
OLD = [[-1.2, -0.7, -2.0, -0.3], [-0.9, -1.5]]
REF = [[-1.25, -0.6, -2.3, -0.35], [-1.0, -1.4]]

WORKED: dict[str, tuple[dict[str, Any], float, list[list[float]]]] = {
    "no_kl": (
        dict(),
        0.006045547600951884,
        [[-0.09768409317151218, 0.0, 0.0, -0.06418302276485979], [0.23862324165612003, 0.0]],
    ),
    "k3_in_the_loss": (
        dict(kl_coef=0.04),
        0.009809491381693403,
        [
            [-0.09698763305363747, 0.000696460117874711, 0.0019673467014368323, -0.06573284501852603],
            [0.24192004119576363, -0.00822118800390509],
        ],
    ),
    "dr_grpo": (
        dict(average="budget", scale_advantages="none"),
        -0.06504566086166672,
        [[-0.034536591189863984, 0.0, 0.0, -0.022692157408552842], [0.0421830877367501, 0.0]],
    ),
}


@pytest.mark.parametrize("name", WORKED)
def test_loss_and_gradient_equal_the_worked_example(name: str) -> None:
    changed, loss, gradient = WORKED[name]
    grpo = make("grpo", **changed)
    batch = prepared(grpo, make_batch(OLD, [1.0, 0.0], ref=REF, limit=8))
    got_loss, got_gradient = loss_and_gradient(grpo, batch, laid(NEW).requires_grad_())
    near(got_loss, loss)
    near(got_gradient, laid(gradient))


def test_ungradable_and_lonely_samples_get_zero_and_do_not_move_the_baseline() -> None:
    grpo = make("grpo", group=4)
    batch = make_batch([[-1.0]] * 8, [1.0, None, 0.0, 1.0, None, None, None, 1.0], group=4)
    advantages = grpo.signal(batch)["advantages_BT"][:, 0]
    deviation = (1 / 3) ** 0.5
    near(advantages[[0, 2, 3]], [1 / 3 / (deviation + 1e-6), -2 / 3 / (deviation + 1e-6), 1 / 3 / (deviation + 1e-6)])
    assert advantages[[1, 4, 5, 6, 7]].tolist() == [0.0] * 5
    lonely = make("grpo", group=1).signal(make_batch([[-1.0, -2.0]], [1.0], group=1))
    assert lonely["advantages_BT"].tolist() == [[0.0, 0.0]]


def test_equal_rewards_give_exactly_zero() -> None:
    batch = make_batch([[-1.0]] * 3, [0.1, 0.1, 0.1], group=3)
    for scale in ("group", "batch", "none"):
        assert make("grpo", group=3, scale_advantages=scale).signal(batch)["advantages_BT"].tolist() == [[0.0]] * 3


def test_wrong_reward_shifts_and_scales_the_score() -> None:
    batch = make_batch([[-1.0]] * 2, [1.0, 0.25])
    near(make("grpo", wrong_reward=-1.0).reward(batch), [1.0, -0.5])


def test_truncated_completions_are_kept_masked_or_wrong() -> None:
    batch = make_batch(OLD, [1.0, 1.0], truncated=[1])
    assert make("grpo").signal(batch)["advantages_BT"].abs().sum() == 0
    assert torch.equal(make("grpo").signal(batch)["mask_BT"], batch.mask_BT)
    masked = make("grpo", truncated="mask").signal(make_batch(OLD, [1.0, 0.0], truncated=[1]))
    assert masked["mask_BT"].tolist() == [[1.0] * 4, [0.0] * 4]
    assert masked["advantages_BT"][0, 0] > 0.7  # the masked one still counts in the baseline
    wrong = make("grpo", truncated="wrong").signal(batch)["advantages_BT"]
    near(wrong[:, 0], [2**-0.5 / (1 + 1e-6 * 2**0.5), -(2**-0.5) / (1 + 1e-6 * 2**0.5)])


def test_kl_in_the_reward_is_subtracted_before_the_group_is_centred() -> None:
    grpo = make("grpo", kl_coef=0.05, kl_estimator="k1", kl_in="reward", scale_advantages="none")
    assert grpo.signal_needs == grpo.needs == {"old_logprobs_BT", "ref_logprobs_BT"}
    batch = prepared(grpo, make_batch(OLD, [1.0, 0.0], ref=REF))
    # sum_t log old - log ref: 0.05 - 0.1 + 0.3 + 0.05 = 0.3 and 0.1 - 0.1 = 0
    near(grpo.signal(batch)["advantages_BT"][:, 0], [(1 - 0.05 * 0.3) / 2, -(1 - 0.05 * 0.3) / 2])
    plain = make("grpo", scale_advantages="none")
    args = (batch, laid(NEW).requires_grad_())
    assert loss_and_gradient(grpo, *args)[0] == loss_and_gradient(plain, *args)[0]  # counted once


def test_reference_is_asked_for_only_with_a_kl() -> None:
    assert make("grpo").needs == {"old_logprobs_BT"}
    assert make("grpo").models == {"policy"}
    in_loss = make("grpo", kl_coef=0.1)
    assert in_loss.needs == {"old_logprobs_BT", "ref_logprobs_BT"} and in_loss.signal_needs == set()
    assert in_loss.models == {"policy", "reference"}


def test_mismatch_weights_the_surrogate_but_not_anchors() -> None:
    sampled = [[-1.2, -0.7 - 1.5, -2.0, -0.3], [-0.9, -1.5 - 1.5]]
    batch = make_batch(OLD, [1.0, 0.0], sampled=sampled, anchors=[1])
    grpo = make("grpo", mismatch="token_truncate", mismatch_high=2.0)
    assert grpo.correction(batch).tolist() == [[1.0, 2.0, 1.0, 1.0], [1.0] * 4]
    masking = make("grpo", mismatch="sequence_mask")
    assert masking.correction(batch).tolist() == [[0.0] * 4, [1.0] * 4]
    batch = prepared(grpo, batch)
    old = laid(OLD).requires_grad_()
    near(grpo.loss(Forward(logprobs_BT=old), batch)[1]["mismatch_k1"], -1.5 / 4 / 2)  # the anchor counts as 0
    _, weighted = loss_and_gradient(grpo, batch, old)
    _, plain = loss_and_gradient(make("grpo"), batch, old)
    near(weighted, plain * laid([[1.0, 2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]))


def test_metrics_are_what_they_say() -> None:
    grpo = make("grpo", dual_clip=1.2)
    batch = prepared(grpo, make_batch(OLD, [1.0, 0.0], ref=REF, sampled=[[-1.1, -0.7, -2.0, -0.3], [-0.9, -1.5]]))
    entropy = laid([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0]])
    loss, metrics = grpo.loss(Forward(logprobs_BT=laid(NEW), entropy_BT=entropy), batch)
    ratio = (laid(NEW) - laid(OLD)).exp()
    want = {
        "policy_loss": loss,
        "ratio": (ratio[0].mean() + ratio[1, :2].mean()) / 2,
        "clip_high_fraction": (2 / 4 + 0 / 2) / 2,  # 1.284 and 1.221 with a positive advantage
        "clip_low_fraction": (0 / 4 + 1 / 2) / 2,  # 0.607 with a negative one
        "dual_clip_fraction": (0 / 4 + 1 / 2) / 2,  # 1.350 with a negative one
        "mismatch_k1": 0.1 / 4 / 2,
        "mismatch_weight": 1.0,
        "entropy": (2.5 + 5.5) / 2,
        "kl_ref_k1": (0.53 / 4 - 0.2 / 2) / 2,
    }
    for name, value in want.items():
        near(metrics[name], value, rtol=1e-12)
    # Samples of the old policy estimate KL(old | new): the mean of new/old - 1 - log(new/old).
    step = ratio - 1 - ratio.log()
    near(metrics["kl_step"], (step[0].mean() + step[1, :2].mean()) / 2, rtol=1e-12)
    assert metrics["kl_ref_k3"] > 0 and metrics["mismatch_k3"] > 0
    assert not any(value.requires_grad for value in metrics.values())


def test_first_update_has_ratio_one_under_every_average() -> None:
    for average in ("token", "sequence", "budget"):
        grpo = make("grpo", average=average)
        batch = prepared(grpo, make_batch(OLD, [1.0, 0.0]))
        _, metrics = grpo.loss(Forward(logprobs_BT=batch.old_logprobs_BT), batch)
        near(metrics["ratio"], 1.0, rtol=1e-15)
        assert metrics["kl_step"] == 0 and "kl_ref_k1" not in metrics and "entropy" not in metrics
