"""Differences between families: in what they are matched, and by how much they differ there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlvr.ops.resample import Array, Band, difference
from rlvr.report.curves import ACCURACY, AXES, Axis, common_end, measured, positions, problem_rates
from rlvr.report.families import Family, data_identity, differing, seeds_of
from rlvr.report.problems import Held, asked, columns, shared
from rlvr.report.runs import RunData


@dataclass(frozen=True)
class Aspect:
    """Something that a fair comparison holds fixed."""

    name: str
    matched: bool
    told: tuple[str, str]  # of the first and of the second family


@dataclass(frozen=True)
class Difference:
    """Second family minus first."""

    where: str
    band: Band
    seeds_paired: bool
    shared: int  # problems that are the same in all runs of both, and so are paired
    problems: int  # of a run; those that are not shared differ between seeds or families
    within_seeds: bool  # whether both runs of each seed had all the same problems

    @property
    def pairs(self) -> str:
        """What is paired, in words."""
        words = ["seeds"] * self.seeds_paired
        if self.shared:
            words.append("problems" if self.shared == self.problems else f"{self.shared} of {self.problems} problems")
        own = self.seeds_paired and self.within_seeds and self.shared < self.problems
        told = f"by {' and '.join(words)}" if words else "not paired"
        return told + (", each seed with problems of its own" if own else "")


# -- in what two families are matched ------------------------------------------------------------


def aspects(first: Family, second: Family) -> list[Aspect]:
    """What the two share and what not, from configurations and records."""
    told: list[tuple[str, Callable[[Family], Any]]] = [
        ("seeds", lambda f: f.seeds),
        ("problems of all roles", lambda f: sorted({data_identity(run) for run in f.runs})),
        ("order of training prompts", _order),
        ("starting model", lambda f: _section(f, "model.")),
        ("validation", lambda f: _section(f, "validation.")),
        ("optimizer", lambda f: _section(f, "optim.")),
        ("steps done", lambda f: [run.steps for run in f.runs]),
        ("sampled sequences", lambda f: [_total(run, "sequences") for run in f.runs]),
        ("hardware", lambda f: _section(f, "hardware.")),
        ("code", lambda f: sorted({_code(run) for run in f.runs})),
    ]
    return [_aspect(name, of(first), of(second)) for name, of in told]


def _aspect(name: str, first: Any, second: Any) -> Aspect:
    if isinstance(first, dict):
        keys = differing([first, second])
        shown = [", ".join(f"{key}={side.get(key)}" for key in keys) for side in (first, second)]
        return Aspect(name, not keys, (shown[0], shown[1]))
    words = (_words(first), _words(second))
    long = max(map(len, words)) > 60
    return Aspect(name, first == second, ("as configured", "otherwise") if long and first != second else words)


def _words(value: Any) -> str:
    if isinstance(value, list):
        alike = len(value) > 1 and all(item == value[0] for item in value)
        return f"{_words(value[0])} each" if alike else ", ".join(map(_words, value))
    if value is None:
        return "not counted"
    return f"{value:,.0f}" if isinstance(value, float) else str(value)


def _section(family: Family, prefix: str) -> dict[str, Any]:
    """The values of a section, of its seeds those that any run had."""
    seeds = {key for run in family.runs for key in seeds_of(run) if key.startswith(prefix)}
    fixed = {key: value for key, value in family.computed.items() if key.startswith(prefix)}
    return fixed | {key: sorted({str(run.config.get(key)) for run in family.runs}) for key in sorted(seeds)}


def _order(family: Family) -> list[str]:
    """What decides the stream of prompts; how fast a run goes through it is another matter (a gate rejects some)."""
    return [f"seed {run.seed}, {data_identity(run)}" for run in family.runs]


def _total(run: RunData, axis: Axis) -> float | None:
    """None if it was not counted."""
    last = float(positions(run, axis)[-1])
    return None if np.isnan(last) else last


def _code(run: RunData) -> str:
    states = [told.get("git") for told in run.environments.values()]
    return ", ".join(
        dict.fromkeys(
            f"{git['commit'][:10]}{' with changes' if git['dirty'] else ''}" if git else "a package" for git in states
        )
    )


# -- by how much they differ ---------------------------------------------------------------------


def differences(first: Family, second: Family) -> list[Difference]:
    """Validation accuracy where both stand at the same number of steps, sequences and seconds, and the test role."""
    told = [found for axis in AXES if (found := validated(first, second, axis))]
    return told + [found for found in [tested(first, second)] if found]


def validated(first: Family, second: Family, axis: Axis, source: str | None = None) -> Difference | None:
    """The difference of validation accuracies, of one source's problems if it is named; None where not all runs were
    validated."""
    runs, end = (*first.runs, *second.runs), common_end([first, second], axis)
    if end is None or (source is not None and not all(asked(run, "validation", source) for run in runs)):
        return None
    at_T = np.array([end])
    kept = all(run.validation for run in runs)
    ids = shared(runs, "validation", source) if kept else []

    def values(family: Family) -> Array:
        if kept:
            sides = [problem_rates(run, at_T, axis, ids, source) for run in family.runs]
        else:
            sides = [np.interp(at_T, *measured(run, ACCURACY, axis))[:, None] for run in family.runs]
        return np.stack(sides, axis=1)

    return _difference(f"validation accuracy after {end:,.0f} {axis}", first, second, values, "validation", source)


def tested(first: Family, second: Family, source: str | None = None) -> Difference | None:
    """The difference of test accuracies, of one source's problems if it is named; None where it was not asked."""
    runs = (*first.runs, *second.runs)
    if not all(asked(run, "test", source) for run in runs):
        return None
    ids = shared(runs, "test", source)

    def values(family: Family) -> Array:
        return tested_rates(family, ids, source)

    return _difference("test accuracy after the last step", first, second, values, "test", source)


def _difference(
    where: str, first: Family, second: Family, values: Callable[[Family], Array], role: Held, source: str | None
) -> Difference:
    seeds = first.seeds == second.seeds and len(set(first.seeds)) == len(first.seeds)
    sizes = [len(asked(run, role, source)) for family in (first, second) for run in family.runs]
    pairs = zip(first.runs, second.runs, strict=False)
    return Difference(
        where=where,
        band=difference(values(first), values(second), seeds),
        seeds_paired=seeds,
        shared=len(shared((*first.runs, *second.runs), role, source)) if min(sizes) else 0,
        problems=max(sizes),
        within_seeds=min(sizes) > 0 and all(len(shared(pair, role, source)) == max(sizes) for pair in pairs),
    )


def tested_rates(family: Family, ids: Sequence[str], source: str | None = None) -> Array:
    """Success rates (1, S, X) of the test role; see `columns`."""
    return np.array([[columns(asked(run, "test", source), ids) for run in family.runs]])


def comparable(families: Sequence[Family], baseline: str | None) -> tuple[Family, list[Family]] | None:
    """The family that the others are compared with, and these; None of a single family."""
    if len(families) < 2:
        return None
    base = next((family for family in families if family.name == baseline), families[0])
    return base, [family for family in families if family is not base]
