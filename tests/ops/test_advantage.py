"""Group baselines, the quantile, GAE, whitening, V* and the gate, by hand."""

import math

import pytest
import torch
from torch import Tensor

from rlvr.ops import advantage

GROUP_FORMS = {
    "standardized": advantage.standardized,
    "centred": advantage.centred,
    "leave_one_out": advantage.leave_one_out,
    "quantile": lambda r, v=None: advantage.standardized(r, v, baseline_P1=advantage.quantile(r, 0.4, v)),
}


def wide(x: object) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def close(got: Tensor, want: object, rtol: float = 1e-12) -> None:
    torch.testing.assert_close(got, torch.as_tensor(want, dtype=got.dtype), rtol=rtol, atol=1e-15)


def test_one_right_answer_of_four() -> None:
    reward = wide([[1.0, 0.0, 0.0, 0.0]])
    close(advantage.standardized(reward), [[1.499997000006] + [-0.499999000002] * 3])
    close(advantage.standardized(reward, eps=1e-4), [[1.4997000599880024] + [-0.4999000199960008] * 3])
    close(advantage.standardized(reward, ddof=0, eps=1e-8), [[1.7320507675688783] + [-0.5773502558562927] * 3])
    close(advantage.centred(reward), [[0.75] + [-0.25] * 3])
    close(advantage.leave_one_out(reward), [[1.0] + [-1 / 3] * 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", GROUP_FORMS)
def test_equal_rewards_are_exactly_zero(name: str, dtype: torch.dtype) -> None:
    # The mean of equal rewards is off by a rounding error for most of these.
    for value in (0.1, 0.3, 1 / 3, 0.7, 1.0, -1.0):
        for size in range(1, 17):
            got = GROUP_FORMS[name](torch.full((2, size), value, dtype=dtype))
            assert got.dtype == dtype and got.abs().max() == 0


@pytest.mark.parametrize("name", GROUP_FORMS)
@pytest.mark.parametrize("hole", [0.0, 1e6, math.nan])
def test_what_was_not_judged_is_left_out(name: str, hole: float) -> None:
    reward = wide([[1.0, hole, 0.0, 1.0], [hole, hole, 0.5, hole], [hole] * 4])
    valid = torch.tensor([[True, False, True, True], [False, False, True, False], [False] * 4])
    got = GROUP_FORMS[name](reward, valid)
    close(got[0, [0, 2, 3]], GROUP_FORMS[name](wide([[1.0, 0.0, 1.0]]))[0])
    assert got[0, 1] == 0 and got[1:].abs().max() == 0


def test_advantages_sum_to_zero_within_each_group() -> None:
    reward = torch.rand(5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for form in (advantage.standardized, advantage.centred, advantage.leave_one_out):
        close(form(reward).sum(-1) + 1, [1.0] * 5)


def test_leave_one_out_is_the_reward_less_the_mean_of_the_others() -> None:
    close(advantage.leave_one_out(wide([[3.0, 1.0, 0.5]])), [[3 - 0.75, 1 - 1.75, 0.5 - 2]])


def test_mixed_ignores_nan() -> None:
    nan = math.nan
    rows = wide([[1, nan, 0, 1], [1, nan, 1, 1], [1, nan, nan, nan], [nan] * 4, [0, 0, 0, 0.5]])
    assert advantage.mixed(rows).tolist() == [True, False, False, False, True]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.3, 0.4, 0.45, 0.6, 0.7, 0.9, 1.0])
def test_quantile_is_the_smallest_reward_that_reaches_the_share(share: float) -> None:
    for size in range(1, 21):
        for right in range(size + 1):
            # F(0) = (size - right) / size >= share, in whole hundredths
            baseline = 0.0 if 100 * (size - right) >= round(100 * share) * size and right < size else 1.0
            reward = wide([[1.0] * right + [0.0] * (size - right)])
            assert advantage.quantile(reward, share).tolist() == [[baseline]], (size, right)


def test_quantile_is_one_of_the_rewards_and_counts_only_valid_ones() -> None:
    reward = wide([[0.9, 0.1, 0.4, 0.7, 0.2]])
    assert advantage.quantile(reward, 0.4).item() == 0.2
    assert advantage.quantile(reward, 0.5).item() == 0.4
    valid = torch.tensor([[True, False, True, True, False]])
    assert advantage.quantile(reward, 0.5, valid).item() == 0.7
    assert advantage.quantile(reward, 0.5, torch.zeros_like(valid)).item() == 0.0
    with pytest.raises(ValueError, match="share"):
        advantage.quantile(reward, 1.5)


def test_quantile_baseline_pushes_only_one_class() -> None:
    for right, of_right, of_wrong in ((3, 1.9321798328324717, 0.0), (5, 0.0, -1.9321798328324717)):
        reward = wide([[1.0] * right + [0.0] * (8 - right)])
        got = advantage.standardized(reward, baseline_P1=advantage.quantile(reward, 0.4))
        close(got, [[of_right] * right + [of_wrong] * (8 - right)])


def test_reinforce_pp_over_the_batch() -> None:
    reward = wide([[1.0, 0.0], [1.0, 1.0]])
    close(advantage.reinforce_pp(reward).flatten(), [0.49999999, -1.49999997, 0.49999999, 0.49999999], rtol=1e-9)
    close(advantage.reinforce_pp_baseline(reward)[0], [1.2247448413915898, -1.2247448413915898])
    holed = advantage.reinforce_pp(wide([[1.0, 0.0, math.nan], [1.0, 1.0, 9.0]]), torch.tensor([[1, 1, 0]] * 2).bool())
    close(holed[:, :2], advantage.reinforce_pp(reward))
    assert holed[:, 2].tolist() == [0.0, 0.0]


def test_whitening_over_tokens_and_ranks() -> None:
    x = wide([[0.5, 0.5, 9.0, 9.0], [-0.5, -0.5, -0.5, 9.0], [0.0, 9.0, 9.0, 9.0], [0.0, 0.0, 0.0, 0.0]])
    mask = wide([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
    white = advantage.whiten(x, mask)
    close(white[:, 0], [1.4907879850300256, -1.2197356241154753, 0.13552618045727505, 0.13552618045727505])
    assert white[mask == 0].abs().max() == 0

    # Another rank holds a copy: mean and mean square stay, the degrees of freedom do not.
    doubled = advantage.whiten(x, mask, total=lambda part: 2 * part)
    close(doubled, advantage.whiten(torch.cat([x, x]), torch.cat([mask, mask]))[:4])


def test_gae_by_hand_with_padding() -> None:
    reward, values = wide([[0.0, 0.0, 1.0, 7.0, 7.0]]), wide([[0.5, 0.6, 0.4, 9.0, 9.0]])
    mask = wide([[1, 1, 1, 0, 0]])
    last = 1 - 0.4
    middle = 0.9 * 0.4 - 0.6 + 0.9 * 0.8 * last
    first = 0.9 * 0.6 - 0.5 + 0.9 * 0.8 * middle
    advantages, returns = advantage.gae(reward, values, mask, gamma=0.9, lam=0.8)
    close(advantages, [[first, middle, last, 0.0, 0.0]])
    close(returns, [[first + 0.5, middle + 0.6, 1.0, 0.0, 0.0]])


def test_gae_steps_over_holes_and_keeps_rows_apart() -> None:
    reward, values = wide([[0.0, 5.0, 1.0], [2.0, 0.0, 0.0]]), wide([[0.5, 5.0, 0.4], [1.0, 3.0, 3.0]])
    mask = wide([[1, 0, 1], [1, 0, 0]])
    advantages, _ = advantage.gae(reward, values, mask, gamma=0.9, lam=0.8)
    close(advantages, [[0.9 * 0.4 - 0.5 + 0.9 * 0.8 * 0.6, 0.0, 0.6], [1.0, 0.0, 0.0]])


def test_gae_with_gamma_and_lambda_one_returns_the_reward_to_go() -> None:
    advantages, returns = advantage.gae(wide([[0.0, 0.0, 1.0]]), wide([[0.5, 0.6, 0.4]]), wide([[1, 1, 1]]), 1.0, 1.0)
    close(returns, [[1.0, 1.0, 1.0]])
    close(advantages, [[0.5, 0.4, 0.6]])


def test_overlong_penalty() -> None:
    length = torch.tensor([0, 16384, 16385, 18432, 20480, 20481])
    close(advantage.overlong_penalty(length, 20480, 4096), [0, 0, -0.000244140625, -0.5, -1, -1])
    assert advantage.overlong_penalty(torch.tensor([1, 8]), 8, 0).tolist() == [0.0, 0.0]


def test_v_star_between_mean_and_maximum() -> None:
    reward = wide([1.0] + [0.0] * 7)
    for beta, want in ((0.5, 0.29351319141556), (1e-3, 0.9979205584583203), (100.0, 0.1255482437519273), (0.0, 0.125)):
        close(advantage.v_star(reward, beta), want)
    close(advantage.v_star(wide([1000.0, 999.0, -1000.0]), 1e-3), 999.9989013877113)
    assert advantage.v_star(torch.tensor([1.0, 0.0]), 1e-3).isfinite()
    with pytest.raises(ValueError, match="beta"):
        advantage.v_star(reward, -1.0)


def test_binary_v_star_is_that_of_the_expected_sample() -> None:
    assert advantage.binary_v_star(0.25, 0.5) == pytest.approx(0.47722929639662026, rel=1e-12)
    assert advantage.binary_v_star(0.25, 1e-3) == pytest.approx(0.9986137056388801, rel=1e-12)
    assert advantage.binary_v_star(0.0, 0.5) == 0.0
    assert advantage.binary_v_star(1.0, 0.5) == 1.0


def test_gate_keeps_the_first_correct_anchor_of_mixed_prompts() -> None:
    own = wide([[0, 0, 0], [1, 1, 1], [1, 0, 0], [1, 0, 0], [1, math.nan, 1]])
    anchors = wide([[0, 1], [1, 1], [0, 0], [math.nan, 1], [1, 1]])
    keep, first = advantage.anchor_gate(own, anchors)
    assert keep.tolist() == [False, False, False, True, False]
    assert first.tolist() == [[False] * 2] * 3 + [[False, True], [False] * 2]
    _, both = advantage.anchor_gate(wide([[1, 0]]), wide([[1, 1]]))
    assert both.tolist() == [[True, False]]


def test_scales_divide_centred_rewards() -> None:
    reward, valid = wide([[1.0, 0.0, 0.5], [1.0, 1.0, 1.0], [1.0, 0.0, 9.0]]), torch.ones(3, 3, dtype=torch.bool)
    valid[2, 2] = False
    centred = advantage.centred(reward, valid)
    close(centred, [[0.5, -0.5, 0.0], [0.0] * 3, [0.5, -0.5, 0.0]])
    assert torch.equal(advantage.SCALES["none"](centred, valid, lambda x: x), centred)
    close(advantage.SCALES["group"](centred, valid, lambda x: x), advantage.standardized(reward, valid))
    over_batch = advantage.SCALES["batch"](centred, valid, lambda x: x)
    close(over_batch, centred / ((4 * 0.25 / 7) ** 0.5 + 1e-8))  # eight valid rewards
    close(over_batch, advantage.reinforce_pp_baseline(reward, valid))
    assert (over_batch[1] == 0).all()


def test_centred_around_another_baseline_still_has_zeros_for_equal_rewards() -> None:
    reward = wide([[1.0, 0.0, 0.0], [0.3, 0.3, 0.3]])
    close(advantage.centred(reward, baseline_P1=wide([[0.0], [0.1]])), [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def test_reward_at_the_end_and_to_go() -> None:
    placed = advantage.at_the_end(wide([1.0, 2.0, 3.0]), torch.tensor([1, 3, 0]), 3)
    assert placed.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]
    assert advantage.to_go(wide([[1.0, 2.0, 4.0]])).tolist() == [[7.0, 6.0, 4.0]]


def test_cosine_penalty_falls_from_0_to_minus_1() -> None:
    close(advantage.cosine_penalty(wide([0, 2, 4, 8, 9]), 8), [0.0, (0.5**0.5 - 1) / 2, -0.5, -1.0, -1.0])


def test_first_flag_of_each_row() -> None:
    flags = torch.tensor([[False, True, True], [True, False, True], [False, False, False]])
    assert advantage.first(flags).tolist() == [[False, True, False], [True, False, False], [False, False, False]]
