"""ARMOR: worked losses, ratios and gates, what each ablation changes, and the variant with QAE."""

from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor

from rlvr.algorithms.armor import ANCHORS, ARMOR, GATES, RATIOS, ARMORWithQAE
from rlvr.algorithms.base import Draw, Forward
from rlvr.algorithms.qae import QAE
from rlvr.config import compose
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

NEW = torch.tensor([[0.24, 0.8, 0.014, 0.22, 0.012], [0.2, 0.4, 1, 1, 1]], dtype=torch.float64).log()
OLD = [[0.2, 0.5, 0.01, 0.4, 0.02], [0.3, 0.25]]
REF = [[0.6, 0.1, 0.6, 0.5, 0.5], [0.1, 0.7]]
NAN = torch.nan


def logs(rows: list[list[float]]) -> list[list[float]]:
    return [torch.tensor(row, dtype=torch.float64).log().tolist() for row in rows]


# -- worked numbers ---------------------------------------------------------------------------------------

WORKED = {
    (0.9375, 1): (
        -0.3793805819648515,
        [[1 / 7, 0.0, 0.04, 0.07252747252747253, 0.03214285714285714], [0.0, 0.19261637239165327]],
    ),
    (0.9375, -1): (
        0.5049798409066143,
        [[1 / 7, 0.2255639097744361, 0.04, 0.0, 0.03214285714285714], [0.09316770186335406, 0.0]],
    ),
    (0.875, 1): (
        -0.3948430620552155,
        [[0.12, 0.0, 0.02089552238805969, 1 / 15, 0.01875], [0.0, 0.16326530612244897]],
    ),
}


@pytest.mark.parametrize(("alpha", "sign"), WORKED)
def test_loss_and_gradient_equal_the_worked_example(alpha: float, sign: int) -> None:
    batch = make_batch(logs(OLD), [1.0, 0.0], ref=logs(REF)).weighted("token")
    advantage_B = torch.tensor([1.0, -1.0], dtype=torch.float64) * sign
    batch = batch.having(advantages_BT=batch.spread(advantage_B))
    loss, gradient = loss_and_gradient(make("armor", alpha=alpha), batch, NEW.clone().requires_grad_())
    want, slope = WORKED[alpha, sign]
    near(loss, want)
    near(gradient, -advantage_B[:, None] * laid(slope))


@pytest.mark.parametrize(
    ("new", "old", "ref", "alpha", "ratio", "slope"),
    [
        (-1.2039728043259361, -1.6094379124341003, -1.3862943611198906, 0.9375, 1.461538461538461, 1.3846153846153841),
        (-2.995732273553991, -4.605170185988091, -0.5108256237659907, 0.9375, 1.800000000000001, 1.0000000000000007),
        (-2.995732273553991, -4.605170185988091, -60.0, 0.9375, 4.999999999999998, 4.999999999999998),
        (-2.995732273553991, -4.605170185988091, -2000.0, 0.9375, 4.999999999999998, 4.999999999999998),
        (-800.0, -801.0, -799.0, 0.875, 1.8359111755848718, 1.322392008786985),
        (-1.2039728043259361, -1.6094379124341003, -1.3862943611198906, 1.0, 1.5, 1.5),
        (-1.2039728043259361, -1.6094379124341003, -1.6094379124341003, 0.875, 1.4375, 1.3125),
    ],
)
def test_ratio_of_mixtures(new: float, old: float, ref: float, alpha: float, ratio: float, slope: float) -> None:
    leaf = torch.tensor([[new]], dtype=torch.float64, requires_grad=True)
    batch = make_batch([[old]], [1.0], group=1, ref=[[ref]])
    got = make("armor", alpha=alpha).log_ratio(Forward(logprobs_BT=leaf), batch).exp()
    near(got[0, 0], ratio)
    near(torch.autograd.grad(got.sum(), leaf)[0][0, 0], slope)


def scores(on_correct: int, ref: list[float], own: int = 15) -> Tensor:
    return torch.tensor([[1.0] * on_correct + [0.0] * (own - on_correct) + ref])


@pytest.mark.parametrize(
    ("on_correct", "ref", "anchor", "why"),
    [
        (0, [0.0, 1.0, 0.0, 1.0], None, {"not_mixed"}),
        (15, [1.0, 1.0, 1.0, 1.0], None, {"not_mixed"}),
        (7, [0.0, 0.0, 0.0, 0.0], None, {"no_anchor"}),
        (0, [0.0, 0.0, 0.0, 0.0], None, {"not_mixed", "no_anchor"}),
        (7, [0.0, 1.0, 0.0, 1.0], 1, set()),
        (1, [1.0, 0.0, 0.0, 0.0], 0, set()),
        (14, [0.0, 0.0, 0.0, 1.0], 3, set()),
        (7, [NAN, 0.0, 1.0, 1.0], 2, set()),
        (7, [NAN, 0.0, NAN, NAN], None, {"no_anchor"}),
    ],
)
def test_gate_and_first_correct_anchor(on_correct: int, ref: list[float], anchor: int | None, why: set[str]) -> None:
    armor = make("armor", group=16)
    chosen = armor.select(scores(on_correct, ref))[0]
    want = [False] * 19 if anchor is None else [True] * 15 + [i == anchor for i in range(4)]
    assert chosen.tolist() == want
    assert {name for name, reason in armor.gate(scores(on_correct, ref)).items() if reason.item()} == why


def test_unjudged_own_answers_do_not_make_a_group_mixed() -> None:
    own = torch.tensor([[1.0] * 14 + [NAN] + [1.0] * 4, [1.0] * 13 + [NAN, 0.0] + [1.0] * 4])
    assert make("armor", group=16).select(own).sum(-1).tolist() == [0, 16]


def test_anchor_counts_in_the_statistics_of_its_group() -> None:
    batch = make_batch([[-1.0]] * 16, [1.0] * 5 + [0.0] * 10 + [1.0], group=16, ref=[[-1.0]] * 16, anchors=[15])
    advantages = make("armor", group=16, wrong_reward=-1.0).signal(batch)["advantages_BT"][:, 0]
    near(advantages, [1.2499987500012502] * 5 + [-0.7499992500007501] * 10 + [1.2499987500012502])
    near(advantages[:15].sum(), -1.2499987500012502)


@pytest.mark.parametrize(
    ("success", "ratio"), [(0.1, 1.2727272727272727), (0.5, 1.4285714285714286), (1.0, 1.4615384615384615)]
)
def test_ratio_given_that_the_anchor_is_right(success: float, ratio: float) -> None:
    armor = make("armor", ratio="conditional_sequence", average="sequence")
    batch = make_batch(logs([[0.2], [0.2]]), [1.0, 0.0], ref=logs([[0.25], [0.25]]))
    batch.facts["ref_success"] = torch.tensor([success, success], dtype=torch.float64)
    new = Forward(logprobs_BT=torch.tensor([[0.3], [0.3]], dtype=torch.float64).log())
    near(armor.log_ratio(new, batch).exp()[:, 0], [ratio, 1.5])  # plain where the answer is wrong
    batch.facts["ref_success"] = torch.zeros(2)
    near(armor.log_ratio(new, batch).exp()[:, 0], [1.5, 1.5])
    cut = batch.having(truncated_B=torch.tensor([True, False]))
    cut.facts["ref_success"] = torch.ones(2)
    wrong = make("armor", ratio="conditional_sequence", average="sequence", truncated="wrong")
    near(wrong.log_ratio(new, cut).exp()[:, 0], [1.5, 1.5])


def test_success_rate_of_the_reference_is_that_of_its_judged_tries() -> None:
    drawn = torch.cat([scores(7, [0.0, 1.0, 0.0, 1.0]), scores(7, [NAN, 1.0, 0.0, NAN]), scores(7, [NAN] * 4)])
    facts = make("armor", group=16, ratio="conditional_sequence", average="sequence").facts(drawn)
    assert facts["ref_success"].tolist() == [0.5, 0.5, 0.0]
    assert make("armor", group=16).facts(drawn) == {}


# -- what each ablation changes --------------------------------------------------------------------------


def draws(**keys: Any) -> list[tuple[str, int]]:
    return [(draw.source, draw.count) for draw in make("armor", group=16, **keys).draws]


def test_composition_follows_from_anchor_and_gate_not_from_alpha() -> None:
    assert draws() == draws(alpha=0.5) == [("policy", 15), ("reference", 4)]
    assert draws(anchor="none") == [("policy", 16), ("reference", 4)]  # the gate still pays for its tries
    assert draws(anchor="none", gate="variance") == [("policy", 16)]
    assert draws(gate="none") == [("policy", 16), ("reference", 4)]  # there may be no anchor
    assert draws(anchor="any", gate="none") == [("policy", 15), ("reference", 4)]


def test_dapo_behind_the_gate_trains_on_no_anchor() -> None:
    chosen = make("armor", group=16, anchor="none", ratio="plain").select(scores(7, [0.0, 1.0, 0.0, 1.0], own=16))
    assert chosen.tolist() == [[True] * 16 + [False] * 4]
    assert not make("armor", group=16, anchor="none").select(scores(7, [0.0] * 4, own=16)).any()


def test_the_control_keeps_the_prompts_that_armor_keeps() -> None:
    draw = torch.Generator().manual_seed(0)
    own_PN, anchor_PM = (torch.rand(200, n, generator=draw).lt(p).float() for n, p in ((16, 0.1), (4, 0.3)))
    armor, gate = make("armor", group=16), make("armor", group=16, anchor="none", ratio="plain")
    kept = armor.select(torch.cat([own_PN[:, :15], anchor_PM], dim=1)).any(-1)
    assert torch.equal(gate.select(torch.cat([own_PN, anchor_PM], dim=1)).any(-1), kept)
    alone_P = (own_PN[:, :15].sum(-1) == 0) & (own_PN[:, 15] > 0)  # mixed by the 16th alone
    assert 0 < kept.sum() < 200 and alone_P.any() and not kept[alone_P].any()


def test_without_a_gate_an_anchor_takes_the_last_place_where_there_is_one() -> None:
    armor = make("armor", group=16, gate="none")
    drawn = torch.cat([scores(0, [0.0, 0.0, 1.0, 1.0], own=16), scores(16, [0.0, 0.0, 0.0, NAN], own=16)])
    chosen = armor.select(drawn)
    assert chosen[0].tolist() == [True] * 15 + [False] + [False, False, True, False]
    assert chosen[1].tolist() == [True] * 16 + [False] * 4
    assert armor.gate(drawn) == {}


def test_variance_is_that_of_the_own_answers_that_are_trained_on() -> None:
    drawn = torch.tensor([[1.0] * 15 + [0.0] + [1.0] * 4])  # the only wrong answer gives way to the anchor
    assert not make("armor", group=16, gate="variance").select(drawn).any()


def test_an_anchor_of_any_kind_is_the_first_try() -> None:
    chosen = make("armor", group=16, anchor="any", gate="variance").select(scores(7, [0.0, 1.0, 1.0, 1.0]))
    assert chosen[0, 15:].tolist() == [True, False, False, False]


def test_each_gate_asks_for_what_its_name_says() -> None:
    drawn = torch.cat([scores(c, r) for c in (0, 7) for r in ([0.0] * 4, [1.0] * 4)])
    kept = {gate: make("armor", group=16, anchor="any", gate=gate).select(drawn).any(-1).tolist() for gate in GATES}
    assert kept == {
        "armor": [False, False, False, True],
        "variance": [False, False, True, True],
        "anchor": [False, True, False, True],
        "none": [True] * 4,
    }


def log_ratio(**keys: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A ratio with the mask of anchors, and the plain ratio."""
    batch = random_batch([1.0, 0.0, 1.0, 0.0], group=2, anchors=[0])
    new = moved(batch).detach()
    got = make("armor", **keys).log_ratio(Forward(logprobs_BT=new), batch)
    assert batch.old_logprobs_BT is not None
    return got * batch.mask_BT, batch.anchor_B, (new - batch.old_logprobs_BT) * batch.mask_BT


def test_plain_ratio_is_that_of_dapo() -> None:
    got, _, plain = log_ratio(ratio="plain")
    assert torch.equal(got, plain)


def test_mixture_on_anchors_leaves_own_tokens_alone() -> None:
    got, anchor_B, plain = log_ratio(mix_on="anchors")
    everywhere, *_ = log_ratio(mix_on="all")
    assert torch.equal(got[~anchor_B], plain[~anchor_B]) and torch.equal(got[anchor_B], everywhere[anchor_B])
    assert not torch.equal(got, everywhere)


def test_wide_clip_is_dapo_with_its_clip_range_over_alpha() -> None:
    keys = dict(ratio="wide_clip", anchor="none", gate="variance", alpha=0.8, clip_low=0.2, clip_high=0.28)
    batch = random_batch([0.0, 1.0, 0.0, 1.0], group=2)
    wide, dapo = make("armor", **keys), make("dapo", clip_low=0.2 / 0.8, clip_high=0.28 / 0.8)
    assert wide.needs == dapo.needs and wide.models == {"policy"}
    new = moved(batch, by=1.0)
    gradients = [loss_and_gradient(a, prepared(a, batch), new)[1] for a in (wide, dapo)]
    near(gradients[0], 0.8 * gradients[1], rtol=1e-12)
    assert (gradients[0] == 0)[batch.mask_BT > 0].any()  # some are clipped


def test_a_reference_equal_to_the_old_policy_makes_the_mixture_a_wide_clip() -> None:
    batch = random_batch([1.0, 0.0, 1.0, 0.0], group=2)
    batch = batch.having(ref_logprobs_BT=batch.old_logprobs_BT)
    new = Forward(logprobs_BT=moved(batch).detach())
    near(make("armor").log_ratio(new, batch), make("armor", ratio="wide_clip").log_ratio(new, batch))


def test_reference_is_scored_only_where_it_is_read() -> None:
    for ratio in RATIOS:
        reads = ratio in ("mixture", "conditional_sequence")
        assert ("ref_logprobs_BT" in make("armor", ratio=ratio).needs) == reads
        assert make("armor", ratio=ratio).models == {"policy", "reference"}  # which draws in any case
    assert set(ANCHORS) == {"correct", "any", "none"}


@pytest.mark.parametrize(
    ("control", "changed", "draws", "models"),
    [
        ("armor", {}, [15, 4], {"policy", "reference"}),
        ("dapo_gate", dict(anchor="none", ratio="plain"), [16, 4], {"policy", "reference"}),
        ("armor_no_gate", dict(gate="none"), [16, 4], {"policy", "reference"}),
        ("armor_plain_ratio", dict(ratio="plain"), [15, 4], {"policy", "reference"}),
        ("armor_mixture_only", dict(anchor="none", gate="variance"), [16], {"policy", "reference"}),
        ("dapo_wide_clip", dict(anchor="none", gate="variance", ratio="wide_clip"), [16], {"policy"}),
    ],
)
def test_controls_change_exactly_what_they_say(
    control: str, changed: dict[str, str], draws: list[int], models: set[str]
) -> None:
    published, own = (compose([f"algorithm={name}"]).algorithm for name in ("armor", control))
    assert {k: v for k, v in asdict(own).items() if v != asdict(published)[k]} == changed
    algorithm = ARMOR(own)
    assert [draw.count for draw in algorithm.draws] == draws and algorithm.models == models


# -- with QAE ------------------------------------------------------------------------------------------------


def test_parents_of_the_variant_with_qae_override_different_methods() -> None:
    def methods(cls: type) -> set[str]:
        return {name for name, value in vars(cls).items() if callable(value) or isinstance(value, property)}

    assert methods(QAE) == {"baseline"} and not methods(ARMOR) & methods(QAE)
    assert not methods(ARMORWithQAE)


def test_the_variant_with_qae_has_the_ratio_of_one_and_the_advantage_of_the_other() -> None:
    batch = random_batch([1.0, 0.0, 0.0, 1.0], group=4, anchors=[3])
    both, armor, qae = make("armor_qae", group=4), make("armor", group=4), make("qae", group=4)
    assert torch.equal(both.signal(batch)["advantages_BT"], qae.signal(batch)["advantages_BT"])
    assert not torch.equal(both.signal(batch)["advantages_BT"], armor.signal(batch)["advantages_BT"])
    new = Forward(logprobs_BT=moved(batch).detach())
    assert torch.equal(both.log_ratio(new, batch), armor.log_ratio(new, batch))
    assert both.draws == armor.draws == (Draw("policy", 3), Draw("reference", 4))


# -- keys that contradict each other ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (dict(ratio="conditional_sequence"), r"algorithm\.average=token"),
        (dict(ratio="conditional_sequence", anchor="none", gate="variance"), r"algorithm\.anchor=none .* draws none"),
        (dict(mix_on="anchors", anchor="none"), r"algorithm\.mix_on=anchors"),
        (dict(group=2), r"algorithm\.group=2"),
        (dict(reset_every=1, anchor="none", gate="variance", ratio="wide_clip"), r"algorithm\.reset_every=1"),
    ],
)
def test_contradictions_are_refused(keys: dict[str, Any], message: str) -> None:
    make("armor", group=4).config.check_across(ROOT)
    with pytest.raises(ConfigError, match=message):
        make("armor", **(dict(group=4) | keys)).config.check_across(ROOT)
