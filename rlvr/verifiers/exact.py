"""The answer, word for word."""

from typing import Any, ClassVar

from rlvr.verifiers.base import Canary, SpanVerifier
from rlvr.verifiers.extract import Mode


class Exact(SpanVerifier):
    """Right if the final text equals the answer, runs of white space counting as one space.

    Args:
        extract: "whole" (all text after the reasoning), "boxed", "hash" or "answer".
        ignore_case: upper and lower case are the same.
        prefilled: see SpanVerifier.
    """

    name: ClassVar[str] = "exact"
    modes: ClassVar[tuple[Mode, ...]] = ("whole", "boxed", "hash", "answer")
    canaries: ClassVar[tuple[Canary, ...]] = (("red", "red", True), ("red", "blue", False))

    def __init__(self, extract: str = "whole", ignore_case: bool = False, prefilled: bool = False) -> None:
        super().__init__(extract, prefilled)
        self.ignore_case = ignore_case

    def check_answer(self, answer: Any) -> None:
        if not isinstance(answer, str):
            raise ValueError(f"answer {answer!r} is {type(answer).__name__}, not text")
        if not answer.strip():
            raise ValueError("the answer is empty")

    def grade(self, span: str, how: Mode, answer: Any) -> bool:
        return self._normal(span) == self._normal(answer)

    def form(self, span: str) -> str:
        return self._normal(span)

    def _normal(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text
