import json
import re
from pathlib import Path

import pytest

reasoning_gym = pytest.importorskip("reasoning_gym")

from rlvr.keys import ConfigError  # noqa: E402
from rlvr.verifiers import build, judge  # noqa: E402
from rlvr.verifiers.gym_guard import EVALUATED, PARSED, is_formula  # noqa: E402

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


def test_an_answer_that_a_working_scorer_cannot_read_is_wrong() -> None:
    row = rows("prime_factorization", 1)[0]
    for junk in ("junk", "1.5", "[]", "{}", "2 x x"):
        verdict = judge(GYM, f"<answer>{junk}</answer>", row)
        assert verdict.score == 0 and verdict.error is None and verdict.parts["unreadable"] == 1, junk


class Broken:
    """A scorer that knows no answer, not even its own."""

    def score_answer(self, answer: object, entry: object) -> float:
        raise KeyError("solution")


def test_a_scorer_that_does_not_know_its_own_answer_cannot_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    row = rows("chain_sum", 1)[0]
    monkeypatch.setattr("rlvr.verifiers.gym._scorer", lambda task, config: Broken())
    verdict = judge(GYM, "<answer>5</answer>", row)
    assert verdict.score is None and verdict.error == "KeyError: 'solution'"


@pytest.mark.parametrize(
    ("task", "given"),
    [
        ("coin_flip", "0"),
        ("coin_flip", "0."),
        ("complex_arithmetic", "nan"),
        ("game_of_life_halting", "junk"),
        ("game_of_life_halting", "True or False"),
        ("propositional_logic", "junk"),
        ("string_insertion", "oracle_answer"),
        ("spiral_matrix", 'entry["answer"].split()'),
        ("binary_matrix", "9**9**9"),
        ("countdown", "9**9**9"),
        ("time_intervals", "0"),
        ("syllogism", "None"),
    ],
)
def test_faults_of_scorers_do_not_pay(task: str, given: str) -> None:
    for row in rows(task):
        verdict = judge(GYM, f"<answer>{given}</answer>", row)
        assert verdict.score == 0, (verdict, row["entry"]["answer"])


def test_answers_are_never_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for task in (*EVALUATED, *PARSED):
        for attack in (f"open({str(canary)!r}, 'w')", f"[open({str(canary)!r}, 'w') for _ in [0]]"):
            judge(GYM, f"<answer>{attack}</answer>", rows(task, 1)[0])
    assert not canary.exists()


def test_no_other_scorer_runs_its_answer() -> None:
    """Reads the package's source: a new version with another `eval(answer)` fails here."""
    package = Path(reasoning_gym.__file__).parent
    runs = re.compile(r"\b(?:eval|exec|parse_expr|sympify)\((?:user_)?answer\b")
    found = {path.stem for path in package.rglob("*.py") if runs.search(path.read_text())}
    assert found == {*EVALUATED, *PARSED}


@pytest.mark.parametrize("task", PARSED)
def test_own_formulas_are_admitted(task: str) -> None:
    if task != "intermediate_integration":  # slow to make
        assert all(is_formula(row["entry"]["answer"]) for row in rows(task, 10))


@pytest.mark.parametrize(
    ("given", "fine"),
    [
        ("2*x**3/3 + C", True), ("x**(3/2)", True), ("exp(x)**2*sin(3*x)", True), ("(1+2)*3 - 4/5", True),
        ("9**9**9", False), ("9**(9**9)", False), ("((9**99)**99)**99", False), ("9**9999", False), ("x.y", False),
        ("__import__", False), ("N(pi, 999)", False), ("lambda: 1", False), ("f'{x}'", False),
        ("1+" * 300 + "1", False),
    ],
)  # fmt: skip
def test_formulas(given: str, fine: bool) -> None:
    assert is_formula(given) is fine


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
