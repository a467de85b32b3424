"""A run directory as a report reads it: nothing here needs the run to be finished."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from rlvr.keys import ConfigError
from rlvr.trainer.jsonl import Row, read_rows

CONFIG, METRICS, MEMBER, ARM = "config.yaml", "metrics.jsonl", "member.json", "arm.json"
Rates = dict[str, float]  # success rate by id of the problem


@dataclass(frozen=True)
class RunData:
    """One run, read when asked for."""

    directory: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """Resolved values by dotted key; lists stay whole."""
        return flat(yaml.safe_load((self.directory / CONFIG).read_text(encoding="utf-8")))

    @cached_property
    def rows(self) -> list[Row]:
        """The metrics, one row per completed step."""
        return self._read(METRICS)

    @cached_property
    def events(self) -> list[Row]:
        return self._read("events.jsonl")

    @cached_property
    def samples(self) -> list[Row]:
        return self._read("samples.jsonl")

    @cached_property
    def survey(self) -> list[Row]:
        """What the reference made of each training prompt before training; empty without a survey."""
        path = self.directory / "survey.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @cached_property
    def outcomes(self) -> list[Row]:
        """What became of every training prompt that was tried, in stream order."""
        from rlvr.trainer.gates import read_outcomes  # numpy is slow to import, and the command line reads this file

        return read_outcomes(self.directory)

    @cached_property
    def validation(self) -> dict[int, Rates]:
        """Success rates of the validation problems by step; empty for runs that did not keep them."""
        return rates(self._read("validation.jsonl"))

    @cached_property
    def test(self) -> Rates:
        """Success rates of the test problems, asked once after the last step."""
        told = rates(self._read("test.jsonl"))
        return told[max(told)] if told else {}

    @cached_property
    def sources(self) -> dict[str, str]:
        """The source of each validation and test problem, by id."""
        return {row["id"]: row["source"] for name in ("validation", "test") for row in self._read(f"{name}.jsonl")}

    @cached_property
    def starts(self) -> list[Row]:
        """What each start took before its first step, in seconds; empty for runs that did not keep it."""
        return self._read("starts.jsonl")

    @cached_property
    def summary(self) -> dict[str, float]:
        """The final numbers, test role included; empty while the run goes on."""
        path = self.directory / "summary.json"
        return json.loads(path.read_text())["last"] if path.exists() else {}

    @cached_property
    def environments(self) -> dict[str, dict[str, Any]]:
        """Where it ran, by file: one at the start, one more at each resumption."""
        paths = sorted(self.directory.glob("environment*.json"))
        return {path.name: json.loads(path.read_text()) for path in paths}

    @cached_property
    def choices(self) -> dict[str, str]:
        """The files of `conf/` that Hydra chose, by group; they name a control better than the class that it is of."""
        path = self.directory / ".hydra" / "hydra.yaml"
        if not path.exists():
            return {}
        told = yaml.safe_load(path.read_text(encoding="utf-8"))["hydra"]["runtime"]["choices"]
        return {group: name for group, name in told.items() if name is not None}

    @cached_property
    def given(self) -> dict[str, str]:
        """The command line: values by key, as they were written."""
        path = self.directory / ".hydra" / "overrides.yaml"
        told = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else []
        pairs = [override.partition("=") for override in told]
        return {key.lstrip("+"): value for key, _, value in pairs}

    @cached_property
    def arm(self) -> str | None:
        """What an experiment with arms calls it."""
        path = self.directory.resolve().parent / ARM
        return json.loads(path.read_text())["arm"] if path.exists() else None

    @property
    def finished(self) -> bool:
        return (self.directory / "summary.json").exists()

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def steps(self) -> int:
        """Completed steps."""
        return self.rows[-1]["step"] if self.rows else 0

    @property
    def state(self) -> str:
        """In words; a member of a sweep that failed or collapsed says so itself."""
        path = self.directory / MEMBER
        told = json.loads(path.read_text())["state"] if path.exists() else ""
        if told in ("failed", "pruned", "interrupted"):
            return told
        return "finished" if self.finished else "unfinished"

    def _read(self, name: str) -> list[Row]:
        try:
            return read_rows(self.directory / name)
        except ValueError as error:
            raise ConfigError(str(error)) from None


def rates(rows: Iterable[Mapping[str, Any]]) -> dict[int, Rates]:
    """Success rates by step and problem; what could not be judged is not right, and a later row replaces an earlier."""
    told: dict[int, Rates] = defaultdict(dict)
    for row in rows:
        told[row["step"]][row["id"]] = sum(score or 0.0 for score in row["scores"]) / len(row["scores"])
    return dict(told)


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys: {"a": {"b": 1}} -> {"a.b": 1}; an empty mapping stays as a value."""
    told: dict[str, Any] = {}
    for name, item in value.items():
        told |= flat(item, f"{prefix}{name}.") if isinstance(item, dict) and item else {f"{prefix}{name}": item}
    return told


def find_runs(paths: Sequence[Path]) -> list[RunData]:
    """The runs in and below some directories, in this order, each once.

    Raises:
        ConfigError: naming a path in which there is none.
    """
    found: dict[Path, RunData] = {}
    for path in paths:
        inside = [path] if _is_run(path) else sorted(p.parent for p in path.rglob(CONFIG) if _is_run(p.parent))
        if not inside:
            raise ConfigError(f"{path}: no run in it or below; a run has {CONFIG} and {METRICS}")
        found |= {directory.resolve(): RunData(directory) for directory in inside}
    return list(found.values())


def _is_run(directory: Path) -> bool:
    return (directory / CONFIG).is_file() and (directory / METRICS).is_file()
