"""What an answer must be before a scorer of reasoning-gym sees it.

These scorers are third-party code with faults that a model would find: some run the answer as Python, some pay in full
for a wrong one.  All of them are worked round here.  `tests/verifiers/test_gym.py` scans the package, so that a new
version with another such scorer is noticed.
"""

import ast
import math
import re
from collections.abc import Callable

from rlvr.verifiers.rational import read_rational

LONGEST = 10_000  # characters of a literal
LONGEST_FORMULA = 500
NEAR = 1e-4  # how far coin_flip's own scorer lets an answer be off
LARGEST_POWER = 1000  # product of the exponents behind brackets

EVALUATED = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")  # eval(answer)
PARSED = (  # sympy's parse_expr(answer), which evaluates too
    "countdown",
    "intermediate_integration",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
)
_BOARD = re.compile(r"[Q_\s]*")
_FORMULA = re.compile(r"[A-Za-z0-9_\s+\-*/^().,]*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FUNCTIONS = {
    "Abs",
    "acos",
    "asin",
    "atan",
    "cos",
    "cosh",
    "exp",
    "ln",
    "log",
    "pi",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
}
_CALLED_LETTER = re.compile(r"(?<![A-Za-z])[A-Za-z]\s*\(")
_POWER = re.compile(
    r"(?P<bracket>\)\s*)?(?:\*\*|\^)\s*(?P<exponent>\(?\s*[-+]?\s*\w+(?:/\d+)?\s*\)?)?(?P<tower>\s*\*\*)?"
)
_ATTRIBUTE = re.compile(r"\.\s*[A-Za-z_]")
_NOT_FINITE = re.compile(r"(?<![a-z])(?:nan|inf|infinity)(?![a-z])", re.I)


def admitted(task: str, given: str, gold: object) -> bool:
    """May the scorer of `task` see the answer `given`?  If not, it is wrong.

    The task's own answer always may.  NaN and infinity never: they pass comparisons (complex_arithmetic).
    """
    right = gold.strip() if isinstance(gold, str) else ""
    if given == right:
        return True
    if _NOT_FINITE.search(given) and not _NOT_FINITE.search(right):
        return False
    return task not in _REQUIRED or _REQUIRED[task](given, right)


def is_literal(given: str) -> bool:
    """Is it a Python literal, which can be evaluated without running anything?"""
    try:
        ast.literal_eval(given if len(given) <= LONGEST else "")
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def is_formula(given: str) -> bool:
    """Is it arithmetic in numbers, letters and common functions, and small enough to compute?"""
    if len(given) > LONGEST_FORMULA or not _FORMULA.fullmatch(given) or _ATTRIBUTE.search(given):
        return False
    if any(len(name) > 1 and name not in _FUNCTIONS for name in _NAME.findall(given)) or _CALLED_LETTER.search(given):
        return False
    powers = list(_POWER.finditer(given))
    exponents = [re.sub(r"[\s()+-]", "", power["exponent"] or "") for power in powers]
    nested = math.prod(int(e) for e, power in zip(exponents, powers, strict=True) if power["bracket"] and e.isdigit())
    small = all(e and len(e) <= 3 * (1 + ("/" in e)) for e in exponents)
    return small and nested <= LARGEST_POWER and not any(power["tower"] for power in powers)


def _near(given: str, gold: str) -> bool:
    number, right = read_rational(given), read_rational(gold)
    return number is not None and right is not None and abs(number.value - right.value) <= NEAR


_REQUIRED: dict[str, Callable[[str, str], bool]] = {
    "coin_flip": _near,  # pays for a common beginning: "0" is worth as much as "0.3125"
    "game_of_life_halting": lambda given, gold: given.casefold() == gold.casefold(),  # pays for any text
    **dict.fromkeys(EVALUATED, lambda given, _: is_literal(given)),
    "n_queens": lambda given, _: _BOARD.fullmatch(given) is not None or is_literal(given),
    **dict.fromkeys(PARSED, lambda given, _: is_formula(given)),
}
