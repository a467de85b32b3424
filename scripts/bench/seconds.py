"""A picture of where one step's seconds go, on the plain path and with what is on by default.

    python scripts/bench/seconds.py [work=smollm2|tiny] [steps=6] [runs=2] [picture=docs/step_profile.svg] [...]

Before: padded sequences, each with its own copy of the prompt (`hardware.attention=padded`).  After: what is set by
default.  Runs of both alternate; what is drawn are medians over the steps after the first two, by the run's own clock;
and the kinds of operations of one update, by torch's profiler, in a process of their own.  Other
arguments are for `rlvr train`.
"""

import os
import statistics
from pathlib import Path

from _measure import spread
from _runs import PHASES, Row, child, settings_and_overrides, slug, steps, table, train, work

from rlvr.config import read
from rlvr.launch import environment

SIDES = {"before: padded, prompts copied": ["hardware.attention=padded"], "after: the default": []}
SKIP = 2
REST = "rest"
COLOURS = ("#999999", "#0072B2", "#56B4E9", "#F0E442", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#DDDDDD")


def phases(row: Row) -> dict[str, float]:
    """Seconds of a step by phase, which sum to it."""
    told = {phase: row.get(f"time/{phase}", 0.0) for phase in PHASES}
    return told | {REST: max(0.0, row["time/step"] - sum(told.values()))}


def medians(rows: list[Row]) -> dict[str, float]:
    """Of each phase."""
    each = [phases(row) for row in rows]
    return {name: statistics.median(e[name] for e in each) for name in each[0]}


def kinds(folder: Path, step: int) -> dict[str, float]:
    """Seconds of one update by kind of operation."""
    hardware = read(folder / "config.yaml").hardware
    asked = {"folder": str(folder), "steps": [step], "profile": True}
    return child("_parts.py", asked, environment(hardware, len(os.sched_getaffinity(0))))


def bars(panels: dict[str, dict[str, dict[str, float]]], picture: Path) -> None:
    """One stacked bar per side and panel."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.5), layout="constrained")
    for axes, (title, sides) in zip(figure.subplots(len(panels), 1), panels.items(), strict=True):
        names = list(next(iter(sides.values())))
        for row, side in enumerate(sides.values()):
            left = 0.0
            for name, colour in zip(names, COLOURS, strict=False):
                label = name if row == 0 else None
                axes.barh(row, side[name], left=left, color=colour, edgecolor="white", linewidth=0.6, label=label)
                left += side[name]
            axes.text(left, row, f" {left:.2f} s", va="center", fontsize=10)
        axes.set_yticks(range(len(sides)), list(sides))
        axes.invert_yaxis()
        axes.margins(x=0.09)
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold")
        axes.set_xlabel("seconds")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.45, -0.28), fontsize=9)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)


def main() -> None:
    """Run both, print the table, draw it."""
    defaults = dict(work="smollm2", steps="6", runs="2", picture="docs/step_profile.svg", out="runs/profile")
    given, others = settings_and_overrides(**defaults)
    rows: dict[str, list[Row]] = {name: [] for name in SIDES}
    folders = {}
    for number in range(int(given["runs"])):
        for name, own in SIDES.items():
            place = slug(given["work"], given["steps"], *others, *own, str(number))
            folders[name] = Path(given["out"]).resolve() / place
            overrides = [*work(given["work"], others), *own, f"steps={given['steps']}"]
            rows[name] += steps(train(folders[name], ["algorithm=grpo", *overrides]), SKIP)
    clock = {name: medians(each) for name, each in rows.items()}
    kinds_of = {name: kinds(folder, rows[name][-1]["step"]) for name, folder in folders.items()}
    before, after = rows
    lines = []
    for phase in clock[before]:
        pair = clock[before][phase], clock[after][phase]
        lines.append([phase, *(f"{seconds:.3f}" for seconds in pair), f"{pair[1] / pair[0]:.2f}" if pair[0] else ""])
    whole = {name: [row["time/step"] for row in each] for name, each in rows.items()}
    ratio = statistics.median(whole[after]) / statistics.median(whole[before])
    lines.append(["**step**", spread(whole[before]), spread(whole[after]), f"**{ratio:.2f}**"])
    print(table(["s/step", before, after, "after / before"], lines))
    kind_lines = [[kind, *(f"{kinds_of[name][kind]:.3f}" for name in kinds_of)] for kind in kinds_of[before]]
    print("\n" + table(["one update by kind of operation, s", before, after], kind_lines))
    bars({"One step, by phase": clock, "One update, by kind of operation": kinds_of}, Path(given["picture"]))
    print(f"\npicture: {given['picture']}")


if __name__ == "__main__":
    main()
