"""The difference of two evaluations, problem by problem."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr.evaluation.measure import Sample, grouped, values
from rlvr.evaluation.report import table
from rlvr.evaluation.standing import HELD_OUT, UNKNOWN
from rlvr.keys import ConfigError
from rlvr.ops.intervals import holm, paired_interval, sign_flip_p

RESULT = "evaluation.json"


def compare(first: Path, second: Path, names: Sequence[str] = ()) -> dict[str, Any]:
    """Every metric that both have: the two values, their paired difference, its interval and a permutation test.

    Args:
        names: of the benchmarks to compare; empty for all, which both must then have.

    Raises:
        ConfigError: saying what differs, if problems or settings do.
    """
    results = [_read(first), _read(second)]
    here, there = (result["benchmarks"] for result in results)
    if not names and (odd := sorted(here.keys() ^ there.keys())):
        raise ConfigError(f"only one of the two has {', '.join(odd)}; name the benchmarks to compare: --benchmarks ...")
    chosen = list(names) or list(here)
    for name in chosen:
        if name not in here or name not in there:
            raise ConfigError(f"{first if name not in here else second} has no benchmark {name}")
    pairs = {name: [grouped(_samples(folder, name)) for folder in (first, second)] for name in chosen}
    for name in chosen:
        _refuse_unlike(name, here[name], there[name], *pairs[name])
    benchmarks = {name: _differences(here[name], pairs[name]) for name in chosen}
    adjusted = holm([benchmarks[name]["score"]["p"] for name in chosen])
    for name, p in zip(chosen, adjusted, strict=True):
        benchmarks[name]["score"]["p_holm"] = p
    versions = [results[i]["benchmarks"][chosen[0]]["settings"]["versions"] for i in (0, 1)]
    return {
        "a": {"evaluation": str(first), "checkpoint": results[0]["checkpoint"], "model": results[0]["model"]},
        "b": {"evaluation": str(second), "checkpoint": results[1]["checkpoint"], "model": results[1]["model"]},
        "versions": sorted({name for name, _ in versions[0].items() ^ versions[1].items()}),
        "labels": {n: sorted({b[n]["standing"]["label"] for b in (here, there)}) for n in chosen},
        "benchmarks": benchmarks,
    }


def _read(folder: Path) -> dict[str, Any]:
    path = folder / RESULT
    if not path.is_file():
        raise ConfigError(f"{folder} is no complete evaluation: it has no {RESULT}")
    return json.loads(path.read_text(encoding="utf-8"))


def _samples(folder: Path, name: str) -> list[Sample]:
    path = folder / "samples" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _refuse_unlike(name: str, here: Any, there: Any, one: dict[str, Any], other: dict[str, Any]) -> None:
    """Raises ConfigError naming what differs."""
    only = sorted(one.keys() ^ other.keys())
    if only:
        raise ConfigError(f"{name}: {len(only)} problems are in one of the two only, such as {only[0]}")
    if here["questions"] != there["questions"]:
        raise ConfigError(f"{name}: the problems have the same names, but other questions, answers or verifiers")
    if here["samples"] != there["samples"]:
        raise ConfigError(f"{name}: {here['samples']} and {there['samples']} samples per problem")
    for setting, value in here["settings"]["sampling"].items():
        if value != (given := there["settings"]["sampling"][setting]):
            raise ConfigError(f"{name}: {setting} is {value} and {given}")


def _differences(told: Any, pair: list[dict[str, list[Sample]]]) -> dict[str, Any]:
    one, other = pair[0], {problem: pair[1][problem] for problem in pair[0]}
    voted = all(any(s["answer"] is not None for some in p.values() for s in some) for p in (one, other))
    names = [name for name in told["metrics"] if name != "majority" or voted]
    return {name: _difference(values(name, one), values(name, other)) for name in names}


def _difference(one: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    differences = [b - a for a, b in zip(one, other, strict=True)]
    interval, (p, exact) = paired_interval(differences), sign_flip_p(differences)
    return {
        "a": math.fsum(one) / len(one),
        "b": math.fsum(other) / len(other),
        "difference": math.fsum(differences) / len(differences),
        "low": interval[0] if interval else None,
        "high": interval[1] if interval else None,
        "p": p,
        "exact": exact,
        "better": sum(d > 0 for d in differences),
        "worse": sum(d < 0 for d in differences),
        "problems": len(differences),
    }


def comparison(told: dict[str, Any]) -> str:
    """A comparison as Markdown."""
    rows = [
        _row(name, metric, difference)
        for name, metrics in told["benchmarks"].items()
        for metric, difference in metrics.items()
    ]
    header = ["benchmark", "metric", "A", "B", "B - A [95 %]", "better/worse/problems", "p", "p (Holm)"]
    notes = [
        "Problems are paired; p is of flipping the signs of their differences (all ways where at most 20 are not 0,"
        " else 100,000 random ones).",
        "p (Holm) is adjusted for the number of benchmarks, for scores only; metrics of one benchmark are not"
        " independent of each other.",
    ]
    loud = [
        f"**{label.upper()}**: {name} is no test"
        for name, labels in told["labels"].items()
        for label in labels
        if label not in (HELD_OUT, UNKNOWN)
    ]
    other = [f"Versions differ: {', '.join(told['versions'])}."] if told["versions"] else []
    sides = [f"{side.upper()}: {told[side]['checkpoint']} ({told[side]['evaluation']})" for side in ("a", "b")]
    return "\n\n".join(["\n".join(sides), *loud, *other, table(header, rows), "\n".join(notes)]) + "\n"


def _row(name: str, metric: str, told: dict[str, Any]) -> list[str]:
    spread = f" [{100 * told['low']:+.1f}, {100 * told['high']:+.1f}]" if told["low"] is not None else " [no interval]"
    return [
        name,
        metric,
        f"{100 * told['a']:.1f}",
        f"{100 * told['b']:.1f}",
        f"{100 * told['difference']:+.1f}{spread}",
        f"{told['better']}/{told['worse']}/{told['problems']}",
        f"{told['p']:.4f}" + ("" if told["exact"] else " ~"),
        f"{told['p_holm']:.4f}" if "p_holm" in told else "",
    ]
