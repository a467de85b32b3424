"""Which training rows are worth the samples: those that were solved neither always nor never in a survey."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr.keys import ConfigError
from rlvr.records import Row
from rlvr.schema.data import DataConfig


@dataclass(frozen=True)
class SurveyReport:
    """How many rows a pass rate kept and why the others went."""

    low: float
    high: float
    kept: int
    below: int
    above: int
    unjudged: int  # rows of which no response could be judged

    def __str__(self) -> str:
        unjudged = f", {self.unjudged} without a judged response" if self.unjudged else ""
        return (
            f"data.pass_rate [{self.low:g}, {self.high:g}]: {self.kept} rows kept; "
            f"left out: {self.below} solved less often, {self.above} more often{unjudged}"
        )


def within_pass_rate(rows: Sequence[Row], config: DataConfig, base: Path) -> tuple[list[Row], SurveyReport]:
    """Training rows whose share of solved responses lies in data.pass_rate, ends included.

    Args:
        base: where a relative data.survey starts.

    Raises:
        ConfigError: if data.pass_rate is no range, or data.survey no file.
        ValueError: if a line of the file is broken, a row is missing from it, or no row is left.
    """
    low, high = _range(config.pass_rate)
    rates = pass_rates(base / Path(config.survey or "").expanduser())
    if missing := [row.id for row in rows if row.id not in rates]:
        raise ValueError(
            f"data.survey={config.survey} has no result of {len(missing)} of {len(rows)} training rows, for example "
            f"{', '.join(missing[:3])}; survey the same data again"
        )
    known = [(row, rates[row.id]) for row in rows]
    kept = [row for row, rate in known if rate is not None and low <= rate <= high]
    report = SurveyReport(
        low=low,
        high=high,
        kept=len(kept),
        below=sum(rate is not None and rate < low for _, rate in known),
        above=sum(rate is not None and rate > high for _, rate in known),
        unjudged=sum(rate is None for _, rate in known),
    )
    if not kept:
        raise ValueError(f"{report}; widen data.pass_rate")
    return kept, report


def pass_rates(path: Path) -> dict[str, float | None]:
    """Solved over judged responses by row id; None where none was judged.

    Raises:
        ConfigError: if there is no such file.
        ValueError: naming the line that is not {"id": text, "solved": number, "judged": number}.
    """
    if not path.is_file():
        raise ConfigError(f"data.survey={path}: there is no such file")
    rates: dict[str, float | None] = {}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                told = json.loads(line)
                row, solved, judged = told["id"], told["solved"], told["judged"]
                if not isinstance(row, str) or not 0 <= solved <= judged:
                    raise ValueError("0 <= solved <= judged does not hold, or the id is no text")
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f'{path}, line {number}: not {{"id": ..., "solved": ..., "judged": ...}}: {error}'
                ) from error
            if row in rates:
                raise ValueError(f"{path}, line {number}: {row} has a result already")
            rates[row] = solved / judged if judged else None
    return rates


def _range(pass_rate: Sequence[float]) -> tuple[float, float]:
    if len(pass_rate) != 2 or not 0 <= pass_rate[0] <= pass_rate[1] <= 1:
        raise ConfigError(
            f"data.pass_rate={list(pass_rate)}: with data.survey it must be the lowest and the highest share to keep, "
            "such as [0.1, 0.9]"
        )
    return pass_rate[0], pass_rate[1]
