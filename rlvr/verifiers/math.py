"""Answers of mathematics problems, in LaTeX or plain text."""

import re
from typing import Any, ClassVar

from rlvr.verifiers.base import Canary, SpanVerifier
from rlvr.verifiers.extract import Mode, tidy, unbox
from rlvr.verifiers.math_equal import equal
from rlvr.verifiers.math_read import MAX_LENGTH, read
from rlvr.verifiers.math_text import normalise, squash
from rlvr.verifiers.rational import read_rational

_NO_ANSWER = re.compile(
    r"proof|prove|not\s?found|see (?:the )?(?:solution|proof|above)|none|n/?a|null|unknown|todo|\?+|-+", re.I
)


class Math(SpanVerifier):
    """Right if the final answer is the same mathematical object as the answer of the row.

    The rules, in order of weight:
      * only text after the reasoning counts, and there the last complete box (see extract.py);
      * the kind of the answer is fixed by the gold text: number or expression, pair or interval, tuple, set or list,
        real set, equation, inequality, matrix, numeral in a base, text; kinds never match each other, except that
        an interval may be written as an inequality, and a value as `x = value`;
      * rational numbers are compared exactly, other values to 30 significant digits, relatively; decimals are not
        approximations (3.14 is not pi);
      * all elements are needed, order matters in pairs and tuples only; `3 or 5` is a list and never right for 3;
      * equations are equal up to a non-zero factor, inequalities up to a positive one;
      * a value and its approximation (`1/3 \\approx 0.333`) that agree to the last digit are one answer;
      * what cannot be read as a whole (sums, integrals, words) or is too large to compute is compared as text, and
        never searched for numbers;
      * percent signs: the policy of rational.py (28% is 0.28; gold 28% also takes 28; gold 28 does not take 28%);
      * units may be left out or added, but not be different ones.

    Args:
        extract: "auto" (box, then ####, then "Answer:", then the last formula or number), or one of these alone
            ("boxed", "hash", "answer", "last"), or "whole": all text after the reasoning.
        prefilled: see SpanVerifier.
    """

    name: ClassVar[str] = "math"
    canaries: ClassVar[tuple[Canary, ...]] = (
        ("28\\%", "28.0\\%", True),
        ("28\\%", "27\\%", False),
        ("\\dfrac{9}{7}", "\\frac97", True),
        ("\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}", False),
        ("\\{1,2\\}", "\\{2,1\\}", True),
        ("(1,2)", "\\{1,2\\}", False),
        ("(-\\infty, 3)", "x<3", True),
        ("(-\\infty, 3)", "x\\leq 3", False),
        ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\begin{bmatrix}1 & 2\\\\3 & \\frac{8}{2}\\end{bmatrix}", True),
        ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\begin{pmatrix}1&3\\\\2&4\\end{pmatrix}", False),
        ("x+2y=3", "2x+4y-6=0", True),
        ("\\frac{1}{\\sqrt{n}}", "\\sqrt{1/n}", True),
        ("3", "3 \\text{ or } 5", False),
    )

    def check_answer(self, answer: Any) -> None:
        text = _gold(answer)
        if not text:
            raise ValueError("the answer is empty")
        if _NO_ANSWER.fullmatch(re.sub(r"\\text\{(.*)\}", r"\1", text).strip()):
            raise ValueError(f"answer {answer!r} says that there is none")
        self.check_own(answer, text)

    def grade(self, span: str, how: Mode, answer: Any) -> bool:
        gold = _gold(answer)
        if max(len(gold), len(span)) > MAX_LENGTH:
            return gold == span
        right, given = normalise(gold), normalise(span)
        return right == given or _same_words(right, given) or equal(read(gold), read(span))


def _same_words(right: str, given: str) -> bool:
    """Words in `\\text{}` may be written without it: Amy alone is a product of three variables."""
    text = squash(right).casefold()
    wordy = "\\text" in right + given and re.search("[a-z]{2}", text) and "\\" not in text.replace("\\or", "")
    return bool(wordy) and text == squash(given).casefold()

    def form(self, span: str) -> str:
        number = read_rational(span)
        return str(number.value) if number else squash(normalise(span)).casefold()


def _gold(answer: Any) -> str:
    """The text of the row's answer, out of its box, dollars or worked solution (GSM8K's ####)."""
    if isinstance(answer, bool) or not isinstance(answer, (int, float, str)):
        raise ValueError(f"answer {answer!r} is {type(answer).__name__}, not text or a number")
    text = str(answer)
    if "####" in text:
        text = text.rpartition("####")[2]
    return tidy(unbox(tidy(text)))
