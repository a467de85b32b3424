"""Held-out accuracy source by source: which kinds of problems a family has gained on, and which it has lost on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlvr.ops.resample import band
from rlvr.report.compare import comparable, tested, tested_rates, validated
from rlvr.report.curves import ACCURACY, curve
from rlvr.report.document import Cell, Section, Table, Text, interval
from rlvr.report.families import Family
from rlvr.report.figures import FRACTION, Panel, draw, file_name, styles
from rlvr.report.problems import asked, shared

FEW = 8  # sources whose pictures are shown unfolded


def by_source(families: Sequence[Family], baseline: str | None, pictures: Path) -> Section | None:
    """A table and a picture per source; None if all held-out problems are of one."""
    names = sources_of(families)
    if len(names) < 2:
        return None
    pair = comparable(families, baseline)
    base = pair[0] if pair else families[0]
    head = ["family", "source", "problems", "test accuracy, last step", "validation, last step"]
    if pair:
        head += [f"minus {base.name}, test", f"minus {base.name}, validation after as many steps"]
    rows = [_row(family, source, base if pair else None) for source in names for family in families]
    caption = "Means over seeds with 95% intervals; no interval is adjusted for the number of sources."
    section = Section("By source", [Table(head, rows, caption)], folded=len(names) > FEW)
    section.blocks.append(Text("Sources that no training prompt comes from show what else a run changes."))
    look = styles(families)
    panels = [
        Panel(f"accuracy_{file_name(s)}", f"Validation accuracy: {s}", FRACTION, (f"{ACCURACY}/{s}",)) for s in names
    ]
    section.blocks += [drawn for panel in panels if (drawn := draw(panel, families, look, pictures)) is not None]
    return section


def sources_of(families: Sequence[Family]) -> list[str]:
    """The sources of all held-out problems, in the order of their names."""
    return sorted({source for family in families for run in family.runs for source in run.sources.values()})


def _row(family: Family, source: str, base: Family | None) -> list[str | Cell]:
    sizes = sorted({len(asked(run, role, source)) for run in family.runs for role in ("test", "validation")} - {0})
    found = curve(family, f"{ACCURACY}/{source}")
    told: list[str | Cell] = [
        family.name,
        source,
        " or ".join(map(str, sizes)),
        _test(family, source),
        Cell(interval(found.band) if found else "", "selection"),
    ]
    if base is None:
        return told
    if base is family:
        return [*told, "", ""]
    differences = (tested(base, family, source), validated(base, family, "steps", source))
    words = [interval(found.band, signed=True) if found else "" for found in differences]
    return [*told, words[0], Cell(words[1], "selection")]


def _test(family: Family, source: str) -> str:
    if not all(asked(run, "test", source) for run in family.runs):
        return ""
    return interval(band(tested_rates(family, shared(family.runs, "test", source), source)).within(0, 1))
