"""The rest of a report: costs, configurations, code and machines, what was done on the way, and samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlvr.report.curves import SEQUENCES, surveyed_seconds, surveyed_sequences
from rlvr.report.document import Block, Cell, Sample, Section, Table, Text, count, duration
from rlvr.report.families import Family, differing
from rlvr.report.runs import RunData
from rlvr.trainer.jsonl import Row, overview

PHASES = ("time/generate", "time/update", "time/validate")
SAMPLES = 4  # per family
LISTED = 30  # events of a run
LONG = 70  # characters of a value in a table


# -- cost ------------------------------------------------------------------------------------------


def cost(families: Sequence[Family]) -> Section:
    """What a run of each family has used, on average over its seeds."""
    drawn = ["sequences of the policy", "of the reference", "of the survey", "tokens sampled"]
    times = ["time of the steps", "sampling", "updates", "validation", "start-up", "survey"]
    head = ["family", "steps", *drawn, *times, "peak memory"]
    rows = [[family.name, *_cost(family)] for family in families]
    note = (
        "Means per run, over seeds. The time of the steps includes validation. Start-up is all that stands before the "
        "first step but the survey, of every start of a run that was resumed: imports, loading, a model's making. A "
        "survey's time is what it took to draw what no earlier run had left in the store. The test role and the "
        "writing of the model come on top. Memory is that of the largest process (CPU) or device (GPU)."
    )
    return Section("Cost", [Table(head, rows, note)])


def _cost(family: Family) -> list[str]:
    told = [_spent(run) for run in family.runs]
    mean = {name: float(np.mean([spent[name] for spent in told])) for name in told[0]}
    seconds, known = mean["seconds"] or 1.0, all(run.starts for run in family.runs)
    return [
        count(mean["steps"]),
        *(count(mean[name]) for name in (*SEQUENCES, "survey", "tokens")),
        duration(mean["seconds"]),
        *(f"{mean[name] / seconds:.0%}" for name in PHASES),
        *(duration(mean[name]) if known else "not kept" for name in ("start", "surveying")),
        f"{mean['memory']:.2f} GiB",
    ]


def _spent(run: RunData) -> dict[str, float]:
    _, last = overview(run.rows)
    sums = {name: sum(row.get(name) or 0.0 for row in run.rows) for name in (*SEQUENCES, *PHASES)}
    return {
        "steps": run.steps,
        **{name: sums[name] for name in SEQUENCES},
        "survey": surveyed_sequences(run),
        "tokens": last.get("total/tokens", 0.0),
        "seconds": last.get("total/seconds", 0.0),
        **{name: sums[name] for name in PHASES},
        "start": sum(start["start_seconds"] for start in run.starts),
        "surveying": surveyed_seconds(run),
        "memory": max((row.get("memory/peak_gib") or 0.0 for row in run.rows), default=0.0),
    }


# -- configuration, code, machine ------------------------------------------------------------------


def configuration(families: Sequence[Family]) -> Section:
    """Keys in which families differ; those in which they agree stand in every config.yaml."""
    configs = [family.computed for family in families]
    keys = differing(configs)
    if not keys:
        return Section("Configuration", [Text("All runs have the same configuration, seeds aside.")])
    rows = [[key, *(_short(config.get(key, "(none)")) for config in configs)] for key in keys]
    return Section(
        "Configuration: what differs", [Table(["key", *(f.name for f in families)], rows)], folded=len(keys) > 25
    )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONG else text[: LONG - 3] + "..."


def environment(families: Sequence[Family]) -> Section:
    """Code, versions and machines, one row per distinct environment."""
    groups: dict[str, list[str]] = {}
    for family in families:
        for run in family.runs:
            for told in run.environments.values():
                groups.setdefault(_where(told), []).append(f"{family.name}, seed {run.seed}")
    section = Section("Code and machine")
    if len(groups) > 1:
        section.blocks.append(
            Text("The runs were not all made with the same code on the same kind of machine.", "warning")
        )
    rows = [[where, ", ".join(dict.fromkeys(runs))] for where, runs in groups.items()]
    section.blocks.append(Table(["where", "runs"], rows))
    return section


def _where(told: dict[str, Any]) -> str:
    git = told.get("git")
    code = f"commit {git['commit'][:12]}" if git else "an installed package"
    if git and git["dirty"]:
        code += " with uncommitted changes (changes.patch in the run directory)"
    machine = ", ".join(told.get("gpus") or []) or f"{told.get('cpus')} x {told.get('cpu')}"
    versions = ", ".join(f"{name} {version}" for name, version in told.get("versions", {}).items())
    return f"{code}; {machine}; {told.get('system')}; Python {told.get('python')}; {versions}"


# -- runs and what was done in them ----------------------------------------------------------------


def runs(families: Sequence[Family]) -> Section:
    """Every run with its state, its own numbers, and its events with their causes."""
    head = ["family", "seed", "state", "steps", "last validation", "test", "directory"]
    rows: list[list[str | Cell]] = []
    for family in families:
        for run in family.runs:
            validated = [row["validation/accuracy"] for row in run.rows if row.get("validation/accuracy") is not None]
            last = f"{validated[-1]:.3f}" if validated else ""
            test = run.summary.get("test/accuracy")
            rows.append([
                family.name, str(run.seed), run.state, str(run.steps), Cell(last, "selection"),
                "" if test is None else f"{test:.3f}", str(run.directory),
            ])  # fmt: skip
    section = Section("Runs", [Table(head, rows, "Single runs: none of these numbers has an interval.")])
    told = [row for family in families for run in family.runs for row in _events(family, run)]
    if told:
        section.blocks.append(Table(["family", "seed", "step", "event", "cause"], told, "What was done between steps."))
    return section


def _events(family: Family, run: RunData) -> list[list[str]]:
    """An event that comes again for the same cause is told with its first and last step."""
    spans: list[tuple[Row, Row, int]] = []
    latest: dict[tuple[str, str], int] = {}
    for row in run.events:
        key = (row["event"], row["cause"])
        if key in latest:
            first, _, times = spans[latest[key]]
            spans[latest[key]] = (first, row, times + 1)
        else:
            latest[key] = len(spans)
            spans.append((row, row, 1))
    shown = [
        [
            family.name,
            str(run.seed),
            str(first["step"]) if times == 1 else f"{first['step']} to {last['step']}, {times} times",
            first["event"],
            first["cause"],
        ]
        for first, last, times in spans
    ]
    hidden = len(shown) - LISTED
    return shown[:LISTED] + (
        [[family.name, str(run.seed), "", f"{hidden} more in events.jsonl", ""]] if hidden > 0 else []
    )


# -- samples ---------------------------------------------------------------------------------------


def samples(families: Sequence[Family]) -> Section:
    """Responses to validation problems at the last validation of each family's first run, right and wrong ones."""
    blocks: list[Block] = []
    for family in families:
        run = family.runs[0]
        last = [row for row in run.samples if row["step"] == run.samples[-1]["step"]]
        right, wrong = ([row for row in last if bool(row["score"]) is good] for good in (True, False))
        mixed = [row for pair in zip(wrong, right, strict=False) for row in pair]
        chosen = [*mixed, *wrong[len(right) :], *right[len(wrong) :]][:SAMPLES]
        blocks += [
            _sample(f"{family.name}, seed {run.seed}, step {row['step']}, {row['source']}", row) for row in chosen
        ]
    if not blocks:
        blocks.append(Text("No samples were kept (log.samples=0).", "note"))
    return Section("Samples of responses", blocks)


def _sample(title: str, row: Row) -> Sample:
    score = row["score"]
    verdict = (
        "could not be judged"
        if score is None
        else "right"
        if score == 1
        else "wrong"
        if score == 0
        else f"score {score:.2f}"
    )
    if row["truncated"]:
        verdict += ", cut at the length limit"
    return Sample(title, verdict, str(row["prompt"]), str(row["response"]), str(row["answer"]))
