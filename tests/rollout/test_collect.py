"""Anchors come from the store or are drawn: the batch is the same."""

from dataclasses import fields

import pytest
import torch

from rlvr.clock import Clock
from rlvr.data.stream import PromptStream
from rlvr.rollout.collect import Collector
from rlvr.rollout.draw import Drawer
from rlvr.rollout.reference import ReferenceSampler
from tests.algorithms.builders import make
from tests.rollout.fakes import FakeEngines, FakeJudge, FakeWorld, config, on_ranks, prompt

STREAM = {"sums": [prompt(i) for i in range(24)]}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def collect(engines, steps=1, world=None, **changed):
    """The collected steps of ARMOR with groups of 4 and 3 anchor tries."""
    armor = make("armor", group=4, anchor_tries=3, alpha=0.75)
    told, world = config(algorithm=armor.config, **changed), world or FakeWorld()
    drawer = Drawer(engines, FakeJudge(), told, Clock())
    stream = PromptStream(STREAM, {"sums": 1.0}, told.seed)
    collector = Collector(armor, drawer, ReferenceSampler(drawer, told, world), stream, told, world)
    made, cursor = [], 0
    for _ in range(steps):
        made.append(collector.collect(cursor))
        cursor = made[-1].cursor
    return made


def same(one, other):
    """Whether two batches hold the same numbers."""
    for f in fields(one):
        a, b = getattr(one, f.name), getattr(other, f.name)
        if isinstance(a, torch.Tensor):
            assert torch.equal(a, b), f.name
    return True


def test_a_batch_does_not_depend_on_what_is_stored():
    engines = [FakeEngines() for _ in range(3)]
    cold, warm = (collect(e)[0] for e in engines[:2])
    without = collect(engines[2], reference_store=False)[0]
    assert same(cold.batch, warm.batch) and same(cold.batch, without.batch)
    assert cold.rows == warm.rows == without.rows
    assert cold.batch.anchor_B.sum() == 4
    asked = [sum(source == "reference" for source, *_ in e.drawn) for e in engines]
    assert asked[0] == asked[2] > 0 and asked[1] == 0


def test_anchors_of_a_prompt_are_the_same_when_it_comes_again():
    steps = collect(FakeEngines(), steps=6)
    anchors = {}
    for row in [row for step in steps for row in step.rows if row["sampler"] == "reference"]:
        anchors.setdefault(row["id"], []).append(tuple(row["tokens"]))
    again = [met for met in anchors.values() if len(met) > 3]
    assert again and all(met == met[:3] * (len(met) // 3) for met in again)


def test_prefetching_saves_swaps_and_changes_nothing():
    plain, ahead = FakeEngines(), FakeEngines()
    one = collect(plain, steps=3, reference_store=False)
    two = collect(ahead, steps=3, reference_prefetch=6)
    assert all(same(a.batch, b.batch) for a, b in zip(one, two, strict=True))
    swaps = [sum(b[0] != a[0] for a, b in zip(e.drawn, e.drawn[1:], strict=False)) for e in (plain, ahead)]
    assert swaps[1] == 1 < swaps[0]  # 24 prompts ahead are all there are


def test_two_ranks_collect_what_one_collects_with_prefetching():
    engines = [FakeEngines(), FakeEngines()]
    (whole,) = collect(FakeEngines(), reference_store=False)
    parts = on_ranks(2, lambda w: collect(engines[w.rank], world=w, reference_prefetch=3)[0])
    for field in ("score_B", "length_B", "anchor_B"):
        both = [getattr(part.batch, field).view(-1, 4) for part in parts]
        merged = torch.stack(both, dim=1).flatten(0, 1)  # slots take turns between ranks
        assert torch.equal(merged.flatten(), getattr(whole.batch, field))
