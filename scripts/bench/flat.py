"""Whether a longer run costs more: seconds, host memory and disk of each step over one long run, and their slopes.

    python scripts/bench/flat.py [steps=2000] [blocks=20] [folder=] [picture=docs/flat.png] [overrides of rlvr train]

The tiny model trains on little; `folder` reads a run that is there instead.  A slope is that of the least-squares line
through the medians of `blocks` blocks of steps, with Student's interval of 95 %: neighbouring steps are not
independent, blocks nearly are.  The first tenth of the steps fills caches and is left out.  The disk of a step is what
it adds to the run's files of lines; checkpoints are counted apart, since old ones are removed.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from _runs import STEPS_ALONE, Row, settings_and_overrides, slug, table, train

from rlvr.ops.student import student_t

RUN = [
    *("model=tiny", "model.warm_updates=0", "data=arithmetic", "rollout.prompts=2", "algorithm.group=4"),
    *("rollout.max_tokens=8", *STEPS_ALONE, "checkpoint.every=100", "hardware.threads=1", "health.idle.action=warn"),
]
SKIP = 0.1  # of the steps, which fill caches and allocators
COLOURS = ("#0072B2", "#D55E00", "#009E73")


@dataclass(frozen=True)
class Line:
    """A straight line through the medians of blocks."""

    centres: list[float]
    medians: list[float]
    slope: float  # per step
    half: float  # of its interval of 95 %
    start: float  # at step 0

    @classmethod
    def through(cls, steps: Sequence[float], values: Sequence[float], blocks: int) -> "Line":
        """At least three blocks."""
        bounds = [round(i * len(steps) / blocks) for i in range(blocks + 1)]
        cuts = [slice(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]
        x = [statistics.mean(steps[cut]) for cut in cuts]
        y = [statistics.median(values[cut]) for cut in cuts]
        slope, start = statistics.linear_regression(x, y)
        left = sum((b - start - slope * a) ** 2 for a, b in zip(x, y, strict=True)) / (blocks - 2)
        width = sum((a - statistics.mean(x)) ** 2 for a in x)
        return cls(x, y, slope, student_t(blocks - 2) * (left / width) ** 0.5, start)


def disk(folder: Path) -> dict[int, int]:
    """Bytes that each step has added to the run's files of lines."""
    told: dict[int, int] = {}
    for file in (*folder.glob("*.jsonl"), *folder.glob("*/rank*.jsonl")):
        with file.open("rb") as lines:
            for line in lines:
                step = int(json.loads(line).get("step", 0))
                told[step] = told.get(step, 0) + len(line)
    return told


def series(folder: Path, rows: list[Row]) -> dict[str, tuple[list[float], list[float]]]:
    """Steps and values of what is to stay flat."""
    rows = [row for row in rows if "time/step" in row and row["step"] > SKIP * len(rows)]
    steps, added = [float(row["step"]) for row in rows], disk(folder)
    return {
        "seconds per step": (steps, [row["time/step"] for row in rows]),
        "host memory, MiB": (steps, [row["memory/host_mib"] for row in rows]),
        "disk per step, KiB": (steps, [added[row["step"]] / 1024 for row in rows]),
    }


def draw(found: dict[str, tuple[list[float], list[float]]], lines: dict[str, Line], picture: Path) -> None:
    """All steps, the medians of blocks, the lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7.5), layout="constrained")
    places = figure.subplots(len(found), 1, sharex=True)
    for axes, colour, (name, (steps, values)) in zip(places, COLOURS, found.items(), strict=True):
        line = lines[name]
        axes.plot(steps, values, ".", color=colour, markersize=2, alpha=0.25, rasterized=True)
        axes.plot(line.centres, line.medians, "o", color=colour, markersize=5, label="medians of blocks")
        ends = [steps[0], steps[-1]]
        axes.plot(ends, [line.start + line.slope * x for x in ends], color="#333333", linewidth=1.4, label="line")
        high = sorted(values)[int(0.99 * (len(values) - 1))]
        axes.set_ylim(0, 1.25 * max(high, *line.medians))
        axes.set_ylabel(name)
        axes.grid(color="#DDDDDD", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    axes.set_xlabel("step")
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)


def main() -> None:
    """Run or read a run, print the slopes, draw them."""
    defaults = dict(steps="2000", blocks="20", folder="", picture="docs/flat.png", out="runs/flat")
    given, others = settings_and_overrides(**defaults)
    folder = Path(given["folder"] or Path(given["out"]) / slug(given["steps"], *others)).resolve()
    rows = train(folder, [*RUN, *others, f"steps={given['steps']}"])
    found = series(folder, rows)
    lines = {name: Line.through(*points, int(given["blocks"])) for name, points in found.items()}
    told = []
    for name, line in lines.items():
        typical, thousand = statistics.median(found[name][1]), 1000 * line.slope
        interval = f"{thousand - 1000 * line.half:+.4g} to {thousand + 1000 * line.half:+.4g}"
        told.append([name, f"{typical:.4g}", f"{thousand:+.4g}", interval, f"{thousand / typical:+.2%}"])
    print(table(["", "median", "slope per 1,000 steps", "95 % interval", "of the median"], told))
    kept = sorted((folder / "checkpoints").glob("step_*"))
    size = sum(file.stat().st_size for file in (folder / "checkpoints").glob("**/*") if file.is_file())
    print(f"\n{rows[-1]['step']} steps; checkpoints left: {len(kept)}, {size / 2**20:.1f} MiB", end="; ")
    print(f"picture: {given['picture']}")
    draw(found, lines, Path(given["picture"]))


if __name__ == "__main__":
    main()
