"""A survey and what it says: tables and a verdict in plain words, before a GPU hour is spent on training."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table

from rlvr.algorithms.base import Algorithm
from rlvr.keys import ConfigError
from rlvr.ops.stats import binomial, wilson_interval
from rlvr.records import Prompt
from rlvr.rollout.reference import ReferenceSampler
from rlvr.rollout.survey import Surveyed, learned, survey, survey_count
from rlvr.schema.health import GuardConfig
from rlvr.schema.train import TrainConfig
from rlvr.trainer.display import Display
from rlvr.trainer.jsonl import dumps
from rlvr.world import World

BINS = {"none": 0.0, "up to 1/4": 0.25, "up to 1/2": 0.5, "up to 3/4": 0.75, "less than all": 1.0}  # upper ends
RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.9)  # success rates at which the estimator's bias is shown: whole hundredths
QUANTILES = {"min": 0.0, "10%": 0.1, "50%": 0.5, "90%": 0.9, "max": 1.0}
EVERYTHING = "all sources"
POOR, BAD = 0.3, 0.7  # shares of prompts without a signal from which the verdict is less and less kind
MUCH_CUT = 0.1  # share of completions cut by the length limit that is worth a word

Told = dict[str, Any]


def survey_first(
    algorithm: Algorithm,
    reference: ReferenceSampler,
    prompts: Sequence[Prompt],
    config: TrainConfig,
    world: World,
    display: Display,
    run_dir: Path,
    on_progress: Callable[[float], None],
) -> list[Prompt]:
    """Survey, report, and hand back the prompts to train on with what was learned of them.

    Raises:
        ConfigError: if the run has no reference, or no prompt is left.
        RuntimeError: if too many completions could not be judged.
    """
    count = survey_count(algorithm, config)
    assert count is not None
    if reference.drawer.engines.reference is None:
        raise ConfigError("a survey asks the reference, and this run has none: set log.kl_every=1, which loads one")
    surveyed = survey(algorithm, reference, prompts, config, world, on_progress)
    told = report(surveyed, algorithm, count)
    said = verdict(told, config)
    display.note(tables(told))
    display.note(said)
    if world.leader:
        write(run_dir, surveyed, told, said)
    _check_judged(surveyed, told["all"]["unjudged"], config.health.unjudged)
    kept = learned(prompts, surveyed)
    if not kept:
        name, where = config.algorithm.name, run_dir / "survey.txt"
        raise ConfigError(f"algorithm={name} leaves out every prompt after the survey ({where}): use easier problems")
    return kept


def _check_judged(surveyed: Sequence[Surveyed], share: float, guard: GuardConfig) -> None:
    if guard.action == "stop" and share > guard.limit:
        causes = sorted({t.error for row in surveyed for t in row.tries if t.error})[:3]
        raise RuntimeError(
            f"{share:.1%} of the survey's completions could not be judged, above health.unjudged.limit={guard.limit}; "
            "causes: " + "; ".join(causes)
        )


# -- numbers -------------------------------------------------------------------------------------


def report(surveyed: Sequence[Surveyed], algorithm: Algorithm, count: int) -> Told:
    """All that is told of a survey, JSON values only.

    Args:
        count: completions per prompt, the extra ones not counted.
    """
    groups: dict[str, list[Surveyed]] = {}
    for row in surveyed:
        groups.setdefault(row.source, []).append(row)
    told: Told = {
        "tries": count,
        "sources": {source: _source(rows) for source, rows in groups.items()},
        "all": _source(surveyed),
        "hardest": _hardest(surveyed),
    }
    values = [row.facts["v_star"] for row in surveyed if row.facts and "v_star" in row.facts]
    if values:
        told["v_star"] = {"mean": float(np.mean(values))}
        told["v_star"] |= {name: float(np.quantile(values, q)) for name, q in QUANTILES.items()}
        told["bias"] = [estimator_bias(algorithm, rate, count) for rate in RATES]
    return told


def _source(rows: Sequence[Surveyed]) -> Told:
    """Rates of some prompts; a prompt of which nothing could be judged counts as one without a signal, in no bin."""
    judged, tries = [row for row in rows if row.judged], [t for row in rows for t in row.tries]
    success = [row.solved / len(row.judged) for row in judged]
    never, always = (sum(rate == extreme for rate in success) for extreme in (0.0, 1.0))
    return {
        "prompts": len(rows),
        "dropped": sum(row.facts is None for row in rows),
        "success": sum(success) / len(success) if success else None,
        "solved": (len(success) - never) / len(rows),
        "never": never / len(rows),
        "always": always / len(rows),
        "no_signal": sum(not row.mixed for row in rows) / len(rows),
        "histogram": _histogram(success),
        "truncated": sum(t.truncated for t in tries) / len(tries),
        "unjudged": sum(math.isnan(t.score) for t in tries) / len(tries),
    }


def _histogram(success: Sequence[float]) -> dict[str, int]:
    """How many prompts had which share of their tries right."""
    counts = dict.fromkeys((*BINS, "all"), 0)
    for rate in success:
        counts["all" if rate == 1 else next(name for name, end in BINS.items() if rate <= end)] += 1
    return counts


def _hardest(rows: Sequence[Surveyed]) -> Told | None:
    """The prompt with the smallest success rate, of several the one that was tried most often, with a 95 % interval."""
    judged = [row for row in rows if row.judged]
    if not judged:
        return None
    row = min(judged, key=lambda r: (r.solved / len(r.judged), -len(r.judged)))
    low, high = wilson_interval(row.solved, len(row.judged))
    return {"id": row.id, "solved": row.solved, "tries": len(row.judged), "low": low, "high": high}


def estimator_bias(algorithm: Algorithm, rate: float, count: int) -> Told:
    """What the estimate of V* is on average, for a prompt that is solved at `rate`, against what it should be.

    `Algorithm.summarize` depends on the shares of the scores alone, so a hundred scores in exactly these shares give
    the true value.  Prompts that the algorithm would drop do not enter the average.

    Args:
        rate: a multiple of 1/100.
        count: completions per prompt (N).
    """
    solved = round(100 * rate)
    exact = _value(algorithm, solved, 100)
    chances = binomial(count, rate)
    kept = [(chance, value) for c, chance in enumerate(chances) if (value := _value(algorithm, c, count)) is not None]
    expected = sum(chance * value for chance, value in kept) / sum(chance for chance, _ in kept)
    return {"rate": rate, "v_star": exact, "expected": expected, "unsolved": chances[0]}


def _value(algorithm: Algorithm, right: int, count: int) -> float | None:
    facts = algorithm.summarize(torch.tensor([1.0] * right + [0.0] * (count - right)))
    return None if facts is None else facts["v_star"]


# -- words ---------------------------------------------------------------------------------------


def verdict(told: Told, config: TrainConfig) -> str:
    """Two to four sentences for someone who has to decide whether to start."""
    all_, count = told["all"], told["tries"]
    if all_["success"] is None:
        return "Not one completion could be judged. Look at the verifier before anything else."
    said = [
        f"The reference gets {all_['success']:.0%} of its tries right; of {all_['prompts']} prompts it never solved "
        f"{all_['never']:.0%} and always solved {all_['always']:.0%} in {count} tries.",
        _outlook(all_),
    ]
    if "v_star" in told and all_["never"] and not all_["dropped"]:
        said.append(
            "Where nothing was solved V* is at its lowest and wrong answers teach nothing; a prompt that is solved 5% "
            f"of the time looks so with chance {0.95**count:.0%}, and survey.extra=N would look closer."
        )
    if all_["truncated"] > MUCH_CUT:
        said.append(
            f"{all_['truncated']:.0%} of the completions were cut at rollout.max_tokens={config.rollout.max_tokens}: "
            "these numbers speak of the limit as much as of the model."
        )
    return " ".join(said)


def _outlook(all_: Told) -> str:
    nothing = all_["no_signal"]
    if nothing < POOR:
        return f"{1 - nothing:.0%} of the prompts are sometimes right and sometimes wrong: there is much to learn from."
    way = "easier problems or a stronger model" if all_["never"] > all_["always"] else "harder problems"
    if nothing < BAD:
        return f"{nothing:.0%} of the prompts carry no learning signal at the start: {way} would waste less sampling."
    return f"Most prompts ({nothing:.0%}) carry no learning signal at the start: look for {way} before training."


# -- tables --------------------------------------------------------------------------------------


def tables(told: Told) -> RenderableType:
    """All numbers of a report."""
    parts: list[RenderableType] = [_rates(told)]
    if hardest := told["hardest"]:
        counted = f"{hardest['solved']} of {hardest['tries']} ({hardest['id']})"
        parts.append(f"smallest success rate: {counted}, 95% interval [{hardest['low']:.3f}, {hardest['high']:.3f}]\n")
    if "v_star" in told:
        parts += [_values(told), _biases(told)]
    return Group(*parts)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column()
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _rates(told: Told) -> Table:
    several = len(told["sources"]) > 1
    columns = told["sources"] | ({EVERYTHING: told["all"]} if several else {})
    count = told["tries"]
    table = _table(f"reference, {count} tries per prompt", *columns)
    shares = {
        "pass@1": "success",
        f"pass@{count}": "solved",
        "always solved": "always",
        "never solved": "never",
        "no learning signal": "no_signal",
        "cut by the length limit": "truncated",
        "could not be judged": "unjudged",
    }
    rows = list(columns.values())
    table.add_row("prompts", *[str(row["prompts"]) for row in rows])
    table.add_row("left out of training", *[str(row["dropped"]) for row in rows])
    for label, name in shares.items():
        table.add_row(label, *["-" if row[name] is None else f"{row[name]:.1%}" for row in rows])
    table.add_section()
    for name in (*BINS, "all"):
        table.add_row(f"tries right: {name}", *[str(row["histogram"][name]) for row in rows])
    return table


def _values(told: Told) -> Table:
    table = _table("V*, estimated", *told["v_star"])
    table.add_row("prompts", *[f"{value:.3f}" for value in told["v_star"].values()])
    return table


def _biases(told: Told) -> Table:
    table = _table(
        f"bias of the estimate with {told['tries']} tries", "V*", "estimate, mean", "bias", "nothing solved, chance"
    )
    for row in told["bias"]:
        exact, expected = row["v_star"], row["expected"]
        numbers = (f"{exact:.3f}", f"{expected:.3f}", f"{expected - exact:+.3f}", f"{row['unsolved']:.1%}")
        table.add_row(f"success rate {row['rate']:g}", *numbers)
    return table


# -- files ---------------------------------------------------------------------------------------


def plain(told: Told, said: str, width: int = 110) -> str:
    """Tables and verdict as text."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(tables(told))
    console.print(said)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def write(run_dir: Path, surveyed: Sequence[Surveyed], told: Told, said: str) -> None:
    """`survey.jsonl`, a line per prompt, as `data.survey` reads it; `survey.json`, numbers; `survey.txt`, the text."""
    with (run_dir / "survey.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(dumps(_line(row)) + "\n" for row in surveyed)
    (run_dir / "survey.json").write_text(json.dumps(told | {"verdict": said}, indent=1) + "\n", encoding="utf-8")
    (run_dir / "survey.txt").write_text(plain(told, said), encoding="utf-8")


def _line(row: Surveyed) -> Told:
    counts = {"id": row.id, "source": row.source, "solved": row.solved, "judged": len(row.judged)}
    return counts | {"dropped": row.facts is None, "facts": row.facts or {}, "tries": [asdict(t) for t in row.tries]}
