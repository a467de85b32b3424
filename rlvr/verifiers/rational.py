"""Exact reading of a single number: rational arithmetic, never floating point.

The percent policy, in every form and for every verifier:
  * a percent sign divides by a hundred, so 28% is 0.28 and 7/25;
  * an answer (gold) with a percent sign also accepts the bare number, as any unit may be left out: 28 for 28%;
  * an answer without a percent sign is a plain number: 28% is wrong for 28, and right for 0.28.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 2000  # of a written numeral
MAX_EXPONENT = 2000  # of a power of ten in scientific notation

_INT = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DEC = rf"(?:{_INT}(?:\.\d*)?|\.\d+)"
_SIGN = r"(?P<sign>[-+]?)\s*"
_PERCENT = r"\s*(?P<percent>%)?"
_TIMES_TEN = r"\s*(?:\\times|\\cdot|\*|x)\s*10\s*(?:\^|\*\*)\s*"
_FORMS = [
    re.compile(rf"{_SIGN}(?P<num>{_DEC})(?:[eE](?P<exp>[-+]?\d+))?{_PERCENT}"),
    re.compile(rf"{_SIGN}(?P<num>{_DEC}){_TIMES_TEN}(?:\{{\s*(?P<exp>[-+]?\s*\d+)\s*\}}|(?P<exp2>[-+]?\d)){_PERCENT}"),
    re.compile(rf"{_SIGN}(?P<num>{_DEC})\s*/\s*(?P<den>{_DEC}){_PERCENT}"),
    re.compile(rf"{_SIGN}\\frac\s*\{{\s*(?P<num>-?\s*{_DEC})\s*\}}\s*\{{\s*(?P<den>-?\s*{_DEC})\s*\}}{_PERCENT}"),
]
_INTEGER = re.compile(r"-?\d+")
_MIXED = [
    re.compile(rf"{_SIGN}(?P<whole>{_INT})\s+(?P<num>\d+)\s*/\s*(?P<den>\d+){_PERCENT}"),
    re.compile(rf"{_SIGN}(?P<whole>{_INT})\s*\\frac\s*\{{\s*(?P<num>\d+)\s*\}}\s*\{{\s*(?P<den>\d+)\s*\}}{_PERCENT}"),
]
_PLAIN = [
    ("\u2212", "-"), ("\u2013", "-"), ("\u00d7", r"\times "), ("\u00b7", r"\cdot "), ("\uff05", "%"),
    ("{,}", ","), ("\\$", ""), ("$", ""), ("\u20ac", ""), ("\u00a3", ""), ("\\%", "%"),
]  # fmt: skip
_THOUSAND_SPACE = re.compile(r"(?<=\d)(?:\\[, ;:]|~|\u202f|\u00a0)(?=\d{3}(?!\d))")
_SPACE = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:[,;: ]|q?quad(?![a-zA-Z]))|~|\u00a0|\u202f")  # but no line break
_THIN = re.compile(r"(?<!\\)((?:\\\\)*)\\!")
_SPACED = re.compile(r"[-+]?\d{1,3}(?: \d{3})+(?:\.\d+)?")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}  # powers of ten
_SCALED = re.compile(
    rf"(?P<head>[^a-zA-Z\\]*\d[^a-zA-Z\\]*)(?:\\text\{{)?\s*(?P<scale>{'|'.join(_SCALES)})s?\s*\}}?", re.I
)


@dataclass(frozen=True)
class Rational:
    """A number as written: `value` has the percent sign applied."""

    value: Fraction
    percent: bool = False


def read_rational(text: str) -> Rational | None:
    """The number that `text` is as a whole, or None: integers, decimals, fractions, mixed numbers, powers of ten.

    Reads thousands separators, currency signs and LaTeX `\\frac` in all its shapes; `text` may not contain
    anything else (units are the caller's business).
    """
    if len(text) > MAX_DIGITS:
        return None
    if _INTEGER.fullmatch(text):  # by far the most frequent answer
        return Rational(Fraction(int(text)))
    text = plain(text)
    if match := _SCALED.fullmatch(text):
        head = read_rational(match["head"])
        scale = 10 ** _SCALES[match["scale"].lower()]
        return Rational(head.value * scale) if head and not head.percent else None
    if _SPACED.fullmatch(text):
        text = text.replace(" ", "")
    for form in _MIXED:
        if (match := form.fullmatch(text)) and int(match["num"]) < int(match["den"]):
            value = _value(match["whole"]) + Fraction(int(match["num"]), int(match["den"]))
            return _made(value, match)
    for form in _FORMS:
        if match := form.fullmatch(text):
            groups = match.groupdict()
            exponent = (groups.get("exp") or groups.get("exp2") or "0").replace(" ", "")
            under = _value(groups.get("den") or "1")
            if abs(int(exponent)) > MAX_EXPONENT or under == 0:
                return None
            return _made(_value(groups["num"]) / under * Fraction(10) ** int(exponent), match)
    return None


def plain(text: str) -> str:
    """`text` with one spelling per thing: no currency, no spacing commands, braces around what `\\frac` takes."""
    text = _THOUSAND_SPACE.sub("", text)
    for old, new in _PLAIN:
        text = text.replace(old, new)
    text = re.sub(r"\\(?:left|right)(?![a-zA-Z])\s*\.?", "", text)
    text = _SPACE.sub(r"\1 ", _THIN.sub(r"\1", text))
    text = re.sub(r"\\[dtc]frac(?![a-zA-Z])", r"\\frac", text)
    text = re.sub(r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\s*(\d)\s*\{", r"\\frac{\1}{", text)
    text = re.sub(r"(\\frac\s*\{[^{}]*\})\s*(\d)", r"\1{\2}", text)
    text = re.sub(r"\s*(?:\\text\{\s*)?(?:per\s?cent|%)\s*\}?$", "%", text.strip(), flags=re.I)
    while text.startswith("{") and text.endswith("}") and "{" not in text[1:-1] and "}" not in text[1:-1]:
        text = text[1:-1]
    return text.strip()


def agree(gold: Rational, given: Rational, tolerance: float = 0.0) -> bool:
    """Equal under the percent policy, within `tolerance` times |gold|."""
    if _near(gold.value, given.value, tolerance):
        return True
    return gold.percent and not given.percent and _near(gold.value * 100, given.value, tolerance)


def _near(gold: Fraction, given: Fraction, tolerance: float) -> bool:
    return gold == given if tolerance == 0 else abs(gold - given) <= Fraction(tolerance) * abs(gold)


def _value(numeral: str) -> Fraction:
    numeral = numeral.replace(",", "").replace(" ", "").rstrip(".")
    return Fraction(numeral if not numeral.startswith(".") else "0" + numeral)


def _made(value: Fraction, match: re.Match[str]) -> Rational:
    value = -value if match["sign"] == "-" else value
    percent = bool(match["percent"])
    return Rational(value / 100 if percent else value, percent)
