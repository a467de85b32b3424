"""Files of JSON objects, one a line, each with the `step` that it belongs to, in the order of the steps."""

import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
PHASE = re.compile("time/(?!step$)[^/]+")  # deeper names are parts of these, and time/step is the whole


class JsonLines:
    """A file of JSON objects, one a line, that is only ever appended to."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, rows: Iterable[Row]) -> None:
        """Append rows and hand them to the operating system."""
        self._file.write("".join(dumps(row) + "\n" for row in rows))
        self._file.flush()

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def dumps(row: Row) -> str:
    """One line of JSON; floats read back bit for bit, and null stands for NaN and infinities, which JSON lacks."""
    try:
        return json.dumps(row, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(row), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_rows(path: Path) -> list[Row]:
    """All whole rows of a file; none if it does not exist.

    Raises:
        ValueError: naming the line that is not a JSON object with a step.
    """
    return [row for row, _ in _scan(path)]


def cut(path: Path, last_step: int) -> None:
    """Drop the rows after `last_step`, and a torn last line.

    Rows stand in the order of their steps, so all that goes is the tail: a single truncation, after which a
    killed process leaves either the old file or the new one.

    Raises:
        ValueError: as `read_rows`.
    """
    keep = 0
    for row, size in _scan(path):
        if row["step"] > last_step:
            break
        keep += size
    if path.exists() and keep < path.stat().st_size:
        os.truncate(path, keep)


def _scan(path: Path) -> Iterator[tuple[Row, int]]:
    """Whole rows and their sizes in bytes; the line that a killed process left half written is not one."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
                int(row["step"])
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{path}:{number}: not a JSON object with a step ({error}); repair or remove the line"
                ) from error
            yield row, len(line)


def overview(rows: Sequence[Row]) -> tuple[dict[str, float], dict[str, float]]:
    """The ends of a run, for its final table.

    Returns:
        the first validated row, and the latest value of every metric together with `best/accuracy`, `best/step`
        and the sums over the run `total/seconds`, `total/tokens`, `total/time/<phase>` and `total/health/<guard>`.
    """
    validated = [row for row in rows if row.get("validation/accuracy") is not None]
    last: dict[str, float] = {}
    totals: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        last |= {name: value for name, value in row.items() if value is not None}
        seconds = row.get("time/step") or 0.0
        totals["total/seconds"] += seconds
        totals["total/tokens"] += seconds * (row.get("speed/tokens_per_second") or 0.0)
        for name in row:
            if PHASE.fullmatch(name) or name.startswith("health/"):
                totals[f"total/{name}"] += row[name]
    last |= totals
    if validated:
        best = max(validated, key=lambda row: row["validation/accuracy"])
        last |= {"best/accuracy": best["validation/accuracy"], "best/step": best["step"]}
    return (validated or [{}])[0], last
