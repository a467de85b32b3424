"""From the config to checked rows: read, bring the gold into shape, let the verifier try it, report."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.data import arithmetic, files, gym, hub
from rlvr.data.gold import gold
from rlvr.data.rows import Raw, messages_of, normalised, rows_asked, text_of
from rlvr.data.survey import SurveyReport, within_pass_rate
from rlvr.keys import ConfigError
from rlvr.records import Prompt, Role, Row
from rlvr.schema.data import DataConfig, SourceConfig

Reader = Callable[[SourceConfig, str, Role, Path], list[Raw]]
CheckAnswer = Callable[[str, dict[str, Any], Any], None]

KINDS: dict[str, Reader] = {"arithmetic": arithmetic.read, "gym": gym.read, "file": files.read, "hub": hub.read}
GENERATED = ("arithmetic", "gym")  # kinds whose rows differ by construction, and look alike
ROLES: tuple[Role, ...] = ("train", "validation", "test")
SHOWN = 10  # ungradable rows of a source that a report spells out
LABELS = 100  # most sources that the rows of one file may name: each has metrics of its own


@dataclass(frozen=True)
class SourceReport:
    """What became of the rows of one source."""

    source: str
    read: int
    kept: int
    ungradable: tuple[tuple[str, str], ...]  # (row id, reason)

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.read} rows read, {self.kept} kept, {len(self.ungradable)} ungradable"]
        width = max((len(row) for row, _ in self.ungradable[:SHOWN]), default=0)
        lines += [f"  {row:<{width}}  {reason}" for row, reason in self.ungradable[:SHOWN]]
        if len(self.ungradable) > SHOWN:
            lines.append(f"  and {len(self.ungradable) - SHOWN} more")
        return "\n".join(lines)


@dataclass(frozen=True)
class LoadReport:
    """What became of the rows of one role; `str` is a table for people."""

    role: Role
    sources: tuple[SourceReport, ...]
    survey: SurveyReport | None = None

    def __str__(self) -> str:
        return "\n".join([f"role {self.role}", *map(str, self.sources), *([str(self.survey)] if self.survey else [])])


def load_rows(config: DataConfig, role: Role, check_answer: CheckAnswer, base: Path) -> tuple[list[Row], LoadReport]:
    """All rows of one role, in the order of `data.sources`; of training rows, those of the right difficulty.

    Args:
        config: the section `data`.
        role: train, validation or test; sources that say null for it give nothing.
        check_answer: (verifier, its options, gold) -> None; raises ValueError if the verifier cannot use
            the gold.
        base: where relative paths start; the directory that the run was launched from.

    Raises:
        ConfigError: naming the key that is wrong.
        ValueError: naming the ungradable rows, if there are any and data.ungradable=error, or if a source has no other;
            and as `within_pass_rate` does.
    """
    rows, report = read_rows(config, role, check_answer, base)
    for source in report.sources:
        if source.ungradable and (config.ungradable == "error" or not source.kept):
            way_out = "" if config.ungradable == "drop" else ", or leave such rows out with data.ungradable=drop"
            raise ValueError(
                f"role {role}, {source}\nrepair them or choose another data.sources.{source.source}.verifier{way_out}"
            )
    if role != "train" or config.survey is None:
        return rows, report
    rows, survey = within_pass_rate(rows, config, base)
    return rows, LoadReport(role, report.sources, survey)


def read_rows(config: DataConfig, role: Role, check_answer: CheckAnswer, base: Path) -> tuple[list[Row], LoadReport]:
    """The gradable rows of one role and what is wrong with the others, whatever data.ungradable says; see `load_rows`.

    Raises:
        ConfigError: naming the key that is wrong.
    """
    rows: list[Row] = []
    reports = []
    for name, source in config.sources.items():
        if "/" in name:
            raise ConfigError(f"data.sources.{name}: the name of a source may not contain a slash")
        if rows_asked(source, role) is not None:
            kept, report = _checked(KINDS[source.kind](source, name, role, base), source, name, role, check_answer)
            rows += kept
            reports.append(report)
    return rows, LoadReport(role, tuple(reports))


def _checked(
    read: Sequence[Raw], source: SourceConfig, name: str, role: Role, check_answer: CheckAnswer
) -> tuple[list[Row], SourceReport]:
    kept: list[Row] = []
    ungradable: list[tuple[str, str]] = []
    repeated = Counter(str(raw.id) for raw in read if raw.id is not None)
    for raw in read:
        row_id = f"{name}/{role}/{raw.number if raw.id is None else raw.id}"
        try:
            if raw.id is not None and repeated[str(raw.id)] > 1:
                raise ValueError(f"{repeated[str(raw.id)]} rows have this id")
            row = _row(raw, row_id, source, name)
            check_answer(row.verifier, options_of(source, row.verifier), row.answer)
        except ConfigError as error:  # the verifier's name or options are wrong, not the gold
            raise ConfigError(f"row {row_id}: {error}") if raw.verifier is not None else error from None
        except ValueError as error:
            ungradable.append((row_id, str(error)))
        else:
            kept.append(row)
    labels = {row.source for row in kept}
    if len(labels) > LABELS:
        raise ConfigError(
            f"data.sources.{name}.{role}: the column `source` has {len(labels)} different values, {LABELS} at most; "
            "metrics are kept for each, so name the column otherwise if it says something else"
        )
    return kept, SourceReport(name, len(read), len(kept), tuple(ungradable))


def _row(raw: Raw, row_id: str, source: SourceConfig, name: str) -> Row:
    own = {"source": raw.source, "verifier": raw.verifier}
    for column, value in own.items():
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise ValueError(f"its {column} {value!r} is not a name")
    if raw.verifier not in (None, source.verifier) and (":" in raw.verifier or raw.verifier.endswith(".py")):
        raise ValueError("its verifier is code, which only the config may name (data.sources.*.verifier)")
    return Row(
        id=row_id,
        source=raw.source or name,
        messages=messages_of(raw.question),
        answer=gold(raw.answer, source.options),
        verifier=raw.verifier or source.verifier,
    )


# -- what follows from where a row comes from ----------------------------------------------------


def entry_of(row: Row | Prompt) -> str:
    """The entry of `data.sources` that a row comes from, whatever source the row itself names."""
    return row.id.partition("/")[0]


def options_of(source: SourceConfig, verifier: str) -> dict[str, Any]:
    """The options of a row's verifier: those of its source, unless the row names another verifier."""
    return dict(source.verifier_options) if verifier == source.verifier else {}


def verifier_options(config: DataConfig, row: Row | Prompt) -> dict[str, Any]:
    """The options of the verifier of a row or prompt."""
    return options_of(config.sources[entry_of(row)], row.verifier)


def stream_weights(weights: Mapping[str, float], rows: Iterable[Row | Prompt]) -> dict[str, float]:
    """How often training draws from each source that the rows name, relative to the others.

    Args:
        weights: of the entries of `data.sources`; each is shared by the sources that its rows name, by number of rows.
    """
    sizes = Counter((entry_of(row), row.source) for row in rows)
    totals = Counter[str]()
    for (entry, _), size in sizes.items():
        totals[entry] += size
    shares: dict[str, float] = {}
    for (entry, source), size in sizes.items():
        shares[source] = shares.get(source, 0.0) + weights[entry] * size / totals[entry]
    return shares


def refuse_overlap(rows_by_role: Mapping[Role, Sequence[Row]]) -> None:
    """Make sure that no question stands in two roles, whatever its case, spacing and source.

    Raises:
        ValueError: with the number of shared questions and three of them.
    """
    first: dict[str, tuple[Role, str]] = {}
    shared: dict[str, str] = {}
    for role, rows in rows_by_role.items():
        for row in rows:
            question = normalised(text_of(row.messages))
            other, other_id = first.setdefault(question, (role, row.id))
            if other != role:
                shared.setdefault(question, f"{other_id} ({other}) = {row.id} ({role})")
    if shared:
        raise ValueError(
            f"{len(shared)} question(s) stand in more than one of train, validation and test, for example "
            + "; ".join(list(shared.values())[:3])
            + ". Roles must not overlap: cut them from one file or split with slices such as [:7000] and [7000:], "
            "set options.distinct=true for a table that repeats questions, or leave the training rows out with "
            "data.overlap=drop"
        )
