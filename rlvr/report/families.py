"""Families: runs whose configurations differ by their seeds and names alone."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.report.runs import MEMBER, RunData

SEED = re.compile(r"(^|[._])seed$")  # seed, rollout.reference_seed, model.warm_seed, data.sources.x.options.seed
IDENTITY = re.compile(r"^(run|sweep|log)\.")  # names and records: nothing that is computed
CHOICES = ("algorithm", "model", "data")  # what a file of conf/ is called says more than its keys
PLAIN = ("hardware.", "validation.", "checkpoint.", "verify.")  # sections that say least of what was tried
NAMED = 3  # most keys in a family's name


@dataclass(frozen=True)
class Family:
    """Runs that differ by chance alone, by seed."""

    name: str
    runs: tuple[RunData, ...]
    computed: dict[str, Any]  # the values that they share

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]


def seeds_of(run: RunData) -> dict[str, Any]:
    """All seeds of a run by key: of sampling, and those of its model and data; and what was given in terms of them."""
    follow = following(run)
    return {key: value for key, value in run.config.items() if SEED.search(key) or key in follow}


def computed(run: RunData) -> dict[str, Any]:
    """The values that decide what is computed, seeds left out, and `${seed}` in place of one in another value."""
    follow = following(run)
    kept = {key: value for key, value in run.config.items() if not SEED.search(key) and not IDENTITY.match(key)}
    return {key: follow.get(key, value) for key, value in kept.items()}


def following(run: RunData) -> dict[str, str]:
    """Values of the command line that name the seed of the run, as they were given: model.path=.../${seed}/model."""
    plain = {key: value.replace("\\", "") for key, value in run.given.items()}  # Hydra escapes in sweeps
    return {key: value for key, value in plain.items() if "${seed}" in value}


def what_seeds_vary(runs: Sequence[RunData]) -> str:
    """What differs by chance between the runs of a family, and what of model and data is the same in all, in words."""
    if len(runs) == 1:
        return "nothing, there is one seed"
    every = dict.fromkeys(key for run in runs for key in seeds_of(run))
    varied = [key for key in every if len({str(run.config.get(key)) for run in runs}) > 1]
    words = {"seed": "sampling and the order of prompts", "rollout.reference_seed": "sampling of the reference"}
    told = [words.get(key, f"the starting model ({key})") for key in varied if not key.startswith("data.")]
    entries = dict.fromkeys(key.split(".")[2] for key in runs[0].config if key.startswith("data.sources."))
    moved = [entry for entry in entries if any(key.startswith(f"data.sources.{entry}.") for key in varied)]
    told += [f"the problems of {', '.join(moved)}"] if moved else []
    fixed = [] if any(key.startswith("model.") for key in varied) else ["the starting model"]
    rest = [entry for entry in entries if entry not in moved]
    fixed += [f"the problems of {', '.join(rest)}"] if rest else []
    return ", ".join(told) + (f"; the same in all seeds: {', '.join(fixed)}" if fixed else "")


def data_identity(run: RunData) -> str:
    """Equal where two runs have the same problems in the same roles."""
    return _text({key: value for key, value in run.config.items() if key.startswith(("data.", "validation.rows"))})


def families(runs: Sequence[RunData]) -> list[Family]:
    """Group runs; families in the order of their first runs, runs by seed.

    Of several runs with all seeds the same, the last one counts: they would count one draw of luck twice.
    """
    groups: dict[str, dict[str, RunData]] = defaultdict(dict)
    for run in runs:
        groups[_text(computed(run))][_text(seeds_of(run))] = run
    members = [sorted(group.values(), key=lambda run: run.seed) for group in groups.values()]
    shared = [computed(group[0]) for group in members]
    named = zip(names([group[0] for group in members]), members, shared, strict=True)
    return [Family(name, tuple(group), values) for name, group, values in named]


def differing(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The keys that do not have the same value in all; a key that some lack differs."""
    keys = dict.fromkeys(key for config in configs for key in config)
    missing = object()
    return [key for key in keys if any(c.get(key, missing) != configs[0].get(key, missing) for c in configs)]


def names(firsts: Sequence[RunData]) -> list[str]:
    """Short and different names of families, each given by its first run: its arm's, or made of what differs."""
    configs = [computed(run) for run in firsts]
    keys = [key for key in differing(configs) if not key.startswith("schema.")]
    chosen = [section for section in CHOICES if any(key.startswith(f"{section}.") for key in keys)]
    told = [run.arm or _name(run, chosen, keys) for run in firsts]
    again, seen = Counter(told), Counter[str]()
    for number, name in enumerate(told):
        seen[name] += 1
        if again[name] > 1:
            told[number] = f"{name} #{seen[name]}"
    return told


def _name(run: RunData, chosen: Sequence[str], keys: Sequence[str]) -> str:
    """Choices of files, and the keys that a command line may have set beside them."""
    config = run.config
    parts = [run.choices.get(section, str(config.get(f"{section}.name"))) for section in chosen or ("algorithm",)]
    others = [key for key in keys if key in run.given or not key.startswith(tuple(f"{section}." for section in chosen))]
    others.sort(key=lambda key: key.startswith(PLAIN))
    parts += [f"{key.rpartition('.')[2]}={config.get(key, 'none')}" for key in others[:NAMED]]
    return " ".join(parts)


def configurations_tried(runs: Sequence[RunData]) -> tuple[int, list[Path]]:
    """How many configurations, seeds aside, stand in the runs and in the sweeps that they come from, told or not.

    Returns:
        Their number, and the directories of the sweeps.
    """
    sweeps = sorted({run.directory.resolve().parent for run in runs if _is_member(run.directory)})
    told = {run.directory.resolve(): run for run in runs}
    for sweep in sweeps:
        for path in sweep.glob("*/config.yaml"):
            told.setdefault(path.parent, RunData(path.parent))
    return len({_text(computed(run)) for run in told.values()}), sweeps


def _is_member(directory: Path) -> bool:
    return (directory / MEMBER).exists() or (directory.resolve().parent / "multirun.yaml").exists()


def _text(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, default=str)
