"""LaTeX and plain-text mathematics in one spelling, and splitting it at top level."""

import re

from rlvr.verifiers.extract import closing, tidy, unbox
from rlvr.verifiers.rational import plain, read_rational

_UNICODE = {
    "\u03c0": r"\pi ", "\u221e": r"\infty ", "\u2264": r"\leq ", "\u2265": r"\geq ", "\u2260": r"\neq ",
    "\u222a": r"\cup ", "\u2229": r"\cap ", "\u2208": r"\in ", "\u00f7": r"\div ", "\u00b1": r"\pm ",
    "\u211d": r"\mathbb{R}", "\u2205": r"\emptyset ", "\u00b2": "^2", "\u00b3": "^3", "\u00b0": r"^\circ",
    "\u03b8": r"\theta ", "\u03b1": r"\alpha ", "\u03b2": r"\beta ", "\u00bd": r"\frac{1}{2}",
    "\u00bc": r"\frac{1}{4}", "\u00be": r"\frac{3}{4}", "\u2044": "/", "\u2026": r"\ldots ",
}  # fmt: skip
_ALIASES = [
    (r"\\(?:big|Big|bigg|Bigg)[lrm]?(?![a-zA-Z])", ""),
    (r"\\(?:displaystyle|textstyle|limits|quad|qquad|nonumber|strut)(?![a-zA-Z])", " "),
    (r"\\le(?![a-zA-Z])|\\leqslant|<=", r"\\leq "),
    (r"\\ge(?![a-zA-Z])|\\geqslant|>=", r"\\geq "),
    (r"\\ne(?![a-zA-Z])|!=", r"\\neq "),
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\(?:dots|cdots|dotsc|dotsb)(?![a-zA-Z])|\.\.\.", r"\\ldots "),
    (r"\\varnothing(?![a-zA-Z])|\\\{\s*\\\}", r"\\emptyset "),
    (r"\\(?:mathbf|mathit|bm|boldsymbol|mathsf)\s*\{([^{}]*)\}", r"\1"),
    (r"\\(?:lbrace)(?![a-zA-Z])", r"\\{"),
    (r"\\(?:rbrace)(?![a-zA-Z])", r"\\}"),
    (r"\\(?:lvert|rvert|vert)(?![a-zA-Z])", "|"),
    (r"\\mathds\s*\{R\}|\\mathbb\s*R|\\R(?![a-zA-Z])", r"\\mathbb{R}"),
    (r"\\operatorname\s*\{(arc(?:sin|cos|tan|cot)|sec|csc|cot|sinh|cosh|tanh|ln|log|lcm|gcd)\}", r"\\\1 "),
    (r"(?<![\\a-zA-Z])(?:infinity|infty|oo)(?![a-zA-Z])", r"\\infty "),
    (r"(?<![\\a-zA-Z])(sqrt|pi|sin|cos|tan|ln|log)(?=[^a-zA-Z]|$)", r"\\\1 "),
    (r"\*\*", "^"),
]
_TEXT = re.compile(r"\\(?:text|textrm|textbf|textit|mathrm|mbox|rm)\s*\{([^{}]*)\}")
_PROSE = re.compile(r"^\s*\\text\{([^{}]*)\}\s*(?=\S)")
_LEADS_TO = re.compile(r"(?:^|\b)(?:is|are|be|equals?|answer|hence|therefore|thus|so)\s*[:=]?\s*$|[:=]\s*$", re.I)
_LOGIC = re.compile(
    r"\\text\{\s*,?\s*(?:or|and)\s*,?\s*\}|\\(?:lor|land|vee|wedge)(?![a-zA-Z])|(?<![a-zA-Z\\])(?:or|and)(?![a-zA-Z])",
    re.I,
)
_OPEN, _CLOSE = "([{", ")]}"


def normalise(text: str) -> str:
    """One spelling of `text`: no dollars, spacing, sizing or font commands; `or`/`and` become ` \\or `."""
    text = unbox(tidy(text))
    for old, new in _UNICODE.items():
        text = text.replace(old, new)
    for pattern, new in _ALIASES:
        text = re.sub(pattern, new, text)
    text = plain(text)
    text = _TEXT.sub(_unwrap, text)
    while (match := _PROSE.match(text)) and _LEADS_TO.search(match[1]):
        text = text[match.end() :]
    text = _LOGIC.sub(r" \\or ", text)
    return re.sub(r"\s+", " ", _roots(text)).lstrip(" ,;").rstrip(" .,;")


def squash(text: str) -> str:
    """The string that unreadable answers are compared by: no text wrappers, no spaces but those between digits."""
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)|\\text(?=\{)", "", text).replace("{", "").replace("}", "")


def split_top(text: str, separators: str) -> list[str]:
    """Split at the characters of `separators` that stand outside all brackets; any bracket closes any other."""
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        i += text[i] == "\\"  # an escaped bracket is a bracket too
        char = text[i : i + 1]
        depth += (char in _OPEN and char != "") - (char in _CLOSE and char != "")
        if depth == 0 and char and char in separators:
            parts.append(text[start:i])
            start = i + 1
        i += 1
    return [part.strip() for part in [*parts, text[start:]]]


def split_words(text: str, pattern: str) -> list[str]:
    """Split at the top-level matches of a regular expression."""
    parts, start = [], 0
    for match in re.finditer(pattern, text):
        if balanced(text[start : match.start()]):
            parts.append(text[start : match.start()].strip())
            start = match.end()
    return [*parts, text[start:].strip()]


def balanced(text: str) -> bool:
    """As many brackets are opened as are closed (kinds may mix, as in half-open intervals)."""
    return sum(text.count(c) for c in _OPEN) == sum(text.count(c) for c in _CLOSE)


def _unwrap(match: re.Match[str]) -> str:
    """`\\text{13}` is 13 and `\\mathrm{e}` is e; words stay words."""
    inner = match[1].strip()
    bare = re.sub(r"^\((.*)\)$", r"\1", inner)
    alone = match.end() - match.start() == len(match.string.strip())
    if read_rational(inner) or inner in ("e", "i") or (alone and re.fullmatch(r"[A-Za-z]", bare)):
        return inner
    return f"\\text{{{match[1]}}}"


def _roots(text: str) -> str:
    """`\\sqrt2` and `\\sqrt(2)` with braces."""
    text = re.sub(r"\\sqrt\s*(\d|[a-zA-Z])", r"\\sqrt{\1}", text)
    at = 0
    while match := re.compile(r"\\sqrt\s*\(").search(text, at):
        end = closing(text, match.end() - 1, "()")
        if end is None:
            return text
        text = f"{text[: match.start()]}\\sqrt{{{text[match.end() : end]}}}{text[end + 1 :]}"
        at = match.start() + 5
    return text
