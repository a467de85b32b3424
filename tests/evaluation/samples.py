"""Samples as an evaluation leaves them, without one."""

import json
from pathlib import Path

from rlvr.evaluation.measure import measure

VERSIONS = {"rlvr": "1", "vllm": "1"}


def sample(problem: str, number: int, score: float | None, answer: str | None = None, **more) -> dict:
    told = {
        "problem": problem,
        "sample": number,
        "source": "sums",
        "tokens": 10,
        "truncated": False,
        "response": "",
        "score": score,
        "parts": {},
        "error": None if score is not None else "timeout after 5 s",
        "answer": answer,
    }
    return told | more


def scored(*scores_of_problems: list[float], source: str = "sums") -> list[dict]:
    """One problem per argument, with the scores of its samples; wrong answers are all different."""
    return [
        sample(f"{source}/test/{row}", k, score, "right" if score == 1 else f"wrong {k}", source=source)
        for row, scores in enumerate(scores_of_problems)
        for k, score in enumerate(scores)
    ]


def evaluation(folder: Path, samples: list[dict], name: str = "sums", **changes) -> Path:
    """The directory of a complete evaluation with one benchmark; `changes` are of its settings."""
    count = sum(s["problem"] == samples[0]["problem"] for s in samples)
    sampling = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 8}
    told = {
        **measure(samples, count, [1, count]),
        "questions": changes.pop("questions", "q"),
        "standing": {"label": changes.pop("label", "held out"), "reason": "a reason"},
        "left_out": 0,
        "settings": {"versions": changes.pop("versions", VERSIONS), "sampling": sampling | changes},
    }
    (folder / "samples").mkdir(parents=True)
    (folder / "samples" / f"{name}.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    result = {"checkpoint": folder.name, "model": "m", "benchmarks": {name: told}}
    (folder / "evaluation.json").write_text(json.dumps(result))
    return folder
