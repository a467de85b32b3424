"""Tables of rows, from a file or the hub: slices, nested columns, repeated questions."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlvr.data.gold import EXTRACTION
from rlvr.data.rows import Raw, check_options, messages_of, normalised, text_of, whole
from rlvr.data.shuffle import Shuffle
from rlvr.keys import ConfigError
from rlvr.schema.data import SourceConfig

OPTIONS = (*EXTRACTION, "distinct", "shuffle")
_SLICE = re.compile(r"(?P<name>[^\[\]]+)(?:\[\s*(?P<first>-?\d+%?)?\s*:\s*(?P<last>-?\d+%?)?\s*\])?")
_ABSENT = object()
_NAMED = 100  # first rows whose column names an error lists


@dataclass(frozen=True)
class Part:
    """A named table and the rows of it to take; bounds as typed: "500", "-500" (from the end), "10%"."""

    name: str
    first: str | None
    last: str | None

    @classmethod
    def of(cls, asked: str, where: str) -> "Part":
        """Take "name[first:last]" apart; raises ConfigError if it is malformed."""
        found = _SLICE.fullmatch(asked.strip())
        if not found:
            raise ConfigError(
                f"{where}={asked}: not understood; write a name, and behind it at most one slice: [500:] or [:10%]"
            )
        return cls(**found.groupdict())

    def range(self, rows: int, where: str) -> range:
        """The row numbers, of a table of `rows` rows.

        Raises:
            ConfigError: if a bound lies outside the table or nothing is left.
        """
        first = self._bound(self.first or "0", rows, where)
        last = rows if self.last is None else self._bound(self.last, rows, where)
        if first >= last:
            part = f"[{self.first or ''}:{self.last or ''}]"
            raise ConfigError(f"{where}: {part} takes nothing of the {rows} rows of {self.name}")
        return range(first, last)

    def _bound(self, typed: str, rows: int, where: str) -> int:
        number = rows * int(typed[:-1]) // 100 if typed.endswith("%") else int(typed)
        if abs(number) > rows:
            raise ConfigError(f"{where}: {typed} lies outside {self.name}, which has {rows} rows")
        return number + rows if typed.startswith("-") else number


def check_table_options(source: SourceConfig, name: str) -> None:
    """Refuse wrong options of a file or hub source; raises ConfigError."""
    check_options(source, name, OPTIONS)
    where, options = f"data.sources.{name}.options", source.options
    if options.get("answer_after") is not None and options.get("answer_boxed"):
        raise ConfigError(f"{where}: answer_after and answer_boxed exclude each other")
    for option in ("answer_boxed", "distinct"):
        if not isinstance(options.get(option, False), bool):
            raise ConfigError(f"{where}.{option}={options[option]}: must be true or false")
    if not isinstance(options.get("answer_after", ""), str) or options.get("answer_after") == "":
        raise ConfigError(f"{where}.answer_after={options['answer_after']}: must be a text such as '####'")
    if "shuffle" in options:
        whole(source, name, "shuffle", 0)


def raws(records: Iterable[dict[str, Any]], part: Part, source: SourceConfig, where: str) -> list[Raw]:
    """The rows of a part: first `distinct`, then `shuffle`, then the slice; numbers are those of the table.

    Args:
        records: the whole table; repeated questions are let go while it streams by.
        where: the config key that asked, for messages.

    Raises:
        ConfigError: if the table is empty, lacks a column, or the slice lies outside it.
    """
    rows: list[Raw] = []
    seen: set[str] = set()
    there: dict[str, None] = {}  # column names, in order
    found = {"question": False, "answer": False}
    for number, record in enumerate(records):
        if number < _NAMED:
            there.update(dict.fromkeys(_names(record)))
        question, answer = _pick(record, source.question), _pick(record, source.answer)
        found["question"] |= question is not _ABSENT
        found["answer"] |= answer is not _ABSENT
        raw = Raw(number, None if question is _ABSENT else question, None if answer is _ABSENT else answer)
        if not source.options.get("distinct") or _is_new(raw, seen):
            rows.append(raw)
    if not rows:
        raise ConfigError(f"{where}: {part.name} has no rows")
    for key, column in (("question", source.question), ("answer", source.answer)):
        if not found[key]:
            raise ConfigError(
                f"{where}: {part.name} has no column {column} (the source's key `{key}`); there are: {', '.join(there)}"
            )
    if "shuffle" in source.options:
        order = Shuffle(len(rows), source.options["shuffle"], "rows")
        rows = [rows[order.at(i)] for i in range(order.size)]
    taken = part.range(len(rows), where)
    return rows[taken.start : taken.stop]


def _is_new(raw: Raw, seen: set[str]) -> bool:
    """Is this question the first of its kind?  `seen` grows.  Unreadable ones are, so that they get reported."""
    exact = repr(raw.question)  # most repeats are exact, and this is much cheaper than the other form
    if raw.question is None or exact not in seen:
        seen.add(exact)
        try:
            question = normalised(text_of(messages_of(raw.question)))
        except ValueError:
            return True
        if question not in seen:
            seen.add(question)
            return True
    return False


def _pick(record: Any, column: str) -> Any:
    """A column by name; if there is none of that name, dots lead into nested ones."""
    if not isinstance(record, dict):
        return _ABSENT
    if column in record:
        return record[column]
    outer, _, inner = column.partition(".")
    return _pick(record.get(outer), inner) if inner else _ABSENT


def _names(record: dict[str, Any], prefix: str = "") -> list[str]:
    return [
        found
        for name, value in record.items()
        for found in (_names(value, f"{prefix}{name}.") if isinstance(value, dict) and value else [f"{prefix}{name}"])
    ]
