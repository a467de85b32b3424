from pathlib import Path
from typing import Any

import pytest

from rlvr.keys import ConfigError
from rlvr.verifiers import build, judge, self_check

USER = """
from rlvr.records import Verdict
from rlvr.verifiers.base import Verifier

def polite(response, answer, word="please"): return float(word in response)

class Twice(Verifier):
    name = "twice"
    canaries = (("a", "aa", True), ("a", "a", False))
    def __init__(self, times=2): self.times = times
    def check_answer(self, answer): pass
    def verify(self, response, answer): return Verdict(score=float(response == answer * self.times))

class Broken(Twice):
    canaries = (("a", "b", True),)

def crash(response, answer): raise KeyError("boom")
"""
RIGHT = {"verifier": "number", "weight": 3}
TAGS = {"verifier": "format", "options": {"tags": ["think", "answer"]}}
GOOD = "<think>2+3</think><answer>#### 5</answer>"
ILL_FORMED = "#### 5"
WRONG = "<think>2+3</think><answer>#### 6</answer>"


@pytest.fixture
def user(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(USER)
    return str(tmp_path / "mine.py")


def score(parts: dict[str, Any], response: str, answer: object = "5") -> float | None:
    return judge(build("composite", {"parts": parts}), response, answer).score


def test_weighted_mean() -> None:
    parts = {"right": {**RIGHT, "options": {"extract": "last"}}, "form": TAGS}
    assert score(parts, "<think>2+3</think><answer>5 </answer>") == 1
    assert score(parts, "5") == 0.75
    assert score(parts, "<think>2+3</think><answer>6</answer>") == 0.25
    assert score(parts, "6") == 0


def test_every_part_is_logged() -> None:
    verdict = judge(build("composite", {"parts": {"right": RIGHT, "form": TAGS}}), ILL_FORMED, "5")
    assert verdict.parts == {"right": 1.0, "right/answered": 1.0, "right/boxes": 0.0, "form": 0.0}


def test_a_part_that_pays_only_where_another_does() -> None:
    parts = {"right": {"verifier": "number", "options": {"extract": "last"}}, "form": {**TAGS, "only_if": "right"}}
    assert score(parts, "<think>2+3</think><answer>6</answer>") == 0
    assert score(parts, "<think>2+3</think><answer>5</answer>") == 1
    assert score(parts, "5") == 0.5


def test_a_negative_weight_is_a_penalty_and_the_mean_is_clipped() -> None:
    parts = {"right": RIGHT, "long": {"verifier": "length", "weight": -1.5, "options": {"high": 9, "low": 3}}}
    assert score(parts, "#### 5") == 1
    assert score(parts, "so it is\n#### 5") == 0.5
    assert score(parts, "so it is\n#### 6") == 0


def test_a_part_that_cannot_judge(user: str) -> None:
    verdict = judge(
        build("composite", {"parts": {"right": RIGHT, "own": {"verifier": f"{user}:crash"}}}), "#### 5", "5"
    )
    assert verdict.score is None
    assert verdict.error == "KeyError: 'boom' (part own)"


def test_own_functions_and_classes(user: str) -> None:
    parts = {
        "polite": {"verifier": f"{user}:polite", "options": {"word": "dear"}},
        "twice": {"verifier": f"{user}:Twice", "options": {"times": 2}},
    }
    assert score(parts, "deardear", "dear") == 1
    assert score(parts, "dear", "dear") == 0.5
    self_check(f"{user}:Twice")
    with pytest.raises(ConfigError, match="did you mean 'times'"):
        build(f"{user}:Twice", {"time": 3})
    with pytest.raises(RuntimeError, match=r"parts\.own: .*self-check"):
        build("composite", {"parts": {"own": {"verifier": f"{user}:Broken"}}})


def test_the_answer_is_checked_by_every_part() -> None:
    made = build("composite", {"parts": {"right": RIGHT, "form": TAGS}})
    made.check_answer("5")
    with pytest.raises(ValueError, match="part right: .*not a number"):
        made.check_answer("five")


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({}, "must be a mapping"),
        ({"right": {"weight": 1}}, r"parts\.right must be"),
        ({"right": {"verifier": "nmber"}}, "did you mean 'number'"),
        ({"right": {"verifier": "number", "wieght": 1}}, r"parts\.right\.wieght: no such key; did you mean weight"),
        ({"right": {"verifier": "number", "weight": 0}}, "weight=0 must be"),
        ({"right": {"verifier": "number", "weight": "1"}}, "weight='1' must be"),
        ({"right": {"verifier": "number", "weight": -1}}, "no part has a positive weight"),
        ({"right": {"verifier": "number", "options": {"extrct": "last"}}}, "did you mean 'extract'"),
        ({"right": {**RIGHT, "only_if": "left"}}, "only_if='left' must be the name of another part"),
    ],
)
def test_wrong_parts_are_refused(parts: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        build("composite", {"parts": parts})


def test_parts_are_needed() -> None:
    with pytest.raises(ConfigError, match="needs its option 'parts'"):
        build("composite")


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("<think>a</think><answer>b</answer>", 1),
        (" <think>a\n</think>\n\n<answer>b</answer>\n", 1),
        ("<think></think><answer>b</answer>", 0),
        ("<think></think>a", 0),
        ("<think>a</think><answer>\u200b</answer>", 0),
        ("<think>a</think><answer>b</answer> and so", 0),
        ("<answer>b</answer><think>a</think>", 0),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0),
        ("<think>a<think>a</think><answer>b</answer>", 0),
    ],
)
def test_format_tags(response: str, right: int) -> None:
    assert judge(build("format", {"tags": ["think", "answer"]}), response, None).score == right


def test_format() -> None:
    prefilled = build("format", {"tags": ["think", "answer"], "prefilled": True})
    assert judge(prefilled, "a</think><answer>b</answer>", None).score == 1
    assert judge(prefilled, "<think>a</think><answer>b</answer>", None).score == 1  # put there by the caller
    assert judge(prefilled, "a<think>a</think><answer>b</answer>", None).score == 0
    pattern = build("format", {"pattern": r"^Answer: .+"})
    assert judge(pattern, "Answer: x\ny", None).score == 1
    assert judge(pattern, "The Answer: x", None).score == 0
    for options in ({}, {"tags": "think"}, {"pattern": "("}):
        with pytest.raises(ConfigError, match="verifier 'format'"):
            build("format", options)


@pytest.mark.parametrize(
    ("count", "score"), [(0, 0), (1, 0), (2, 1), (10, 1), (11, 0.75), (13, 0.25), (14, 0), (99, 0)]
)
def test_length(count: int, score: float) -> None:
    length = build("length", {"low": 2, "high": 10, "margin": 4})
    assert judge(length, "word " * count, None).score == score


def test_length_of_what() -> None:
    answer = build("length", {"high": 4, "whole": False, "unit": "characters"})
    assert judge(answer, "<think>a long thought</think> four", None).score == 1
    assert judge(answer, "<think>a long thought</think> fifty", None).score == 0
    assert judge(answer, "<think>a long thought", None).score == 0
    with pytest.raises(ConfigError, match="1 <= low <= high"):
        build("length", {"high": 4, "low": 5})


def test_language() -> None:
    german = "<think>Ich denke ein wenig nach, bevor ich antworte.</think> Das Haus steht schon lange am Fluss."
    assert judge(build("language", {"language": "de"}), german, None).score == 1
    assert judge(build("language", {"language": "en"}), german, None).score == 0
    mixed = german.replace("Das Haus steht schon lange am Fluss.", "The house has been by the river for a long time.")
    assert judge(build("language", {"language": "en", "whole": False}), mixed, None).score == 1
    with pytest.raises(ConfigError, match="language='xx'"):
        build("language", {"language": "xx"})
