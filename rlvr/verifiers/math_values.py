"""When two expressions are the same: exactly if both are rational, else to 40 digits at many points.

Comparison is relative and never absolute: 1/2^98 is not 1/2^99.  Expressions with variables are equal if they agree
wherever both are real (and, at positive values of the variables, as complex numbers), so that sqrt(1/n) is 1/sqrt(n)
but |x| is not x.
"""

import random
from functools import cache

import sympy
from sympy import Expr, Symbol

DIGITS = 50
AGREE = sympy.Float("1e-30", DIGITS)  # relative; far below any coincidence, far above the error of 50 digits
POINTS = 6  # of each sign pattern
ENOUGH = 3  # points at which both sides must be defined


def same(a: Expr, b: Expr) -> bool:
    """Is a = b?"""
    if a == b:
        return True
    if a.is_Rational and b.is_Rational:
        return False
    symbols = a.free_symbols | b.free_symbols
    if not symbols:
        return _close(_value(a), _value(b))
    agreed = 0
    for point, positive in _points(tuple(sorted(symbols, key=str))):
        x, y = _value(a, point), _value(b, point)
        if x is None or y is None or (not positive and not (x.is_real and y.is_real)):
            continue
        if not _close(x, y):
            return False
        agreed += 1
    return agreed >= ENOUGH


def ratio(a: Expr, b: Expr) -> Expr | None:
    """The constant c with a = c b (50 digits), or None if there is none; c is not 0."""
    if a.free_symbols != b.free_symbols or not a.free_symbols:
        return None
    found: list[Expr] = []
    for point, _ in _points(tuple(sorted(a.free_symbols, key=str))):
        x, y = _value(a, point), _value(b, point)
        if x is None or y is None or _zero(x) or _zero(y):
            continue
        found.append((x / y).evalf(DIGITS))
    if len(found) < ENOUGH or not all(_close(found[0], other) for other in found[1:]):
        return None
    return found[0]


def _value(expr: Expr, point: dict[Symbol, Expr] | None = None) -> Expr | None:
    """`expr` as a number of 50 digits; None where it is undefined.

    The point is not substituted beforehand: sympy would look for exact roots of its powers.
    """
    value = expr.evalf(DIGITS, subs=point)
    return value if value.is_number and not value.has(sympy.nan, sympy.zoo) and _is_plain(value) else None


def _is_plain(value: Expr) -> bool:
    if value.is_infinite:
        return True
    real, imaginary = value.as_real_imag()
    return bool(real.is_Number and imaginary.is_Number)


def _zero(value: Expr) -> bool:
    """Zero, or a difference that cancelled down to rounding error (sympy gives it one bit of precision)."""
    return value == 0 or (isinstance(value, sympy.Float) and value._prec <= 1)


def _close(x: Expr | None, y: Expr | None) -> bool:
    if x is None or y is None:
        return False
    if x.is_infinite or y.is_infinite:
        return bool(x == y)
    if _zero(x) or _zero(y):
        return _zero(x) and _zero(y)
    size = max(abs(x).evalf(DIGITS), abs(y).evalf(DIGITS))
    return bool(abs(x - y).evalf(DIGITS) <= AGREE * size)


@cache
def _points(symbols: tuple[Symbol, ...]) -> list[tuple[dict[Symbol, Expr], bool]]:
    """(values, all positive?): rational points that no answer was written for, the same in every process."""
    draw = random.Random(20240229)
    points = []
    for i in range(2 * POINTS):
        positive = i < POINTS
        values = {s: sympy.Rational(draw.randrange(3_000, 29_000), 10_007) for s in symbols}
        if not positive:
            values = {s: -v if draw.random() < 0.7 else v for s, v in values.items()}
        points.append((values, positive))
    return points
