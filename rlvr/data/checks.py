"""What can be wrong with rows, beside their golds: repeats, overlap, golds that contradict each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from rlvr.data.apart import benchmark_rows, written
from rlvr.data.overlap import Match, Questions, equal, near
from rlvr.records import Role, Row
from rlvr.schema.data import DataConfig


@dataclass(frozen=True)
class Finding:
    """Something about the rows, with the rows; `refused` ones should be mended before training."""

    title: str
    cases: tuple[str, ...]
    refused: bool


def findings(config: DataConfig, rows_by_role: Mapping[Role, Sequence[Row]], base: Path) -> list[Finding]:
    """All that was found, in the order of the roles; only findings with cases.

    Raises:
        ConfigError: if a benchmark cannot be read.
    """
    everything = {role: Questions.of(rows) for role, rows in rows_by_role.items()}
    by_hand = {role: Questions.of(written(config, rows)) for role, rows in rows_by_role.items()}
    found: list[Finding] = []
    for role, rows in rows_by_role.items():
        found += _within(role, rows, everything[role], by_hand[role])
    for one, other in combinations(rows_by_role, 2):
        title = f"questions of {other} are in {one}"
        found += _matches(title, equal(everything[other], everything[one]), near(by_hand[other], by_hand[one]))
    if known := benchmark_rows(config, rows_by_role, base):
        same = equal(Questions.of(known), everything["train"])
        close = near(Questions.of(written(config, known)), by_hand["train"])
        found += _matches("questions of benchmarks are in train", same, close)
    return [finding for finding in found if finding.cases]


def _within(role: Role, rows: Sequence[Row], questions: Questions, by_hand: Questions) -> list[Finding]:
    repeated: list[str] = []
    contrary: list[str] = []
    for row, form in zip(rows, questions.forms, strict=True):
        first = rows[questions.first[form]]
        if row is not first:
            same = (row.answer, row.verifier) == (first.answer, first.verifier)
            (repeated if same else contrary).append(f"{row.id} = {first.id}" + ("" if same else _golds(row, first)))
    close = near(by_hand, by_hand)
    repeats = f"{role}: questions that repeat another (options.distinct=true keeps the first)"
    return [
        Finding(repeats, tuple(repeated), True),
        Finding(f"{role}: the same question with another answer", tuple(contrary), True),
        Finding(f"{role}: questions that are nearly another", tuple(map(str, close)), False),
    ]


def _golds(*rows: Row) -> str:
    texts = [str(row.answer) for row in rows]
    return ", golds " + " and ".join(text if len(text) <= 30 else text[:27] + "..." for text in texts)


def _matches(title: str, same: list[Match], close: list[Match]) -> list[Finding]:
    return [
        Finding(f"{title}, equal but for case and spacing", tuple(map(str, same)), True),
        Finding(f"{title}, nearly the same", tuple(map(str, close)), True),
    ]
