"""A learner's state does not know how many ranks wrote it, nor under which ZeRO stage."""

import json
import shutil

import pytest
import torch

from rlvr.engine.learner import OPTIMIZER, WEIGHTS
from rlvr.engine.parts import PartsFolder
from tests.engine.launch import on_ranks
from tests.engine.models import saved

LAYOUTS = {
    f"{ranks}-{dtype}-{zero}": (ranks, {"dtype": dtype, "zero": zero})
    for ranks, dtype, stages in (
        (1, "fp32", (0, 2)),
        (1, "bf16", (0, 3)),
        (2, "fp32", (1, 3)),
        (2, "bf16", (2, 3)),
    )
    for zero in stages
}
NAMES = list(LAYOUTS)
OTHER = {  # whose state each of them is given: of another number of ranks, under another stage
    "1-fp32-0": "2-fp32-3",
    "1-fp32-2": "2-fp32-1",
    "1-bf16-0": "2-bf16-3",
    "1-bf16-3": "2-bf16-2",
    "2-fp32-1": "1-fp32-2",
    "2-fp32-3": "1-fp32-0",
    "2-bf16-2": "1-bf16-0",
    "2-bf16-3": "1-bf16-3",
}
BARE = ("1-fp32-0", "2-fp32-3")


def run(model, root, jobs):
    for ranks in (1, 2):
        mine = [job for job in jobs if LAYOUTS[job["name"]][0] == ranks]
        told = [job | {"layout": LAYOUTS[job["name"]][1]} for job in mine]
        on_ranks(ranks, "tests.engine.state_worker", model, json.dumps(told), root)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Per layout: `a` after two updates, `b` after three; `b2` after three, with a restart after two; `c` and `d` as
    `a` and `b`, but from the `a` of the other layout; `e` from an `a` without its optimizer."""
    model, root = saved(tmp_path_factory.mktemp("model"), "qwen2", tied=True), tmp_path_factory.mktemp("state")
    first = [dict(name=n, start=None, stops=[[2, f"{n}/a"], [1, f"{n}/b"]]) for n in NAMES]
    for job in first:
        if job["name"] in BARE:
            job["save"] = True
    run(model, root, first)
    again = [dict(name=n, start=f"{n}/a", stops=[[1, f"{n}/b2"]]) for n in NAMES]
    moved = [dict(name=n, start=f"{OTHER[n]}/a", stops=[[0, f"{n}/c"], [1, f"{n}/d"]]) for n in NAMES]
    for name in BARE:
        shutil.copytree(root / name / "a", root / name / "bare")
        next((root / name / "bare" / "policy").glob("optimizer-*")).unlink()
    bare = [dict(name=n, start=f"{n}/bare", forgiven=["optimizer"], stops=[[0, f"{n}/e"]]) for n in BARE]
    references = [dict(name=n, start=OTHER[n], stops=[], save=False) for n in BARE]
    run(model, root, again + moved + bare + references)
    return root


def read(folder):
    with PartsFolder(folder / "policy", WEIGHTS) as weights, PartsFolder(folder / "policy", OPTIMIZER) as moments:
        told = dict(weights.whole(torch.float32)) | dict(moments.whole(torch.float32))
        return told, int(moments.told["updates"])


def same(one, other):
    (left, updates), (right, updates_) = read(one), read(other)
    assert left.keys() == right.keys()
    return updates == updates_ and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_learner_goes_on_bit_for_bit(root, name):
    assert not same(root / name / "b", root / name / "a")
    assert same(root / name / "b2", root / name / "b")


@pytest.mark.parametrize("name", NAMES)
def test_another_layout_reads_the_same_state(root, name):
    assert same(root / name / "c", root / OTHER[name] / "a")


@pytest.mark.parametrize("name", NAMES)
def test_and_trains_on_with_it(root, name):
    (got, updates), (wanted, updates_) = read(root / name / "d"), read(root / OTHER[name] / "b")
    assert updates == updates_
    for tensor, value in wanted.items():
        loose = dict(rtol=1e-4, atol=1e-7) if "fp32" in name else dict(rtol=0.05, atol=1e-3)
        torch.testing.assert_close(got[tensor], value, **loose)


@pytest.mark.parametrize("name", BARE)
def test_moments_that_may_be_missing_begin_at_zero(root, name):
    (got, updates), (wanted, _) = read(root / name / "e"), read(root / name / "a")
    assert updates == 0
    for tensor, value in got.items():
        moment = tensor.startswith(("exp_avg/", "exp_avg_sq/"))
        assert not value.any() if moment else torch.equal(value, wanted[tensor]), tensor


@pytest.mark.parametrize("name", BARE)
def test_a_reference_keeps_its_identity_on_other_ranks(root, name):
    cards = {}
    for folder in (OTHER[name] + "/base", name + "/base again", OTHER[name] + "/moved", name + "/moved again"):
        cards[folder.split("/")[1]] = json.loads((root / folder / "reference" / "reference.json").read_text())
    assert cards["base"] == cards["base again"] and cards["base"]["version"] == 0
    assert cards["moved"] == cards["moved again"] and cards["moved"]["version"] == 1
    assert cards["base"]["identity"] != cards["moved"]["identity"]
    assert not list((root / name / "base" / "reference").glob("*.safetensors")), "the base model is not copied"
