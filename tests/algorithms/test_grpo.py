"""GRPO against hand-worked losses and gradients, and the laws every loss must keep."""

from typing import Any

import pytest
import torch

from rlvr.algorithms import ALGORITHMS
from rlvr.algorithms.base import Forward
from rlvr.algorithms.grpo import GRPO
from tests.algorithms.builders import (
    dapo_config,
    grpo_config,
    laid,
    loss_and_gradient,
    make_batch,
    moved,
    prepared,
    random_batch,
)

NEW = [[-1.1, -0.45, -1.8, -0.62], [-0.6, -2.0]]
OLD = [[-1.2, -0.7, -2.0, -0.3], [-0.9, -1.5]]
REF = [[-1.25, -0.6, -2.3, -0.35], [-1.0, -1.4]]
SCORES = [1.0, 0.0, None, 1.0, 1.0, 0.0, 0.0, 0.25, 0.5, 0.5, 0.5, 0.5]
CONFIGS = {"grpo": grpo_config, "dapo": dapo_config}

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
        dict(average="budget", scale_advantages=False),
        -0.06504566086166672,
        [[-0.034536591189863984, 0.0, 0.0, -0.022692157408552842], [0.0421830877367501, 0.0]],
    ),
}


def near(got: torch.Tensor, want: object, rtol: float = 1e-10) -> None:
    torch.testing.assert_close(got, torch.as_tensor(want, dtype=got.dtype), rtol=rtol, atol=1e-14)


@pytest.mark.parametrize("name", WORKED)
def test_loss_and_gradient_equal_the_worked_example(name: str) -> None:
    changed, loss, gradient = WORKED[name]
    grpo = GRPO(grpo_config(**changed))
    batch = prepared(grpo, make_batch(OLD, [1.0, 0.0], ref=REF, limit=8))
    got_loss, got_gradient = loss_and_gradient(grpo, batch, laid(NEW).requires_grad_())
    near(got_loss, loss)
    near(got_gradient, laid(gradient))


def test_ungradable_and_lonely_samples_get_zero_and_do_not_move_the_baseline() -> None:
    grpo = GRPO(grpo_config(group=4))
    batch = make_batch([[-1.0]] * 8, [1.0, None, 0.0, 1.0, None, None, None, 1.0], group=4)
    advantages = grpo.signal(batch)["advantages_BT"][:, 0]
    deviation = (1 / 3) ** 0.5
    near(advantages[[0, 2, 3]], [1 / 3 / (deviation + 1e-6), -2 / 3 / (deviation + 1e-6), 1 / 3 / (deviation + 1e-6)])
    assert advantages[[1, 4, 5, 6, 7]].tolist() == [0.0] * 5
    lonely = GRPO(grpo_config(group=1)).signal(make_batch([[-1.0, -2.0]], [1.0], group=1))
    assert lonely["advantages_BT"].tolist() == [[0.0, 0.0]]


def test_equal_rewards_give_exactly_zero() -> None:
    batch = make_batch([[-1.0]] * 3, [0.1, 0.1, 0.1], group=3)
    for scale in (True, False):
        assert GRPO(grpo_config(group=3, scale_advantages=scale)).signal(batch)["advantages_BT"].tolist() == [[0.0]] * 3


def test_wrong_reward_shifts_and_scales_the_score() -> None:
    batch = make_batch([[-1.0]] * 2, [1.0, 0.25])
    near(GRPO(grpo_config(wrong_reward=-1.0)).reward(batch), [1.0, -0.5])


def test_truncated_completions_are_kept_masked_or_wrong() -> None:
    batch = make_batch(OLD, [1.0, 1.0], truncated=[1])
    assert GRPO(grpo_config()).signal(batch)["advantages_BT"].abs().sum() == 0
    assert "mask_BT" not in GRPO(grpo_config()).signal(batch)
    masked = GRPO(grpo_config(truncated="mask")).signal(make_batch(OLD, [1.0, 0.0], truncated=[1]))
    assert masked["mask_BT"].tolist() == [[1.0] * 4, [0.0] * 4]
    assert masked["advantages_BT"][0, 0] > 0.7  # the masked one still counts in the baseline
    wrong = GRPO(grpo_config(truncated="wrong")).signal(batch)["advantages_BT"]
    near(wrong[:, 0], [2**-0.5 / (1 + 1e-6 * 2**0.5), -(2**-0.5) / (1 + 1e-6 * 2**0.5)])


def test_kl_in_the_reward_is_subtracted_before_the_group_is_centred() -> None:
    grpo = GRPO(grpo_config(kl_coef=0.05, kl_estimator="k1", kl_in="reward", scale_advantages=False))
    assert grpo.signal_needs == grpo.needs == {"old_logprobs_BT", "ref_logprobs_BT"}
    batch = prepared(grpo, make_batch(OLD, [1.0, 0.0], ref=REF))
    # sum_t log old - log ref: 0.05 - 0.1 + 0.3 + 0.05 = 0.3 and 0.1 - 0.1 = 0
    near(grpo.signal(batch)["advantages_BT"][:, 0], [(1 - 0.05 * 0.3) / 2, -(1 - 0.05 * 0.3) / 2])
    plain = GRPO(grpo_config(scale_advantages=False))
    args = (batch, laid(NEW).requires_grad_())
    assert loss_and_gradient(grpo, *args)[0] == loss_and_gradient(plain, *args)[0]  # counted once


def test_reference_is_asked_for_only_with_a_kl() -> None:
    assert GRPO(grpo_config()).needs == {"old_logprobs_BT"}
    assert GRPO(grpo_config()).models == {"policy"}
    in_loss = GRPO(grpo_config(kl_coef=0.1))
    assert in_loss.needs == {"old_logprobs_BT", "ref_logprobs_BT"} and in_loss.signal_needs == set()
    assert in_loss.models == {"policy", "reference"}


def test_mismatch_weights_the_surrogate_but_not_anchors() -> None:
    sampled = [[-1.2, -0.7 - 1.5, -2.0, -0.3], [-0.9, -1.5 - 1.5]]
    batch = make_batch(OLD, [1.0, 0.0], sampled=sampled, anchors=[1])
    grpo = GRPO(grpo_config(mismatch="token_truncate", mismatch_high=2.0))
    assert grpo.correction(batch).tolist() == [[1.0, 2.0, 1.0, 1.0], [1.0] * 4]
    masking = GRPO(grpo_config(mismatch="sequence_mask"))
    assert masking.correction(batch).tolist() == [[0.0] * 4, [1.0] * 4]
    batch = prepared(grpo, batch)
    old = laid(OLD).requires_grad_()
    near(grpo.loss(Forward(logprobs_BT=old), batch)[1]["mismatch_k1"], -1.5 / 4 / 2)  # the anchor counts as 0
    _, weighted = loss_and_gradient(grpo, batch, old)
    _, plain = loss_and_gradient(GRPO(grpo_config()), batch, old)
    near(weighted, plain * laid([[1.0, 2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]))


def test_metrics_are_what_they_say() -> None:
    grpo = GRPO(grpo_config(dual_clip=1.2))
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
        grpo = GRPO(grpo_config(average=average))
        batch = prepared(grpo, make_batch(OLD, [1.0, 0.0]))
        _, metrics = grpo.loss(Forward(logprobs_BT=batch.old_logprobs_BT), batch)
        near(metrics["ratio"], 1.0, rtol=1e-15)
        assert metrics["kl_step"] == 0 and "kl_ref_k1" not in metrics and "entropy" not in metrics


# -- laws of every algorithm in the table ---------------------------------------------------------


@pytest.mark.parametrize("average", ["token", "sequence", "budget"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_cutting_into_micro_batches_changes_nothing(name: str, average: str) -> None:
    changed = dict(group=4, average=average, kl_coef=0.1, mismatch="token_truncate", truncated="mask")
    algorithm = ALGORITHMS[name](CONFIGS[name](**changed))
    batch = prepared(algorithm, random_batch(SCORES, group=4, truncated=[3]))
    new = moved(batch)
    loss, gradient = loss_and_gradient(algorithm, batch, new)
    _, metrics = algorithm.loss(Forward(logprobs_BT=new), batch)
    for size in (1, 5):
        pieces = torch.arange(len(batch)).split(size)
        leaves = [new.detach()[rows].requires_grad_() for rows in pieces]
        parts = [
            loss_and_gradient(algorithm, batch.take(rows), leaf) for rows, leaf in zip(pieces, leaves, strict=True)
        ]
        near(torch.stack([part[0] for part in parts]).sum(), loss, rtol=1e-12)
        near(torch.cat([part[1] for part in parts]), gradient, rtol=1e-12)
        told = [
            algorithm.loss(Forward(logprobs_BT=leaf), batch.take(rows))[1]
            for rows, leaf in zip(pieces, leaves, strict=True)
        ]
        for key, value in metrics.items():
            near(torch.stack([one[key] for one in told]).sum(), value, rtol=1e-12)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_tokens_that_do_not_count_have_no_gradient(name: str) -> None:
    algorithm = ALGORITHMS[name](CONFIGS[name](group=4, kl_coef=0.1))
    batch = prepared(algorithm, random_batch(SCORES, group=4))
    _, gradient = loss_and_gradient(algorithm, batch, moved(batch))
    assert (gradient[batch.mask_BT == 0] == 0).all() and (gradient[2] == 0).all()
    assert (gradient[batch.mask_BT > 0] != 0).any()


@pytest.mark.parametrize("average", ["token", "sequence", "budget"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_everything_masked_is_a_zero_loss_with_a_finite_gradient(name: str, average: str) -> None:
    algorithm = ALGORITHMS[name](CONFIGS[name](truncated="mask", average=average, kl_coef=0.1))
    batch = prepared(algorithm, make_batch([[-1.0], [-2.0]], [1.0, 0.0], ref=[[-1.0], [-1.0]], truncated=[0, 1]))
    new = torch.tensor([[99.0], [-99.0]], dtype=torch.float64, requires_grad=True)
    loss, gradient = loss_and_gradient(algorithm, batch, new)
    assert loss == 0 and gradient.tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_far_policies_give_finite_numbers_in_float32(name: str) -> None:
    algorithm = ALGORITHMS[name](CONFIGS[name](kl_coef=0.1, mismatch="sequence_truncate"))
    batch = make_batch([[-1.0, -100.0], [-100.0, -1.0]], [1.0, 0.0], ref=[[-1.0, -1.0], [-1.0, -1.0]])
    batch = batch.having(**{k: v.float() for k, v in vars(batch).items() if getattr(v, "dtype", None) == torch.float64})
    batch = prepared(algorithm, batch)
    new = torch.tensor([[-100.0, -1.0], [-1.0, -100.0]], requires_grad=True)
    loss, gradient = loss_and_gradient(algorithm, batch, new)
    assert loss.dtype == torch.float32 and loss.isfinite() and gradient.isfinite().all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_gradient_step_raises_the_better_completion(name: str) -> None:
    algorithm = ALGORITHMS[name](CONFIGS[name]())
    logits = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    tokens_BT = torch.tensor([[0, 1, 1], [2, 3, 3]])
    before = logits.log_softmax(-1)[tokens_BT]
    batch = prepared(algorithm, make_batch(before.detach().tolist(), [1.0, 0.0]))
    loss, _ = algorithm.loss(Forward(logprobs_BT=before), batch)
    with torch.no_grad():
        logits -= 0.1 * torch.autograd.grad(loss, logits)[0]
    better, worse = (logits.log_softmax(-1)[tokens_BT] - before).sum(-1)
    assert better > 0 > worse


@pytest.mark.parametrize("name", ALGORITHMS)
def test_select_picks_a_whole_group_or_nothing(name: str) -> None:
    group = 4
    algorithm = ALGORITHMS[name](CONFIGS[name](group=group))
    scores = torch.tensor([0.0, 1.0, torch.nan])
    score_PN = torch.cartesian_prod(*[scores] * sum(draw.count for draw in algorithm.draws))
    chosen_PN = algorithm.select(score_PN)
    assert chosen_PN.dtype == torch.bool and chosen_PN.shape == score_PN.shape
    assert set(chosen_PN.sum(-1).tolist()) <= {0, group} and chosen_PN.any()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_shuffled_prompts_shuffle_the_advantages(name: str) -> None:
    algorithm = ALGORITHMS[name](CONFIGS[name](group=4))
    batch = random_batch(SCORES, group=4)
    order = torch.tensor([2, 0, 1])
    rows = torch.arange(len(batch)).view(-1, 4)[order].flatten()
    plain, shuffled = algorithm.signal(batch), algorithm.signal(batch.take(rows))
    assert torch.equal(plain["advantages_BT"][rows], shuffled["advantages_BT"])
