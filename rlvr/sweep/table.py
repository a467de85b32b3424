"""The table of a sweep: one row per member, and one per group of members that differ by their seed alone."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rlvr.ops.student import student_t
from rlvr.sweep.member import Member, State, members, progress, swept, values

SEED = "seed"
FEWEST = 3  # seeds without which no interval is given
Line = list[str]


@dataclass(frozen=True)
class Row:
    """A member and what came of it."""

    member: Member
    swept: dict[str, str]  # its values of the keys by which members differ
    step: int
    objective: float | None
    interval: tuple[float, float] | None
    seconds: float


def rows(sweep_dir: Path, objective: str) -> list[Row]:
    """All members of a sweep, by number.

    Args:
        objective: "best" or "last", as `sweep.objective`.
    """
    found = members(sweep_dir)
    keys = swept(found)
    told = []
    for member in found:
        now, own = progress(member.directory, objective), values(member)
        mine = {key: own.get(key, "") for key in keys}
        told.append(Row(member, mine, now.step, now.objective, now.interval, now.seconds))
    return told


def mean_interval(results: Sequence[float]) -> tuple[float, float] | None:
    """95% interval of a mean by Student's t; None for fewer than three results."""
    if len(results) < FEWEST:
        return None
    half = student_t(len(results) - 1) * stdev(results) / math.sqrt(len(results))
    return mean(results) - half, mean(results) + half


def over_seeds(told: Sequence[Row]) -> list[dict[str, Any]]:
    """Finished members that differ by their seed alone, taken together; none if the seed was not swept."""
    groups: dict[tuple[tuple[str, str], ...], list[Row]] = defaultdict(list)
    for row in told:
        if SEED in row.swept:
            groups[tuple((k, v) for k, v in row.swept.items() if k != SEED)].append(row)
    if not any(len(group) > 1 for group in groups.values()):
        return []
    lines = []
    for shared, group in groups.items():
        done = [r.objective for r in group if r.member.state is State.FINISHED and r.objective is not None]
        centre = mean(done) if done else None
        lines.append({**dict(shared), "of": len(group), "seeds": len(done), "mean": centre, "95%": mean_interval(done)})
    return lines


# -- as text -----------------------------------------------------------------------------------


def markdown(told: Sequence[Row], objective: str) -> str:
    """The table, readable in a terminal and as Markdown."""
    if not told:
        return "no members\n"
    keys = list(told[0].swept)
    head = ["#", *keys, "state", "step", f"{objective} validation accuracy", "95%", "seconds", "cause"]
    lines = [
        [
            str(row.member.number),
            *row.swept.values(),
            row.member.state.value,
            str(row.step),
            _number(row.objective),
            _interval(row.interval),
            f"{row.seconds:.0f}",
            row.member.cause,
        ]
        for row in told
    ]
    text = _table(head, lines)
    if seeds := over_seeds(told):
        keys = [key for key in keys if key != SEED]
        text += "\n" + _table(
            [*keys, "seeds", "mean", "95%"],
            [
                [*(s[k] for k in keys), f"{s['seeds']} of {s['of']}", _number(s["mean"]), _interval(s["95%"])]
                for s in seeds
            ],
        )
    counts = {state: sum(row.member.state is state for row in told) for state in State}
    return text + "\n" + ", ".join(f"{n} {state.value}" for state, n in counts.items() if n) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"


def _table(head: Line, lines: Sequence[Line]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (head, *lines)]
    wide = [max(len(line[i]) for line in cells) for i in range(len(head))]
    told = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, wide, strict=True)) + " |" for line in cells]
    return "\n".join([told[0], "|" + "|".join("-" * (w + 2) for w in wide) + "|", *told[1:]]) + "\n"


# -- as files ------------------------------------------------------------------------------------


def write_tables(sweep_dir: Path, objective: str) -> None:
    """Write `sweep.md` and `sweep.jsonl` into the directory of the sweep."""
    told = rows(sweep_dir, objective)
    lines = "".join(json.dumps(_plain(row)) + "\n" for row in told)
    for name, text in (("sweep.md", markdown(told, objective)), ("sweep.jsonl", lines)):
        fresh = sweep_dir / f".{name}.{os.getpid()}"
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(sweep_dir / name)


def _plain(row: Row) -> dict[str, Any]:
    member = row.member
    return {
        "member": member.number,
        "directory": member.directory.name,
        "swept": row.swept,
        "overrides": list(member.overrides),
        "state": member.state.value,
        "step": row.step,
        "objective": row.objective,
        "interval": row.interval,
        "seconds": row.seconds,
        "cause": member.cause,
    }
