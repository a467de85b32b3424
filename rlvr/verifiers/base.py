"""What every verifier is, and the rule that a failure of the verifier is never booked as a wrong answer."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from rlvr.keys import ConfigError, nearest
from rlvr.records import Verdict
from rlvr.verifiers.extract import Found, Mode, after_thought, final_span

VOTE = 2000  # characters of a final answer that its normal form is made of
Canary = tuple[Any, str, bool]  # answer, text of a final answer, is it right


class Verifier(ABC):
    """Grades responses; options are the keyword arguments of its constructor."""

    name: ClassVar[str]
    canaries: ClassVar[tuple[Canary, ...]] = ()
    patience: float = 0.0  # seconds of wall clock that one response may take, where this is more than verify.timeout

    @abstractmethod
    def check_answer(self, answer: Any) -> None:
        """Can responses be graded against this answer of a data row?

        Raises:
            ValueError: with the reason, if not.
        """

    @abstractmethod
    def verify(self, response: str, answer: Any) -> Verdict:
        """Grade one response; `judge` turns an exception into "could not judge"."""

    def present(self, given: str) -> str:
        """A response whose final answer is `given`, in the form that this verifier reads."""
        return given


class SpanVerifier(Verifier):
    """A verifier of one final answer that is cut out of the response.

    Args:
        extract: where the answer stands, one of `modes`.
        prefilled: the chat template opens the thought (`<think>` ends the prompt), so a response without
            `</think>` is an unfinished thought and has no answer.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("auto", "boxed", "hash", "answer", "last", "whole")

    def __init__(self, extract: str = "auto", prefilled: bool = False) -> None:
        if extract not in self.modes:
            hint = nearest(str(extract), self.modes)
            raise ConfigError(
                f"verifier {self.name!r}: extract={extract!r} must be one of {', '.join(self.modes)}"
                + (f"; did you mean {hint!r}?" if hint else "")
            )
        self.extract: Mode = extract
        self.prefilled = prefilled

    @abstractmethod
    def grade(self, span: str, how: Mode, answer: Any) -> bool:
        """Is the final answer `span`, found by `how`, right?"""

    def verify(self, response: str, answer: Any) -> Verdict:
        """Score 1 or 0; parts: `answered` (a final answer was found) and `boxes` (complete boxes)."""
        text = after_thought(response, self.prefilled)
        found = final_span(text, self.extract)
        right = found.span != "" and self.grade(found.span, found.how, answer)
        return self.verdict(found, right)

    def verdict(self, found: Found, right: bool) -> Verdict:
        """The verdict on a final answer."""
        parts = {"answered": float(found.span != ""), "boxes": float(found.boxes)}
        return Verdict(score=float(right), parts=parts, answer=self.form(found.span[:VOTE]) if found.span else "")

    def form(self, span: str) -> str:
        """A final answer in a normal form: equal for answers that are written differently, where that is easily told.

        Only votes are counted by it, never scores.
        """
        return " ".join(span.split())

    def present(self, given: str) -> str:
        box = "\\boxed{%s}"
        forms = {"boxed": box, "auto": box, "hash": "#### %s", "answer": "Answer: %s", "last": "$%s$"}
        return ("</think>" if self.prefilled else "") + forms.get(self.extract, "%s").replace("%s", given)

    def check_own(self, answer: Any, text: str) -> None:
        """Raise ValueError unless `text`, the answer as a response, is graded right."""
        if not self.grade(text, "whole", answer):
            raise ValueError(f"answer {answer!r} is not graded right against itself")


def judge(verifier: Verifier, response: str, answer: Any) -> Verdict:
    """Grade one response; an exception or an impossible score becomes "could not judge" with the reason."""
    try:
        verdict = verifier.verify(response, answer)
    except Exception as error:  # whatever a verifier raises is a failure of the verifier, not of the response
        return Verdict(score=None, error=f"{type(error).__name__}: {error}")
    if verdict.error is None and not (verdict.score is not None and 0 <= verdict.score <= 1):
        return Verdict(score=None, error=f"ScoreError: {verifier.name} gave score {verdict.score}, not in [0, 1]")
    if bad := [part for part, value in verdict.parts.items() if not math.isfinite(value)]:
        return Verdict(score=None, error=f"ScoreError: {verifier.name} gave a non-finite part {bad[0]!r}")
    return verdict
