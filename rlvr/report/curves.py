"""Curves of a family: the mean over its seeds with a band, against steps, sampled sequences or wall time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlvr.ops.resample import Array, Band, band
from rlvr.report.families import Family
from rlvr.report.problems import columns, of_source, shared
from rlvr.report.runs import RunData

Axis = Literal["steps", "sequences", "seconds"]
AXES: tuple[Axis, ...] = ("steps", "sequences", "seconds")
UNITS = {
    "steps": "steps",
    "sequences": "sampled sequences",
    "seconds": "seconds of survey and training, validation left out",
}
ACCURACY = "validation/accuracy"
FRACTIONS = ("rollout/truncated", "rollout/kept", "rollout/solved_none", "rollout/solved_all")
SEQUENCES = ("rollout/sequences/policy", "rollout/sequences/reference")


@dataclass(frozen=True)
class Curve:
    """One metric of a family."""

    x_T: Array
    band: Band
    members: tuple[tuple[Array, Array], ...]  # x and y of every run as it was measured


def positions(run: RunData, axis: Axis) -> Array:
    """Where each row of a run stands on an axis; a survey's sequences and seconds come before the first step, and what
    looking on takes is no part of the seconds.

    A run that did not count its sequences has none: all its positions are NaN.
    """
    if axis == "steps":
        return np.array([row["step"] for row in run.rows], dtype=float)
    if axis == "seconds":
        spent = [(row.get("time/step") or 0.0) - (row.get("time/validate") or 0.0) for row in run.rows]
        return surveyed_seconds(run) + np.cumsum(spent)
    if not all(SEQUENCES[0] in row for row in run.rows if row["step"]):
        return np.full(len(run.rows), np.nan)
    spent = [sum(row.get(name) or 0.0 for name in SEQUENCES) for row in run.rows]
    return surveyed_sequences(run) + np.cumsum(spent)


def surveyed_sequences(run: RunData) -> int:
    """Completions that a survey before training drew."""
    return sum(len(row["tries"]) for row in run.survey)


def surveyed_seconds(run: RunData) -> float:
    """What all starts of a run took for its survey; 0 where that was not kept."""
    return sum(start["survey_seconds"] for start in run.starts)


def measured(run: RunData, metric: str, axis: Axis) -> tuple[Array, Array]:
    """A metric where it was measured and finite, with its positions on the axis."""
    points = [
        (x, row[metric]) for x, row in zip(positions(run, axis), run.rows, strict=True) if row.get(metric) is not None
    ]
    return np.array([x for x, _ in points]), np.array([y for _, y in points], dtype=float)


def curve(family: Family, metric: str, axis: Axis = "steps") -> Curve | None:
    """A metric over all runs of a family; None if one of them has no value of it.

    The curve ends where the shortest run ends: a mean over those that are left would be one over survivors.
    """
    members = tuple(measured(run, metric, axis) for run in family.runs)
    if any(not len(x) or np.isnan(x).any() for x, _ in members):
        return None
    grid_T = _grid([x for x, _ in members])
    if metric.startswith(ACCURACY) and all(run.validation for run in family.runs):
        source = metric.removeprefix(ACCURACY).lstrip("/") or None
        ids = shared(family.runs, "validation", source)
        values_TSX = np.stack([problem_rates(run, grid_T, axis, ids, source) for run in family.runs], axis=1)
    else:
        values_TSX = np.stack([np.interp(grid_T, x, y) for x, y in members], axis=1)[:, :, None]
    found = band(values_TSX)
    fraction = metric in FRACTIONS or metric.startswith(ACCURACY)
    return Curve(grid_T, found.within(0, 1) if fraction else found, members)


def _grid(xs: Sequence[Array]) -> Array:
    """The points that all runs have; where these are too few, as many as the shortest run has in what all cover."""
    shared = sorted(set.intersection(*(set(x.tolist()) for x in xs)))
    shortest = min(len(x) for x in xs)
    if 2 * len(shared) >= shortest:
        return np.array(shared)
    first, last = max(x[0] for x in xs), min(x[-1] for x in xs)
    return np.linspace(first, max(first, last), shortest)


def problem_rates(run: RunData, at_T: Array, axis: Axis, ids: Sequence[str], source: str | None = None) -> Array:
    """Success rates (T, X) on validation at some positions, on straight lines between validations; see `columns`.

    Args:
        ids: of the problems that all runs share.
        source: None for the problems of all sources.
    """
    steps = sorted(run.validation)
    told_VX = np.array([columns(of_source(run, run.validation[step], source), ids) for step in steps])
    place = dict(zip((row["step"] for row in run.rows), positions(run, axis), strict=True))
    x_V = np.array([place[step] for step in steps if step in place])
    told_VX = told_VX[[step in place for step in steps]]
    right_T = np.clip(np.searchsorted(x_V, at_T), 1, max(1, len(x_V) - 1))
    if len(x_V) == 1:
        return np.repeat(told_VX, len(at_T), axis=0)
    width_T = np.maximum(x_V[right_T] - x_V[right_T - 1], 1e-12)
    share_T = np.clip((at_T - x_V[right_T - 1]) / width_T, 0, 1)[:, None]
    return (1 - share_T) * told_VX[right_T - 1] + share_T * told_VX[right_T]


def common_end(families: Sequence[Family], axis: Axis) -> float | None:
    """The furthest position at which every run was validated; None if there is none."""
    ends = []
    for run in itertools.chain.from_iterable(family.runs for family in families):
        x, _ = measured(run, ACCURACY, axis)
        if not len(x) or np.isnan(x).any():
            return None
        ends.append(x[-1])
    return min(ends)
