from pathlib import Path

import pytest

from rlvr.data import gym
from rlvr.keys import ConfigError
from tests.data.helpers import source

reasoning_gym = pytest.importorskip("reasoning_gym")


def puzzles(tasks, config=None, **roles):
    return source(kind="gym", verifier="gym", options={"tasks": tasks, "config": config or {}, "seed": 3}, **roles)


def read(config, role):
    return gym.read(config, "puzzles", role, Path())


def test_weights_are_honoured_and_tasks_are_mixed():
    rows = read(puzzles({"chain_sum": 3.0, "gcd": 1.0}, train="40"), "train")
    tasks = [row.answer["task"] for row in rows]
    assert tasks.count("chain_sum") == 30
    assert tasks[:8].count("gcd") == 2


def test_roles_are_disjoint_and_reproducible():
    config = puzzles(["gcd"], {"gcd": {"max_value": 30}}, train="60", validation="20", test="20")
    roles = [[row.question for row in read(config, role)] for role in ("train", "validation", "test")]
    assert [len(set(asked)) for asked in roles] == [60, 20, 20]
    assert len(set().union(*roles)) == 100
    assert [row.question for row in read(config, "train")] == roles[0]


def test_the_answer_is_the_entry_and_scores_one():
    row = read(puzzles(["chain_sum"], {"chain_sum": {"max_terms": 2}}, train="1"), "train")[0]
    assert row.answer["task"] == "chain_sum"
    assert row.answer["config"] == {"max_terms": 2}
    dataset = reasoning_gym.create_dataset("chain_sum", size=1, seed=0)
    assert dataset.score_answer(row.answer["entry"]["answer"], row.answer["entry"]) == 1
    assert row.question == row.answer["entry"]["question"]


def test_a_task_with_many_right_answers_gets_one_filled_in():
    entry = read(puzzles(["graph_color"], train="1"), "train")[0].answer["entry"]
    assert reasoning_gym.create_dataset("graph_color", size=1, seed=0).score_answer(entry["answer"], entry) == 1


def test_too_few_different_questions():
    config = puzzles(["gcd"], {"gcd": {"min_value": 1, "max_value": 2, "max_numbers": 2}}, train="500")
    with pytest.raises(ConfigError, match=r"task gcd made only \d+ new questions .* 500 were asked for"):
        read(config, "train")


@pytest.mark.parametrize(
    ("tasks", "config", "message"),
    [
        (["chain_sums"], {}, r"no task chain_sums; did you mean chain_sum\?"),
        (["gcd"], {"chain_sum": {}}, r"config.chain_sum is set but has no effect"),
        (["gcd"], {"gcd": {"max_valu": 3}}, r"options.config.gcd: .*max_valu"),
        ({"gcd": 0}, {}, r"tasks.gcd=0: must be a weight"),
        ([], {}, r"tasks=\[\]"),
        (["rush_hour"], {}, r"task rush_hour cannot be used, leave it out: answer None scores 0"),
    ],
)
def test_wrong_options_name_the_task(tasks, config, message):
    with pytest.raises(ConfigError, match=message):
        read(puzzles(tasks, config, train="2"), "train")


class Scorer:
    """A task's scorer made to measure."""

    def __init__(self, **scores):
        self.scores = scores

    def score_answer(self, answer, entry):
        score = self.scores[{"5": "own", "": "empty", None: "none"}[answer]]
        if isinstance(score, Exception):
            raise score
        return score


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (dict(own=0.99, empty=0.0, none=0.0), "answer '5' scores 0.99, expected 1"),
        (dict(own=1.0, empty=0.5, none=0.0), "answer '' scores 0.5"),
        (dict(own=1.0, empty=0.0, none=KeyError("x")), "scoring None raised KeyError"),
    ],
)
def test_the_smoke_test_finds_broken_scorers(scores, message):
    with pytest.raises(ValueError, match=message):
        gym.smoke_test(Scorer(**scores), {"answer": "5"})


def test_the_smoke_test_lets_participation_scores_pass():
    gym.smoke_test(Scorer(own=1.0, empty=0.01, none=0.01), {"answer": "5"})


def test_apportion_gives_away_everything():
    assert gym.apportion(10, {"a": 1.0, "b": 1.0, "c": 1.0}) == {"a": 4, "b": 3, "c": 3}
    assert gym.apportion(3, {"a": 5.0, "b": 1.0}) == {"a": 3, "b": 0}


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "reasoning_gym", None)
    with pytest.raises(ConfigError, match=r"pip install 'rlvr\[gym\]'"):
        read(puzzles(["gcd"], train="1"), "train")
