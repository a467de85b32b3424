"""Draws from the reference: what is stored is not drawn again, and nothing else changes."""

import pytest

from rlvr.rollout.seeds import seed_of
from tests.rollout.fakes import UNJUDGED, FakeEngines, FakeJudge, config, on_ranks, prompt, reference_sampler

PROMPTS = [prompt(i) for i in range(6)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rlvr" / "reference"


def test_completions_are_the_same_with_a_cold_store_a_warm_one_and_none():
    engines = [FakeEngines() for _ in range(3)]
    cold = reference_sampler(engines[0], config()).draw(PROMPTS, range(3))
    warm = reference_sampler(engines[1], config()).draw(PROMPTS, range(3))
    none = reference_sampler(engines[2], config(reference_store=False)).draw(PROMPTS, range(3))
    assert cold == warm == none
    assert [len(e.drawn) for e in engines] == [18, 0, 18]
    assert engines[1].swaps == 0  # the policy's weights may stay where they are


def test_a_completion_has_its_number_whatever_was_drawn_before():
    engines = FakeEngines()
    sampler = reference_sampler(engines, config(reference_seed=5))
    some = sampler.draw(PROMPTS[2:4], range(1, 2))
    all_ = sampler.draw(PROMPTS, range(2))
    assert [graded[0] for graded in some] == [graded[1] for graded in all_[2:4]]
    assert len(engines.drawn) == 2 + 10
    assert engines.drawn[0] == ("reference", "sums/train/2", seed_of(5, "reference", "sums/train/2", 1))


def test_a_prompt_that_comes_twice_is_drawn_once():
    engines = FakeEngines()
    first, second = reference_sampler(engines, config()).draw([PROMPTS[0], PROMPTS[0]], range(2))
    assert first == second and len(engines.drawn) == 2


@pytest.mark.parametrize(
    ("changed", "weights"),
    [
        ({"temperature": 0.7}, "base"),
        ({"max_tokens": 4}, "base"),
        ({"reference_seed": 1}, "base"),
        ({"options": {"strict": True}}, "base"),
        ({}, "another"),
    ],
)
def test_what_was_drawn_otherwise_is_not_taken(changed, weights):
    reference_sampler(FakeEngines(), config()).draw(PROMPTS, range(1))
    engines = FakeEngines(weights)
    reference_sampler(engines, config(**changed)).draw(PROMPTS, range(1))
    assert len(engines.drawn) == 6


def test_a_stage_that_samples_otherwise_opens_another_store():
    engines, told = FakeEngines(), config()
    sampler = reference_sampler(engines, told)
    before = sampler.draw(PROMPTS, range(1))
    told.rollout.temperature = 0.5
    assert sampler.draw(PROMPTS, range(1)) != before
    told.rollout.temperature = 1.0
    assert sampler.draw(PROMPTS, range(1)) == before
    assert len(engines.drawn) == 12 and engines.hashed == 1


def test_a_reference_that_was_moved_is_neither_stored_nor_looked_up(cache):
    reference_sampler(FakeEngines(), config()).draw(PROMPTS, range(1))
    before = sorted(cache.rglob("*"))
    moved = FakeEngines(weights="moved", version=1)
    sampler = reference_sampler(moved, config())
    assert sampler.draw(PROMPTS, range(1), ahead=PROMPTS) == sampler.draw(PROMPTS, range(1))
    assert len(moved.drawn) == 12 and moved.hashed == 0
    assert sorted(cache.rglob("*")) == before


def test_what_could_not_be_judged_is_judged_again_and_not_drawn_again():
    cold = reference_sampler(FakeEngines(), config()).draw(PROMPTS, range(4))
    open_ = sum(g.verdict.error == "too slow" for graded in cold for g in graded)
    assert open_
    engines, judge = FakeEngines(), FakeJudge(error=None)
    warm = reference_sampler(engines, config(), judge=judge).draw(PROMPTS, range(4))
    assert not engines.drawn and len(judge.jobs) == open_
    for before, after in zip(sum(cold, []), sum(warm, []), strict=True):
        assert before.completion == after.completion
        assert after.verdict.score is not None
        assert before.verdict == after.verdict or before.completion.tokens[-1] == UNJUDGED


def test_prompts_ahead_are_drawn_only_by_the_way():
    engines = FakeEngines()
    sampler = reference_sampler(engines, config())
    sampler.draw(PROMPTS[:2], range(2), ahead=PROMPTS[2:4])
    assert len(engines.drawn) == 8 and engines.swaps == 1
    sampler.draw(PROMPTS[2:4], range(2), ahead=PROMPTS[4:])
    assert len(engines.drawn) == 8 and engines.swaps == 1


def test_ranks_share_what_they_draw():
    engines = [FakeEngines(), FakeEngines()]

    def work(world):
        sampler = reference_sampler(engines[world.rank], config(), world)
        sampler.draw(PROMPTS[world.rank :: 2], range(1))
        world.any(True)
        return sampler.draw(PROMPTS[1 - world.rank :: 2], range(1))  # now the other's

    odd, even = on_ranks(2, work)
    assert [len(e.drawn) for e in engines] == [3, 3]
    assert even + odd == [
        *reference_sampler(FakeEngines(), config()).draw(PROMPTS[0::2], range(1)),
        *reference_sampler(FakeEngines(), config()).draw(PROMPTS[1::2], range(1)),
    ]


def test_a_rank_that_has_all_it_needs_still_joins_the_others_in_sampling():
    """Under tensor parallelism and ZeRO-3 the weights reach the sampler only if all ranks walk along."""
    reference_sampler(FakeEngines(), config()).draw(PROMPTS[:3], range(1))
    engines = [FakeEngines(), FakeEngines()]
    on_ranks(2, lambda w: reference_sampler(engines[w.rank], config(), w).draw(PROMPTS[w.rank * 3 :][:3], range(1)))
    assert [len(e.drawn) for e in engines] == [0, 3]
    assert [e.swaps for e in engines] == [1, 1]
