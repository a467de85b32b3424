"""Text of an answer -> the mathematical object that it is.

The kind is fixed by the text of the answer alone: number or expression, pair (an ordered pair or an interval), tuple,
set or list, real set, equation, inequality, matrix, number in a base, labelled value (x = 5), or plain text.
"""

import re
from functools import lru_cache
from itertools import pairwise

import sympy
from sympy import Expr

from rlvr.verifiers.math_kinds import (
    Answer,
    Based,
    Equation,
    Inequality,
    Labelled,
    Matrix,
    Ordered,
    Pair,
    RealSet,
    Rounded,
    Scalar,
    Text,
    Unordered,
)
from rlvr.verifiers.math_latex import Unreadable, parse_latex
from rlvr.verifiers.math_sets import ALL, as_real_set, half_line, meet, merge, union, without
from rlvr.verifiers.math_text import balanced, normalise, split_top, split_words
from rlvr.verifiers.math_values import same
from rlvr.verifiers.rational import Rational, read_rational
from rlvr.verifiers.units import split_unit

MAX_LENGTH = 1000
COARSEST = sympy.Rational(2, 100)  # relative, of an approximation that stands beside its value
_PLUS_MINUS = re.compile(r"\\pm(?![a-zA-Z])")
_RELATION = re.compile(r"\\leq|\\geq|<|>")
_MATRIX = re.compile(
    r"[(\[]?\s*\\begin\{([pbB]?matrix|smallmatrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{\1\}\s*[)\]]?", re.S
)
_NAME = r"(?:[A-Za-z]|\\[a-z]+)"
_NAMES = re.compile(rf"\(\s*{_NAME}(?:\s*,\s*{_NAME})+\s*\)")
_LABEL = re.compile(
    r"(?:[A-Za-z](?:_(?:\w|\{\w+\}))?(?:\^\{-1\})?(?:\([\w|\\, ]+\))?|[A-Z]{2,3}|\\angle\s*[A-Z]{1,3}|\|[A-Z]{2}\||"
    r"\\(?:alpha|beta|gamma|theta|lambda|mu|sigma|phi|rho|omega|Delta)|\\text\{[^{}]*\})"
)
_DECIMALS = re.compile(r"\d*\.(\d+)|\d")
_REALS = re.compile(r"\\mathbb\{R\}|(?:\\text\{)?\s*(?:all|the)(?: set of(?: all)?)? reals?(?: numbers?)?\s*\}?", re.I)
_BUILDER = re.compile(r"\\\{\s*([a-z])\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\||\\mid|\\colon|:)\s*(.*)\\\}", re.S)
_NONE = re.compile(r"(?:\\text\{)?\s*(?:(?:there (?:is|are) )?no (?:real )?solutions?|(?:the )?empty set)\s*\}?", re.I)
_BASED = re.compile(r"\(?(\d[0-9A-Fa-f]*)\)?_(?:\{\s*\(?(\d{1,2})\)?\s*\}|(\d))")
_POINT = re.compile(r"[A-Z](?:'|_\w)?\s*(?=\()")


@lru_cache(maxsize=4096)
def read(text: str) -> Answer:
    """The object that `text` stands for."""
    if len(text) > MAX_LENGTH:
        return Text(text)
    return _read(normalise(text))


def _read(text: str) -> Answer:
    for reader in (_number, _matrix, _real_set, _several, _bracketed, _related, _scalar):
        try:
            answer = reader(text)
        except (Unreadable, RecursionError):
            answer = None
        if answer is not None:
            return answer
    return Text(text)


def _number(text: str) -> Answer | None:
    if based := _BASED.fullmatch(text):
        return Based(based[1].upper(), int(based[2] or based[3]))
    if number := read_rational(text):
        return _plain(number)
    head, unit = split_unit(text)
    number = read_rational(head)
    return _plain(number, unit) if number else None


def _plain(number: Rational, unit: str = "") -> Scalar:
    return Scalar(sympy.Rational(number.value.numerator, number.value.denominator), number, unit)


def _matrix(text: str) -> Answer | None:
    match = _MATRIX.fullmatch(text)
    if not match:
        return None
    lines = [line for line in re.split(r"\\\\(?:\[[^\]]*\])?", match[2].replace("\\hline", "")) if line.strip()]
    rows = tuple(tuple(_read(cell.strip()) for cell in line.split("&")) for line in lines)
    return Matrix(rows) if rows and len({len(row) for row in rows}) == 1 else None


def _several(text: str) -> Answer | None:
    """Values side by side, and both values of a plus-minus."""
    if "\\ldots" in text:
        return Text(text)
    parts = [part for piece in split_words(text, r"\\or\b") for part in split_top(piece, ",;")]
    parts = [part for part in parts if part] if len(parts) > 2 else parts  # "1, 2, or 3"
    if len(parts) > 1:
        return Unordered(tuple(_read(part) for part in parts)) if all(parts) else Text(text)
    if len(_PLUS_MINUS.findall(text)) == 1 and "\\mp" not in text:
        return Unordered(tuple(_read(_signed(text, sign)) for sign in "+-"))
    return None


def _signed(text: str, sign: str) -> str:
    return re.sub(r"^(\s*(?:[a-z]\s*=)?\s*)\+", r"\1", _PLUS_MINUS.sub(sign, text))


def _bracketed(text: str) -> Answer | None:
    inner = _inside(text, ("\\{",), ("\\}",))
    if inner is not None:
        return Unordered(tuple(_read(part) for part in split_top(inner, ",;")))
    if label := _POINT.match(text):  # P(1, 2)
        text = text[label.end() :]
    inner = _inside(text, ("(", "["), (")", "]"))
    if inner is None:
        return None
    parts = split_top(inner, ",;")
    if len(parts) == 1 or not all(parts):
        return None
    items = tuple(_read(part) for part in parts)
    return Pair(text[0], items[0], items[1], text[-1]) if len(items) == 2 else Ordered(items)


def _inside(text: str, opened: tuple[str, ...], closed: tuple[str, ...]) -> str | None:
    """What stands in the brackets that enclose all of `text`."""
    for start in opened:
        for end in closed:
            if text.startswith(start) and text.endswith(end) and len(text) >= len(start) + len(end):
                inner = text[len(start) : len(text) - len(end)]
                return inner if balanced(inner) and _never_negative(inner) else None
    return None


def _never_negative(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if depth < 0:
            return False
    return True


def _real_set(text: str) -> Answer | None:
    if match := re.fullmatch(r"([a-z])\s*\\in\s+(.*)|([a-z])\s*\\in(?=[\[(\\])\s*(.*)", text):
        inside = _read(match[2] or match[4])
        if isinstance(inside, Unordered):
            return inside
        inner = as_real_set(inside)
        return RealSet(inner.pieces, match[1] or match[3]) if inner else None
    if match := _BUILDER.fullmatch(text):
        inner = as_real_set(_read(match[2]))
        return RealSet(inner.pieces, match[1]) if inner and inner.variable in (match[1], None) else None
    if _REALS.fullmatch(text):
        return RealSet((ALL,))
    if text == "\\emptyset" or _NONE.fullmatch(text):
        return RealSet(())
    if len(parts := split_words(text, r"\\cup(?![a-zA-Z])")) > 1:
        return union([_read(part) for part in parts])
    if len(parts := split_words(text, r"\\(?:setminus|backslash)(?![a-zA-Z])|(?<=\})\s*-\s*(?=\\\{)")) == 2:
        whole, taken = as_real_set(_read(parts[0])), _read(parts[1])
        if whole and isinstance(taken, Unordered) and all(isinstance(item, Scalar) for item in taken.items):
            return without(whole, [item.expr for item in taken.items if isinstance(item, Scalar)])
        return None
    if len(parts := split_words(text, r"\\or\b")) > 1 and all(parts):
        return union([_related(part) for part in parts])
    return None


def _related(text: str) -> Answer | None:
    """Equations, labelled values, inequalities, approximations."""
    if len(sides := split_words(text, r"\\approx(?![a-zA-Z])")) == 2:
        return _rounded(*sides)
    if "\\neq" in text:
        sides = split_words(text, r"\\neq")
        return _apart(*sides) if len(sides) == 2 else None
    if len(sides := split_words(text, _RELATION.pattern)) > 1:
        return _inequality(sides, _RELATION.findall(text))
    sides = split_top(text, "=")
    if len(sides) < 2 or not all(sides):
        return None
    if len(sides) == 2 and (_LABEL.fullmatch(sides[0]) or _NAMES.fullmatch(sides[0])):
        return _labelled(*sides)
    values = [_read(side) for side in sides]
    exprs = [value.expr for value in values if isinstance(value, Scalar)]
    if len(exprs) < len(values):
        return None
    if len(exprs) == 2 and any(expr.free_symbols for expr in exprs):
        return Equation(exprs[0] - exprs[1])
    # a chain 10/4 = 2.5 is its value where it is true
    return values[-1] if all(same(a, b) for a, b in pairwise(exprs)) else None


def _labelled(name: str, text: str) -> Answer:
    value, zero = _read(text), None
    if isinstance(value, Scalar) and not re.search(r"\(|[A-Z]{2}|\\angle|\\text|\|", name):
        symbol = parse_latex(name)
        if symbol in value.expr.free_symbols:
            return Equation(symbol - value.expr)
        zero = symbol - value.expr if symbol.is_Symbol else None
    return Labelled(name.replace(" ", ""), value, zero)


def _rounded(left: str, right: str) -> Answer | None:
    """A value with its approximation; only one that holds to its last digit and is not so coarse as to be a hedge."""
    value, decimal = _read(left), _read(right)
    if not (isinstance(decimal, Scalar) and decimal.rational and (places := _DECIMALS.search(right))):
        return None
    if isinstance(value, Scalar) and value.expr.is_number:
        off = abs(value.expr.evalf(30) - decimal.expr)
        close = off <= min(sympy.Rational(6, 10 ** (len(places[1] or "") + 1)), COARSEST * abs(decimal.expr))
        return Rounded(value, decimal) if close else None
    return _labelled(left, right) if _LABEL.fullmatch(left) else None


def _apart(left: str, right: str) -> Answer | None:
    name, point = parse_latex(left), parse_latex(right)
    if not name.is_Symbol or not point.is_number:
        return None
    made = without(RealSet((ALL,)), [point])
    return RealSet(made.pieces, str(name)) if made else None


def _inequality(sides: list[str], signs: list[str]) -> Answer | None:
    """A chain a < x <= b as an interval of x; one that is not linear in one variable as it stands."""
    exprs = [parse_latex(side) for side in sides]
    bigger = []  # (difference that is positive, strict)
    for (left, right), sign in zip(pairwise(exprs), signs, strict=True):
        up = sign in ("<", "\\leq")
        if left.is_infinite or right.is_infinite:
            continue
        bigger.append(((right - left) if up else (left - right), sign in "<>"))
    symbols = set().union(*(expr.free_symbols for expr in exprs))
    if (
        len(symbols) == 1
        and len(sides) == 2
        and (found := _absolute(exprs[0], exprs[1], signs[0], next(iter(symbols))))
    ):
        return found
    if len(symbols) == 1 and bigger:
        halves = [half_line(expr, strict, next(iter(symbols))) for expr, strict in bigger]
        pieces = [half for half in halves if half is not None]
        if len(pieces) == len(halves):
            return RealSet(meet(pieces), str(next(iter(symbols))))
    return Inequality(*bigger[0]) if len(bigger) == 1 and len(exprs) == 2 else None


def _absolute(left: Expr, right: Expr, sign: str, x: Expr) -> RealSet | None:
    """|u| < c and |u| > c with u linear in x and a positive number c; None for anything else."""
    if isinstance(right, sympy.Abs):
        left, right, sign = right, left, {"<": ">", ">": "<", "\\leq": "\\geq", "\\geq": "\\leq"}[sign]
    if not (isinstance(left, sympy.Abs) and right.is_positive):
        return None
    strict, inner = sign in "<>", left.args[0]
    far = [half_line(inner - right, strict, x), half_line(-inner - right, strict, x)]
    near = [half_line(right - inner, strict, x), half_line(right + inner, strict, x)]
    halves = [half for half in (near if sign in ("<", "\\leq") else far) if half is not None]
    if len(halves) < 2:
        return None
    return RealSet(meet(halves) if sign in ("<", "\\leq") else merge(halves), str(x))


def _scalar(text: str) -> Answer | None:
    head, unit = split_unit(text)
    if "%" in text:
        return None
    if unit:
        return Scalar(parse_latex(head), unit=unit)
    try:
        return Scalar(parse_latex(text))
    except Unreadable:
        return Scalar(parse_latex(head)) if head != text else None
