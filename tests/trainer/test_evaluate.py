"""Held-out accuracy: which interval it has, what counts as right, and that neither ranks nor time change it."""

import pytest

from rlvr.clock import Clock
from rlvr.trainer.evaluate import Answered, Evaluator, _accuracy, _summary
from tests.rollout.fakes import RIGHT, FakeEngines, FakeJudge, FakeWorld, on_ranks, prompt
from tests.trainer.scripted import small


def answers(*scores_of_problems, source="sums"):
    """One problem per argument, with the scores of its answers."""
    return [
        Answered(problem=number, source=source, score=score, length=10, truncated=False, row={})
        for number, scores in enumerate(scores_of_problems)
        for score in scores
    ]


def test_one_binary_answer_per_problem_has_wilsons_interval():
    """Of 3 in 4: the centre is (3/4 + z^2/8) / (1 + z^2/4) = 0.6275, the half-width 0.3269."""
    mean, low, high = _accuracy(answers([1.0], [1.0], [0.0], [1.0]), samples=1, seed=0)
    assert mean == 0.75
    assert (low, high) == pytest.approx((0.3006, 0.9544), abs=1e-4)


def test_several_answers_per_problem_have_a_bootstrap_over_problems():
    """However often two problems are answered, they are two: their mean is 0, 1/2 or 1 in every resample."""
    one_solved = answers([1.0] * 500, [0.0] * 500)
    assert _accuracy(one_solved, samples=500, seed=0) == (0.5, 0.0, 1.0)
    assert _accuracy(answers([1.0, 0.0], [0.0, 1.0]), samples=2, seed=0) == (0.5, 0.5, 0.5)


def test_the_bootstrap_follows_the_seed():
    mixed = answers(*([k / 64] for k in range(64)))
    first, again, other = (_accuracy(mixed, samples=1, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_score_between_right_and_wrong_is_no_trial_of_wilsons():
    assert _accuracy(answers([0.5], [0.5]), samples=1, seed=0) == (0.5, 0.5, 0.5)


def test_what_cannot_be_judged_is_not_right_and_is_told():
    told = _summary(answers([1.0], [None], [None], [0.0]), samples=1, seed=0)
    wrong = _summary(answers([1.0], [0.0], [0.0], [0.0]), samples=1, seed=0)
    assert (told["accuracy"], told["unjudged"]) == (0.25, 0.5)
    assert told | {"unjudged": 0.0} == wrong


def test_sources_have_their_own_accuracy_where_there_are_several():
    sums, logic = answers([1.0], [0.0]), answers([1.0], source="logic")
    assert "accuracy/sums" not in _summary(sums, samples=1, seed=0)
    both = _summary([*sums, *(Answered(**(vars(a) | {"problem": 2})) for a in logic)], samples=1, seed=0)
    assert (both["accuracy"], both["accuracy/sums"], both["accuracy/logic"]) == (pytest.approx(2 / 3), 0.5, 1.0)
    assert _summary([], samples=1, seed=0) == {}


def test_ranks_share_the_problems_and_a_second_validation_draws_the_same():
    prompts = [prompt(number) for number in range(21)]
    config = small("validation.samples=3", "validation.temperature=1.0", "log.samples=2")

    def validate(world):
        evaluator = Evaluator(FakeEngines(), FakeJudge(), config, world, Clock())
        return evaluator.evaluate("validation", prompts)

    alone = validate(FakeWorld())
    assert alone == validate(FakeWorld())
    assert on_ranks(2, validate) == [alone, alone]
    metrics, table, problems = alone
    engines, judge = FakeEngines(), FakeJudge()
    Evaluator(engines, judge, config, FakeWorld(), Clock()).evaluate("validation", prompts)
    assert len(set(engines.drawn)) == 63
    assert metrics["validation/accuracy"] == pytest.approx(sum(c.tokens[-1] == RIGHT for c in judge.jobs) / 63)
    assert metrics["validation/accuracy_low"] < metrics["validation/accuracy"] < metrics["validation/accuracy_high"]
    assert [row["prompt"] for row in table] == ["p0", "p1"]
    assert [row["id"] for row in problems] == [p.id for p in prompts]
    scores = [score for row in problems for score in row["scores"]]
    assert len(scores) == 63 and sum(score or 0.0 for score in scores) / 63 == pytest.approx(
        metrics["validation/accuracy"]
    )
