"""The parent's side of the sandbox: pick a backend that holds, start its zygote, send programs, take what came out.

Expected answers stay here; a program is sent its code and its input and nothing else.
"""

import contextlib
import select
import subprocess
import sys
import time
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rlvr.verifiers.sandbox.jail import messages

BACKENDS = ("namespaces", "landlock")  # strongest first
UNSAFE = "seccomp_only"
START = 60.0  # seconds for a zygote to start, on a busy machine too
GRACE = 10.0  # seconds beyond a program's patience, for the processes around it
PAUSE = 0.2  # seconds before a lost zygote is replaced
_HERE = Path(__file__).parent
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from jail.zygote import main; del sys.path[0]; main(sys.argv[2])"
_PROBE = """
import os, socket
def held(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return True
    return False
checks = {
    "network": held(socket.socket),
    "processes": held(os.fork),
    "signals": held(os.kill, os.getppid(), 0),
    "writing": held(open, "/rlvr-probe", "w") and held(open, "/proc/self/oom_score_adj", "w"),
    "reading": held(open, "/etc/passwd"),
}
print(*[name for name, good in checks.items() if not good])
"""


class SandboxError(RuntimeError):
    """The sandbox failed, not the program: nothing is known of the program."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run: `code` with `stdin`; or, given `function`, its value for `args` and `kwargs` (JSON values)."""

    code: str
    stdin: str = ""
    function: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`seconds` of the program's own time (computing and sleeping, not waiting for a busy processor), `memory` in MiB
    of address space, `output` in bytes of each stream, `patience` in seconds of wall clock."""

    seconds: float = 6.0
    memory: int = 1024
    output: int = 4 << 20
    patience: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a program ended: by itself (exit), or stopped for its time or its output."""

    ended: Literal["exit", "time", "output"]
    code: int  # exit code; a signal as a negative number
    stdout: str
    stderr: str  # its end
    result: str | None  # JSON text of the function's value; None without one
    seconds: float  # own time


class Sandbox:
    """Runs programs one after the other; a zygote that is lost is replaced.

    Args:
        backend: one of `BACKENDS`, or "auto" for the first that holds on this machine.
        allow_unsafe: if none holds, run programs that can read this user's files.
    """

    def __init__(self, backend: str = "auto", allow_unsafe: bool = False) -> None:
        self.choice = list(BACKENDS if backend == "auto" else (backend,)) + [UNSAFE] * allow_unsafe
        self.backend: str | None = None  # known when the first program is run
        self._zygote: _Zygote | None = None

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> str:
        """Start what `run` would start, and return the backend's name.

        Raises:
            SandboxError: no backend holds; the message says why, for each.
        """
        if self._zygote is None:
            self._zygote = _Zygote(self.backend) if self.backend else self._pick()
        return self._zygote.backend

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Run a program to its end.

        Raises:
            SandboxError: it could not be run, or could not be told apart from a program on an overloaded machine.
        """
        try:
            reply = self._ask(program, limits)
        except SandboxError:  # a passing lack of memory or processes; a second failure is told
            time.sleep(PAUSE)
            reply = self._ask(program, limits)
        if reply["ended"] == "starved":
            had = f"{reply['seconds']:.1f} of its {limits.seconds:g} s"
            raise SandboxError(f"a program had {had} in {limits.patience:g} s of wall clock; the machine is overloaded")
        return Outcome(**reply)

    def close(self) -> None:
        """End the zygote and everything that it started."""
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def _ask(self, program: Program, limits: Limits) -> dict[str, Any]:
        try:
            self.start()
            assert self._zygote
            return self._zygote.ask(program, limits)
        except SandboxError:
            self.close()
            raise

    def _pick(self) -> "_Zygote":
        reasons = []
        for backend in self.choice:
            try:
                zygote = _Zygote(backend)
                _probe(zygote)
            except SandboxError as error:
                reasons.append(f"{backend}: {error}")
                continue
            self.backend = backend
            return zygote
        raise SandboxError(
            f"no sandbox for generated code on this machine ({'; '.join(reasons)}); allow user namespaces or use a "
            "kernel with Landlock (5.13 or newer), or accept the risk with the verifier's option allow_unsafe=true"
        )


def _probe(zygote: "_Zygote") -> None:
    """Let a program try to get out.  Raises SandboxError, with the zygote closed, if it can."""
    try:
        reply = zygote.ask(Program(code=_PROBE), Limits(patience=START))
        open_doors = set(reply["stdout"].split()) - ({"reading"} if zygote.backend == UNSAFE else set())
        if reply["code"] != 0:
            raise SandboxError(f"the probe failed: {reply['stderr'].strip()}")
        if open_doors:
            raise SandboxError(f"it does not hold: {', '.join(sorted(open_doors))}")
    except SandboxError:
        zygote.close()
        raise


class _Zygote:
    """The process that is forked for every program, started by exec with nothing of ours in its environment.

    As `python -I`, but with one variable: fixed hashes make the order of sets, and so verdicts, repeatable.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        try:
            self.popen = subprocess.Popen(
                [sys.executable, "-P", "-s", "-S", "-c", _BOOT, str(_HERE), backend],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={"PYTHONHASHSEED": "0"},
                cwd="/",
                bufsize=0,
            )
        except OSError as error:
            raise SandboxError(f"its process cannot be started: {error}") from error
        assert self.popen.stdin and self.popen.stdout
        self._requests, self._replies = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        self._finalizer = weakref.finalize(self, _end, self.popen)
        try:
            self._receive(START)
        except SandboxError:
            self.close()
            raise

    def ask(self, program: Program, limits: Limits) -> dict[str, Any]:
        """Raises SandboxError."""
        call = {"name": program.function, "args": program.args, "kwargs": program.kwargs or {}}
        request = {
            "code": program.code,
            "stdin": program.stdin,
            "call": call if program.function is not None else None,
            "limits": asdict(limits),
        }
        with contextlib.suppress(BrokenPipeError):  # it is gone; what it said last tells why
            messages.write(self._requests, request)
        return self._receive(limits.patience + GRACE)

    def close(self) -> None:
        self._finalizer()

    def _receive(self, timeout: float) -> dict[str, Any]:
        waiting = select.poll()
        waiting.register(self._replies, select.POLLIN)
        if not waiting.poll(1000 * timeout):
            raise SandboxError(f"no reply within {timeout:g} s")
        try:
            reply: dict[str, Any] = messages.read(self._replies)
        except EOFError:
            raise SandboxError(f"the sandbox ended with exit code {self.popen.wait()}") from None
        if "error" in reply:
            raise SandboxError(reply["error"])
        return reply


def _end(popen: subprocess.Popen[bytes]) -> None:
    popen.kill()
    popen.wait()
    for pipe in (popen.stdin, popen.stdout):
        assert pipe
        pipe.close()
