"""Sweeps: `rlvr train -m ...`, and `rlvr sweep` to look at one."""

import argparse
from pathlib import Path

from rlvr.keys import ConfigError
from rlvr.sweep.run import Sweep, run_member
from rlvr.sweep.table import markdown, rows

__all__ = ["Sweep", "run_member", "sweep"]


def sweep(arguments: list[str]) -> int:
    """Look at the sweep in a directory, while it runs or later."""
    parser = argparse.ArgumentParser(prog="rlvr sweep", description="Look at a sweep (rlvr train -m ...).")
    ways = parser.add_subparsers(dest="way", required=True)
    show = ways.add_parser("show", help="print its table")
    show.add_argument("directory", type=Path, help="of the sweep, such as runs/NAME")
    show.add_argument("--objective", choices=("best", "last"), default="best", help="as sweep.objective")
    parsed = parser.parse_args(arguments)
    told = rows(parsed.directory, parsed.objective)
    if not told:
        raise ConfigError(f"{parsed.directory} is not the directory of a sweep: no */member.json in it")
    print(markdown(told, parsed.objective), end="")
    return 0
