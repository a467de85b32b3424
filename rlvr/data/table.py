"""Tables of rows, from a file or the hub: columns, slices, filters, repeated questions, multiple choice."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from rlvr.data.gold import EXTRACTION
from rlvr.data.rows import Raw, check_options, messages_of, normalised, text_of, whole
from rlvr.data.shuffle import Shuffle
from rlvr.keys import ConfigError
from rlvr.schema.data import SourceConfig

OPTIONS = (*EXTRACTION, "distinct", "shuffle", "where", "distractors")
OWN = ("id", "source", "verifier")  # columns with which rows of a file speak for themselves
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
    if not isinstance(options.get("where", {}), dict):
        raise ConfigError(f"{where}.where={options['where']}: must be a mapping such as {{ability: code}}")
    distractors = options.get("distractors", [])
    if not isinstance(distractors, list) or not all(isinstance(column, str) for column in distractors):
        raise ConfigError(f"{where}.distractors={distractors}: must be a list of columns")
    if "shuffle" in options:
        whole(source, name, "shuffle", 0)


def needed(source: SourceConfig, there: Collection[str], own: Collection[str] = ()) -> list[str] | None:
    """The columns of a table that have to be read; None for all, where an error will have to list them.

    Args:
        there: the columns that the table has.
        own: columns that are read where they are there.
    """
    wanted = [_top(source.question, there), _top(source.answer, there)]
    if not all(wanted):
        return None
    others = (*source.options.get("where", {}), *source.options.get("distractors", []))
    other = {_outer(column, there) for column in others}
    return sorted(set().union(*wanted, other & set(there), set(own) & set(there)))


def _top(columns: str, there: Collection[str]) -> set[str]:
    names = [columns] if columns in there else re.split(r"[|,]", columns)
    return {_outer(name.strip(), there) for name in names} & set(there)


def _outer(column: str, there: Collection[str]) -> str:
    return column if column in there else column.split(".")[0]


def raws(
    records: Iterable[dict[str, Any]], part: Part, source: SourceConfig, where: str, own: Collection[str] = ()
) -> list[Raw]:
    """The rows of a part: first `where`, then `distinct`, then `shuffle`, then the slice; numbers are the table's.

    Args:
        records: the whole table; repeated questions are let go while it streams by.
        where: the config key that asked, for messages.
        own: which of the columns id, source and verifier come before what the config says.

    Raises:
        ConfigError: if the table is empty, lacks a column, or the slice lies outside it.
    """
    rows: list[Raw] = []
    seen: set[str] = set()
    there: dict[str, None] = {}  # column names, in order
    found = dict.fromkeys(_asked(source), False)
    for number, record in enumerate(records):
        if number < _NAMED:
            there.update(dict.fromkeys(_names(record)))
        for asked in found:
            found[asked] = found[asked] or _pick(record, asked[1]) is not _ABSENT
        if not _holds(record, source.options.get("where", {})):
            continue
        raw = _raw(number, record, source, own)
        if not source.options.get("distinct") or _is_new(raw, seen):
            rows.append(raw)
    if not there:
        raise ConfigError(f"{where}: {part.name} has no rows")
    for (key, column), is_there in found.items():
        if not is_there:
            raise ConfigError(
                f"{where}: {part.name} has no column {column} (the source's key `{key}`); there are: {', '.join(there)}"
            )
    if not rows:
        raise ConfigError(f"{where}: no row of {part.name} has {source.options['where']} (the source's options.where)")
    if "shuffle" in source.options:
        order = Shuffle(len(rows), source.options["shuffle"], "rows")
        rows = [rows[order.at(i)] for i in range(order.size)]
    taken = part.range(len(rows), where)
    return rows[taken.start : taken.stop]


def _asked(source: SourceConfig) -> list[tuple[str, str]]:
    """The columns that a table must have, with the key that asks for each."""
    asked = [("question", source.question), ("answer", source.answer)]
    for option in ("where", "distractors"):
        asked += [(f"options.{option}", column) for column in source.options.get(option, [])]
    return asked


def _raw(number: int, record: dict[str, Any], source: SourceConfig, own: Collection[str]) -> Raw:
    question, answer = _value(record, source.question), _value(record, source.answer)
    if source.options.get("distractors") and isinstance(question, str) and answer is not None:
        wrong = [_value(record, column) for column in source.options["distractors"]]
        question, answer = multiple_choice(question, answer, [text for text in wrong if text is not None])
    return Raw(number, question, answer, **{column: record.get(column) for column in own})


def multiple_choice(question: str, right: Any, wrong: list[Any]) -> tuple[str, dict[str, Any]]:
    """The question with its options below it, and the gold for the verifier `choice`.

    The order of the options is random, but depends on the question alone: it is the same in every run.
    """
    order = Shuffle(len(wrong) + 1, question, "options")
    texts = [str([right, *wrong][order.at(place)]).strip() for place in range(order.size)]
    letters = [chr(ord("A") + place) for place in range(order.size)]
    letter = next(letters[place] for place in range(order.size) if order.at(place) == 0)
    listed = "\n".join(f"{name}. {text}" for name, text in zip(letters, texts, strict=True))
    return f"{question.strip()}\n\n{listed}", {"answer": letter, "options": texts}


def _holds(record: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Has the record the wanted value, or one of a list of them, in every column?"""
    for column, value in wanted.items():
        if _pick(record, column) not in (value if isinstance(value, list) else [value]):
            return False
    return True


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


def _value(record: dict[str, Any], columns: str) -> Any:
    """What stands in a column, None for nothing."""
    value = _pick(record, columns)
    return None if value is _ABSENT else value


def _pick(record: dict[str, Any], columns: str) -> Any:
    """A column; a mapping for names with commas between; the first that is not null for names with | between."""
    if columns in record:
        return record[columns]
    if "|" in columns:
        values = [_reach(record, name.strip()) for name in columns.split("|")]
        there = [value for value in values if value is not _ABSENT]
        return next((value for value in there if value is not None), there[0] if there else _ABSENT)
    if "," in columns:
        names = [name.strip() for name in columns.split(",")]
        values = [_reach(record, name) for name in names]
        ends = [name.rpartition(".")[2] for name in names]
        return _ABSENT if _ABSENT in values else dict(zip(ends, values, strict=True))
    return _reach(record, columns)


def _reach(record: Any, column: str) -> Any:
    """A column by name; if there is none of that name, dots lead into nested ones, and numbers into lists."""
    if isinstance(record, list) and column.partition(".")[0].isdigit():
        record = dict(zip(map(str, range(len(record))), record, strict=True))
    if not isinstance(record, dict):
        return _ABSENT
    if column in record:
        return record[column]
    outer, _, inner = column.partition(".")
    return _reach(record.get(outer), inner) if inner else _ABSENT


def _names(record: dict[str, Any], prefix: str = "") -> list[str]:
    return [
        found
        for name, value in record.items()
        for found in (_names(value, f"{prefix}{name}.") if isinstance(value, dict) and value else [f"{prefix}{name}"])
    ]
