"""Is a given answer the gold answer?  By kind; answers of different kinds are never equal."""

from collections.abc import Sequence

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
from rlvr.verifiers.math_sets import as_real_set
from rlvr.verifiers.math_text import squash
from rlvr.verifiers.math_values import ratio, same
from rlvr.verifiers.rational import agree
from rlvr.verifiers.units import canonical


def equal(gold: Answer, given: Answer) -> bool:
    """Is `given` the same object as `gold`?

    Not symmetric in one respect only: a gold with a percent sign accepts the bare number.
    """
    if isinstance(gold, Rounded):
        return equal(gold.value, given) or equal(gold.decimal, given)
    if isinstance(given, Rounded):
        return equal(gold, given.value) or equal(gold, given.decimal)
    if (named := _named(gold)) and (others := _named(given)):
        return named.keys() == others.keys() and all(equal(named[name], others[name]) for name in named)
    if isinstance(gold, Labelled) or isinstance(given, Labelled):
        return _labelled(gold, given)
    if isinstance(gold, Unordered) and named and isinstance(given, Pair | Ordered):
        return _in_order([named[name] for name in sorted(named)], _coordinates(given))
    if isinstance(given, Unordered) and isinstance(gold, Pair | Ordered) and (others := _named(given)):
        return _in_order(_coordinates(gold), [others[name] for name in sorted(others)])
    if {type(gold), type(given)} == {Pair, RealSet}:
        a, b = as_real_set(gold), as_real_set(given)
        return a is not None and b is not None and _real_sets(a, b)
    if type(gold) is not type(given):
        return False
    match gold, given:
        case Scalar(), Scalar():
            return _scalars(gold, given)
        case Pair(), Pair():
            brackets = (gold.opened, gold.closed) == (given.opened, given.closed)
            return brackets and equal(gold.first, given.first) and equal(gold.second, given.second)
        case Ordered(), Ordered():
            return _in_order(gold.items, given.items)
        case Unordered(), Unordered():
            return _in_any_order(gold.items, given.items)
        case RealSet(), RealSet():
            return _real_sets(gold, given)
        case Equation(), Equation():
            return ratio(gold.zero, given.zero) is not None
        case Inequality(), Inequality():
            scale = ratio(gold.positive, given.positive)
            return scale is not None and bool(scale.is_positive) and gold.strict == given.strict
        case Matrix(), Matrix():
            same_height = len(gold.rows) == len(given.rows)
            return same_height and all(_in_order(a, b) for a, b in zip(gold.rows, given.rows, strict=True))
        case Text(), Text():
            return squash(gold.text).casefold() == squash(given.text).casefold()
        case Based(), Based():
            return gold.base == given.base and gold.digits.lstrip("0") == given.digits.lstrip("0")
    return False


def _scalars(gold: Scalar, given: Scalar) -> bool:
    if gold.unit and given.unit and gold.unit != given.unit:
        return False
    if {gold.unit, given.unit} in ({"degree", ""}, {"degree", "rad"}) and _in_radians(gold) == _in_radians(given):
        return True
    if gold.unit and not given.unit and given.expr.free_symbols and _letter(given.expr, gold.expr) == gold.unit:
        return True  # 3 h, read as 3 times a variable
    if gold.rational and given.rational:
        return agree(gold.rational, given.rational)
    return same(gold.expr, given.expr)


def _letter(given: Expr, gold: Expr) -> str:
    """The unit that `given` has beyond `gold` as a one-letter variable, or ""."""
    factor = given / gold if not gold.is_zero else gold
    return canonical(str(factor)) if factor.is_Symbol else ""


def _in_radians(angle: Scalar) -> Expr | None:
    """An angle with a degree sign, or a multiple of pi; None for a plain number, which may be either."""
    if angle.unit == "degree":
        return angle.expr * sympy.pi / 180
    return angle.expr if angle.expr.has(sympy.pi) else None


def _labelled(gold: Answer, given: Answer) -> bool:
    """`x = 5` is 5 with a name: the name may be left out or added, but not be another one."""
    if isinstance(gold, Labelled) and isinstance(given, Labelled) and gold.name == given.name:
        return equal(gold.value, given.value)
    zeros = [x.zero if isinstance(x, (Labelled, Equation)) else None for x in (gold, given)]
    if zeros[0] is not None and zeros[1] is not None:
        return ratio(zeros[0], zeros[1]) is not None
    if isinstance(gold, Labelled):
        constant = not isinstance(gold.value, Scalar) or not gold.value.expr.free_symbols
        constant = constant or "(" in gold.name or "_" in gold.name  # a function or sequence
        return not isinstance(given, (Labelled, Equation)) and constant and equal(gold.value, given)
    return isinstance(given, Labelled) and not isinstance(gold, Equation) and equal(gold, given.value)


def _named(answer: Answer) -> dict[str, Answer] | None:
    """The values of `x = 1, y = 2` and of `(x, y) = (1, 2)` by name."""
    if isinstance(answer, Labelled) and answer.name.startswith("(") and isinstance(answer.value, Pair | Ordered):
        names, values = answer.name.strip("()").split(","), _coordinates(answer.value)
    elif isinstance(answer, Unordered) and all(isinstance(item, Labelled) for item in answer.items):
        names = [item.name for item in answer.items if isinstance(item, Labelled)]
        values = [item.value for item in answer.items if isinstance(item, Labelled)]
    else:
        return None
    return dict(zip(names, values, strict=True)) if len(set(names)) == len(names) == len(values) > 1 else None


def _coordinates(answer: Pair | Ordered) -> list[Answer]:
    """Of a point; none of an interval, which has a square bracket."""
    if isinstance(answer, Ordered):
        return list(answer.items)
    return [answer.first, answer.second] if (answer.opened, answer.closed) == ("(", ")") else []


def _in_order(gold: Sequence[Answer], given: Sequence[Answer]) -> bool:
    return len(gold) == len(given) and all(equal(a, b) for a, b in zip(gold, given, strict=True))


def _in_any_order(gold: Sequence[Answer], given: Sequence[Answer]) -> bool:
    if len(gold) != len(given):
        return False
    left = list(given)
    for item in gold:
        match = next((other for other in left if equal(item, other)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _real_sets(gold: RealSet, given: RealSet) -> bool:
    if gold.variable and given.variable and gold.variable != given.variable:
        return False
    return len(gold.pieces) == len(given.pieces) and all(
        a.low_in == b.low_in and a.high_in == b.high_in and same(a.low, b.low) and same(a.high, b.high)
        for a, b in zip(gold.pieces, given.pieces, strict=True)
    )
