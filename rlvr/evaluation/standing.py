"""What the rows of a benchmark were to the run that made the checkpoint: held out, selection data, or training data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr.data.apart import repeats
from rlvr.data.sources import load_rows
from rlvr.evaluation.origin import Origin
from rlvr.records import Role, Row
from rlvr.rollout.judge import check_answer

SEEN: dict[Role, str] = {"train": "training data", "validation": "selection data"}
HELD_OUT, UNKNOWN = "held out", "unknown"


@dataclass(frozen=True)
class Standing:
    """A label, one of "held out", "selection data", "training data" and "unknown", and its reason."""

    label: str
    reason: str


def standings(origin: Origin | None, benchmarks: dict[str, Sequence[Row]]) -> dict[str, Standing]:
    """The standing of each benchmark.

    Training data come before selection data where a benchmark holds both.  Questions count as the same if they are
    equal but for case and spacing, or nearly the same.
    """
    if origin is None:
        unknown = Standing(UNKNOWN, "no run is known that made this model; origin=RUN names one")
        return dict.fromkeys(benchmarks, unknown)
    seen: dict[Role, list[Row]] = {}
    for role in SEEN:
        try:
            seen[role], _ = load_rows(origin.config.data, role, check_answer, Path.cwd())
        except (ValueError, OSError) as error:  # for example a file that is not here
            reason = f"the {role} rows of the run cannot be read: {str(error).splitlines()[0]}"
            return dict.fromkeys(benchmarks, Standing(UNKNOWN, reason))
    return {name: _standing(origin, list(rows), seen) for name, rows in benchmarks.items()}


def _standing(origin: Origin, rows: list[Row], seen: dict[Role, list[Row]]) -> Standing:
    for role, label in SEEN.items():
        known = {match.row for match in repeats(origin.config.data, rows, seen[role])} if seen[role] else set()
        if known:
            which = "chose checkpoints in" if role == "validation" else "were trained on in"
            return Standing(label, f"{len(known)} of {len(rows)} questions {which} {origin.directory.name}")
    return Standing(HELD_OUT, f"no question was trained on or validated on in {origin.directory.name}")
