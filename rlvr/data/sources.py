"""From the config to checked rows: read, bring the gold into shape, let the verifier try it, report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.data import arithmetic, files, gym, hub
from rlvr.data.gold import gold
from rlvr.data.rows import Raw, messages_of, normalised, rows_asked, text_of
from rlvr.keys import ConfigError
from rlvr.records import Role, Row
from rlvr.schema.data import DataConfig, SourceConfig

Reader = Callable[[SourceConfig, str, Role, Path], list[Raw]]
CheckAnswer = Callable[[str, dict[str, Any], Any], None]

KINDS: dict[str, Reader] = {"arithmetic": arithmetic.read, "gym": gym.read, "file": files.read, "hub": hub.read}
SHOWN = 10  # ungradable rows of a source that a report spells out


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

    def __str__(self) -> str:
        return "\n".join([f"role {self.role}", *map(str, self.sources)])


def load_rows(config: DataConfig, role: Role, check_answer: CheckAnswer, base: Path) -> tuple[list[Row], LoadReport]:
    """All rows of one role, in the order of `data.sources`.

    Args:
        config: the section `data`.
        role: train, validation or test; sources that say null for it give nothing.
        check_answer: (verifier, its options, gold) -> None; raises ValueError if the verifier cannot use
            the gold.
        base: where relative paths start; the directory that the run was launched from.

    Raises:
        ConfigError: naming the key that is wrong.
        ValueError: naming the ungradable rows, if there are any and data.ungradable=error, or if a source has no other.
    """
    rows: list[Row] = []
    reports = []
    for name, source in config.sources.items():
        if rows_asked(source, role) is None:
            continue
        kept, report = _checked(KINDS[source.kind](source, name, role, base), source, name, role, check_answer)
        if report.ungradable and (config.ungradable == "error" or not kept):
            way_out = "" if config.ungradable == "drop" else ", or leave such rows out with data.ungradable=drop"
            raise ValueError(
                f"role {role}, {report}\nrepair them or choose another data.sources.{name}.verifier{way_out}"
            )
        rows += kept
        reports.append(report)
    return rows, LoadReport(role, tuple(reports))


def _checked(
    read: Sequence[Raw], source: SourceConfig, name: str, role: Role, check_answer: CheckAnswer
) -> tuple[list[Row], SourceReport]:
    kept: list[Row] = []
    ungradable: list[tuple[str, str]] = []
    for raw in read:
        row_id = f"{name}/{role}/{raw.number}"
        try:
            messages, answer = messages_of(raw.question), gold(raw.answer, source.options)
            check_answer(source.verifier, source.verifier_options, answer)
        except ConfigError:
            raise  # the verifier's name or options are wrong, not this row
        except ValueError as error:
            ungradable.append((row_id, str(error)))
        else:
            kept.append(Row(id=row_id, source=name, messages=messages, answer=answer, verifier=source.verifier))
    return kept, SourceReport(name, len(read), len(kept), tuple(ungradable))


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
            "and set options.distinct=true for a table that repeats questions"
        )
