"""The first part of a report: what came out, on which data, chosen how, and from how many tries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

import numpy as np

from rlvr.ops.resample import FEWEST, Band, band
from rlvr.report.compare import tested_rates
from rlvr.report.curves import ACCURACY, curve
from rlvr.report.document import Cell, Section, Table, Text, interval
from rlvr.report.families import Family, configurations_tried, what_seeds_vary
from rlvr.report.problems import columns, shared
from rlvr.report.runs import RunData
from rlvr.trainer.jsonl import Row

SELECTION = "SELECTION DATA"
NONE = Cell("not measured", "note")
BY_VALIDATION = ("validation_plateau", "validation_drop")  # triggers that read the validation role


def headline(families: Sequence[Family]) -> Section:
    """Results of all families with intervals, the test role first; those on selection data are marked as such."""
    tested = all(run.test or "test/accuracy" in run.summary for family in families for run in family.runs)
    section = Section("Results")
    if not tested:
        section.blocks.append(
            Text(
                f"HEADLINE ON {SELECTION}: not all runs have reported their test role (it is asked once, after the "
                "last step, if validation.test=true and the data have one). Validation accuracies chose checkpoints "
                "and fired triggers, and the best of several is too high. Do not quote them as results.",
                "warning",
            )
        )
    validations = ["validation, last step", "validation, best step", "validation, step 0"]
    head = ["family", "seeds", "test accuracy, last step", *validations]
    rows = [_row(family) for family in families]
    section.blocks.append(Table(head, rows, "Means over seeds with 95% intervals over seeds and problems."))
    for family in families:
        if ended := [
            f"seed {run.seed} {run.state} after {run.steps}" for run in family.runs if run.state != "finished"
        ]:
            text = (
                f"{family.name}: not all runs have finished ({', '.join(ended)}); curves end where the shortest ends."
            )
            section.blocks.append(Text(text, "note"))
    if any(len(family.runs) < FEWEST for family in families):
        section.blocks.append(
            Text(f"With fewer than {FEWEST} seeds there is no interval: such a number may be luck alone.", "note")
        )
    section.blocks += [
        Text(f"Red numbers were measured on {SELECTION.lower()}: the validation role, which chooses.", "selection"),
        *(Text(text) for text in _protocol(families)),
    ]
    return section


def _row(family: Family) -> list[str | Cell]:
    return [
        family.name,
        f"{len(family.runs)} ({', '.join(str(seed) for seed in family.seeds)})",
        _test(family),
        _validation(family, -1),
        _best(family),
        _validation(family, 0),
    ]


def _test(family: Family) -> Cell:
    """After the last step of every run."""
    if all(run.test for run in family.runs):
        return Cell(interval(band(tested_rates(family, shared(family.runs, "test"))).within(0, 1)))
    told = [run.summary.get("test/accuracy") for run in family.runs]
    if any(value is None for value in told):
        return NONE
    return Cell(interval(_over_seeds(told)))


def _validation(family: Family, at: int) -> Cell:
    found = curve(family, ACCURACY)
    if not found:
        return NONE
    early = at == -1 and any(found.x_T[-1] < run.steps for run in family.runs)  # one of them is not as far
    return Cell(interval(found.band, at) + (f" at step {found.x_T[-1]:.0f}" if early else ""), "selection")


def best_row(run: RunData) -> Row | None:
    """The row of a run's best validation after a step."""
    told = [row for row in run.rows if row["step"] and row.get(ACCURACY) is not None]
    return max(told, key=lambda row: row[ACCURACY]) if told else None


def _best(family: Family) -> Cell:
    rows = [best_row(run) for run in family.runs]
    if not all(rows):
        return NONE
    steps = [row["step"] for row in rows if row]
    if all(run.validation for run in family.runs):
        ids, pairs = shared(family.runs, "validation"), zip(family.runs, steps, strict=True)
        found = band(np.array([[columns(run.validation[step], ids) for run, step in pairs]])).within(0, 1)
    else:
        found = _over_seeds([row[ACCURACY] for row in rows if row])
    return Cell(f"{interval(found)} at step {', '.join(map(str, steps))}", "selection")


def _over_seeds(accuracies: Sequence[float | None]) -> Band:
    return band(np.array(accuracies, dtype=float)[None, :, None]).within(0, 1)


# -- how it came about -------------------------------------------------------------------------


def _protocol(families: Sequence[Family]) -> list[str]:
    runs = [run for family in families for run in family.runs]
    configurations, sweeps = configurations_tried(runs)
    tried = f"Configurations tried: {configurations}"
    tried += f", counting all members of {len(sweeps)} sweep(s), told here or not" if sweeps else ", those told here"
    seeds = sorted({len(family.runs) for family in families})
    return [
        f"Which checkpoint: {_checkpoints(families)}.",
        "The step of a best validation was chosen per run on the very data that its accuracy is measured on; no test "
        "was made of that checkpoint.",
        f"{tried}. Seeds per family: {', '.join(map(str, seeds))}. Whoever picks the best row of this table has chosen "
        "once more: the pick is to be measured again, on seeds that had no part in it.",
        f"{_seeds(families)}. The intervals say nothing of other values of what is fixed.",
        f"Test role: {_asked(runs)}. Validation role: {_sizes(runs)}.",
    ]


def _checkpoints(families: Sequence[Family]) -> str:
    return _each(families, _chosen)


def _seeds(families: Sequence[Family]) -> str:
    return f"What the seeds of a family vary: {_each(families, lambda family: what_seeds_vary(family.runs))}"


def _each(families: Sequence[Family], say: Callable[[Family], str]) -> str:
    """What is to be said of each family; once, if it is the same of all."""
    groups: dict[str, list[str]] = {}
    for family in families:
        groups.setdefault(say(family), []).append(family.name)
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"{', '.join(names)}: {told}" for told, names in groups.items())


def _chosen(family: Family) -> str:
    """How the policy that the test role was asked of came to be."""
    steps = sorted({run.steps for run in family.runs})
    told = f"the policy after the last step ({', '.join(map(str, steps))}), chosen by no score"
    causes = {(row["event"], row["cause"]) for run in family.runs for row in run.events}
    if any(event == "restore_best" for event, _ in causes):
        told += ", but restored on the way to the best on validation data"
    if any(event == "stop" and any(word in cause for word in BY_VALIDATION) for event, cause in causes):
        told += ", but stopped by a trigger that reads validation data"
    if any(not run.finished for run in family.runs):
        told += " (not all runs have finished)"
    return told


def _asked(runs: Sequence[RunData]) -> str:
    sizes = {len(run.test) for run in runs if run.test}
    return f"{', '.join(str(size) for size in sorted(sizes))} problems, asked once" if sizes else "no problem kept"


def _sizes(runs: Sequence[RunData]) -> str:
    told = [len(next(iter(run.validation.values()))) for run in runs if run.validation]
    if not told:
        return "problems not kept one by one, so that intervals are over seeds alone"
    validations = mean(len(run.validation) for run in runs if run.validation)
    return f"{', '.join(str(size) for size in sorted(set(told)))} problems, asked {validations:.0f} times a run"
