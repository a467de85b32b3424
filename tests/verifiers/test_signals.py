"""Signals that SLURM sends to all processes of a job leave verifiers, their sandboxes and programs in it alone."""

import os
import signal
import time
from pathlib import Path

import pytest

from rlvr.verifiers.pool import Job, VerifierPool

PROGRAM = "```python\nimport time\ntime.sleep(1.5)\nprint(int(input()) + 1)\n```"
TESTS = {"inputs": ["1\n"], "outputs": ["2\n"]}


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    below = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            below += [int(word) for word in path.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return below + [lower for child in below for lower in descendants(child)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_verdicts_survive_a_signal_to_every_process(number):
    with VerifierPool(workers=1, timeout=20.0) as pool:
        pool.warm("code")
        ticket = pool.submit(Job(verifier="code", response=PROGRAM, answer=TESTS))
        time.sleep(0.7)
        hit = descendants(os.getpid())
        assert len(hit) >= 3  # the verifier, the zygote, the program with what watches it
        for pid in hit:
            os.kill(pid, number)
        (verdict,) = pool.gather([ticket])
        assert (verdict.score, verdict.error) == (1.0, None)
        assert pool.gather([pool.submit(Job(verifier="exact", response="a", answer="a"))])[0].score == 1.0
