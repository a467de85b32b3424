"""The verb `rlvr report`."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

EVERY = 30  # seconds


def report(arguments: list[str]) -> int:
    """Report on runs: one HTML page and a Markdown file, with intervals over seeds."""
    parser = argparse.ArgumentParser(
        prog="rlvr report",
        description="One self-contained HTML page, a Markdown file and pictures about some runs. Runs that differ by "
        "their seed alone are taken together.",
    )
    parser.add_argument("run", nargs="+", type=Path, help="a run directory, or one with runs below, such as a sweep's")
    parser.add_argument("--out", type=Path, help="directory to write to; by default `report` in the first one given")
    parser.add_argument(
        "--baseline", metavar="FAMILY", help="the family that others are compared with; first by default"
    )
    parser.add_argument("--watch", action="store_true", help="write it again and again, until all runs have finished")
    parser.add_argument(
        "--every", type=int, default=EVERY, metavar="SECONDS", help="of --watch; %(default)s by default"
    )
    parsed = parser.parse_args(arguments)
    out = parsed.out or parsed.run[0] / "report"
    from rlvr.report.build import build

    while True:
        written = build(parsed.run, out, parsed.baseline, parsed.every if parsed.watch else 0)
        if not (parsed.watch and written.unfinished):
            break
        print(f"{os.path.relpath(written.page)}: {written.unfinished} run(s) go on", flush=True)
        time.sleep(parsed.every)
    if parsed.watch:
        build(parsed.run, out, parsed.baseline)  # the last one does not load itself again
    print(os.path.relpath(written.page))
    return 0
