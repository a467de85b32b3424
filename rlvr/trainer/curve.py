"""The learning curve of a run as a picture."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.trainer.jsonl import Row, read_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KL_NAMES = {
    "train/kl_ref_k1": "KL to the reference",
    "train/kl_ref_k3": "KL to the reference",
    "train/kl_step": "KL of the step",
}  # in order of preference

# Okabe and Ito's colours, which people of any colour vision tell apart
BLUE, ORANGE, GREEN, PURPLE, INK, GRID = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#333333", "#DDDDDD"
STYLES = ((0, (4, 3)), (0, (1, 2)), (0, (6, 2, 1, 2)), "solid")  # lines of events
SIZE, DPI = (12.0, 8.0), 100  # 1200 x 800 pixels

Series = tuple[list[int], list[float]]


def draw(metrics_jsonl: Path, png: Path, title: str | None = None) -> None:
    """Draw reward and validation accuracy, KL, entropy and length against steps, as far as they were measured.

    What was done between steps, `event/...`, is marked in all of them and named in the first.

    Args:
        metrics_jsonl: the rows of a run.
        png: the picture to write, 1200 x 800 pixels.
        title: the name of the run; that of its directory by default.

    Raises:
        ValueError: if there is nothing to draw.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = read_rows(metrics_jsonl)
    panels = [panel for panel, names in _panels(rows) if any(series(rows, name)[0] for name in names)]
    if not panels:
        raise ValueError(f"{metrics_jsonl}: no reward, accuracy, KL, entropy or length to draw")
    spaced = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, wspace=0.04, hspace=0.04)
    figure = Figure(figsize=SIZE, dpi=DPI, layout=spaced)
    figure.suptitle(title or metrics_jsonl.resolve().parent.name, fontsize=16, fontweight="bold", color=INK)
    steps = max(row["step"] for row in rows)
    places = figure.subplot_mosaic(MOSAICS[len(panels)])
    for panel, (place, axes) in zip(panels, places.items(), strict=True):
        panel(axes)
        _mark(axes, spans(rows), named=place == "A")
        _dress(axes, steps)
    figure.savefig(png)


MOSAICS = {1: "A", 2: "A;B", 3: "AA;BC", 4: "AB;CD"}


def series(rows: Sequence[Row], name: str) -> Series:
    """Steps and values of one metric, where it was measured and finite."""
    points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    return [step for step, _ in points], [value for _, value in points]


def spans(rows: Sequence[Row]) -> dict[str, list[tuple[int, int]]]:
    """The steps with the same events, by the names of these: first and last one of each unbroken series."""
    found: dict[str, list[tuple[int, int]]] = {}
    before = ""
    for row in rows:
        names = " + ".join(name.removeprefix("event/").replace("_", " ") for name in row if name.startswith("event/"))
        if names and names == before:
            found[names][-1] = (found[names][-1][0], row["step"])
        elif names:
            found.setdefault(names, []).append((row["step"], row["step"]))
        before = names
    return found


def smooth(values: Sequence[float], width: int) -> list[float]:
    """Moving average over `width` points (odd) around each, over those that exist at both ends."""
    reach = width // 2
    windows = [values[max(0, at - reach) : at + reach + 1] for at in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def _panels(rows: Sequence[Row]) -> list[tuple[Callable[["Axes"], None], tuple[str, ...]]]:
    """Painters of the panels with the metrics that each can show."""
    kl = next((name for name in KL_NAMES if series(rows, name)[0]), "")

    def learning(axes: "Axes") -> None:
        _line(axes, series(rows, "train/reward"), BLUE, "training reward")
        _validation(axes, rows)
        axes.set(title="Reward and validation accuracy", ylabel="reward, fraction correct")

    def divergence(axes: "Axes") -> None:
        _line(axes, series(rows, kl), PURPLE, "")
        axes.set(title=KL_NAMES[kl], ylabel="nats per token")

    def entropy(axes: "Axes") -> None:
        _line(axes, series(rows, "train/entropy"), GREEN, "")
        axes.set(title="Entropy of the policy", ylabel="nats per token")

    def length(axes: "Axes") -> None:
        _line(axes, series(rows, "rollout/length"), BLUE, "training")
        axes.plot(*series(rows, "validation/length"), color=ORANGE, marker="o", markersize=4, label="validation")
        axes.set(title="Length of responses", ylabel="tokens")

    return [
        (learning, ("train/reward", "validation/accuracy")),
        (divergence, (kl,)),
        (entropy, ("train/entropy",)),
        (length, ("rollout/length", "validation/length")),
    ]


def _line(axes: "Axes", points: Series, colour: str, label: str) -> None:
    steps, values = points
    width = len(steps) // 20 * 2 + 1
    if width == 1:
        axes.plot(steps, values, color=colour, linewidth=2, marker="o", markersize=3, label=label)
        return
    axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.35)
    shown = f"{label}, mean of {width} steps" if label else f"mean of {width} steps"
    axes.plot(steps, smooth(values, width), color=colour, linewidth=2.2, label=shown)


def _validation(axes: "Axes", rows: Sequence[Row]) -> None:
    whole = [
        row for row in rows if all(row.get(f"validation/accuracy{end}") is not None for end in ("", "_low", "_high"))
    ]
    steps, values = series(rows, "validation/accuracy")
    axes.plot(steps, values, color=ORANGE, linewidth=2.2, marker="o", markersize=5, label="validation accuracy")
    at, low = series(whole, "validation/accuracy_low")
    _, high = series(whole, "validation/accuracy_high")
    axes.fill_between(at, low, high, color=ORANGE, alpha=0.18, linewidth=0, label="its interval")
    if values:
        rises = values[-1] >= values[0]
        _tag(axes, steps[0], values[0], below=rises and len(values) > 1)
        _tag(axes, steps[-1], values[-1], below=not rises)


def _mark(axes: "Axes", marks: dict[str, list[tuple[int, int]]], named: bool) -> None:
    """Lines at events, and areas where they follow every step."""
    for names, style in zip(marks, itertools.cycle(STYLES)):
        for first, last in marks[names]:
            if first == last:
                axes.axvline(first, color=INK, linewidth=1.1, linestyle=style, zorder=1, label=names if named else None)
            else:
                axes.axvspan(first, last, color=INK, alpha=0.08, linewidth=0, label=names if named else None)


def _tag(axes: "Axes", step: int, value: float, below: bool) -> None:
    from matplotlib.patheffects import withStroke

    axes.annotate(
        f"{value:.2f}",
        (step, value),
        xytext=(0, -10 if below else 10),
        textcoords="offset points",
        ha="center",
        va="top" if below else "bottom",
        color=ORANGE,
        fontsize=11,
        fontweight="bold",
        path_effects=[withStroke(linewidth=3, foreground="white")],
    )


def _dress(axes: "Axes", steps: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("step")
    axes.set_xlim(-0.03 * max(1, steps), 1.03 * max(1, steps))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.set_title(axes.get_title(), loc="left", fontsize=12.5, fontweight="bold", color=INK)
    axes.set_title("")
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.tick_params(colors=INK, labelsize=10)
    handles, labels = axes.get_legend_handles_labels()
    kept = {label: handle for handle, label in zip(handles, labels, strict=True) if _drawn(handle)}
    if kept:
        axes.legend(kept.values(), kept.keys(), frameon=False, fontsize=10)


def _drawn(handle: object) -> bool:
    from matplotlib.lines import Line2D

    return not isinstance(handle, Line2D) or len(handle.get_xdata()) > 0  # type: ignore[arg-type]
