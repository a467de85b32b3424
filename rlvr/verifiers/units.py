"""Units behind a quantity: removed at word boundaries, never inside LaTeX commands."""

import re

from rlvr.verifiers.rational import read_rational

# Spellings of one unit; a word that is not here ("marbles") names what is counted and is not compared.
_SPELLINGS = {
    "cm": "cm centimeter centimetre", "mm": "mm millimeter millimetre", "km": "km kilometer kilometre",
    "m": "m meter metre", "in": "inch inches", "ft": "ft foot feet", "yd": "yd yard", "mi": "mi mile",
    "kg": "kg kilogram", "g": "g gram", "mg": "mg milligram", "lb": "lb lbs pound", "oz": "oz ounce",
    "s": "s sec second", "min": "min minute", "h": "h hr hour", "day": "day", "week": "week", "month": "month",
    "year": "year yr", "L": "l liter litre", "mL": "ml milliliter millilitre", "degree": "degree deg",
    "rad": "rad radian", "dollar": "dollar usd", "cent": "cent", "euro": "euro eur", "unit": "unit",
    "unit2": "sq square", "mph": "mph", "km/h": "kmh kph",
    "N": "n newton", "J": "j joule", "W": "w watt", "V": "v volt", "K": "k kelvin",
}  # fmt: skip
_KNOWN = {word: unit for unit, words in _SPELLINGS.items() for word in words.split()}
_HEDGES = re.compile(
    r"\b(?:or|and|not|either|maybe|perhaps|possibly|to|between|but|if|is|equals?|plus|minus|times)\b", re.I
)

_WORDS = r"[A-Za-z][A-Za-z .'-]*(?:/\s?[A-Za-z]+)?"
_POWER = r"(?:\s*\^\s*(?:\{\s*-?\d\s*\}|\d)|[\u00b2\u00b3])?"
_DEGREES = re.compile(r"(?:\^\s*\\circ|\^\s*\{\s*\\circ\s*\}|\\degree|\u00b0)\s*$")
_ANGLE = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)")  # the degree sign belongs to its argument
_IN_TEXT = re.compile(
    rf"\\(?:text|textrm|mathrm|mbox|textit|operatorname)\s*\{{(?P<unit>[^{{}}]*)\}}(?P<power>{_POWER})\s*$"
)
_BARE = re.compile(rf"(?:(?<=\s)|(?<=\d)|(?<=[}})%]))(?P<unit>{_WORDS})(?P<power>{_POWER})\s*$")


def split_unit(text: str) -> tuple[str, str]:
    """(quantity, unit) of `text`; unit is "" where there is none or where it only says what is counted.

    A bare word counts as a unit if it is a known one, or if what stands before it is a plain number.
    """
    text = text.strip()
    if (match := _DEGREES.search(text)) and not _ANGLE.search(text):
        return text[: match.start()].strip(), "degree"
    if (match := _IN_TEXT.search(text)) and match.start() > 0 and _may_be_unit(match["unit"]):
        return _head(text[: match.start()]), canonical(match["unit"], match["power"])
    match = _BARE.search(text)
    if not match or match.start() == 0 or not _may_be_unit(match["unit"]):
        return text, ""
    head, words = _head(text[: match.start()]), match["unit"].split()
    single_letter = len(match["unit"].strip()) == 1  # could be a variable
    if not single_letter and (all(_word(w) in _KNOWN for w in words) or read_rational(head)):
        return head, canonical(match["unit"], match["power"])
    return text, ""


def canonical(unit: str, power: str = "") -> str:
    """One spelling per unit, with its power; "" for words that are no unit."""
    words = [_word(w) for w in re.split(r"[\s./]+", unit.strip()) if w]
    known = [_KNOWN[w] for w in words if w in _KNOWN]
    squared = "unit2" in known
    known = [u for u in known if u != "unit2"]
    exponent = re.sub(r"\D", "", power.replace("\u00b2", "2").replace("\u00b3", "3")) or ("2" if squared else "")
    return "/".join(known) + exponent if known and "unit" not in known else ""


def _may_be_unit(words: str) -> bool:
    return bool(words.strip()) and not re.search(r"\d", words) and not _HEDGES.search(words)


def _head(text: str) -> str:
    return re.sub(r"(?:\\[,;: !]|~|\\quad|\s)+$", "", text)


def _word(word: str) -> str:
    word = word.lower().strip(".'-")
    return word if word in _KNOWN else word.removesuffix("s")
