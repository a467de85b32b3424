"""Word problems whose answer is one number (GSM8K and its kin)."""

import re
from functools import lru_cache
from typing import Any, ClassVar

from rlvr.keys import ConfigError
from rlvr.verifiers.base import Canary, SpanVerifier
from rlvr.verifiers.extract import NUMBER_IN_TEXT, Mode, tidy, unbox
from rlvr.verifiers.rational import Rational, agree, read_rational
from rlvr.verifiers.units import split_unit

_NOT = re.compile(r"\b(?:not|never)\b|n't\b|\u2260|\\neq?\b", re.I)
_HEDGE = re.compile(r"[,;]|\b(?:or|and)\b")


class Number(SpanVerifier):
    """Right if the final number equals the answer in exact rational arithmetic.

    The percent policy is that of `rational.py`.  Two different numbers in one final answer ("3 or 5") are a hedge
    and never right.

    Args:
        extract: "auto" (box, then ####, then "Answer:", then the last number), or one of these alone
            ("boxed", "hash", "answer", "last"), or "whole": all text after the reasoning.
        tolerance: allowed difference relative to the answer; 0 is exact.
        prefilled: see SpanVerifier.
    """

    name: ClassVar[str] = "number"
    canaries: ClassVar[tuple[Canary, ...]] = (
        ("1234.5", "1,234.50", True),
        ("28%", "0.28", True),
        ("5/4", "1.25", True),
        ("3", "3 or 5", False),
        ("5", "-5", False),
    )

    def __init__(self, extract: str = "auto", tolerance: float = 0.0, prefilled: bool = False) -> None:
        super().__init__(extract, prefilled)
        if not 0 <= tolerance < 1:
            raise ConfigError(f"verifier 'number': tolerance={tolerance} must be in [0, 1)")
        self.tolerance = tolerance

    def check_answer(self, answer: Any) -> None:
        if isinstance(answer, bool) or not isinstance(answer, (int, float, str)):
            raise ValueError(f"answer {answer!r} is {type(answer).__name__}, not a number")
        if _gold(answer) is None:
            raise ValueError(f"answer {answer!r} is not a number")

    def grade(self, span: str, how: Mode, answer: Any) -> bool:
        gold = _gold(answer)
        if gold is None:
            raise ValueError(f"answer {answer!r} is not a number")
        given = read_quantity(span)
        if given is None and how in ("answer", "hash"):
            given = _only_number(span)
        return given is not None and agree(gold, given, self.tolerance)

    def form(self, span: str) -> str:
        number = read_quantity(span) or _only_number(span)
        return str(number.value) if number else super().form(span)


@lru_cache(maxsize=4096)
def read_quantity(text: str) -> Rational | None:
    """A number, perhaps with a unit behind it or a calculation before it (`x = 5`, `2 + 3 = 5`)."""
    left, equals, right = text.rpartition("=")
    if equals and not _HEDGE.search(left):
        text = right
    return read_rational(text) or read_rational(split_unit(text)[0])


def _only_number(sentence: str) -> Rational | None:
    """The number of a sentence that has exactly one value in it; "3 or 5" and "not 3" have none."""
    matches = list(NUMBER_IN_TEXT.finditer(sentence))
    found = {read_rational(match.group(0)) for match in matches}
    if len(found) != 1 or _NOT.search(sentence[: matches[0].start()]):
        return None
    return found.pop()


def _gold(answer: Any) -> Rational | None:
    """GSM8K keeps a worked solution before ####; other sets box or dollar-quote their answer."""
    text = str(answer)
    if "####" in text:
        text = text.rpartition("####")[2]
    return read_quantity(tidy(unbox(tidy(text))))
