"""What the arguments of an instruction may be.  Each function returns the clean value or raises ValueError."""

from typing import Any

from rlvr.verifiers.language import check_language

RELATIONS = ("at least", "less than")
language = check_language


def count(value: Any) -> int:
    """A whole number of at least 1; tables with empty cells turn 300 into 300.0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or value < 1:
        raise ValueError(f"{value!r} is not a whole number of at least 1")
    return int(value)


def text(value: Any) -> str:
    """A text that is not blank, without white space around it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not a text")
    return value.strip()


def word(value: Any) -> str:
    """A text without white space in it."""
    if len(text(value).split()) > 1:
        raise ValueError(f"{value!r} is more than one word")
    return text(value)


def letter(value: Any) -> str:
    """A single character."""
    if len(text(value)) != 1:
        raise ValueError(f"{value!r} is not one letter")
    return text(value)


def texts(value: Any) -> list[str]:
    """A list of texts, at least one."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"{value!r} is not a list of words")
    return [text(item) for item in value]


def relation(value: Any) -> str:
    """One of the two that the benchmark has."""
    if value not in RELATIONS:
        raise ValueError(f"{value!r} is neither {' nor '.join(map(repr, RELATIONS))}")
    return value
