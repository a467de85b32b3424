"""Anchors come from the store or are drawn: the batch is the same."""

import json
from dataclasses import fields, replace

import pytest
import torch

from rlvr.algorithms.base import Algorithm
from rlvr.clock import Clock
from rlvr.data.stream import PromptStream
from rlvr.rollout.collect import Collector
from rlvr.rollout.draw import Drawer
from rlvr.rollout.reference import ReferenceSampler
from tests.algorithms.builders import make
from tests.rollout.fakes import RIGHT, FakeEngines, FakeJudge, FakeWorld, config, on_ranks, prompt

STREAM = {"sums": [prompt(i) for i in range(24)]}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def collect(engines, steps=1, world=None, **changed):
    """The collected steps of ARMOR with groups of 4 and 3 anchor tries."""
    armor = make("armor", group=4, anchor_tries=3, alpha=0.75)
    told, world = config(algorithm=armor.config, **changed), world or FakeWorld()
    engines.world = world
    drawer = Drawer(engines, FakeJudge(), told, Clock())
    stream = PromptStream(STREAM, {"sums": 1.0}, told.seed)
    collector = Collector(armor, drawer, ReferenceSampler(drawer, told, world), stream, told, world)
    made, cursor = [], 0
    for step in range(steps):
        made.append(collector.collect(cursor, step))
        cursor = made[-1].cursor
    return made


class EvenJudge(FakeJudge):
    """Every response to an even prompt is right, none to an odd one."""

    def submit(self, prompt, completion):
        right = int(prompt.id.rpartition("/")[2]) % 2 == 0
        return super().submit(prompt, replace(completion, tokens=(RIGHT if right else RIGHT - 1,)))


def steps_with_retirement(world, steps, cursor=0, state=None):
    """Of each step: positions and ids that were drawn, and how many prompts rest after it; and what is left to save."""
    grpo, told = make("grpo", group=2), config(retire=[2, 3])
    told.algorithm = grpo.config
    drawer = Drawer(FakeEngines(), EvenJudge(), told, Clock())
    stream = PromptStream({"sums": [prompt(i) for i in range(8)]}, {"sums": 1.0}, told.seed)
    collector = Collector(grpo, drawer, ReferenceSampler(drawer, told, world), stream, told, world)
    collector.retirement.state = state or {}
    seen = []
    for step in steps:
        made = collector.collect(cursor, step)
        cursor = made.cursor
        drawn = sorted({(row["position"], row["id"]) for row in made.prompts})
        seen.append((drawn, made.retired, cursor))
    return seen, cursor, collector.retirement.state


def test_solved_prompts_rest_and_come_back():
    seen, _, _ = steps_with_retirement(FakeWorld(), range(16))
    drawn = [{int(name.rpartition("/")[2]) for _, name in groups} for groups, _, _ in seen]
    even = [step for step, numbers in enumerate(drawn) if {0, 2, 4, 6} & numbers]
    assert seen[3][1] == 4 and drawn[4] == {1, 3, 5, 7}  # after two epochs of 8 prompts, only odd ones are left
    for number in (0, 2, 4, 6):
        met = [step for step in even if number in drawn[step]]
        assert len(met) >= 3 and min(b - a for a, b in zip(met[1:], met[2:], strict=False)) > 3, met


def test_retirement_is_the_same_on_two_ranks_and_after_a_resume():
    whole, _, _ = steps_with_retirement(FakeWorld(), range(12))
    first, cursor, state = steps_with_retirement(FakeWorld(), range(5))
    rest, _, _ = steps_with_retirement(FakeWorld(), range(5, 12), cursor, json.loads(json.dumps(state)))
    assert first + rest == whole
    parts = on_ranks(2, lambda w: steps_with_retirement(w, range(12))[0])
    for (a, retired_a, end_a), (b, retired_b, end_b), (drawn, retired, end) in zip(*parts, whole, strict=True):
        assert sorted(a + b) == drawn and retired_a == retired_b == retired and end_a == end_b == end


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


def test_a_step_whose_prompts_are_all_rejected_is_a_batch_that_teaches_nothing(monkeypatch):
    monkeypatch.setattr(Algorithm, "select", lambda self, score_PN: torch.zeros_like(score_PN, dtype=torch.bool))
    (step,) = collect(FakeEngines(), max_rounds=2)
    told = step.tally.means()
    assert (told["kept"], told["unfilled"], told["rounds"]) == (0.0, 1.0, 2.0)
    assert step.batch.mask_BT.sum() == 0 and len(step.batch) == 16
    assert torch.isfinite(step.batch.weighted("token").token_weight_BT).all()
    with pytest.raises(RuntimeError, match="4 of 4 prompts are still missing"):
        collect(FakeEngines(), max_rounds=2, exhausted="error")
