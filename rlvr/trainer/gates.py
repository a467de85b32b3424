"""Which prompts an algorithm's gate let through: a table over the whole run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from rlvr.ops.stats import anchored_probability, mixed_probability
from rlvr.trainer.jsonl import read_rows

Row = dict[str, Any]


def read_outcomes(run_dir: Path) -> list[Row]:
    """What became of every prompt that any rank tried, in stream order."""
    rows = [row for path in sorted((run_dir / "prompts").glob("rank*.jsonl")) for row in read_rows(path)]
    return sorted(rows, key=lambda row: row["position"])


def gate_table(rows: Sequence[Row]) -> Table | None:
    """Per source: prompts tried and kept, the share rejected for each reason, how often own policy and reference solved
    those kept and rejected, and the retention to be expected from these rates; None where nothing was rejected."""
    reasons = sorted({reason for row in rows for reason in row["rejected"]})
    if not reasons:
        return None
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["source"]].append(row)
    table = Table(title="prompts and the gate", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column()
    for source in groups:
        table.add_column(source, justify="right")
    columns = [_column(tried, reasons) for tried in groups.values()]
    for label in columns[0]:
        table.add_row(label, *[column[label] for column in columns])
    return table


def _column(tried: Sequence[Row], reasons: Sequence[str]) -> dict[str, str]:
    counts = Counter(reason for row in tried for reason in row["rejected"])
    kept, rejected = [r for r in tried if r["kept"]], [r for r in tried if not r["kept"]]
    return {
        "tried": str(len(tried)),
        "kept": f"{len(kept) / len(tried):.1%}",
        "kept, expected": f"{expected_retention(tried):.1%}",
        **{f"rejected, {reason}": f"{counts[reason] / len(tried):.1%}" for reason in reasons},
        **{
            f"solved by {sampler}, {name}": _rate(part, sampler)
            for sampler in ("policy", "reference")
            for name, part in (("kept", kept), ("rejected", rejected))
        },
    }


def expected_retention(rows: Sequence[Row]) -> float:
    """Mean chance that a gate keeps a prompt, were each try independent at the rate at which its prompt was solved.

    Prompts met several times share one rate, estimated over all their tries with half a success and half a failure
    added, since a rate of 0 or 1 from a few tries would make rejection look certain.
    """
    tries: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        tries[row["id"]].append(row)
    return sum(len(met) * _chance(met) for met in tries.values()) / len(rows)


def _chance(met: Sequence[Row]) -> float:
    def smoothed(sampler: str) -> float:
        solved, judged = (sum(row[f"{sampler}_{what}"] for row in met) for what in ("solved", "judged"))
        return (solved + 0.5) / (judged + 1)

    own, tried = met[0]["policy_judged"], met[0]["reference_judged"]
    if tried:
        return anchored_probability(smoothed("policy"), smoothed("reference"), own, tried)
    return mixed_probability(smoothed("policy"), own)


def _rate(rows: Sequence[Row], sampler: str) -> str:
    judged = sum(row[f"{sampler}_judged"] for row in rows)
    return f"{sum(row[f'{sampler}_solved'] for row in rows) / judged:.2f}" if judged else "-"
