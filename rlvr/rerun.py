"""`rlvr rerun`: a run once more from its directory alone, and whether it comes out the same."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlvr import launch
from rlvr.config import read, write
from rlvr.keys import ConfigError
from rlvr.report.runs import CONFIG, RunData, find_runs, flat
from rlvr.trainer.jsonl import Row

TIMED = ("time/", "speed/", "memory/", "log/")  # what differs between two equal runs
PROBE = """
import json
from rlvr.trainer.environment import changes, environment
print(json.dumps([environment(), changes()]))
"""


def rerun(arguments: list[str]) -> int:
    """Run a finished run again from its directory, and compare the two row by row."""
    parser = argparse.ArgumentParser(
        prog="rlvr rerun",
        description="Run the configuration of a run directory again, seeds included, into a new directory. Says first "
        "what is not as it was then (code, versions, machine), and in the end whether all metrics are equal.",
    )
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--out", type=Path, help="the new directory; RUN-rerun by default")
    parsed = parser.parse_args(arguments)
    before = _the_run(parsed.run)
    out = _new_directory(parsed.out or parsed.run.with_name(f"{parsed.run.resolve().name}-rerun"))
    print("\n".join(["not as it was then:", *(f"  {line}" for line in changed(before, *_here()))]), flush=True)
    config = read(before.directory / CONFIG)
    config = replace(config, run=replace(config.run, name=out.name))
    out.mkdir(parents=True)
    write(config, out / CONFIG)
    print(f"running {os.path.relpath(before.directory)} again in {os.path.relpath(out)}", flush=True)
    if code := launch.start(config, out):
        return code
    found = compare(before.rows, RunData(out).rows)
    print(found)
    return int(not found.equal)


def _the_run(directory: Path) -> RunData:
    if launch.inside():
        raise ConfigError("rerun starts its ranks itself: call it outside of srun and torchrun")
    found = find_runs([directory])
    if len(found) != 1 or found[0].directory != directory:
        raise ConfigError(f"{directory}: name one run's own directory; there are {len(found)} below")
    return found[0]


def _new_directory(path: Path) -> Path:
    if path.exists():
        raise ConfigError(f"{path} exists; name another with --out")
    return path


# -- where it ran and where it will run -----------------------------------------------------------


def _here() -> tuple[dict[str, Any], str]:
    """This machine's environment and uncommitted changes, by a process of its own: to ask for the name of a GPU takes
    memory on it until the process ends."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    told, patch = json.loads(done.stdout.splitlines()[-1])
    return told, patch


def changed(before: RunData, now: Mapping[str, Any], patch: str) -> list[str]:
    """What differs between the environments of a run and of now, a line each."""
    if not before.environments:
        return ["nothing is known of the run's environment: environment.json is missing"]
    then = next(iter(before.environments.values()))
    apart = [
        key for key in ("git", "versions", "python", "system", "cpu", "cpus", "gpus") if then.get(key) != now.get(key)
    ]
    sides = [flat({key: told.get(key) for key in apart}) for told in (then, now)]
    keys = dict.fromkeys(key for side in sides for key in side)
    lines = [
        f"{key}: {sides[0].get(key, 'none')} then, {sides[1].get(key, 'none')} now"
        for key in keys
        if sides[0].get(key) != sides[1].get(key)
    ]
    recorded = before.directory / "changes.patch"
    if recorded.exists() and recorded.read_text() != patch:
        lines.append("uncommitted changes of the code: others than in changes.patch")
    if len(before.environments) > 1:
        lines.append(f"it was resumed {len(before.environments) - 1} time(s), perhaps elsewhere: environment_*.json")
    return lines or ["nothing"]


# -- row by row -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Apart:
    """A metric that is not the same in both runs."""

    step: int
    metric: str
    before: float | None
    now: float | None

    @property
    def relative(self) -> float:
        """Size of the difference, relative to the larger value; infinite where one is missing."""
        if self.before is None or self.now is None:
            return math.inf
        return abs(self.now - self.before) / max(abs(self.before), abs(self.now))


@dataclass(frozen=True)
class Comparison:
    """Two runs' metrics, row by row."""

    rows: int  # that both have
    values: int  # compared in them
    missing: tuple[int, ...]  # steps that only one of them has
    apart: tuple[Apart, ...]  # in the order of steps

    @property
    def equal(self) -> bool:
        return not self.apart and not self.missing

    def __str__(self) -> str:
        if self.equal:
            return f"equal: {self.rows} rows, all {self.values} values to the last bit"
        lines = []
        if self.missing:
            lines.append(f"only one of the two has step(s) {', '.join(map(str, self.missing))}")
        if self.apart:
            first, worst = self.apart[0], max(self.apart, key=lambda a: a.relative)
            lines += [
                f"differs first at step {first.step} in {first.metric}: {first.before} then, {first.now} now",
                f"{len(self.apart)} of {self.values} values differ; most of all {worst.metric} at step {worst.step}, "
                f"by {worst.relative:.1%}",
            ]
        return "\n".join(lines)


def compare(before: Sequence[Row], now: Sequence[Row]) -> Comparison:
    """Compare two runs' metrics exactly, times and memory left out."""
    then, again = ({row["step"]: row for row in rows} for rows in (before, now))
    both = [step for step in then if step in again]
    values = [pair for step in both for pair in _pairs(step, then[step], again[step])]
    apart = tuple(pair for pair in values if pair.before != pair.now)
    return Comparison(len(both), len(values), tuple(sorted(then.keys() ^ again.keys())), apart)


def _pairs(step: int, before: Row, now: Row) -> Iterator[Apart]:
    for metric in dict.fromkeys([*before, *now]):
        if not metric.startswith(TIMED):
            yield Apart(step, metric, before.get(metric), now.get(metric))
