"""Coverage: which training prompts a family has seen, rejected and solved, by source and by difficulty."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from rlvr.report.document import Section, Table, Text
from rlvr.report.families import Family
from rlvr.report.runs import RunData
from rlvr.trainer.jsonl import Row

BINS = ("never solved", "up to 1/4", "up to 1/2", "up to 3/4", "less than all", "always solved")


def coverage(families: Sequence[Family]) -> Section:
    """Tables of all families; counts are sums over seeds, so that runs of one length compare."""
    section = Section("Coverage of the training prompts")
    by_source = [row for family in families for row in _by_source(family)]
    if not by_source:
        section.blocks.append(Text("No run has kept what became of its prompts.", "note"))
        return section
    section.blocks.append(
        Table(
            [
                "family",
                "source",
                "different prompts",
                "times tried",
                "kept",
                "rejected",
                "ever solved",
                "reference solved",
            ],
            by_source,
            "Over all seeds. A prompt is solved if one of the policy's answers is right.",
        )
    )
    known = any(run.survey for family in families for run in family.runs)
    measure = "the share solved in the survey before training" if known else "the share solved when first met"
    section.blocks.append(
        Table(
            ["family", "difficulty", "prompts", "times tried", "kept", "solved at last meeting"],
            [row for family in families for row in _by_difficulty(family)],
            f"Difficulty is {measure}; prompts are counted in every seed for itself.",
        )
    )
    return section


def _by_source(family: Family) -> list[list[str]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for run in family.runs:
        for row in run.outcomes:
            groups[row["source"]].append(row)
    return [[family.name, source, *_source(rows)] for source, rows in sorted(groups.items())]


def _source(rows: Sequence[Row]) -> list[str]:
    reasons = Counter(reason for row in rows for reason in row["rejected"])
    told = ", ".join(f"{reason} {number / len(rows):.0%}" for reason, number in reasons.most_common())
    seen = {row["id"] for row in rows}
    solved = {row["id"] for row in rows if row["policy_solved"]}
    asked = [row for row in rows if row["reference_judged"]]
    reference = f"{sum(row['reference_solved'] > 0 for row in asked) / len(asked):.0%}" if asked else "not asked"
    kept = sum(row["kept"] for row in rows) / len(rows)
    return [
        f"{len(seen):,}",
        f"{len(rows):,}",
        f"{kept:.0%}",
        told or "none",
        f"{len(solved) / len(seen):.0%}",
        reference,
    ]


def _by_difficulty(family: Family) -> list[list[str]]:
    groups: dict[str, list[list[Row]]] = defaultdict(list)
    for run in family.runs:
        before = surveyed(run)
        met: dict[str, list[Row]] = defaultdict(list)
        for row in run.outcomes:
            met[row["id"]].append(row)
        for id_, rows in met.items():
            rate = before.get(id_, _rate(rows[0])) if before else _rate(rows[0])
            if rate is not None:
                groups[difficulty(rate)].append(rows)
    return [[family.name, name, *_bin(groups[name])] for name in BINS if groups[name]]


def _bin(prompts: Sequence[Sequence[Row]]) -> list[str]:
    tried = [row for rows in prompts for row in rows]
    kept = sum(row["kept"] for row in tried) / len(tried)
    last = [rate for rows in prompts if (rate := _rate(rows[-1])) is not None]
    return [f"{len(prompts):,}", f"{len(tried):,}", f"{kept:.0%}", f"{sum(last) / len(last):.0%}" if last else ""]


def surveyed(run: RunData) -> dict[str, float]:
    """The share of right answers in a survey, by prompt."""
    return {row["id"]: row["solved"] / row["judged"] for row in run.survey if row["judged"]}


def difficulty(rate: float) -> str:
    """The bin of a share of right answers."""
    if rate in (0.0, 1.0):
        return BINS[0] if rate == 0 else BINS[-1]
    return BINS[min(4, 1 + int(4 * rate - 1e-9))]


def _rate(row: Row) -> float | None:
    return row["policy_solved"] / row["policy_judged"] if row["policy_judged"] else None
