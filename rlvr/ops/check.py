"""Check the formulas against a file of worked numbers: `python -m rlvr.ops.check FILE`.

FILE is JSON: {"cases": {name: {"inputs": {...}, "expected": {...}}}}.  The beginning of a case's name
says which formula it is about (`grpo_beta0.04` is a `grpo`).  Every number of `expected`, gradients
included, must come out of `rlvr.ops` in float64 within a relative 1e-10; prints a line per case with
its largest relative error.  A case of unknown kind, and an expected field that nothing here computes, are errors too.

Exit status: 0 all agree, 1 something does not, 2 the file cannot be read as worked numbers.
"""

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from rlvr.ops.check_advantages import ADVANTAGE_KINDS
from rlvr.ops.check_cases import Case, Kind, Numbers
from rlvr.ops.check_losses import LOSS_KINDS

RTOL = 1e-10
KINDS: dict[str, Kind] = {**LOSS_KINDS, **ADVANTAGE_KINDS}


@dataclass
class Report:
    """What came of one case."""

    name: str
    worst: float = 0.0  # the largest relative error
    numbers: int = 0  # how many were compared
    misses: list[str] = field(default_factory=list)

    def line(self) -> str:
        verdict = "FAIL" if self.misses else "ok"
        told = "".join(f"\n      {miss}" for miss in self.misses)
        return f"{verdict:4}  {self.name:40}  {self.worst:8.1e}  ({self.numbers} numbers){told}"


def kind_of(name: str) -> Kind:
    """The kind with the longest name that the case's name begins with.

    Raises:
        LookupError: if there is none.
    """
    stems = [stem for stem in KINDS if name.startswith(stem)]
    if not stems:
        raise LookupError(f"unknown kind of case; known are {', '.join(sorted(KINDS))}")
    return KINDS[max(stems, key=len)]


def check_case(name: str, case: dict[str, Any]) -> Report:
    """Evaluate one case and compare every expected number."""
    report = Report(name)
    try:
        kind = kind_of(name)
        if not case.get("expected"):
            raise LookupError("nothing is expected")
        got = plain(kind.evaluate(Case(case.get("inputs", {}), case["expected"])))
    except KeyError as missing:
        report.misses.append(f"needs the input {missing}")
        return report
    except (LookupError, TypeError, ValueError, RuntimeError) as problem:
        report.misses.append(str(problem))
        return report
    for path, error, told in compared(case["expected"], got, "", kind):
        report.numbers += 1
        report.worst = max(report.worst, math.inf if math.isnan(error) else error)
        if not error <= RTOL:
            report.misses.append(f"{path}: {told}")
    return report


def plain(x: Any) -> Any:
    """Tensors inside dicts and lists as nested lists of numbers."""
    if isinstance(x, Tensor):
        return x.detach().tolist()
    if isinstance(x, dict):
        return {name: plain(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [plain(value) for value in x]
    return x


def compared(want: Any, got: Any, path: str, kind: Kind) -> Iterator[tuple[str, float, str]]:
    """(path, relative error, what differs) of every leaf of `want`."""
    if isinstance(want, dict) and isinstance(got, dict):
        for name in want.keys() - kind.given:
            here = f"{path}.{name}" if path else name
            if name in got:
                yield from compared(want[name], got[name], here, kind)
            else:
                yield here, math.inf, "expected, but nothing computes it"
    elif isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            yield path, math.inf, f"expected {len(want)} entries, got {len(got)}"
            return
        for i, (a, b) in enumerate(zip(want, got, strict=True)):
            yield from compared(a, b, f"{path}[{i}]", kind)
    else:
        error = relative_error(want, got, kind.floor)
        yield path, error, f"expected {want!r}, got {got!r}, relative error {error:.1e}"


def relative_error(want: Any, got: Any, floor: float) -> float:
    """|got - want| / max(|want|, floor); exact comparison of what are not two numbers."""
    numbers = [isinstance(x, int | float) for x in (want, got)]
    if want is got or not all(numbers) or isinstance(want, bool):
        return 0.0 if want == got else math.inf
    if want == got:
        return 0.0
    size = max(abs(want), floor)
    return abs(got - want) / size if size > 0 else math.inf


def read_cases(path: Path) -> Numbers:
    """The cases of a file.

    Raises:
        ValueError: if it holds none; OSError if it cannot be read.
    """
    content = json.loads(path.read_text())
    cases = content.get("cases") if isinstance(content, dict) else None
    if not isinstance(cases, dict) or not cases or not all(isinstance(case, dict) for case in cases.values()):
        raise ValueError('expected {"cases": {name: {"inputs": {...}, "expected": {...}}}} with at least one case')
    return cases


def main(arguments: list[str]) -> int:
    """Check the one file that `arguments` name; returns the exit status."""
    if len(arguments) != 1:
        print("usage: python -m rlvr.ops.check FILE", file=sys.stderr)
        return 2
    try:
        cases = read_cases(Path(arguments[0]))
    except (OSError, ValueError) as problem:
        print(f"{arguments[0]}: {problem}", file=sys.stderr)
        return 2
    reports = [check_case(name, case) for name, case in cases.items()]
    print("\n".join(report.line() for report in reports))
    failed = [report.name for report in reports if report.misses]
    agree = f"{len(reports) - len(failed)} of {len(reports)} cases agree"
    print(f"{agree}; not {', '.join(failed)}" if failed else agree)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
