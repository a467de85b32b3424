"""Which held-out problems runs have in common, and their success rates as columns of a resampled table.

Data with a seed deal every seed problems of its own, under the same ids.  Such problems are never paired: what they add
to the spread is in the spread of the seeds.  Those that all runs share are resampled beside the seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rlvr.ops.resample import Array
from rlvr.report.runs import Rates, RunData

Held = Literal["validation", "test"]
ELSEWHERE = ("train", "weight")  # keys of a source on which its held-out problems do not depend


def asked(run: RunData, role: Held, source: str | None = None) -> Rates:
    """Success rates of a run's problems of a role the first time that they were asked, by id; of one source alone, if
    it is named."""
    rates = run.test if role == "test" else next(iter(run.validation.values()), {})
    return of_source(run, rates, source)


def of_source(run: RunData, rates: Rates, source: str | None) -> Rates:
    """The rates of one source's problems; all of them where none is named."""
    return {id_: rate for id_, rate in rates.items() if source is None or run.sources[id_] == source}


def shared(runs: Sequence[RunData], role: Held, source: str | None = None) -> list[str]:
    """The ids that stand for the same problem in all runs: all have been asked it, and deal it from the same data."""
    ids = set.intersection(*(set(asked(run, role, source)) for run in runs))
    entries = {id_.partition("/")[0] for id_ in ids}
    same = {entry for entry in entries if all(_dealt(run, entry) == _dealt(runs[0], entry) for run in runs)}
    return sorted(id_ for id_ in ids if id_.partition("/")[0] in same)


def _dealt(run: RunData, entry: str) -> dict[str, Any]:
    """What decides the held-out problems of an entry of data.sources, its seed included."""
    prefix = f"data.sources.{entry}."
    left_out = tuple(f"{prefix}{key}" for key in ELSEWHERE)
    return {key: value for key, value in run.config.items() if key.startswith(prefix) and key not in left_out}


def columns(rates: Rates, ids: Sequence[str]) -> Array:
    """Values (X,) that have the mean of all rates, and vary as those of the shared problems do; X = 1 without any.

    Args:
        rates: of all problems, not empty.
        ids: of the shared ones.
    """
    mean = float(np.mean(list(rates.values())))
    if not ids:
        return np.array([mean])
    share, own_X = len(ids) / len(rates), np.array([rates[id_] for id_ in ids])
    return mean + share * (own_X - own_X.mean())
