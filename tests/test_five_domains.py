"""A run on mathematics, code, science, logic and instructions at once: what it tells of each source."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("reasoning_gym")

from tests.trainer.read_wandb import read_wandb  # noqa: E402

SOURCES = ("math", "code", "stem", "instructions", "logic")
OVERRIDES = [
    "data=five_domains",
    "model=tiny",
    "steps=2",
    "rollout.prompts=5",
    "algorithm.group=2",
    "data.max_tokens=4",
    "data.max_prompt_tokens=1024",  # one token per character
    "data.sources.logic.train=8",
    "data.sources.logic.validation=1",
    "data.sources.logic.test=1",
    "data.retire=[1,2]",
    "validation.every=2",
    "validation.test=false",
    "checkpoint.every=0",
    "checkpoint.best=false",
    "checkpoint.model=false",
    "model.warm_updates=2",
    "hardware.threads=1",
    "hardware.sampler_sequences=16",
]


def test_every_source_has_its_own_curves(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "rlvr.cli", "train", *OVERRIDES, f"hydra.run.dir={folder}", "run.name=five"]
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "WANDB_MODE": "offline"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (offline,) = folder.glob("wandb/offline-run-*")
    for told in (rows, read_wandb(offline).history):
        steps = [row for row in told if row["step"] > 0]
        assert [row["step"] for row in steps] == [1, 2]
        for row in steps:
            assert {f"rollout/score/{source}" for source in SOURCES} <= row.keys()
            assert {"rollout/part/code/passed", "rollout/part/logic/tagged", "data/retired"} <= row.keys()
        assert {f"validation/accuracy/{source}" for source in SOURCES} <= steps[-1].keys()
    drawn = [json.loads(line) for path in folder.glob("rollouts/*.jsonl") for line in path.read_text().splitlines()]
    assert {row["id"].split("/")[0] for row in drawn} == set(SOURCES)
