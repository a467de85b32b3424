"""`rlvr arms`: an experiment with arms, which differ in one factor and share seeds, data and budget."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from rlvr.config import compose
from rlvr.keys import ConfigError, nearest
from rlvr.leave import REQUEUE
from rlvr.report.families import IDENTITY, SEED, differing
from rlvr.report.runs import ARM, flat
from rlvr.schema.train import TrainConfig, arithmetic

USAGE = """usage: rlvr arms EXPERIMENT [seeds=0,1,2] [KEY=VALUE ...]

Runs every arm of an experiment with every seed, and reports on them side by side.  EXPERIMENT is a file, or one of
{shipped}.  The file:

  question: what is to be learned
  factor: [algorithm]        sections or keys in which arms may differ; any other difference is refused
  budget: steps              or sequences: what all arms must have the same number of
  seeds: [0, 1, 2, 3, 4]
  base: [steps=200]          overrides that all arms share
  arms:                      the first one is what the others are compared with
    plain: [algorithm=dapo]
    gate: [algorithm=dapo_gate]

Each arm is a sweep over the seeds, runs/EXPERIMENT/ARM (`rlvr train -m`), so that hydra/launcher=... can be given,
and the same command goes on where it was stopped.  KEY=VALUE are given to all arms."""
SEED_OF_RUN = "${seed}"
BUDGETS = ("steps", "sequences")
STOPPED = (REQUEUE, 128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes of a sweep that was told to leave


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What a file with arms says."""

    question: str
    factor: list[str]
    budget: str
    seeds: list[int]
    base: list[str]
    arms: dict[str, list[str]]


def arms(arguments: list[str]) -> int:
    """Run the arms of an experiment with the same seeds, data and budget, and report on them."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE.format(shipped=", ".join(sorted(shipped())) or "none"))
        return 0
    name, *given = arguments
    experiment = load(name)
    seeds = [word for word in given if word.startswith("seeds=")]
    numbers = _numbers(seeds[-1]) if seeds else experiment.seeds
    own = [word for word in given if word not in seeds]
    check(experiment, own)
    root = Path("runs") / Path(name).stem
    print(f"arms    {os.path.relpath(root)}: {', '.join(experiment.arms)}; seeds {numbers}", flush=True)
    code = 0
    for arm, overrides in experiment.arms.items():
        folder = root / arm
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ARM).write_text(
            json.dumps({"arm": arm, "question": experiment.question, "overrides": overrides}) + "\n"
        )
        ended = subprocess.run(
            command(arm, folder, [*experiment.base, *overrides, *own], numbers), check=False
        ).returncode
        if ended < 0 or ended in STOPPED:  # killed, or told to leave: the next arm is not to start
            code = 128 - ended if ended < 0 else ended
            print(f"arm {arm} was stopped, exit code {code}; the same command goes on", file=sys.stderr)
            return code
        code = max(code, ended)
    from rlvr.report.build import build

    written = build([root / arm for arm in experiment.arms], root / "report", baseline=next(iter(experiment.arms)))
    print(os.path.relpath(written.page))
    return code


def command(arm: str, folder: Path, overrides: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """The sweep of one arm."""
    placed = [f"seed={','.join(map(str, seeds))}", f"run.name={folder.parent.name}-{arm}", f"hydra.sweep.dir={folder}"]
    return [sys.executable, "-m", "rlvr.cli", "train", "-m", *overrides, *placed]


def _numbers(word: str) -> list[int]:
    try:
        return [int(number) for number in word.partition("=")[2].split(",")]
    except ValueError:
        raise ConfigError(f"{word}: write whole numbers with commas between them, such as seeds=0,1,2") from None


# -- the file ------------------------------------------------------------------------------------


def shipped() -> dict[str, Any]:
    """The experiments of conf/arms, by name."""
    folder = resources.files("rlvr.conf") / "arms"
    return {f.name.removesuffix(".yaml"): f for f in folder.iterdir() if f.name.endswith(".yaml")}


def load(name: str) -> Experiment:
    """Read an experiment.

    Raises:
        ConfigError: naming the file and the key.
    """
    known = shipped()
    if name in known:
        text = known[name].read_text(encoding="utf-8")
    elif Path(name).is_file():
        text = Path(name).read_text(encoding="utf-8")
    else:
        near = nearest(name, known)
        raise ConfigError(
            f"{name}: no such experiment with arms" + (f"; did you mean {near}?" if near else ", and no such file")
        )
    told = yaml.safe_load(text)
    keys = [f.name for f in fields(Experiment)]
    if not isinstance(told, dict) or set(told) != set(keys):
        odd = sorted(set(told) ^ set(keys)) if isinstance(told, dict) else keys
        raise ConfigError(
            f"{name}: must have the keys {', '.join(keys)} and no others; look at {', '.join(map(str, odd))}"
        )
    if told["budget"] not in BUDGETS:
        raise ConfigError(f"{name}: budget={told['budget']}: must be one of {', '.join(BUDGETS)}")
    if not isinstance(told["arms"], dict) or len(told["arms"]) < 2:
        raise ConfigError(f"{name}: arms: name at least two")
    return Experiment(**told)


# -- whether it is a comparison --------------------------------------------------------------------


def check(experiment: Experiment, own: Sequence[str] = ()) -> None:
    """Compose all arms and refuse what would not be a comparison of one factor.

    Raises:
        ConfigError: naming the arms and the key.
    """
    configs = {}
    for arm, overrides in experiment.arms.items():
        if key := _fixed_seed([*experiment.base, *overrides, *own]):
            raise ConfigError(
                f"arm {arm}: {key} is set, but arms share their seeds: give seeds=..., and let other seeds follow "
                f"that of the run, such as model.warm_seed={SEED_OF_RUN}"
            )
        configs[arm] = compose([*experiment.base, *overrides, *own, f"run.name={arm}"])
    first = next(iter(configs))
    for arm, config in configs.items():
        if other := outside(experiment.factor, configs[first], config):
            key, then, now = other
            raise ConfigError(
                f"arms {first} and {arm} differ in {key} ({then} and {now}), which is not in the factor "
                f"{experiment.factor}: set it alike in both, or name it there"
            )
    _check_budget(experiment.budget, configs)


def _fixed_seed(overrides: Sequence[str]) -> str | None:
    """A seed that is set to anything but that of the run; None if there is none."""
    pairs = [(key.lstrip("+"), value) for key, _, value in (word.partition("=") for word in overrides)]
    return next((key for key, value in pairs if SEED.search(key) and value.strip("'\"") != SEED_OF_RUN), None)


def outside(factor: Sequence[str], first: TrainConfig, second: TrainConfig) -> tuple[str, Any, Any] | None:
    """The first key outside of the factor in which two configurations differ, with both values."""
    sides = [{k: v for k, v in flat(asdict(side)).items() if not IDENTITY.match(k)} for side in (first, second)]
    for key in differing(sides):
        if not any(key == part or key.startswith(f"{part}.") for part in factor):
            return key, sides[0].get(key, "none"), sides[1].get(key, "none")
    return None


def _check_budget(budget: str, configs: Mapping[str, TrainConfig]) -> None:
    told = {arm: spent(config, budget) for arm, config in configs.items()}
    if len(set(told.values())) > 1:
        words = ", ".join(f"{arm} {number}" for arm, number in told.items())
        raise ConfigError(f"budget={budget}, but the arms have different numbers of {budget}: {words}")


def spent(config: TrainConfig, budget: str) -> int:
    """Steps of a run, or the sequences of the policy that its batches will hold; what a gate rejects comes on top."""
    ranks = config.hardware.ranks
    return config.steps if budget == "steps" else config.steps * arithmetic(config, ranks).sequences
