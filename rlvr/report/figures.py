"""Pictures of a report: one panel each, readable at the width of a phone, the same as SVG and PNG.

A family keeps its colour, its line style and its marker throughout, so that it can be told by any of the three.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr.ops.resample import Array
from rlvr.report.curves import ACCURACY, AXES, UNITS, Axis, Curve, curve
from rlvr.report.document import Picture
from rlvr.report.families import Family
from rlvr.trainer.curve import KL_NAMES, smooth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, the two that are faint on white left out
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000", "#8F6B00", "#7F7F7F")
# none is dotted: that is the second quantity of a picture
LINES = ("solid", (0, (5, 2)), (0, (6, 2, 1, 2)), (0, (10, 3)), (0, (6, 2, 1, 2, 1, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
EVENTS = {"restore_best": "<", "reset_reference": "|", "reset_optimizer": "x", "next_stage": ">", "stop": "8"}
INK, GRID = "#333333", "#DDDDDD"
SIZE = (4.8, 3.0)  # inches: at 72 points each, about the width of a phone
LINE = 0.19  # inches of a line of the legend
LEARNING = (ACCURACY, "train/reward")
FRACTION = "fraction correct"
BY = {"sequences": "sampled sequences", "seconds": "seconds of training"}
LENGTHS = ("rollout/length", "validation/length")
ONE_SIDED = ("rollout/solved_none", "rollout/solved_all")
CLIPPED = ("train/clip_high_fraction", "train/clip_low_fraction")
WORDS = {
    "rollout/score": "training score",
    **dict(zip(LEARNING, ("validation", "training reward"), strict=True)),
    **dict(zip(LENGTHS, ("training", "validation"), strict=True)),
    **dict(zip(ONE_SIDED, ("all wrong", "all right"), strict=True)),
    **dict(zip(CLIPPED, ("above", "below"), strict=True)),
}
LOOK: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 9.5, "text.parse_math": False}
LEGEND = 6  # most families that are named inside a picture
MANY = 40  # points from which a line is smoothed and has no markers


@dataclass(frozen=True)
class Style:
    """How a family looks."""

    colour: str
    line: Any  # matplotlib's name of a pattern, or the pattern
    marker: str


def styles(families: Sequence[Family]) -> dict[str, Style]:
    """By family name; colours, lines and markers have different periods, so that their combination lasts longer."""
    return {
        family.name: Style(COLOURS[i % len(COLOURS)], LINES[i % len(LINES)], MARKERS[i % len(MARKERS)])
        for i, family in enumerate(families)
    }


@dataclass(frozen=True)
class Panel:
    """What one picture shows: metrics, each solid or faint, over an axis."""

    name: str
    title: str
    unit: str
    metrics: tuple[str, ...]  # the first is drawn in full, the others thin; WORDS names them where there are several
    axis: Axis = "steps"


def panels(families: Sequence[Family]) -> list[Panel]:
    """All that the runs have measured."""
    names = {name for family in families for run in family.runs for row in run.rows for name in row}
    kl = next((name for name in KL_NAMES if name in names), "train/kl_ref_k3")
    told = [
        Panel("reward", "Validation accuracy and training reward", "fraction correct; reward", LEARNING),
        *(Panel(f"accuracy_by_{axis}", f"Validation accuracy by {BY[axis]}", FRACTION, (ACCURACY,), axis=axis)
          for axis in AXES[1:]),
        Panel("kl", KL_NAMES.get(kl, "KL"), "nats per token", (kl,)),
        Panel("entropy", "Entropy of the policy", "nats per token", ("train/entropy",)),
        Panel("length", "Length of responses", "tokens", LENGTHS),
        Panel("truncated", "Responses cut at the length limit", "fraction", ("rollout/truncated",)),
        Panel("kept", "Prompts that the algorithm kept", "fraction of those tried", ("rollout/kept",)),
        Panel("one_sided", "Prompts with all answers wrong, or all right", "fraction", ONE_SIDED),
        Panel("clipped", "Clipped tokens", "fraction", CLIPPED),
        Panel("gradient", "Norm of the gradient", "norm", ("train/grad_norm",)),
        Panel("memory", "Peak memory of a process", "GiB", ("memory/peak_gib",)),
    ]  # fmt: skip
    gates = sorted(name for name in names if name.startswith("rollout/gate/"))
    told += [_single("Rejected by the gate", name) for name in gates]
    told += [_single("Health", name) for name in sorted(names) if name.startswith("health/")]
    return [panel for panel in told if names & set(panel.metrics)]


def _single(title: str, name: str) -> Panel:
    last = name.rpartition("/")[2]
    return Panel(file_name(name), f"{title}: {last.replace('_', ' ')}", "fraction or count per step", (name,))


def file_name(name: str) -> str:
    """A name as that of a file, and of an element of a page."""
    return re.sub(r"[^A-Za-z0-9]+", "_", name)


def draw(panel: Panel, families: Sequence[Family], look: dict[str, Style], folder: Path) -> Picture | None:
    """Write `<name>.svg` and `<name>.png`, and hand back the picture; None if no family has the panel's metrics."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    drawn = [
        (family, found, number == 0)
        for family in families
        for number, metric in enumerate(panel.metrics)
        if (found := curve(family, metric, panel.axis))
    ]
    if not drawn:
        return None
    with rc_context(LOOK | {"svg.hashsalt": panel.name}):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        for family, found, full in drawn:
            name = family.name if full and len(families) <= LEGEND else None
            _draw_curve(axes, found, look[family.name], name, full)
        if len(panel.metrics) > 1:
            axes.plot([], [], color=INK, linestyle="dotted", label=f"dotted: {WORDS[panel.metrics[1]]}")
        if panel.axis == "steps":
            _mark_events(axes, families, look)
        _dress(figure, axes, panel)
        return _written(figure, panel.name, panel.title, folder)


def draw_key(families: Sequence[Family], look: dict[str, Style], folder: Path) -> Picture | None:
    """The legend as a picture of its own, where there are too many families for one in every picture."""
    if len(families) <= LEGEND:
        return None
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    lines = []
    for family in families:
        style = look[family.name]
        lines.append(
            Line2D(
                [], [], color=style.colour, linestyle=style.line, marker=style.marker, linewidth=2.0, label=family.name
            )
        )
    with rc_context(LOOK | {"svg.hashsalt": "key"}):
        figure = Figure(figsize=(SIZE[0], 0.35 + 0.2 * len(families)))
        figure.legend(handles=lines, loc="center", frameon=False, handlelength=3.5, title="families")
        return _written(figure, "key", "Families and their lines", folder)


def _draw_curve(axes: Axes, found: Curve, style: Style, name: str | None, full: bool) -> None:
    """Mean and band; every run for itself where there are too few for a band."""
    looks: dict[str, Any] = dict(color=style.colour, linestyle=style.line if full else "dotted")
    looks["linewidth"] = 2.0 if full else 1.1
    if full and len(found.x_T) < MANY:
        looks |= dict(marker=style.marker, markersize=4.5)
    if found.band.low_T is None:
        seeds = f"{found.band.seeds} seed{'s' * (found.band.seeds > 1)}, no interval"
        for number, (x, y) in enumerate(found.members):
            axes.plot(x, _smooth(y), label=f"{name} ({seeds})" if name and not number else None, **looks)
        return
    axes.plot(found.x_T, _smooth(found.band.mean_T), label=name, **looks)
    alpha = 0.18 if full else 0.08
    axes.fill_between(
        found.x_T, _smooth(found.band.low_T), _smooth(found.band.high_T), color=style.colour, alpha=alpha, linewidth=0
    )


def _smooth(values: Array | None) -> Array:
    assert values is not None
    return np.array(smooth(values.tolist(), len(values) // 20 * 2 + 1)) if len(values) >= MANY else values


def _mark_events(axes: Axes, families: Sequence[Family], look: dict[str, Style]) -> None:
    """Small marks along the upper edge, in the family's colour; the shape says what was done."""
    named = set()
    for number, family in enumerate(families):
        for event, shape in EVENTS.items():
            at = sorted({row["step"] for run in family.runs for row in run.events if row["event"] == event})
            if not at:
                continue
            label = None if event in named else event.replace("_", " ")
            named.add(event)
            height = [1.0 - 0.045 * number] * len(at)
            axes.plot(
                at, height, linestyle="none", marker=shape, markersize=6, color=look[family.name].colour, label=label,
                transform=axes.get_xaxis_transform(), clip_on=False,
            )  # fmt: skip


def _dress(figure: Figure, axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(panel.title, loc="left", fontsize=10.5, fontweight="bold", color=INK)
    axes.set(xlabel=UNITS[panel.axis], ylabel=panel.unit)
    if panel.axis == "steps":
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
    handles, labels = axes.get_legend_handles_labels()
    if labels:  # below, where it hides nothing, in a figure that grows with it
        figure.legend(handles, labels, loc="outside lower left", frameon=False, fontsize=8.5, handlelength=3)
        figure.set_figheight(SIZE[1] + LINE * len(labels))


def _written(figure: Figure, name: str, title: str, folder: Path) -> Picture:
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(folder / f"{name}.png", dpi=150)
    (folder / f"{name}.svg").write_text(text.getvalue(), encoding="utf-8")
    return Picture(name, title, inline(text.getvalue(), name, title))


def inline(svg: str, prefix: str, title: str) -> str:
    """An SVG file as an element of a page: no prolog, scaling, named, with ids of its own."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{prefix}-", body)
    body = re.sub(r'width="[\d.]+pt" height="[\d.]+pt" ', "", body, count=1)
    return body.replace("<svg ", f'<svg role="img" aria-label="{escape(title, quote=True)}" ', 1)
