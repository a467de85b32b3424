"""Families compared with one of them: by how much they differ, and in what they are matched."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr.report.compare import Aspect, Difference, aspects, comparable
from rlvr.report.compare import differences as measure
from rlvr.report.document import Cell, Section, Table, Text, interval
from rlvr.report.families import Family, differing

SHOWN = 6  # keys that are named as the factor


def differences(families: Sequence[Family], baseline: str | None) -> Section:
    """Differences to the baseline with paired intervals; what is matched in each comparison, and what is not."""
    section = Section("Differences between families")
    pair = comparable(families, baseline)
    if pair is None:
        section.blocks.append(Text("There is one family: nothing to compare."))
        return section
    base, others = pair
    matched = {other.name: aspects(base, other) for other in others}
    told = {other.name: measure(base, other) for other in others}
    rows = [_row(name, found) for name, list_ in told.items() for found in list_]
    head = ["family", "measured", f"minus {base.name}", "pairs", "interval"]
    caption = "95% intervals of differences; what is paired drops out of them."
    section.blocks.append(Table(head, rows, caption))
    intervals = sum(found.band.low_T is not None for list_ in told.values() for found in list_)
    if intervals > 1:
        section.blocks.append(Text(_many(intervals), "note"))
    section.blocks += [_sentence(base, other, matched[other.name]) for other in others]
    section.blocks.append(_matching(base, others, matched))
    return section


def _row(name: str, found: Difference) -> list[str | Cell]:
    selection = found.where.startswith("validation")
    return [
        name,
        Cell(found.where, "selection" if selection else "plain"),
        Cell(interval(found.band, signed=True), "selection" if selection else "plain"),
        found.pairs,
        _sign(found),
    ]


def _sign(found: Difference) -> str:
    low_T, high_T = found.band.low_T, found.band.high_T
    if low_T is None or high_T is None or low_T[-1] == high_T[-1]:
        return "none"
    if low_T[-1] > 0 or high_T[-1] < 0:
        return "leaves out 0"
    return "has 0 in it"


def _many(number: int) -> str:
    return (
        f"{number} intervals stand here: with {number} comparisons without any real difference, about "
        f"{1 - 0.95**number:.0%} of such tables show at least one that leaves out 0 (fewer, as they go together)."
    )


def _sentence(base: Family, other: Family, found: Sequence[Aspect]) -> Text:
    same = [aspect.name for aspect in found if aspect.matched]
    apart = [aspect.name for aspect in found if not aspect.matched]
    factor = factors(base, other)
    keys = ", ".join(factor[:SHOWN]) + (f" and {len(factor) - SHOWN} more" if len(factor) > SHOWN else "")
    return Text(
        f"{other.name} against {base.name}: matched in {', '.join(same) or 'nothing'}; NOT matched in "
        f"{', '.join(apart) or 'nothing'}. {_sections(factor)}: {keys or 'no key'}.",
        "note" if apart else "plain",
    )


def factors(base: Family, other: Family) -> list[str]:
    """The keys in which two families differ."""
    return [key for key in differing([base.computed, other.computed]) if not key.startswith("schema.")]


def _sections(keys: Sequence[str]) -> str:
    sections = list(dict.fromkeys(key.split(".")[0] for key in keys))
    if len(sections) == 1:
        return f"One section changed ({sections[0]})"
    return f"{len(sections)} sections changed ({', '.join(sections)})"


def _matching(base: Family, others: Sequence[Family], found: dict[str, list[Aspect]]) -> Table:
    rows: list[list[str | Cell]] = []
    for number, aspect in enumerate(found[others[0].name]):
        row: list[str | Cell] = [aspect.name, "" if aspect.name in ORDER else aspect.told[0]]
        for other in others:
            own = found[other.name][number]
            row.append(Cell("same") if own.matched else Cell(f"differs: {own.told[1] or 'otherwise'}", "warning"))
        rows.append(row)
    return Table(["held fixed?", base.name, *(other.name for other in others)], rows, "What is matched, and in what.")


ORDER = ("order of training prompts", "problems of all roles")  # whose values are long and tell nobody anything
