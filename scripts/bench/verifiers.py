"""Responses per second of every verifier, through the pool of processes that training uses.

    python scripts/bench/verifiers.py [workers=2] [repeats=5] [only=math,code]

No two responses are alike, and all but the programs stand behind a thought of 2,000 characters.  An item of `code` is
one execution of one program.  What is told is the median of the repeats, and the slowest and the fastest.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

from _runs import settings, table

from rlvr.keys import ConfigError
from rlvr.records import Verdict
from rlvr.verifiers.pool import Job, VerifierPool

THOUGHT = "<think>" + "Let us look at it step by step. " * 62 + "</think>"
MATH = (  # answer, response
    ("{i}", "{i}.0"),
    ("\\frac{{{i}}}{{7}}", "{i}/7"),
    ("{i}\\sqrt{{2}}", "\\frac{{{i}\\cdot 2}}{{\\sqrt{{2}}}}"),
    ("(1, {i})", "\\left(1,{i}\\right)"),
    ("\\{{1, {i}\\}}", "\\{{{i}, 1\\}}"),
    ("x^2+{i}x", "x(x+{i})"),
    ("[0, {i})", "0 \\leq x < {i}"),
    ("y=2x+{i}", "2x-y+{i}=0"),
    ("{i}\\%", "{i}"),
    ("\\text{{step {i}}}", "step {i}"),
)
PROSE = "Rain falls on the roof of house {i} while the cat sleeps in a warm chair by the window and dreams of birds."
COMPOSITE = {
    "right": {"verifier": "math", "weight": 0.8},
    "format": {"verifier": "format", "weight": 0.1, "options": {"pattern": "boxed"}, "only_if": "right"},
    "short": {"verifier": "length", "weight": 0.1, "options": {"high": 5000}, "only_if": "right"},
}


def text(verifier: str, answer: Any, response: str, **options: Any) -> Job:
    return Job(verifier=verifier, answer=answer, response=THOUGHT + response, options=options)


def math(i: int, verifier: str = "math", **options: Any) -> Job:
    answer, response = MATH[i % len(MATH)]
    return text(verifier, answer.format(i=i + 2), f"So \\boxed{{{response.format(i=i + 2)}}}.", **options)


def choice(i: int) -> Job:
    options = [f"{i} m", f"{i + 1} m", f"a lake of {i} metres", "none of the above"]
    return text("choice", {"answer": "B", "options": options}, "The answer is (B).")


def code(i: int) -> Job:
    program = f"```python\nprint(sum(map(int, input().split())) + {i})\n```"
    return Job(verifier="code", answer={"tests": [{"stdin": "1 2", "stdout": str(3 + i)}]}, response=program)


def gym(i: int) -> Job:
    entry = {"question": f"{i} + 3 =", "answer": str(i + 3), "metadata": {}}
    return text("gym", {"task": "basic_arithmetic", "entry": entry}, f"<answer>{i + 3}</answer>")


def instructions(i: int) -> Job:
    ids = ["punctuation:no_comma", "length_constraints:number_words", "keywords:existence"]
    kwargs = [{}, {"num_words": 10, "relation": "at least"}, {"keywords": ["cat", "window"]}]
    return text("instructions", {"instruction_id_list": ids, "kwargs": kwargs}, PROSE.format(i=i))


ITEMS: dict[str, tuple[int, Callable[[int], Job]]] = {  # items per repeat, and how one is made
    "exact": (4000, lambda i: text("exact", f"word {i}", f"word {i}")),
    "number": (4000, lambda i: text("number", str(i), f"It is {i} in all.\n#### {i}")),
    "math": (2000, math),
    "choice": (4000, choice),
    "code": (400, code),
    "gym": (4000, gym),
    "instructions": (2000, instructions),
    "format": (4000, lambda i: text("format", None, f"<answer>{i}</answer>", tags=["think", "answer"])),
    "length": (4000, lambda i: text("length", None, PROSE.format(i=i), high=5000)),
    "language": (400, lambda i: text("language", None, PROSE.format(i=i), language="en", whole=False)),
    "composite": (400, lambda i: math(i, "composite", parts=COMPOSITE)),
}


def rates(name: str, workers: int, repeats: int) -> list[float]:
    """Responses per second of each repeat; one more goes before, unmeasured.

    Raises:
        RuntimeError: the verifier cannot be used, or a right response is not graded right.
    """
    count, make = ITEMS[name]
    found = []
    with VerifierPool(workers, timeout=5.0) as pool:
        pool.warm(name, make(0).options)
        for repeat in range(repeats + 1):
            jobs = [make(repeat * count + i) for i in range(count)]
            start = time.perf_counter()
            verdicts = pool.gather([pool.submit(job) for job in jobs])
            found.append(count / (time.perf_counter() - start))
            if bad := [(job, verdict) for job, verdict in zip(jobs, verdicts, strict=True) if not right(verdict)]:
                raise RuntimeError(f"not right: {bad[0]}")
    return found[1:]


def right(verdict: Verdict) -> bool:
    return verdict.score is not None and verdict.score > 0.99


def main() -> None:
    given = settings(workers="2", repeats="5", only=",".join(ITEMS))
    lines = []
    for name in given["only"].split(","):
        try:
            found = rates(name, int(given["workers"]), int(given["repeats"]))
        except (ConfigError, RuntimeError) as error:
            lines.append([f"`{name}`", "-", str(error)])
            continue
        lines.append([f"`{name}`", f"{statistics.median(found):,.0f}", f"{min(found):,.0f} to {max(found):,.0f}"])
    print(f"{given['workers']} processes, median of {given['repeats']}\n")
    print(table(["verifier", "items/s", "slowest to fastest"], lines))


if __name__ == "__main__":
    main()
