"""The survey: who asks what, what is learned, and that no answer is asked for twice."""

import math

import pytest
import torch

from rlvr.rollout.survey import Surveyed, Try, learned, survey
from tests.algorithms.builders import make
from tests.rollout.fakes import RIGHT, UNJUDGED, FakeEngines, FakeWorld, config, on_ranks, prompt, reference_sampler

PROMPTS = [prompt(i) for i in range(40)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def algorithm(**keys):
    return make("astar_po", group=1, **({"survey_count": 4} | keys))


def run(engines, world=None, told=None, **keys):
    astar = algorithm(**keys)
    told = told or config(algorithm=astar.config)
    world = world or FakeWorld()
    return survey(astar, reference_sampler(engines, told, world), PROMPTS, told, world)


def test_every_prompt_is_tried_and_summarized():
    engines = FakeEngines()
    found = run(engines)
    assert [row.id for row in found] == [p.id for p in PROMPTS]
    assert len(engines.drawn) == 160 and {len(row.tries) for row in found} == {4}
    told = config(algorithm=algorithm().config)
    for row, graded in zip(found, reference_sampler(FakeEngines(), told).draw(PROMPTS, range(4)), strict=True):
        ends = [g.completion.tokens[-1] for g in graded]
        scores = [math.nan if end == UNJUDGED else float(end == RIGHT) for end in ends]
        torch.testing.assert_close(
            torch.tensor([t.score for t in row.tries]), torch.tensor(scores), equal_nan=True, rtol=0, atol=0
        )
        judged = [score for score in scores if not math.isnan(score)]
        assert row.judged == judged and row.solved == sum(judged)
        if judged:
            rate = sum(judged) / len(judged)
            assert row.facts["ref_success"] == pytest.approx(rate)
            assert row.facts["v_star"] == pytest.approx(0.5 * math.log(1 - rate + rate * math.exp(2)))
        else:
            assert row.facts is None
    assert any(row.judged != [t.score for t in row.tries] for row in found)  # some were unjudged


def test_two_ranks_find_what_one_finds_and_share_the_work():
    engines = [FakeEngines(), FakeEngines()]
    first, second = on_ranks(2, lambda world: run(engines[world.rank], world))
    assert repr(first) == repr(second)  # NaN is not equal to itself
    assert [len(e.drawn) for e in engines] == [80, 80]
    assert repr(run(FakeEngines())) == repr(first)


def test_a_killed_survey_draws_only_the_rest():
    killed = FakeEngines(dies_after=50)
    with pytest.raises(KeyboardInterrupt):
        run(killed)
    engines = FakeEngines()
    again = run(engines)
    kept = 48  # a portion is 8 completions here: six of them were whole
    assert len(engines.drawn) == 160 - kept
    assert not set(engines.drawn) & set(killed.drawn[:kept])
    assert repr(again) == repr(run(FakeEngines()))


def test_truncated_completions_score_0_where_the_algorithm_says_so():
    kept, wrong = run(FakeEngines()), run(FakeEngines(), truncated="wrong")
    tries = [[t for row in rows for t in row.tries] for rows in (kept, wrong)]
    cut = [(a, b) for a, b in zip(*tries, strict=True) if a.truncated]
    assert any(a.score != 0 for a, _ in cut) and all(b.score == 0 for _, b in cut)


def test_extra_tries_go_to_what_was_never_solved():
    told = config(algorithm=algorithm().config, extra=6)
    engines = FakeEngines()
    plain, more = run(FakeEngines()), run(engines, told=told)
    unsolved = [row.solved == 0 for row in plain]
    assert 0 < sum(unsolved) < len(PROMPTS)
    assert [len(row.tries) for row in more] == [10 if never else 4 for never in unsolved]
    assert len(engines.drawn) == 6 * sum(unsolved)  # the first four were stored
    assert [repr(a.tries) for a in plain] == [repr(b.tries[:4]) for b in more]
    assert any(row.solved for row, never in zip(more, unsolved, strict=True) if never)


def test_dropped_prompts_are_left_out_and_the_others_know_their_facts():
    rows = [
        Surveyed("sums/train/0", "sums", (Try(1.0, False, None),), {"v_star": 0.5}),
        Surveyed("sums/train/1", "sums", (Try(math.nan, False, "slow"),), None),
        Surveyed("sums/train/2", "sums", (Try(0.0, False, None),), {"v_star": 0.0}),
    ]
    kept = learned([prompt(0, facts={"age": 1.0}), prompt(1), prompt(2)], rows)
    assert [(p.id, p.facts) for p in kept] == [
        ("sums/train/0", {"age": 1.0, "v_star": 0.5}),
        ("sums/train/2", {"v_star": 0.0}),
    ]


def test_an_algorithm_without_a_survey_drops_nothing_and_learns_nothing():
    grpo = make("grpo")
    told = config(algorithm=grpo.config, count=3)
    found = survey(grpo, reference_sampler(FakeEngines(), told), PROMPTS, told, FakeWorld())
    assert learned(PROMPTS, found) == PROMPTS
    assert {len(row.tries) for row in found} == {3}
