"""The end of a run: its summary, its picture, and where everything lies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.trainer.curve import draw
from rlvr.trainer.display import Display, summary_table
from rlvr.trainer.record import Record

SUMMARY = "summary.json"  # the last file of a run: where it is, the run is complete
WORK = ("generate", "forward", "backward", "optimizer", "score")  # what no training loop can do without


def farewell(display: Display, record: Record, run_dir: Path, test: Mapping[str, float], paths: Mapping[str, Any]) -> None:
    """Write `summary.json` and `curve.png`, close the record, print the final table; the leading rank only.

    Args:
        test: metrics of the test role, empty if there is none.
        paths: what else the run left on disk, by name.
    """
    first, last = record.overview()
    last = last | test | {"total/outside_share": outside_share(last)}
    curve = run_dir / "curve.png"
    draw(run_dir / "metrics.jsonl", curve)
    where = record.finish(last)
    told = {"learning curve": curve, "W&B run": where, **paths, "metrics": run_dir / "metrics.jsonl"}
    (run_dir / SUMMARY).write_text(json.dumps({"first": first, "last": last}, indent=1) + "\n")
    display.note(summary_table(first, last, {name: path for name, path in told.items() if path}))


def outside_share(totals: Mapping[str, float]) -> float:
    """Share of the steps' wall time that was neither sampling nor model arithmetic, by leaf phase names."""
    work = sum(spent for name, spent in totals.items() if name.startswith("total/time/") and name.rsplit("/", 1)[-1] in WORK)
    return 1.0 - work / totals["total/seconds"]
