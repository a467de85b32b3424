import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.keys import ConfigError
from rlvr.records import Verdict
from rlvr.verifiers import VERIFIERS, build, judge, self_check
from rlvr.verifiers import math as math_verifier

SHARED = Path(__file__).parents[2].parent / "shared" / "cases"
USER = """
from rlvr.records import Verdict

def plain(response, answer): return 0.5
def parts(response, answer, scale=1.0): return {"score": scale * (response == answer), "length": len(response)}
def verdict(response, answer): return Verdict(score=None, error="no idea")
def text(response, answer): return "right"
def large(response, answer): return 2.0
def no_score(response, answer): return {"points": 1}
def crash(response, answer): raise KeyError("boom")
"""


@pytest.fixture
def user(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(USER)
    return str(path)


@pytest.mark.parametrize("prefilled", [False, True])
@pytest.mark.parametrize("extract", ["auto", "boxed", "hash", "answer", "last", "whole"])
@pytest.mark.parametrize("name", ["number", "math"])
def test_canaries_pass_in_every_mode(name: str, extract: str, prefilled: bool) -> None:
    self_check(name, {"extract": extract, "prefilled": prefilled})


@pytest.mark.parametrize("name", [n for n in VERIFIERS if n not in ("format", "length", "language", "composite")])
def test_canaries_of_the_table(name: str) -> None:
    assert build(name).name == name
    assert {right for _, _, right in build(name).canaries} == {True, False}
    self_check(name)


def test_a_broken_verifier_is_named_by_its_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_verifier, "equal", lambda gold, given: False)
    with pytest.raises(RuntimeError, match=r"self-check.*28.0.*must be right"):
        self_check("math")


def test_unknown_names_and_paths(user: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'number'"):
        build("numbr")
    with pytest.raises(ConfigError, match="there is no file"):
        build(f"{tmp_path}/other.py:plain")
    with pytest.raises(ConfigError, match="did you mean plain"):
        build(f"{user}:plian")
    with pytest.raises(ConfigError, match=r"file\.py:name"):
        build(user)
    with pytest.raises(ConfigError, match="no_such_package.rewards cannot be imported: ModuleNotFoundError"):
        build("no_such_package.rewards:plain")
    with pytest.raises(ConfigError, match="did you mean load"):
        build("json:loadz")
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    with pytest.raises(ConfigError, match="cannot be imported: ModuleNotFoundError"):
        build(f"{tmp_path}/broken.py:plain")


def test_what_a_users_function_may_return(user: str) -> None:
    assert judge(build(f"{user}:plain"), "a", "a") == Verdict(score=0.5)
    assert judge(build(f"{user}:parts", {"scale": 0.5}), "a", "a") == Verdict(score=0.5, parts={"length": 1.0})
    assert judge(build(f"{user}:verdict"), "a", "a") == Verdict(score=None, error="no idea")


@pytest.mark.parametrize(
    ("function", "why"), [("text", "TypeError: .*str"), ("large", "2.0"), ("no_score", "score"), ("crash", "boom")]
)
def test_a_failing_function_is_not_a_wrong_answer(user: str, function: str, why: str) -> None:
    verdict = judge(build(f"{user}:{function}"), "a", "a")
    assert verdict.score is None
    assert verdict.error is not None
    assert re.search(why, verdict.error)


def test_exact() -> None:
    assert judge(build("exact"), "<think>x</think> the  red\nbox ", "the red box").score == 1
    assert judge(build("exact"), "The red box", "the red box").score == 0
    assert judge(build("exact", {"ignore_case": True}), "The red box", "the red box").score == 1
    assert judge(build("exact", {"extract": "boxed"}), "I say \\boxed{red}", "red").score == 1
    with pytest.raises(ValueError, match="not text"):
        build("exact").check_answer(3)


@pytest.mark.parametrize(
    ("gold", "response", "score"),
    [
        ("E", "So the answer is \\boxed{\\text{E}}.", 1),
        ("D", "ANSWER: Don't know", 0),
        ("A", "ANSWER: None of the above", 0),
        ("C", "The answer is (C) because it is the largest.", 1),
        ("B", "Answer: **B**", 1),
        ("B", "Answer: B) Paris", 1),
        ("A", "Answer: A or B or C", 0),
        ("A", "\\boxed{A, B}", 0),
        ("A", "A B C D", 0),
        ("A", "<think>A</think>a", 0),
        ("A", "", 0),
    ],
)
def test_choice(gold: str, response: str, score: int) -> None:
    assert judge(build("choice"), response, gold).score == score


@pytest.mark.skipif(not SHARED.exists(), reason="the shared cases are not here")
def test_shared_choice_cases() -> None:
    for line in (SHARED / "choice.jsonl").read_text().splitlines():
        case = json.loads(line)
        assert judge(build("choice"), case["response"], case["gold"]).score == float(case["expected"] == "right"), case


def test_this_room_imports_no_torch_and_is_light_until_a_verifier_is_built() -> None:
    code = (
        "import sys, rlvr.verifiers.pool, rlvr.verifiers.worker; "
        "print([module for module in ('torch', 'sympy') if module in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
