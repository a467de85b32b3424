"""Generated programs, judged by what they print or return in a sandbox."""

import functools
import json
import sys
from typing import Any, ClassVar

from rlvr.keys import ConfigError, nearest
from rlvr.records import Verdict
from rlvr.verifiers.base import Canary, Verifier
from rlvr.verifiers.code_answer import Printed, Returned, Suite, read, same_output, same_value
from rlvr.verifiers.code_block import solution
from rlvr.verifiers.extract import after_thought
from rlvr.verifiers.sandbox import BACKENDS, Limits, Outcome, Program, Sandbox

STARVED = 30.0  # a program gets this many times its own time of wall clock before the machine counts as overloaded
_SUM = {"tests": [{"stdin": "2 3\n", "stdout": "5\n"}]}
_DOUBLE = {"function": "double", "tests": [{"args": [4], "returns": 8}]}
_OPTIONS = {"score": ("all", "fraction"), "backend": ("auto", *BACKENDS)}


class Code(Verifier):
    """Runs the solution's code block against tests: 1 or 0 for all, or the share that is passed.

    A test is passed by a program that ends by itself with exit code 0 and has printed the expected tokens, or by a
    function that returns the expected value.  Answers are `{"tests": [{"stdin", "stdout"}, ...]}` or `{"function":
    name, "tests": [{"args", "kwargs", "returns"}, ...]}`; see `code_answer` for the other shapes.

    Args:
        score: "all" stops at the first test that fails; "fraction" runs all.
        seconds: a program's own time per test, computing and sleeping; waiting for a busy processor is not counted.
        total_seconds: own time for all tests of a response; tests that come after it are failed.
        memory: MiB of address space.
        tolerance: of floating-point numbers, absolute or relative.
        backend: of the sandbox; "auto" takes the strongest that holds on this machine.
        allow_unsafe: if none holds, run programs that can read this user's files.
        prefilled: the prompt opens the thought; see SpanVerifier.
    """

    name: ClassVar[str] = "code"
    canaries: ClassVar[tuple[Canary, ...]] = (
        (_SUM, "print(sum(map(int, input().split())))", True),
        (_SUM, "print(6)", False),
        (_SUM, "print(5)\nraise SystemExit(1)", False),
        (_DOUBLE, "def double(x):\n    print(9)\n    return 2 * x", True),
        (_DOUBLE, "def double(x):\n    print(8)", False),
    )

    def __init__(
        self,
        score: str = "all",
        seconds: float = 6.0,
        total_seconds: float = 30.0,
        memory: int = 1024,
        tolerance: float = 1e-6,
        backend: str = "auto",
        allow_unsafe: bool = False,
        prefilled: bool = False,
    ) -> None:
        _check("score", score)
        _check("backend", backend)
        for option, value in (("seconds", seconds), ("total_seconds", total_seconds), ("memory", memory)):
            if value <= 0:
                raise ConfigError(f"verifier 'code': {option}={value} must be above 0")
        self.score, self.total_seconds, self.tolerance, self.prefilled = score, total_seconds, tolerance, prefilled
        self.limits = Limits(seconds=seconds, memory=memory, patience=STARVED * seconds)
        self.patience = STARVED * (total_seconds + seconds)
        self.sandbox = Sandbox(backend, allow_unsafe)

    def check_answer(self, answer: Any) -> None:
        for index, test in enumerate(read(answer).tests):
            wanted = test.stdout if isinstance(test, Printed) else json.dumps(test.returns)
            if 2 * len(wanted) > self.limits.output:
                raise ValueError(f"test {index} expects {len(wanted)} characters; {self.limits.output // 2} at most")

    def verify(self, response: str, answer: Any) -> Verdict:
        """Parts: `answered` (there is a code block), `passed` (share of the tests; "all" stops counting at the first
        that fails), `crashed` and `timed_out` (did a test end so).

        Raises:
            SandboxError: nothing can be said about the program.
        """
        suite = read(answer)
        code = solution(after_thought(response, self.prefilled), suite.function)
        if not code.strip():
            return Verdict(score=0.0, parts={"answered": 0.0, "passed": 0.0, "crashed": 0.0, "timed_out": 0.0})
        verdict = self._verdict(code, suite)
        _announce(self.sandbox.start())
        return verdict

    def present(self, given: str) -> str:
        return ("</think>" if self.prefilled else "") + f"```python\n{given}\n```"

    def _verdict(self, code: str, suite: Suite) -> Verdict:
        passed, left = 0, self.total_seconds
        crashed = timed_out = False
        for test in suite.tests:
            if left <= 0:
                timed_out = True
                break
            outcome = self.sandbox.run(_program(code, suite.function, test), self.limits)
            left -= outcome.seconds
            crashed |= outcome.ended == "exit" and outcome.code != 0
            timed_out |= outcome.ended == "time"
            good = self._passes(outcome, test)
            passed += good
            if self.score == "all" and not good:
                break
        share = passed / len(suite.tests)
        score = share if self.score == "fraction" else float(share == 1)
        parts = {"answered": 1.0, "passed": share, "crashed": float(crashed), "timed_out": float(timed_out)}
        return Verdict(score=score, parts=parts)

    def _passes(self, outcome: Outcome, test: Printed | Returned) -> bool:
        if outcome.ended != "exit" or outcome.code != 0:
            return False
        if isinstance(test, Printed):
            return same_output(outcome.stdout, test.stdout, self.tolerance)
        try:
            value = json.loads(outcome.result or "")
        except (ValueError, RecursionError):  # nothing, or not what the sandbox would write
            return False
        return any(same_value(value, wanted, self.tolerance) for wanted in test.returns)


def _program(code: str, function: str | None, test: Printed | Returned) -> Program:
    if isinstance(test, Printed):
        return Program(code=code, stdin=test.stdin)
    return Program(code=code, function=function, args=test.args, kwargs=test.kwargs)


@functools.cache
def _announce(backend: str) -> None:
    """Say once per process what stands between generated code and this machine."""
    print(f"generated code runs in the sandbox {backend!r}", file=sys.stderr)


def _check(option: str, value: str) -> None:
    known = _OPTIONS[option]
    if value not in known:
        hint = nearest(str(value), known)
        raise ConfigError(
            f"verifier 'code': {option}={value!r} must be one of {', '.join(known)}"
            + (f"; did you mean {hint!r}?" if hint else "")
        )
