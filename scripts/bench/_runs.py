"""Runs of `rlvr train` that scripts of this folder compare."""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

Row = dict[str, Any]

WORKS = {  # what scripts measure where no other model is given
    "tiny": [
        *("model=tiny", "model.warm_updates=0", "data=arithmetic", "rollout.prompts=16", "algorithm.group=8"),
        *("rollout.max_tokens=16", "hardware.sampler_memory=0.05"),
    ],
    "smollm2": [
        *("model=smollm2_135m", "data=gym", "rollout.prompts=8", "algorithm.group=8", "rollout.max_tokens=64"),
        *("data.sources.gym.train=64", "hardware.tokens_per_micro_batch=576", "hardware.sampler_memory=0.25"),
    ],
}
STEPS_ALONE = [  # nothing but steps, with weights that stay what they are: every step has work of one kind
    *("algorithm.mismatch=none", "log.kl_every=0", "validation.every=0", "validation.rows=1", "validation.test=false"),
    *("checkpoint.every=0", "checkpoint.best=false", "checkpoint.model=false", "optim.lr=1.0e-9"),
]
PHASES = ("transfer", "generate", "verify", "score", "update/forward", "update/backward", "update/optimizer", "record")


def names_a_model(overrides: list[str]) -> bool:
    """Whether overrides bring what a work of our own would."""
    return any(override.startswith(("model=", "experiment=")) for override in overrides)


def work(name: str, others: list[str]) -> list[str]:
    """All overrides of a measured run but its algorithm and its steps."""
    own = [] if names_a_model(others) else WORKS[name]
    return [*own, *STEPS_ALONE, *others]


def settings(**defaults: str) -> dict[str, str]:
    """`name=value` arguments of the command line over `defaults`.

    Raises:
        SystemExit: for a name that is not among the defaults.
    """
    given, others = settings_and_overrides(**defaults)
    if others:
        sys.exit(f"unknown: {', '.join(others)}; there are {', '.join(defaults)}")
    return given


def settings_and_overrides(**defaults: str) -> tuple[dict[str, str], list[str]]:
    """As `settings`; what is not among the defaults is for `rlvr train`, which refuses what it does not know."""
    given, others = {}, []
    for argument in sys.argv[1:]:
        name, _, value = argument.partition("=")
        if name in defaults:
            given[name] = value
        else:
            others.append(argument)
    return defaults | given, others


def slug(*parts: str) -> str:
    """A folder's name that differs where settings do, so that a run is not taken for another one."""
    told = "_".join(parts)
    return re.sub(r"[^A-Za-z0-9.-]+", "-", told) if len(told) < 80 else sha256(told.encode()).hexdigest()[:16]


def train(folder: Path, overrides: list[str]) -> list[Row]:
    """The metrics of a run; one that `folder` holds already is only read.

    Raises:
        SystemExit: with the end of its output, if the run fails.
    """
    if not (folder / "summary.json").exists():
        command = [sys.executable, "-m", "rlvr.cli", "train", f"hydra.run.dir={folder}", "log.wandb=off"]
        done = subprocess.run([*command, f"run.name={folder.name}", *overrides], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{folder.name} failed with code {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def child(script: str, asked: Row, env: dict[str, str]) -> Row:
    """What a script beside this one answers, in a process of its own: `python SCRIPT ASKED.json ANSWER.json`.

    Args:
        env: over the environment of this process.

    Raises:
        SystemExit: with the end of its output, if it fails.
    """
    with tempfile.TemporaryDirectory() as place:
        question, answer = Path(place) / "asked.json", Path(place) / "answer.json"
        question.write_text(json.dumps(asked))
        command = [sys.executable, str(Path(__file__).with_name(script)), str(question), str(answer)]
        done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{script} failed with code {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
        return json.loads(answer.read_text())


def steps(rows: list[Row], skip: int) -> list[Row]:
    """The rows of steps after the first `skip`, which start caches; at least the last one.

    Their seconds are without the validation that stands behind the last step of every run.
    """
    trained = [row for row in rows if "time/step" in row]
    return [
        row | {"time/step": row["time/step"] - row.get("time/validate", 0.0)}
        for row in trained[min(skip, len(trained) - 1) :]
    ]


def summary(folder: Path) -> Row:
    """What a finished run says of its beginning and end."""
    return json.loads((folder / "summary.json").read_text())


def median(rows: list[Row], metric: str, skip: int = 3) -> float:
    """Over the steps after the first `skip`, which start caches; 0 for a metric that no step has."""
    values = [row[metric] for row in rows if row["step"] > skip and metric in row]
    return statistics.median(values) if values else 0.0


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
