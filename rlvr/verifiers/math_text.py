"""LaTeX and plain-text mathematics in one spelling, and splitting it at top level."""

import re

from rlvr.verifiers.extract import closing, tidy, unbox
from rlvr.verifiers.rational import plain, read_rational

_UNICODE = {
    "\u03c0": r"\pi ", "\u221e": r"\infty ", "\u2264": r"\leq ", "\u2265": r"\geq ", "\u2260": r"\neq ",
    "\u222a": r"\cup ", "\u2229": r"\cap ", "\u2208": r"\in ", "\u00f7": r"\div ", "\u00b1": r"\pm ",
    "\u211d": r"\mathbb{R}", "\u2205": r"\emptyset ", "\u00b2": "^2", "\u00b3": "^3", "\u00b0": r"^\circ",
    "\u03b8": r"\theta ", "\u03b1": r"\alpha ", "\u03b2": r"\beta ", "\u00bd": r"\frac{1}{2}",
    "\u00bc": r"\frac{1}{4}", "\u00be": r"\frac{3}{4}", "\u2044": "/", "\u2026": r"\ldots ", "\u2248": r"\approx ",
}  # fmt: skip
_FUNCTION = "(?:a|arc)?(?:sin|cos|tan|cot|sec|csc)h?|ln|log|lg|exp|lcm|gcd"
_ALIASES = [
    (r"\u221a\s*(\d+(?:\.\d+)?)", r"\\sqrt{\1}"),
    (r"\u221a", r"\\sqrt "),
    (r"\\(?:big|Big|bigg|Bigg)[lrm]?(?![a-zA-Z])", ""),
    (r"\\(?:displaystyle|textstyle|limits|nonumber|strut)(?![a-zA-Z])", " "),
    (r"\\le(?![a-zA-Z])|\\leqslant|<=", r"\\leq "),
    (r"\\ge(?![a-zA-Z])|\\geqslant|>=", r"\\geq "),
    (r"\\ne(?![a-zA-Z])|!=", r"\\neq "),
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\(?:dots|cdots|dotsc|dotsb)(?![a-zA-Z])|\.\.\.", r"\\ldots "),
    (r"\\varnothing(?![a-zA-Z])|\\\{\s*\\\}", r"\\emptyset "),
    (r"\\(?:mathbf|mathit|bm|boldsymbol|mathsf|pmb|underline)\s*\{([^{}]*)\}", r"\1"),
    (r"\\approxeq(?![a-zA-Z])|\\simeq(?![a-zA-Z])", r"\\approx "),
    (r"\\colon(?![a-zA-Z])", ":"),
    (r"\\[dt]binom(?![a-zA-Z])", r"\\binom"),
    (r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}|^([^{}]*)\\over(?![a-zA-Z])([^{}]*)$", r"\\frac{\1\3}{\2\4}"),
    (r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}", r"\\binom{\1}{\2}"),
    (r"\{\}_\{?(\w+)\}?\s*C_\{?(\w+)\}?", r"\\binom{\1}{\2}"),
    (r"(?:\\(?:mathrm|text)\{C\}|(?<![A-Za-z\\])C)_\{?(\d+)\}?\s*\^\s*\{?(\d+)\}?", r"\\binom{\1}{\2}"),
    (r"(\d*\.\d*)\\(?:bar|dot|overline)\s*(?:\{(\d+)\}|(\d))", r"\1\\overline{\2\3}"),
    (r"^(\s*-?\d+\.\d*)\((\d+)\)\s*$", r"\1\\overline{\2}"),
    (r"\\(?:lbrace)(?![a-zA-Z])", r"\\{"),
    (r"\\(?:rbrace)(?![a-zA-Z])", r"\\}"),
    (r"\\(?:lvert|rvert|vert)(?![a-zA-Z])", "|"),
    (r"\\mathds\s*\{R\}|\\R(?![a-zA-Z])", r"\\mathbb{R}"),
    (r"\\mathbb\s*([A-Z])", r"\\mathbb{\1}"),
    (rf"\\(?:operatorname|text|mathrm)\s*\{{\s*({_FUNCTION})\s*\}}", r"\\\1 "),
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
_DOLLARS = re.compile(r"\s*([-+]?)\s*\\?\$\s*([^$]*)")
_FRENCH = re.compile(r"([][])([^][(),;]+[,;][^][(),;]+)([][])")
_SHORT_WORDS = ("yes", "no", "odd", "all", "one", "two", "six", "ten", "sum")  # others are products of variables
_OPEN, _CLOSE = "([{", ")]}"


def normalise(text: str) -> str:
    """One spelling of `text`: no dollars, spacing, sizing or font commands; `or`/`and` become ` \\or `."""
    text = _dollars(tidy(re.sub(r"\\+\s*$", "", unbox(tidy(text)))))  # no line break at the end
    for old, new in _UNICODE.items():
        text = text.replace(old, new)
    for pattern, new in _ALIASES:
        text = re.sub(pattern, new, text)
    text = _american(plain(text))
    text = _TEXT.sub(_unwrap, text)
    while (match := _PROSE.match(text)) and _LEADS_TO.search(match[1]):
        text = text[match.end() :]
    text = _LOGIC.sub(r" \\or ", text)
    text = re.sub(r"^\s*\\approx(?![a-zA-Z])", "", _roots(text))
    text = re.sub(r"\s+", " ", text).lstrip(" ,;").rstrip(" .,;")
    return f"\\text{{{text}}}" if text.casefold() in _SHORT_WORDS else text


def squash(text: str) -> str:
    """The string that unreadable answers are compared by: no text wrappers, no spaces but those between words."""
    text = re.sub(r"\\text\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"(?<!\\)\{(\w)\}", r"\1", text)  # x^{2} is x^2, but 2^{n-1} not 2^n-1
    text = re.sub(r"(\\[a-zA-Z]+)\s+", r"\1", text)
    return re.sub(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])", "", text)


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


def _dollars(text: str) -> str:
    """`\\$5` as 5 dollars: the sign is a unit, if a number follows and no unit."""
    match = _DOLLARS.fullmatch(re.sub(r"\\text\s*\{\s*(\\?\$)\s*\}", r"\1", text))
    return f"{match[1]}{match[2]} dollars" if match and read_rational(match[2]) else text


def _american(text: str) -> str:
    """`]0, 1]` as `(0, 1]`, where the text starts or ends with such a bracket."""
    text = text.strip()
    if not (text.startswith("]") or text.endswith("[")):
        return text
    return _FRENCH.sub(lambda m: ("(" if m[1] == "]" else "[") + m[2] + (")" if m[3] == "[" else "]"), text)


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
