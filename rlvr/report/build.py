"""From run directories to the files of a report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rlvr.keys import ConfigError
from rlvr.report import facts
from rlvr.report.coverage import coverage
from rlvr.report.differences import differences
from rlvr.report.document import Document, Section, Text
from rlvr.report.families import Family, families
from rlvr.report.figures import draw, draw_key, panels, styles
from rlvr.report.headline import headline
from rlvr.report.render import html, markdown
from rlvr.report.runs import RunData, find_runs
from rlvr.report.sources import by_source

HTML, MARKDOWN, PICTURES = "report.html", "report.md", "pictures"


@dataclass(frozen=True)
class Written:
    """A report on disk."""

    page: Path
    unfinished: int  # runs that may go on


def build(paths: Sequence[Path], out: Path, baseline: str | None = None, refresh: int = 0) -> Written:
    """Read the runs, write `report.html`, `report.md` and `pictures/` into `out`.

    Args:
        paths: run directories, or directories with runs somewhere below.
        baseline: name of the family that the others are compared with; the first one by default.
        refresh: seconds after which the page loads itself again; 0 for never.

    Raises:
        ConfigError: if there is no run, or no family of that name.
    """
    runs = find_runs(paths)
    told = [run for run in runs if run.rows]
    if not told:
        raise ConfigError(f"{', '.join(map(str, paths))}: no run has completed a step yet")
    found = families(told)
    if baseline is not None and baseline not in [family.name for family in found]:
        known = "; ".join(family.name for family in found)
        raise ConfigError(f"--baseline {baseline}: no such family; there are: {known}")
    document = _document(found, runs, out, baseline)
    out.mkdir(parents=True, exist_ok=True)
    _replace(out / HTML, html(document, refresh))
    _replace(out / MARKDOWN, markdown(document, PICTURES))
    return Written(out / HTML, sum(not run.finished for run in runs))


def _document(found: list[Family], runs: Sequence[RunData], out: Path, baseline: str | None) -> Document:
    title = found[0].name if len(found) == 1 else f"{len(found)} families"
    made = f"{len(runs)} runs, made {datetime.now().strftime('%Y-%m-%d %H:%M')}"
    document = Document(f"rlvr report: {title}", made)
    first = headline(found)
    if empty := [str(run.directory) for run in runs if not run.rows]:
        first.blocks.append(Text(f"Without a completed step, and not told of: {', '.join(empty)}", "note"))
    counted = {run.directory for family in found for run in family.runs}
    if twice := [str(run.directory) for run in runs if run.rows and run.directory not in counted]:
        first.blocks.append(
            Text(f"Same configuration and seeds as a later one, and left out: {', '.join(twice)}", "note")
        )
    per_source = by_source(found, baseline, out / PICTURES)
    document.sections = [
        first,
        _curves(found, out),
        *([per_source] if per_source else []),
        differences(found, baseline),
        coverage(found),
        facts.cost(found),
        facts.runs(found),
        facts.configuration(found),
        facts.environment(found),
        facts.samples(found),
    ]
    return document


def _curves(found: Sequence[Family], out: Path) -> Section:
    look = styles(found)
    section = Section("Curves")
    section.blocks.append(
        Text(
            "Lines are means over seeds, areas their 95% intervals at each point for itself; of fewer than three "
            "seeds, every run is drawn and there is no area. Long curves are smoothed. Marks at the upper edge are "
            "events."
        )
    )
    if key := draw_key(found, look, out / PICTURES):
        section.blocks.append(key)
    section.blocks += [
        picture for panel in panels(found) if (picture := draw(panel, found, look, out / PICTURES)) is not None
    ]
    return section


def _replace(path: Path, text: str) -> None:
    """Atomically: a browser may be reading."""
    work = path.with_name(f".{path.name}.{os.getpid()}")
    work.write_text(text, encoding="utf-8")
    work.replace(path)
