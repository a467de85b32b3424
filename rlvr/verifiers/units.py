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
    "unit2": "sq square squared", "unit3": "cu cubic cubed", "mi/h": "mph", "km/h": "kmh kph",
    "N": "n newton", "J": "j joule", "W": "w watt", "V": "v volt", "K": "k kelvin",
}  # fmt: skip
_RAISED = ("unit2", "unit3")
_KNOWN = {word: unit for unit, words in _SPELLINGS.items() for word in words.split()}
_HEDGES = re.compile(
    r"\b(?:or|and|not|either|maybe|perhaps|possibly|to|between|but|if|is|equals?|plus|minus|times)\b", re.I
)
_SCALES = re.compile(  # words that make another number of it
    r"\b(?:half|halves|(?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|hundredth|thousandth|millionth)s?|dozens?|"
    r"(?:hundred|thousand|million|billion|trillion)s?|factorial|over|divided|point|percent|percentage)\b", re.I
)  # fmt: skip

_SCALE = re.compile(r"\s*((?:hundred|thousand|million|billion|trillion)s?)\s+(?=[a-z])", re.I)

_WORDS = r"[A-Za-z][A-Za-z .'-]*(?:/\s?[A-Za-z]+)?"
_POWER = r"(?:\s*\^\s*(?:\{\s*-?\d\s*\}|\d)|[\u00b2\u00b3])?"
_DEGREES = re.compile(r"(?:\^\s*\\circ|\^\s*\{\s*\\circ\s*\}|\\degree|\u00b0)\s*$")
_ANGLE = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)")  # the degree sign belongs to its argument
_IN_TEXT = re.compile(
    rf"\\(?:text|textrm|mathrm|mbox|textit|operatorname)\s*\{{(?P<unit>[^{{}}^]*)(?P<inner>{_POWER})\}}"
    rf"(?P<power>{_POWER})\s*$"
)
_BARE = re.compile(rf"(?:(?<=\s)|(?<=\d)|(?<=[}})%]))(?P<unit>{_WORDS})(?P<power>{_POWER})\s*$")


def split_unit(text: str) -> tuple[str, str]:
    """(quantity, unit) of `text`; unit is "" where there is none or where it only says what is counted.

    Bare words count as a unit if they are known ones, or if what stands before them is a plain number.
    """
    text = text.strip()
    if (match := _DEGREES.search(text)) and not _ANGLE.search(text):
        return text[: match.start()].strip(), "degree"
    if (match := _IN_TEXT.search(text)) and match.start() > 0:
        head, words = _parts(text, match)
        if _may_be_unit(words):
            return head, canonical(words, match["inner"] or match["power"])
    match = _BARE.search(text)
    if not match or match.start() == 0:
        return text, ""
    head, words = _parts(text, match)
    single_letter = len(words.strip()) == 1  # could be a variable
    known = all(_word(w) in _KNOWN for w in re.split(r"[\s./]+", words.strip(" ./")))
    if _may_be_unit(words) and not single_letter and (known or (_is_word(words, text, match) and read_rational(head))):
        return head, canonical(words, match["power"])
    return text, ""


def _is_word(words: str, text: str, match: re.Match[str]) -> bool:
    """Is it a word, and not a product of variables as in 5xy?"""
    first = words.split()[0]
    return len(first) > 3 or (text[match.start() - 1].isspace() and re.search(r"[aeiou]", first) is not None)


def _parts(text: str, match: re.Match[str]) -> tuple[str, str]:
    """What stands before a unit, and the unit; `million` belongs to the number."""
    head, words = text[: match.start()], match["unit"]
    if scale := _SCALE.match(words):
        head, words = f"{head} {scale[1]}", words[scale.end() :]
    return re.sub(r"(?:\\[,;: !]|~|\\quad|\s)+$", "", head), words


def canonical(unit: str, power: str = "") -> str:
    """One spelling per unit, with its power; "" for words that are no unit."""
    words = [_word(w) for w in re.split(r"[\s./]+", unit.strip()) if w]
    known = [_KNOWN[w] for w in words if w in _KNOWN]
    raised = next((u[-1] for u in known if u in _RAISED), "")
    known = [u for u in known if u not in _RAISED]
    exponent = re.sub(r"\D", "", power.replace("\u00b2", "2").replace("\u00b3", "3")) or raised
    return "/".join(known) + exponent if known and "unit" not in known else ""


def _may_be_unit(words: str) -> bool:
    plain = bool(words.strip()) and not re.search(r"\d|^\s*(?:squared|cubed)\s*$", words)
    return plain and not _HEDGES.search(words) and not _SCALES.search(words)


def _word(word: str) -> str:
    word = word.lower().strip(".'-")
    return word if word in _KNOWN else word.removesuffix("s")
