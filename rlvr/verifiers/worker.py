"""A verifier process: `python -m rlvr.verifiers.worker`.

Reads one JSON message per line on standard input and answers on standard output, one line per item and at once, so
that the parent knows which item is running.  It is killed at will and holds nothing that matters.

    {"warm": [name, options]} -> {"warm": null, "patience": seconds} or {"warm": "why it cannot be used", ...}
    {"items": [[name, options, response, answer], ...]} -> [score, parts, error, answer, seconds] per item
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
from typing import Any, BinaryIO

from rlvr.records import Verdict
from rlvr.verifiers import Verifier, build, judge, self_check

MEMORY = 8 * 2**30  # bytes of address space; an answer that needs more is a failure of one item, not of the machine


def main() -> None:
    replies = _take_stdout()
    _limit()
    verifiers: dict[str, Verifier] = {}
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "warm" in message:
            why, key = _warm(verifiers, *message["warm"]), _key(*message["warm"])
            _reply(replies, {"warm": why, "patience": 0.0 if why else verifiers[key].patience})
            continue
        for name, options, response, answer in message["items"]:
            start = time.perf_counter()
            verdict = judge(verifiers[_key(name, options)], response, answer)
            _reply(replies, _row(verdict, time.perf_counter() - start))


def _warm(verifiers: dict[str, Verifier], name: str, options: dict[str, Any]) -> str | None:
    """Build and self-check a verifier, so that its imports are paid before any item's clock runs."""
    try:
        self_check(name, options)
        verifiers[_key(name, options)] = build(name, options)
    except Exception as error:  # told to the parent, which stops the run or books the items as not judged
        return f"{error}" if isinstance(error, (ValueError, RuntimeError)) else f"{type(error).__name__}: {error}"
    return None


def _row(verdict: Verdict, seconds: float) -> list[Any]:
    return [verdict.score, verdict.parts, verdict.error, verdict.answer, seconds]


def _reply(replies: BinaryIO, message: Any) -> None:
    replies.write(json.dumps(message).encode() + b"\n")
    replies.flush()


def _key(name: str, options: dict[str, Any]) -> str:
    return json.dumps([name, options], sort_keys=True)


def _take_stdout() -> BinaryIO:
    """Standard output for replies alone; what a verifier prints goes to standard error."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return replies


def _limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or soft > MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlive the trainer


if __name__ == "__main__":
    main()
