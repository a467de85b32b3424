"""Multiple choice: the answer is a letter."""

import re
from typing import Any, ClassVar

from rlvr.verifiers.base import Canary, SpanVerifier
from rlvr.verifiers.extract import Mode

# A letter alone, in brackets, or with the option's text behind "." ")" ":"; "Don't know" is no D and "A cat" no A.
_LETTER = re.compile(
    r"(?:option|choice)?\s*(?:\\(?:text|mathrm|mathbf|textbf)\s*\{\s*)?[(\[{]?\s*(?P<letter>[A-Za-z])\s*[)\]}]*\s*"
    r"(?:[.:)\]](?:\s.*)?|because\b.*|since\b.*|)\s*\}?",
    re.S | re.I,
)
_BRACKETED = re.compile(r"\(\s*(?P<letter>[A-Za-z])\s*\)\s*.*", re.S)
_OTHER_LETTER = re.compile(r"(?:\b(?:or|and)\b|[,/&])\s*(?:option\s*)?\(?[A-Z]\b\)?")


class Choice(SpanVerifier):
    """Right if the final answer is the letter of the right option; more than one letter never is.

    Args:
        extract: "auto" (box, then ####, then "Answer:"), "boxed", "hash", "answer" or "whole".
        prefilled: see SpanVerifier.
    """

    name: ClassVar[str] = "choice"
    modes: ClassVar[tuple[Mode, ...]] = ("auto", "boxed", "hash", "answer", "whole")
    canaries: ClassVar[tuple[Canary, ...]] = (
        ("E", "\\text{E}", True),
        ("C", "(C)", True),
        ("D", "Don't know", False),
        ("A", "None of the above", False),
        ("A", "A or B", False),
    )

    def __init__(self, extract: str = "auto", prefilled: bool = False) -> None:
        super().__init__(extract, prefilled)

    def check_answer(self, answer: Any) -> None:
        if not isinstance(answer, str) or not re.fullmatch(r"\(?[A-Za-z]\)?\.?", answer.strip()):
            raise ValueError(f"answer {answer!r} is not the letter of an option")

    def grade(self, span: str, how: Mode, answer: Any) -> bool:
        if how == "last" or _OTHER_LETTER.search(span):
            return False
        match = _LETTER.fullmatch(span.strip()) or _BRACKETED.fullmatch(span.strip())
        return match is not None and match["letter"].upper() == answer.strip(" ().").upper()
