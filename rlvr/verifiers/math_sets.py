"""Sets of real numbers: unions of intervals with exact ends."""

import sympy
from sympy import Expr

from rlvr.verifiers.math_kinds import Answer, Pair, Piece, RealSet, Scalar, Unordered

ALL = Piece(-sympy.oo, False, sympy.oo, False)


def as_real_set(answer: Answer | None) -> RealSet | None:
    """The interval that a pair may be; None for what is no set of reals."""
    if isinstance(answer, RealSet):
        return answer
    if isinstance(answer, Pair) and isinstance(answer.first, Scalar) and isinstance(answer.second, Scalar):
        low, high = answer.first.expr, answer.second.expr
        if low.is_extended_real is False or high.is_extended_real is False:
            return None
        return RealSet((Piece(low, answer.opened == "[", high, answer.closed == "]"),))
    if isinstance(answer, Unordered) and answer.items and all(isinstance(item, Scalar) for item in answer.items):
        points = [item.expr for item in answer.items if isinstance(item, Scalar)]
        return RealSet(tuple(Piece(p, True, p, True) for p in points))
    return None


def union(answers: list[Answer | None]) -> RealSet | None:
    """The union of sets of one variable; None if one of them is no set of reals."""
    sets = [as_real_set(answer) for answer in answers]
    found = [s for s in sets if s is not None]
    names = {s.variable for s in found}
    if len(found) < len(sets) or len(names) > 1:
        return None
    return RealSet(merge([piece for s in found for piece in s.pieces]), names.pop())


def merge(pieces: list[Piece]) -> tuple[Piece, ...]:
    """In order, overlapping and touching pieces joined; as they are where an end is not a number."""
    if any(end.free_symbols for piece in pieces for end in (piece.low, piece.high)):
        return tuple(pieces)
    merged: list[Piece] = []
    for piece in sorted(pieces, key=lambda p: (p.low.evalf(30), not p.low_in)):
        last = merged[-1] if merged else None
        if last and (piece.low < last.high or (piece.low == last.high and (piece.low_in or last.high_in))):
            further = piece.high > last.high
            high, high_in = (piece.high, piece.high_in) if further else (last.high, last.high_in)
            if piece.high == last.high:
                high_in = last.high_in or piece.high_in
            merged[-1] = Piece(last.low, last.low_in or (piece.low == last.low and piece.low_in), high, high_in)
        else:
            merged.append(piece)
    return tuple(merged)


def without(whole: RealSet, points: list[Expr]) -> RealSet | None:
    """`whole` with points taken out; None if a point is not a real number."""
    if not all(point.evalf().is_real for point in points):
        return None
    pieces = list(whole.pieces)
    for point in points:
        for i, piece in enumerate(pieces):
            if piece.low < point < piece.high:
                pieces[i : i + 1] = [
                    Piece(piece.low, piece.low_in, point, False),
                    Piece(point, False, piece.high, piece.high_in),
                ]
                break
    return RealSet(merge(pieces), whole.variable)


def half_line(positive: Expr, strict: bool, x: Expr) -> Piece | None:
    """Where `positive` > 0 (>= 0 unless strict); None if it is not linear in `x` with real coefficients."""
    if not positive.is_polynomial(x) or sympy.degree(positive, x) != 1:
        return None
    expanded = sympy.expand(positive)
    slope = expanded.coeff(x, 1)
    root = -expanded.coeff(x, 0) / slope
    if not root.evalf().is_real:
        return None
    if slope.is_positive:
        return Piece(root, not strict, sympy.oo, False)
    return Piece(-sympy.oo, False, root, not strict) if slope.is_negative else None


def meet(pieces: list[Piece]) -> tuple[Piece, ...]:
    """The intersection of intervals, as one interval or none."""
    low, low_in, high, high_in = -sympy.oo, False, sympy.oo, False
    for piece in pieces:
        if piece.low > low or (piece.low == low and not piece.low_in):
            low, low_in = piece.low, piece.low_in
        if piece.high < high or (piece.high == high and not piece.high_in):
            high, high_in = piece.high, piece.high_in
    return (Piece(low, low_in, high, high_in),) if low < high or (low == high and low_in and high_in) else ()
