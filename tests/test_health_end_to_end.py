"""Faults in a run on the real engines: a reward that is no number at one step, then a learning rate that blows up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

REWARD = '''
calls = 0

def reward(response, answer):
    """Every answer of the second step, of 16 to a step, is graded by no number."""
    global calls
    calls += 1
    if 16 < calls <= 32:
        return float("nan") if calls % 2 else float("inf")
    return float(calls % 3 == 0)
'''
OVERRIDES = [
    "steps=9",
    "algorithm=grpo",
    "algorithm.group=4",
    "rollout.prompts=4",
    "rollout.max_tokens=8",
    "validation.every=0",
    "validation.test=false",
    "checkpoint.every=1",
    "checkpoint.keep=9",
    "checkpoint.best=false",
    "log.wandb=off",
    "log.kl_every=0",
    "optim.warmup=0",
    "optim.schedule=constant",
    "data.sources.arithmetic.validation=null",
    "data.sources.arithmetic.test=null",
    "data.sources.arithmetic.options.digits=1",
    "data.sources.arithmetic.train=30",
    "model.warm_accuracy=0.3",
    "hardware.threads=1",
    "hardware.sampler_sequences=64",
    "health.unjudged.action=skip",
    "health.patience=2",
    "+stages={sane: {until: 3}, wild: {until: null, overrides: {optim.lr: 1e18}}}",
]


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    (file,) = (folder / f"checkpoints/step_{step:06d}/policy").glob("weights-*.safetensors")
    return load_file(file)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_what_is_no_number_does_not_reach_the_weights(tmp_path):
    (tmp_path / "mine.py").write_text(REWARD)
    folder = tmp_path / "run"
    custom = f"data.sources.arithmetic.verifier={tmp_path}/mine.py:reward"
    command = [
        sys.executable,
        "-m",
        "rlvr.cli",
        "train",
        *OVERRIDES,
        custom,
        f"hydra.run.dir={folder}",
        "run.name=test",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    out = done.stdout + done.stderr
    assert done.returncode == 3, out[-5000:]

    rows = {row["step"]: row for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())}
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    told = [(event["step"], event["event"]) for event in events]
    assert told[0] == (2, "skip") and "gave score nan, not in [0, 1]" in events[0]["cause"]
    assert rows[2]["rollout/unjudged"] == 1.0 and rows[2]["train/masked"] == 1.0 and rows[2]["train/loss"] == 0.0
    assert same(weights(folder, 1), weights(folder, 2)) and not same(weights(folder, 2), weights(folder, 3))

    blown = 4  # the update of this step is finite, and what comes after it is not
    assert rows[blown + 1]["train/loss"] is None and rows[blown + 1]["health/nonfinite"] == 1.0
    assert told[-1] == (blown + 2, "abort") and max(rows) == blown + 2
    assert same(weights(folder, blown), weights(folder, blown + 1))
    assert all(torch.isfinite(tensor).all() for tensor in weights(folder, blown).values())
    assert not (folder / f"checkpoints/step_{blown + 2:06d}").exists()
    assert f"stopped as failed in step {blown + 2}: health.patience: 2 updates in a row were left out" in out
    assert not os.path.exists(folder / "summary.json")
