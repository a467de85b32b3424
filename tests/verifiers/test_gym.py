import json

import pytest

reasoning_gym = pytest.importorskip("reasoning_gym")

from rlvr.keys import ConfigError  # noqa: E402
from rlvr.verifiers import build, judge  # noqa: E402

GYM = build("gym")
TASKS = ("basic_arithmetic", "chain_sum", "countdown", "number_sorting", "knights_knaves", "sudoku", "spell_backward")


def rows(task: str, count: int = 5) -> list[dict]:
    """Answers as they come out of a JSON file."""
    data = reasoning_gym.create_dataset(task, seed=0, size=count)
    return [{"task": task, "entry": json.loads(json.dumps(data[i]))} for i in range(count)]


@pytest.mark.parametrize("task", TASKS)
def test_own_answer_pays_and_nothing_does_not(task: str) -> None:
    for row in rows(task):
        GYM.check_answer(row)
        gold = row["entry"]["answer"]
        assert judge(GYM, f"<think>hm</think>so <answer>{gold}</answer>", row).score == 1
        assert judge(GYM, f"<think>done</think>{gold}", row).score == 1
        for nothing in ("", "<answer></answer>", "<answer> </answer>", f"<think>{gold}", f"<answer>{gold}</think>"):
            assert judge(GYM, nothing, row).score == 0, (task, nothing)


def test_the_last_answer_tag_counts() -> None:
    row = rows("chain_sum", 1)[0]
    gold = row["entry"]["answer"]
    assert judge(GYM, f"<answer>{gold}</answer> no, <answer>x</answer>", row).score == 0
    assert judge(GYM, f"<answer>x</answer> no, <answer>{gold}</answer>", row).score == 1


def test_paying_for_taking_part_is_floored() -> None:
    row = rows("countdown", 1)[0]
    data = reasoning_gym.create_dataset("countdown", seed=0, size=1)
    assert 0 < data.score_answer("1 + 1", row["entry"]) <= 0.05
    assert judge(GYM, "<answer>1 + 1</answer>", row).score == 0


def test_a_crash_of_the_scorer_is_not_a_wrong_answer() -> None:
    row = rows("prime_factorization", 1)[0]
    verdict = judge(GYM, "<answer>junk</answer>", row)
    assert verdict.score is None
    assert verdict.error is not None and verdict.error.startswith("ValueError")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("5", "must be"),
        ({"task": "chain_sum"}, "must be"),
        ({"task": "chain_summ", "entry": {}}, "did you mean 'chain_sum'"),
        ({"task": "chain_sum", "entry": {}}, "KeyError"),
    ],
)
def test_ungradable(answer: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        GYM.check_answer(answer)


def test_floor_is_checked() -> None:
    with pytest.raises(ConfigError, match="floor"):
        build("gym", {"floor": 2})
