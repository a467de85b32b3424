"""The end of a run: its summary, its picture, and where everything lies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.trainer.curve import draw
from rlvr.trainer.display import Display, summary_table
from rlvr.trainer.gates import gate_table, read_outcomes
from rlvr.trainer.jsonl import overview, read_rows
from rlvr.trainer.record import Record

SUMMARY = "summary.json"  # the last file of a run: where it is, the run is complete


def farewell(
    display: Display, record: Record, run_dir: Path, test: Mapping[str, float], paths: Mapping[str, Any]
) -> None:
    """Write `summary.json` and `curve.png`, close the record, print the final table; the leading rank only.

    Args:
        test: metrics of the test role, empty if there is none.
        paths: what else the run left on disk, by name.
    """
    rows = read_rows(run_dir / "metrics.jsonl")
    first, last = overview(rows)
    last = {**last, **test, "total/outside_share": outside_share(rows)}
    curve = run_dir / "curve.png"
    draw(run_dir / "metrics.jsonl", curve)
    where = record.finish(last)
    (run_dir / SUMMARY).write_text(json.dumps({"first": first, "last": last}, indent=1) + "\n")
    display.note(summary_table(first, last))
    if (gates := gate_table(read_outcomes(run_dir))) is not None:
        display.note(gates)
    told = {"learning curve": curve, "W&B run": where, **paths, "metrics": run_dir / "metrics.jsonl"}
    display.places({name: path for name, path in told.items() if path})


def outside_share(rows: Sequence[Mapping[str, float]]) -> float:
    """Share of the steps' wall time that was neither sampling nor model arithmetic."""
    steps = [row for row in rows if "time/step" in row]
    total = sum(row["time/step"] for row in steps)
    return sum(row["time/step"] * row["speed/outside_share"] for row in steps) / total
