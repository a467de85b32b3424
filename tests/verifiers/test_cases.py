"""Rows that verifiers once had wrong or could easily have: right and wrong answers by gold, and whole responses."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlvr.verifiers import build, judge

HERE = Path(__file__).parent


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


@pytest.mark.parametrize("row", lines("math_answers.jsonl"), ids=lambda row: row["gold"])
def test_answers_of_mathematics(row: dict[str, Any]) -> None:
    math = build("math")
    math.check_answer(row["gold"])
    scores = {given: judge(math, f"So it is \\boxed{{{given}}}.", row["gold"]).score for given in row["right"]}
    scores |= {given: judge(math, f"So it is \\boxed{{{given}}}.", row["gold"]).score for given in row["wrong"]}
    assert scores == dict.fromkeys(row["right"], 1.0) | dict.fromkeys(row["wrong"], 0.0)


@pytest.mark.parametrize("verifier", ["math", "choice"])
def test_responses(verifier: str) -> None:
    rows, graded = lines(f"{verifier}_responses.jsonl"), build(verifier)
    wrongly = [row for row in rows if judge(graded, row["response"], row["gold"]).score != (row["expected"] == "right")]
    assert not wrongly
