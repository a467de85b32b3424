"""An evaluation in words and tables, as Markdown that also reads well on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr.evaluation.standing import HELD_OUT, UNKNOWN

Result = Mapping[str, Any]  # evaluation.json
NOTE = """Numbers are percent.  Intervals are of 95 % and about new problems like these, not new samples of these.
What could not be judged counts as 0.  docs/evaluation.md says how each number is made."""


def markdown(result: Result) -> str:
    """The report of one evaluation."""
    benchmarks: dict[str, Result] = result["benchmarks"]
    parts = [
        f"# {result['suite']} of {result['checkpoint']}",
        f"Checkpoint: {result['chosen']}.  Model {result['model']}, seed {result['seed']}." + _exported(result),
        *_warnings(benchmarks),
        table(HEAD, [_head(name, told) for name, told in benchmarks.items()] + _mean(result)),
        table(QUALITY, [_quality(name, told) for name, told in benchmarks.items()]),
    ]
    curves = [row for name, told in benchmarks.items() for row in _curve(name, told)]
    sources = [
        [f"{name}/{source}", str(told["problems"]), interval(told)]
        for name, benchmark in benchmarks.items()
        for source, told in benchmark["sources"].items()
    ]
    parts += [table(["benchmark", "pass@k", "95 % interval"], curves)] if curves else []
    parts += [table(["source", "problems", "score"], sources)] if sources else []
    return "\n\n".join([*parts, NOTE]) + "\n"


def _exported(result: Result) -> str:
    """Which training checkpoint the model was made of; results of former versions do not tell."""
    source = result.get("exported_from")
    return f"  Exported from the training checkpoint {source['identity']}." if source else ""


HEAD = ["benchmark", "problems x n", "avg@n", "pass@n", "majority@n", "data were"]
QUALITY = ["benchmark", "tokens", "truncated", "no answer", "not judged", "rows left out"]


def _head(name: str, told: Result) -> list[str]:
    metrics = told["metrics"]
    last = [metric for metric in metrics if metric.startswith("pass@")][-1]
    return [
        name,
        f"{told['problems']} x {told['samples']}",
        interval(metrics["score"]),
        f"{interval(metrics[last])} ({last})" if last != "pass@1" else "",
        interval(metrics["majority"]) if "majority" in metrics else "",
        _label(told["standing"]["label"]),
    ]


def _mean(result: Result) -> list[list[str]]:
    mean = result["mean"]
    if mean is None:
        return []
    spread = f" -+ {100 * 1.96 * mean['se']:.1f}" if mean["se"] is not None else ""
    return [["mean of these", "", f"{100 * mean['value']:.1f}{spread}", "", "", ""]]


def _quality(name: str, told: Result) -> list[str]:
    shares = [f"{100 * told[key]:.1f} %" if told[key] is not None else "" for key in ("truncated", "unanswered")]
    causes = "; ".join(f"{cause}: {count}" for cause, count in told["errors"].items())
    unjudged = f"{100 * told['unjudged']:.1f} %" + (f" ({causes})" if causes else "")
    return [name, f"{told['length']:.0f}", *shares, unjudged, str(told["left_out"])]


def _curve(name: str, told: Result) -> list[list[str]]:
    """pass@k for every k, where there are several."""
    curve = {metric: value for metric, value in told["metrics"].items() if metric.startswith("pass@")}
    return [[name, metric, interval(value)] for metric, value in curve.items()] if len(curve) > 1 else []


def _warnings(benchmarks: Mapping[str, Result]) -> list[str]:
    """What stands in the way of reading the scores as results."""
    lines = []
    for name, told in benchmarks.items():
        standing = told["standing"]
        if standing["label"] not in (HELD_OUT, UNKNOWN):
            lines.append(f"**{_label(standing['label'])}**: {name} is no test: {standing['reason']}.")
    unknown = [name for name, told in benchmarks.items() if told["standing"]["label"] == UNKNOWN]
    if unknown:
        lines.append(
            f"Whether {', '.join(unknown)} chose this checkpoint is not known: "
            f"{benchmarks[unknown[0]]['standing']['reason']}."
        )
    return lines


def _label(label: str) -> str:
    """Loud where a number is no result."""
    return label if label in (HELD_OUT, UNKNOWN) else label.upper()


def interval(told: Result) -> str:
    """A share and its interval in percent: 33.0 [20.1, 49.2]."""
    value = f"{100 * told['value']:.1f}"
    if told["low"] is None:
        return f"{value} [no interval]"
    return f"{value} [{100 * told['low']:.1f}, {100 * told['high']:.1f}]"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up as text too."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"

    return "\n".join([line(header), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows)])
