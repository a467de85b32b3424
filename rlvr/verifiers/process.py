"""The parent's side of one verifier process: start, talk, time, kill."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

START_TIMEOUT = 120.0  # seconds to import and self-check a verifier, on a busy machine too
OURS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)  # SLURM sends them to all processes; the trainer alone may act
PAUSE = 0.0005  # seconds: replies of quick verifiers are read several at a time, not with a wake-up for each
_ROOT = Path(__file__).resolve().parents[2]


class TimedOut(Exception):
    """No reply within the time limit."""


class Died(Exception):
    """The process is gone; the message says how it ended."""


class Process:
    """A worker in its own session, so that whatever it starts is killed with it.

    Started by exec, never by a bare fork: the trainer has torch's and vLLM's threads, and a verifier needs neither.
    """

    def __init__(self) -> None:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
            "CUDA_VISIBLE_DEVICES": "",  # grading needs no GPU and must not take memory there
            "OMP_NUM_THREADS": "1",
        }
        before = signal.pthread_sigmask(signal.SIG_BLOCK, OURS)  # inherited, from the first instruction on
        try:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "rlvr.verifiers.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,
                bufsize=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.known: dict[str, str | None] = {}  # verifiers that it has tried to warm up: None, or why they are unusable
        self.patience: dict[str, float] = {}  # seconds that the usable ones may need for a response
        self._buffer = b""
        self._killed = False
        self._poll = select.poll()  # select() cannot watch descriptors past 1023
        self._poll.register(self.popen.stdout, select.POLLIN)  # type: ignore[arg-type]

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def send(self, message: str) -> None:
        """Send one JSON message.  Raises Died."""
        assert self.popen.stdin
        data = memoryview(message.encode() + b"\n")
        try:
            while data:
                data = data[self.popen.stdin.write(data) :]
        except BrokenPipeError:
            raise Died(self._how()) from None

    def receive(self, timeout: float) -> Any:
        """The next reply.

        Raises:
            TimedOut: none within `timeout` seconds.
            Died: the process ended.
        """
        assert self.popen.stdout
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not self._poll.poll(left * 1000):
                raise TimedOut
            time.sleep(PAUSE)
            data = os.read(self.popen.stdout.fileno(), 1 << 16)
            if not data:
                raise Died(self._how())
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def warm(self, spec: str) -> str | None:
        """Build and self-check the verifier `spec` (JSON of [name, options]) there, once.

        Returns None, or why it cannot be used; if the process was lost in the attempt, it is killed.
        """
        if spec not in self.known:
            try:
                self.send(f'{{"warm": {spec}}}')
                reply = self.receive(START_TIMEOUT)
                self.known[spec], self.patience[spec] = reply["warm"], reply["patience"]
            except TimedOut:
                self.known[spec] = f"verifier {spec} did not start within {START_TIMEOUT:g} s"
                self.kill()
            except Died as error:
                self.known[spec] = f"verifier {spec} cannot start: the process ended ({error})"
                self.kill()
        return self.known[spec]

    def interrupt(self) -> None:
        """Kill it from another thread; the one that talks to it sees it die and cleans up with `kill`."""
        if not self._killed:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill it and all its children, and wait until it is gone."""
        if self._killed:
            return
        self._killed = True  # once: the number of a process that is gone may be given to another
        with contextlib.suppress(ProcessLookupError):  # it ended by itself and left no child
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            assert pipe
            pipe.close()

    def _how(self) -> str:
        try:
            code = self.popen.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
