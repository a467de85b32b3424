"""Executions per second in the sandbox and as bare `python -c`, on several processors at once.

    python scripts/bench/sandbox.py [workers=2] [count=200]

The ratio to the bare interpreter is what can be compared between machines and between busy and idle ones.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable

from _runs import settings, table

from rlvr.verifiers.sandbox import BACKENDS, Limits, Program, Sandbox, SandboxError

CODE = "print(sum(map(int, input().split())))"
LIMITS = Limits(seconds=5.0)


def bare(*flags: str) -> Callable[[], str]:
    """A function that runs the program in a new interpreter."""
    command = [sys.executable, *flags, "-c", CODE]
    return lambda: subprocess.run(command, input="1 2", capture_output=True, text=True, check=True).stdout


def rate(runners: list[Callable[[], str]], count: int) -> float:
    """Executions per second of all runners together, each in a thread of its own."""

    def work(runner: Callable[[], str]) -> None:
        for _ in range(count):
            if runner() != "3\n":
                raise RuntimeError("a program printed something else")

    threads = [threading.Thread(target=work, args=(runner,)) for runner in runners]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count * len(runners) / (time.perf_counter() - start)


def boxed(backend: str, workers: int, count: int) -> float:
    """The rate of one sandbox per worker, start-up left out.  Raises SandboxError."""
    boxes = [Sandbox(backend) for _ in range(workers)]
    try:
        for box in boxes:
            box.start()
        program = Program(code=CODE, stdin="1 2")
        return rate([lambda box=box: box.run(program, LIMITS).stdout for box in boxes], count)  # type: ignore[misc]
    finally:
        for box in boxes:
            box.close()


def main() -> None:
    given = settings(workers="2", count="200")
    workers, count = int(given["workers"]), int(given["count"])
    base = rate([bare()] * workers, count)
    rows = {"python -c": base, "python -I -S -c": rate([bare("-I", "-S")] * workers, count)}
    for backend in BACKENDS:
        try:
            rows[f"sandbox, {backend}"] = boxed(backend, workers, count)
        except SandboxError as error:
            print(f"{backend}: {error}")
    lines = [[way, f"{found:.0f}", f"{found / base:.2f}"] for way, found in rows.items()]
    print(table(["way", "per second", "ratio"], lines))


if __name__ == "__main__":
    main()
