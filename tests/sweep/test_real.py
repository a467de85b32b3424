"""A sweep of two by two on the real engines, two of its members contradictory."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.test_end_to_end import OVERRIDES

COMMAND = [
    *(sys.executable, "-m", "rlvr.cli", "train", "-m", "run.name=s"),
    *(o for o in OVERRIDES if not o.startswith(("steps", "validation", "algorithm=", "algorithm.minibatches"))),
    "steps=1",
    "validation.every=1",
    "log.wandb=off",
    "checkpoint.model=false",
    "algorithm=grpo,dapo",
    "algorithm.minibatches=2,3",  # of 8 prompts
]


def test_a_real_sweep_ends_in_a_table_and_is_not_run_again(tmp_path: Path) -> None:
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def sweep() -> str:
        done = subprocess.run(COMMAND, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=560)
        assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    out, directory = sweep(), tmp_path / "runs" / "s"
    told = [json.loads(line) for line in (directory / "sweep.jsonl").read_text().splitlines()]
    assert [(t["swept"]["algorithm.minibatches"], t["state"], t["step"]) for t in told] == [
        ("2", "finished", 1),
        ("3", "failed", 0),
        ("2", "finished", 1),
        ("3", "failed", 0),
    ]
    for member in told[::2]:
        lines = (directory / member["directory"] / "metrics.jsonl").read_text().splitlines()
        rows = [row for row in map(json.loads, lines) if row["step"] and "validation/accuracy" in row]
        assert member["objective"] == max(row["validation/accuracy"] for row in rows)
        assert member["interval"][0] <= member["objective"] <= member["interval"][1] and member["seconds"] > 0
        assert json.loads((directory / member["directory"] / "summary.json").read_text())["last"]["test/accuracy"] >= 0
    for member in told[1::2]:
        assert "rollout.prompts=8 does not divide" in member["cause"]
        assert member["cause"] in (directory / member["directory"] / "train.log").read_text()
    assert "2 failed, 2 finished" in out and (directory / "sweep.md").read_text() in out

    again = sweep()
    assert "4 member(s), 0 to run" in again and (directory / "sweep.md").read_text() in again
