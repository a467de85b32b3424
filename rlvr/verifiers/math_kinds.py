"""The kinds of mathematical objects that an answer can be."""

from dataclasses import dataclass

from sympy import Expr

from rlvr.verifiers.rational import Rational


@dataclass(frozen=True)
class Text:
    """Words, or a formula that cannot be read: compared as a string, never searched for numbers."""

    text: str


@dataclass(frozen=True)
class Scalar:
    """A number or expression; `rational` where it was written as a plain number."""

    expr: Expr
    rational: Rational | None = None
    unit: str = ""


@dataclass(frozen=True)
class Based:
    """A numeral in a base, as 101_2."""

    digits: str
    base: int


@dataclass(frozen=True)
class Pair:
    """Two values in brackets: an ordered pair or an interval, as the other side has it."""

    opened: str
    first: "Answer"
    second: "Answer"
    closed: str


@dataclass(frozen=True)
class Ordered:
    """Three or more values in round or square brackets."""

    items: tuple["Answer", ...]


@dataclass(frozen=True)
class Unordered:
    """A set in braces, or values side by side ("1, 2", "1 or 2")."""

    items: tuple["Answer", ...]


@dataclass(frozen=True)
class Piece:
    """An interval of the real line."""

    low: Expr
    low_in: bool
    high: Expr
    high_in: bool


@dataclass(frozen=True)
class RealSet:
    """A union of intervals, in order and without overlap; `variable` where the text named one."""

    pieces: tuple[Piece, ...]
    variable: str | None = None


@dataclass(frozen=True)
class Equation:
    """`zero` = 0."""

    zero: Expr


@dataclass(frozen=True)
class Inequality:
    """`positive` > 0, or >= 0."""

    positive: Expr
    strict: bool


@dataclass(frozen=True)
class Labelled:
    """name = value; `zero` is name - value where the name is a symbol that the value does not contain."""

    name: str
    value: "Answer"
    zero: Expr | None


@dataclass(frozen=True)
class Rounded:
    """A value and its decimal approximation, which agree: 1/3 \\approx 0.333."""

    value: "Answer"
    decimal: "Answer"


@dataclass(frozen=True)
class Matrix:
    """Rows of values."""

    rows: tuple[tuple["Answer", ...], ...]


Answer = (
    Text | Scalar | Based | Pair | Ordered | Unordered | RealSet | Equation | Inequality | Labelled | Rounded | Matrix
)
