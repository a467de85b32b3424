"""Multiple choice: the answer is an option, given by its letter, its text or its value."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from rlvr.keys import ConfigError
from rlvr.records import Verdict
from rlvr.verifiers.base import Canary, SpanVerifier
from rlvr.verifiers.extract import Found, Mode, after_thought, final_span, tidy
from rlvr.verifiers.rational import Rational, agree, read_rational
from rlvr.verifiers.units import canonical, split_unit

_LATEX_TEXT = re.compile(r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mathsf|boldsymbol|bf|rm)\s*\{([^{}]*)\}")
_LATEX_SPACE = re.compile(r"\\[,;:! ]|\\q?quad|~")
_NAME = r"(?:(?:the|my|correct|right|best|final)\s+)*(?:option|choice|answer)\s*(?:is\b|:)?\s*:?\s*"
_LETTER = rf"(?:{_NAME})?[(\[{{]?\s*(?P<letter>[A-Za-z])\s*"
# A letter alone, in brackets, or before its text: "Don't know" is no D and "A cat" no A.
_FORMS = [
    re.compile(rf"{_LETTER}[)\]}}]?\s*(?:is\s+(?:the\s+)?(?:correct|right|true|best)\b.*)?", re.S | re.I),
    re.compile(rf"{_LETTER}[)\]}}]?\s*[.:)\]]\s*(?P<text>.*)", re.S | re.I),
    re.compile(r"[(\[]\s*(?P<letter>[A-Za-z])\s*[)\]]\s*(?P<text>.*)", re.S),
]
_WITH_TEXT = re.compile(  # "B, Rome" and "Rome (B)": letter and text of one option
    r"\(?(?P<letter>[A-Za-z])\)?\s*[,-]\s*(?P<text>.+)|(?P<before>.+?)\s*\(\s*(?P<behind>[A-Za-z])\s*\)", re.S
)
_REASON = re.compile(r"[\s,]*\b(?:because|since|as|not|rather than|instead of)\b.*", re.S | re.I)
_MARKED = r"(?:\(\s*[A-Za-z]\s*\)|[A-Z]\s*[).:\]]|[A-Z]\s*$)"  # a letter that stands for an option
_HEDGES = [
    re.compile(rf"^\W*(?:{_NAME})?\(?[A-Z]\)?\W*(?:\b(?:or|and)\b|[,;/&+|])\W*(?:option\s*)?\(?[A-Z]\b", re.I),
    re.compile(rf"(?:\bor\b|[,;/&\n])\s*(?:option\s*)?{_MARKED}"),
    re.compile(r"\band\s*(?:option\s*)?(?:\(\s*[A-Z]\s*\)|[A-Z]\s*[).:\]])"),
]
_SAYS = re.compile(r"\b(?:option|choice)\s*(?:is\s*:?|:)\s*(?P<span>[^\n]*)", re.I)
_LONE = re.compile(r"[(\[]?[A-Z][)\].]?(?:\s+is (?:the )?(?:correct|right).*)?|(?:option|choice)\s+\(?[A-Z]\b.*", re.I)
_LONGEST = 4000  # characters of a final answer; no option is longer
_ONE_LETTER = re.compile(r"(?P<number>.*\d\S*)\s+(?P<unit>[A-Za-z])(?P<power>(?:\s*\^\s*\{?-?\d\}?)?)")
_PLAIN_INTEGER = re.compile(r"[-+]?\d+")


@dataclass(frozen=True)
class Question:
    """The right option: its letter and the texts of all options, or its value alone."""

    letter: str = ""
    options: tuple[tuple[str, str], ...] = ()  # (letter, text)
    value: str = ""


class Choice(SpanVerifier):
    """Right if the final answer is the right option and no other.

    An answer is
      * a letter: `"C"`;
      * `{"answer": ..., "options": ...}`: options are a list of texts (A, B, ...), a mapping of letters to texts, or
        `{"label": [...], "text": [...]}`; the answer is a letter or the text of one of them ("choices" is "options").
        Responses may then give the letter, the text, or its value;
      * a value: `"9.8 m/s^2"`, `"mitochondria"`.  Responses give it in other words of the same number.

    More than one option, and a letter with the text of another option, are never right.  Values are numbers with a
    unit, which may be left out but not be another one; `tolerance` applies to those that are not plain integers.

    Args:
        extract: "auto" (box, then ####, then "Answer:", then "the correct option is", then a last line that is
            nothing but an option in capital letters), "boxed", "hash", "answer" or "whole".
        tolerance: allowed difference of a value relative to the answer; the default is rounding to three digits.
        prefilled: see SpanVerifier.
    """

    name: ClassVar[str] = "choice"
    modes: ClassVar[tuple[Mode, ...]] = ("auto", "boxed", "hash", "answer", "whole")
    _CITIES: ClassVar[dict[str, Any]] = {"answer": "B", "options": ["Paris", "Rome", "9.81 m/s^2"]}
    canaries: ClassVar[tuple[Canary, ...]] = (
        ("E", "\\text{E}", True),
        ("C", "(C)", True),
        ("D", "Don't know", False),
        ("A", "None of the above", False),
        ("A", "A or B", False),
        (_CITIES, "Rome", True),
        (_CITIES, "B) Paris", False),
        ("9.81 m/s^2", "9.8 \\text{ m/s}^2", True),
        ("9.81 m", "9.81 cm", False),
    )

    def __init__(self, extract: str = "auto", tolerance: float = 0.005, prefilled: bool = False) -> None:
        super().__init__(extract, prefilled)
        if not 0 <= tolerance < 1:
            raise ConfigError(f"verifier 'choice': tolerance={tolerance} must be in [0, 1)")
        self.tolerance = tolerance

    def check_answer(self, answer: Any) -> None:
        question = read_question(answer)
        if question.options and self._options_of(dict(question.options)[question.letter], question) != [
            question.letter
        ]:
            raise ValueError(f"answer {answer!r}: another option has the same text or value as {question.letter}")

    def verify(self, response: str, answer: Any) -> Verdict:
        """Score 1 or 0; parts: `answered` (a final answer was found) and `boxes` (complete boxes)."""
        text = after_thought(response, self.prefilled)
        found = final_span(text, self.extract)
        if self.extract == "auto" and (found.how == "last" or not found.span):
            found = Found(_said(text), "whole", found.boxes)
        right = found.span != "" and self.grade(found.span, found.how, answer)
        return self.verdict(found, right)

    def form(self, span: str) -> str:
        span = _normal(span[:_LONGEST])
        letter = _letter(span)
        return letter["letter"].upper() if letter else _fold(span)

    def grade(self, span: str, how: Mode, answer: Any) -> bool:
        if len(span) > _LONGEST:
            return False
        question, span = read_question(answer), _normal(span)
        if question.value:
            return self._same(question.value, span)
        named = self._options_of(span, question)
        if named and (len(span) > 1 or not span.isalpha()):
            return named == [question.letter]
        if match := _WITH_TEXT.fullmatch(span):
            name, text = match["letter"] or match["behind"], match["text"] or match["before"]
            if self._options_of(text, question) == [name.upper()]:
                return name.upper() == question.letter
        letter = _letter(span)
        if letter is None or letter["letter"].upper() != question.letter:
            return False
        behind = letter.groupdict().get("text") or ""
        return set(self._options_of(behind, question)) <= {question.letter}

    def _options_of(self, text: str, question: Question) -> list[str]:
        """Letters of the options that `text` is the text or the value of."""
        exact = [letter for letter, option in question.options if _fold(option) == _fold(text)]
        return exact or [letter for letter, option in question.options if self._same(option, text)]

    def _same(self, gold: str, given: str) -> bool:
        """The same words, or the same number with the same unit or none."""
        if _fold(gold) == _fold(given):
            return _fold(gold) != ""
        (number, unit), (other, other_unit) = _quantity(gold), _quantity(given)
        if number is None or other is None or (unit and other_unit and unit != other_unit):
            return False
        return agree(number, other, 0.0 if _PLAIN_INTEGER.fullmatch(gold.strip()) else self.tolerance)


def read_question(answer: Any) -> Question:
    """The right option of a row.

    Raises:
        ValueError: it is not there, or not one of the options.
    """
    if isinstance(answer, dict):
        options = _read_options(answer.get("options", answer.get("choices")))
        right = answer.get("answer", answer.get("letter"))
        letters = [letter for letter, text in options if right == letter or _fold(text) == _fold(str(right))]
        letter = right.strip(" ().").upper() if isinstance(right, str) else ""
        if letter in dict(options):
            return Question(letter=letter, options=options)
        if len(letters) != 1:
            raise ValueError(
                f"answer {right!r} is not one of the options {', '.join(dict(options))} or one of their texts"
            )
        return Question(letter=letters[0], options=options)
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise ValueError(f"answer {answer!r} is {type(answer).__name__}, not a letter, text, number or mapping")
    text = tidy(str(answer))
    if not text:
        raise ValueError("the answer is empty")
    if match := re.fullmatch(r"\(?([A-Za-z])\)?\.?", text):
        return Question(letter=match[1].upper())
    return Question(value=_normal(text))


def _read_options(options: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(options, dict) and options.keys() == {"label", "text"}:
        options = dict(zip(options["label"], options["text"], strict=True))
    if isinstance(options, list):
        options = {chr(ord("A") + i): text for i, text in enumerate(options[:26])}
    if not isinstance(options, dict) or len(options) < 2:
        raise ValueError('"options" must be a list of two or more texts, or a mapping of letters to texts')
    if bad := [letter for letter in options if not re.fullmatch("[A-Za-z]", str(letter))]:
        raise ValueError(f"option {bad[0]!r}: options are called by letters")
    return tuple((letter.upper(), _normal(str(text))) for letter, text in options.items())


def _said(text: str) -> str:
    """What a response without box or "Answer:" says: "the correct option is ...", or its last line if that is all."""
    if marks := list(_SAYS.finditer(text)):
        return tidy(marks[-1]["span"])
    lone = [line for line in map(tidy, text.splitlines()) if _LONE.fullmatch(line) and not line[:1].islower()]
    last = tidy(text.strip().rpartition("\n")[2])
    return last if lone == [last] else ""


def _letter(span: str) -> re.Match[str] | None:
    """The one letter that `span` names, in group `letter`, and perhaps what stands behind it, in group `text`."""
    span = _REASON.sub("", span)
    if any(hedge.search(span) for hedge in _HEDGES):
        return None
    return next(filter(None, (form.fullmatch(span) for form in _FORMS)), None)


def _normal(span: str) -> str:
    """Without LaTeX's text and spacing commands."""
    before = None
    while span != before:
        before, span = span, _LATEX_TEXT.sub(r"\1", span)
    return tidy(_LATEX_SPACE.sub(" ", span)).strip()


def _fold(text: str) -> str:
    """The form in which texts of options are compared."""
    text = re.sub(r"[^\w%./+^=<>-]+", " ", re.sub(r"[${}_]", "", text).casefold())
    return " ".join(text.split()).removeprefix("the ").rstrip(".")


def _quantity(text: str) -> tuple[Rational | None, str]:
    text = text.rpartition("=")[2].strip()
    number, unit = split_unit(text)
    if not unit and (match := _ONE_LETTER.fullmatch(text)):  # no variables here, so that 5 m is five metres
        number, unit = match["number"], canonical(match["unit"], match["power"])
    return read_rational(number), unit


@dataclass(frozen=True)
class LetterShares:
    """How often each letter is the right one."""

    counts: dict[str, int]
    chi_square: float  # against equal shares
    p_value: float  # of a chi-square as large, if all letters were equally likely

    @property
    def skewed(self) -> bool:
        """Would always answering one letter pay more than chance explains?"""
        return self.p_value < 0.001


def letter_shares(answers: Iterable[Any]) -> LetterShares:
    """The distribution of the right letters over the letters that are in use.

    Answers that are values have no letter and are left out.  The p-value is the Wilson-Hilferty approximation
    (cube root of chi-square over its degrees of freedom is normal).

    Raises:
        ValueError: an answer is not gradable.
    """
    questions = [read_question(answer) for answer in answers]
    counts = Counter(question.letter for question in questions if question.letter)
    letters = sorted({letter for question in questions for letter, _ in question.options} | counts.keys())
    total, freedom = counts.total(), len(letters) - 1
    if freedom < 1:
        return LetterShares(dict(counts), 0.0, 1.0)
    expected = total / len(letters)
    chi_square = sum((counts[letter] - expected) ** 2 / expected for letter in letters)
    spread = 2 / (9 * freedom)
    z = ((chi_square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return LetterShares({letter: counts[letter] for letter in letters}, chi_square, 0.5 * math.erfc(z / math.sqrt(2)))
