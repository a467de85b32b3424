"""Generated sums: problems such as "47+85=" without any download."""

from collections.abc import Iterator
from itertools import islice
from math import prod
from pathlib import Path

from rlvr.data.rows import DEAL, Raw, check_options, count, whole
from rlvr.data.shuffle import Shuffle
from rlvr.keys import ConfigError
from rlvr.records import Role
from rlvr.schema.data import SourceConfig

REQUIRED = ("operands", "digits", "operators", "seed")
OPTIONS = (*REQUIRED, "worked")
OPERATORS = ("+", "-", "*")

Problem = tuple[tuple[int, ...], tuple[str, ...]]  # n operands and the n - 1 operators between them


def read(source: SourceConfig, name: str, role: Role, base: Path) -> list[Raw]:
    """Rows of one role; roles never share a problem, nor a+b one and b+a the other.

    All distinct problems stand in one random order that the seed fixes; the roles are cut from it.

    Raises:
        ConfigError: on a wrong option, or if there are fewer problems than the roles ask for.
    """
    check_options(source, name, OPTIONS, required=REQUIRED)
    operators = source.options["operators"]
    if not isinstance(operators, list) or not operators or not set(operators) <= set(OPERATORS):
        raise ConfigError(
            f"data.sources.{name}.options.operators={operators}: must be a list of {', '.join(OPERATORS)}"
        )
    worked = source.options.get("worked", False)
    if not isinstance(worked, bool) or (worked and operators != ["+"]):
        raise ConfigError(
            f"data.sources.{name}.options.worked={worked}: true or false, and true for operators: ['+'] alone"
        )
    counts = {each: count(source, name, each) for each in DEAL}
    first = sum(counts[each] for each in DEAL[: DEAL.index(role)])
    problems = distinct(
        operands=whole(source, name, "operands", 2),
        digits=whole(source, name, "digits", 1),
        operators=tuple(dict.fromkeys(operators)),
        seed=whole(source, name, "seed", 0),
    )
    dealt = list(islice(problems, first + counts[role]))
    if len(dealt) < first + counts[role]:
        raise ConfigError(
            f"data.sources.{name}: train + validation + test ask for {sum(counts.values())} rows, but only "
            f"{len(dealt)} different problems exist; lower the counts or raise options.digits or options.operands"
        )
    answer = working if worked else lambda problem: str(value(problem))
    return [Raw(number, text(problem), answer(problem)) for number, problem in enumerate(dealt[first:])]


def distinct(operands: int, digits: int, operators: tuple[str, ...], seed: int) -> Iterator[Problem]:
    """Every problem once, in random order; of those that differ in order only (a+b, b+a), the first."""
    order = Shuffle(10 ** (digits * operands) * len(operators) ** (operands - 1), seed, "arithmetic")
    seen = set()
    for index in range(order.size):
        problem = _numbered(order.at(index), operands, 10**digits, operators)
        if (terms := canonical(problem)) not in seen:
            seen.add(terms)
            yield problem


def _numbered(index: int, operands: int, numbers: int, operators: tuple[str, ...]) -> Problem:
    """The index-th problem: `index` read in mixed radix."""
    picked, signs = [], []
    for _ in range(operands):
        index, number = divmod(index, numbers)
        picked.append(number)
    for _ in range(operands - 1):
        index, sign = divmod(index, len(operators))
        signs.append(operators[sign])
    return tuple(picked), tuple(signs)


def canonical(problem: Problem) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The signed products that are added up, sorted: equal for problems that differ in order only."""
    (first, *rest), signs = problem
    terms: list[tuple[str, list[int]]] = [("+", [first])]
    for sign, number in zip(signs, rest, strict=True):
        if sign == "*":
            terms[-1][1].append(number)
        else:
            terms.append((sign, [number]))
    return tuple(sorted((sign, tuple(sorted(factors))) for sign, factors in terms))


def value(problem: Problem) -> int:
    """What the problem comes to."""
    return sum(prod(factors) if sign == "+" else -prod(factors) for sign, factors in canonical(problem))


def working(problem: Problem) -> str:
    """A sum added up from the left, one line of working per operator: "47+41=88" for "12+35+41="."""
    (total, *rest), _ = problem
    lines = []
    while rest:
        total, rest = total + rest[0], rest[1:]
        lines.append("+".join(map(str, (total, *rest))))
    return "=".join(lines)


def text(problem: Problem) -> str:
    """The problem as the model sees it: "47+85="."""
    (first, *rest), signs = problem
    return str(first) + "".join(f"{sign}{number}" for sign, number in zip(signs, rest, strict=True)) + "="
