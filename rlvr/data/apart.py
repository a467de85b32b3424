"""Training, validation, test and benchmarks are kept apart before a run starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr.data import files
from rlvr.data.overlap import Match, Questions, equal, near
from rlvr.data.rows import messages_of
from rlvr.data.sources import GENERATED, entry_of, refuse_overlap
from rlvr.data.table import Part, raws
from rlvr.keys import ConfigError, nearest
from rlvr.records import Role, Row
from rlvr.schema.data import DataConfig, SourceConfig

QUESTION = "question|problem|prompt|messages|Question|Problem"  # where a benchmark's file may keep its questions
HELD_OUT: tuple[Role, ...] = ("validation", "test")
SHOWN = 5


@dataclass(frozen=True)
class ApartReport:
    """How many training rows were left out, and some of the matches they were left out for; `str` is "" for none."""

    dropped: int
    matches: tuple[Match, ...]

    def __str__(self) -> str:
        if not self.dropped:
            return ""
        title = f"data.overlap=drop: {self.dropped} training rows repeat held-out questions and are left out"
        return "\n".join([title, *(f"  {match}" for match in self.matches[:SHOWN])])


def keep_apart(
    config: DataConfig, rows_by_role: Mapping[Role, Sequence[Row]], base: Path
) -> tuple[dict[Role, list[Row]], ApartReport]:
    """The rows of the three roles, without overlap that data.overlap does not allow.

    With `error`, a question in two roles is refused, and so is a training row that is equal or nearly so to a question
    of a benchmark.  With `drop`, training rows that are equal or nearly so to a held-out question or to one of a
    benchmark are left out.  Validation and test may not share a question either way.

    Args:
        base: where relative paths of data.benchmarks start.

    Raises:
        ConfigError: if a benchmark cannot be read.
        ValueError: naming rows that overlap, or if no training row is left.
    """
    rows = {role: list(some) for role, some in rows_by_role.items()}
    known = benchmark_rows(config, rows_by_role, base)
    report = ApartReport(0, ())
    if config.overlap == "drop":
        held = [row for role in HELD_OUT for row in rows.get(role, [])]
        rows["train"], report = _without(config, rows["train"], [*held, *known])
    elif known and (matches := repeats(config, known, rows["train"])):
        raise ValueError(
            f"{len(matches)} question(s) of data.benchmarks are in the training rows, for example "
            + "; ".join(map(str, matches[:3]))
            + "; leave these rows out with data.overlap=drop"
        )
    refuse_overlap(rows)
    return rows, report


def _without(config: DataConfig, train: list[Row], held: list[Row]) -> tuple[list[Row], ApartReport]:
    matches = repeats(config, held, train)
    questions = Questions.of(train)
    form_of = dict(zip(questions.ids, questions.forms, strict=True))
    taken = {form_of[match.other] for match in matches}  # all rows of such a form: a match names the first
    kept = [row for row, form in zip(train, questions.forms, strict=True) if form not in taken]
    if train and not kept:
        raise ValueError(
            f"data.overlap=drop leaves no training row: all {len(train)} repeat held-out questions, "
            f"for example {matches[0]}"
        )
    return kept, ApartReport(len(train) - len(kept), tuple(matches))


def repeats(config: DataConfig, held: Sequence[Row], train: Sequence[Row]) -> list[Match]:
    """Held-out questions that stand in training rows, equal or nearly so."""
    return [
        *equal(Questions.of(held), Questions.of(train)),
        *near(Questions.of(written(config, held)), Questions.of(written(config, train))),
    ]


def written(config: DataConfig, rows: Sequence[Row]) -> list[Row]:
    """Rows that no generator made: generated ones are alike in all but a number, and never equal."""
    generated = {name for name, source in config.sources.items() if source.kind in GENERATED}
    return [row for row in rows if entry_of(row) not in generated]


def benchmark_rows(config: DataConfig, rows_by_role: Mapping[Role, Sequence[Row]], base: Path) -> list[Row]:
    """The questions of data.benchmarks: held-out rows of a source, or the rows of a file.

    Raises:
        ConfigError: for a name that is neither.
        ValueError: if a row of a file has no question.
    """
    held = [row for role in HELD_OUT for row in rows_by_role.get(role, [])]
    found: list[Row] = []
    for name in config.benchmarks:
        if any(name.partition("[")[0].endswith(ending) for ending in files.READERS):
            found += _of_file(name, base)
            continue
        own = [row for row in held if name in (row.source, entry_of(row))]
        if not own:
            hint = nearest(name, sorted({row.source for row in held}))
            raise ConfigError(
                f"data.benchmarks: {name} is no source with validation or test rows, and no file "
                f"({', '.join(files.READERS)})" + (f"; did you mean {hint}?" if hint else "")
            )
        found += own
    return found


def _of_file(name: str, base: Path) -> list[Row]:
    where = "data.benchmarks"
    part = Part.of(name, where)
    source = SourceConfig(kind="file", question=QUESTION, answer=QUESTION)
    found = []
    for raw in raws(files.records(part.name, source, where, base), part, source, where):
        row = f"{Path(part.name).name}:{raw.number}"
        try:
            messages = messages_of(raw.question)
        except ValueError as error:
            raise ValueError(f"{where}: row {row}: {error}") from error
        found.append(Row(id=row, source=part.name, messages=messages, answer=None, verifier=""))
    return found
