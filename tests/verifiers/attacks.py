"""Programs that attack the sandbox, and what became of them: `python -m tests.verifiers.attacks [--table] [backend]`.

Every program prints BREACH where it gets what it should not.  The expected output is a secret that the parent alone
knows, so a point means that the program has read it.
"""

import os
import re
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rlvr.records import Verdict
from rlvr.verifiers.base import judge
from rlvr.verifiers.code import Code
from rlvr.verifiers.sandbox import BACKENDS, Limits, Outcome, Program, Sandbox
from tests.verifiers.attack_programs import FUNCTIONS, PRELUDE, PROGRAMS

ATTACKS = (*PROGRAMS, *FUNCTIONS)
SECONDS, MEMORY, AT_ONCE = 0.4, 512, 3


@dataclass
class Host:
    """What programs try to harm: files, servers, this process."""

    directory: Path
    marker: Path
    servers: tuple[socket.socket, socket.socket]
    secret: str = field(default_factory=lambda: f"rlvr-secret-{secrets.token_hex(8)}")
    signals: list[int] = field(default_factory=list)

    def prelude(self) -> str:
        """Start of every program: where the host's things are."""
        (_, port), name = (server.getsockname() for server in self.servers)
        return f"HOST, PORT, NAME, MARKER = {os.getpid()}, {port}, {name.decode()!r}, {str(self.marker)!r}\n{PRELUDE}"

    def harm(self) -> list[str]:
        """What has been harmed so far."""
        found = []
        if self.marker.read_text() != "untouched" or self.marker.stat().st_mode & 0o777 != 0o666:
            found.append("the marker file was changed")
        if [path.name for path in self.directory.iterdir()] != [self.marker.name]:
            found.append("a file was left beside it")
        if Path("/tmp/rlvr-attack").exists() or Path("/dev/shm/rlvr-attack").exists():
            found.append("a file was left in a public directory")
        for server in self.servers:
            try:
                server.accept()
            except BlockingIOError:
                continue
            found.append("a server was reached")
        return found + [f"signal {number} arrived" for number in self.signals]


@contextmanager
def host() -> Iterator[Host]:
    """A marker that everybody may write, listening sockets, and handlers for signals."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        directory = Path(name)
        directory.chmod(0o777)
        marker = directory / "marker"
        marker.write_text("untouched")
        marker.chmod(0o666)
        tcp.bind(("127.0.0.1", 0))
        unix.bind(f"\0rlvr-{os.getpid()}")
        for server in (tcp, unix):
            server.listen()
            server.setblocking(False)
        made = Host(directory, marker, (tcp, unix))
        numbers = (signal.SIGUSR1, signal.SIGTERM, signal.SIGIO)
        before = [signal.signal(number, lambda number, _: made.signals.append(number)) for number in numbers]
        try:
            yield made
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def processes() -> set[int]:
    """Processes of our sandboxes, zygotes included, and of anyone's that have lost their parent.

    What forks from a zygote keeps its command line and, unless it gets away, its process group.
    """
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent, group = (entry / "stat").read_text().rpartition(")")[2].split()[1:3]
                ours = int(group) == os.getpgrp() or parent == "1"
                if ours and b"jail.zygote" in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def survivors(known: set[int]) -> set[int]:
    """Processes of sandboxes beyond the known ones; the watcher of a program is given a moment to end."""
    for _ in range(100):
        if not (left := processes() - known):
            break
        time.sleep(0.05)
    return left


class Recorder(Sandbox):
    """A sandbox that remembers how its last program ended."""

    last: Outcome

    def run(self, program: Program, limits: Limits) -> Outcome:
        self.last = super().run(program, limits)
        return self.last


@dataclass(frozen=True)
class Report:
    """One attack: what the verifier said, how the program ended."""

    name: str
    verdict: Verdict
    stopped: str
    breach: bool


def attack(name: str, sandbox: Recorder, host: Host) -> Report:
    """Let an attack compete for a point; before it, a right solution has passed through the same sandbox."""
    code = Code(seconds=SECONDS, memory=MEMORY)
    code.sandbox = sandbox
    printed = {"tests": [{"stdin": "1 2\n", "stdout": host.secret}]}
    right = judge(code, code.present(f"print({host.secret!r})"), printed)
    assert right.score == 1, right
    returned = {"function": "solve", "tests": [{"args": [1, 2], "returns": host.secret}]}
    text, answer = (FUNCTIONS[name], returned) if name in FUNCTIONS else (PROGRAMS[name], printed)
    verdict = judge(code, code.present(host.prelude() + text), answer)
    return Report(name, verdict, stopped(sandbox.last), "BREACH" in sandbox.last.stdout)


def stopped(outcome: Outcome) -> str:
    """In words: by the limit on time or output, by a signal, by an exception, or not at all."""
    if outcome.ended != "exit":
        return f"limit on {outcome.ended}"
    if outcome.code < 0:
        return f"signal {signal.Signals(-outcome.code).name}"
    last = outcome.stderr.strip().rsplit("\n", 1)[-1] or ascii(outcome.stdout.split("\n", 1)[0])
    return f"exit code {outcome.code}: {last[:75]}"


def all_reports(backend: str, host: Host) -> Iterator[Report]:
    """Every attack on one backend, some at the same time; alone once more where the machine was too busy to judge."""
    own = threading.local()
    made: list[Recorder] = []

    def one(name: str) -> Report:
        if not hasattr(own, "sandbox"):
            own.sandbox = Recorder(backend)
            made.append(own.sandbox)
        return attack(name, own.sandbox, host)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for report in pool.map(one, ATTACKS):
            yield report if report.verdict.error is None else one(report.name)
    for sandbox in made:
        sandbox.close()


def short(stopped: str) -> str:
    """Without what differs from run to run and from machine to machine: numbers of errors, and paths."""
    if stopped.startswith("exit code 0"):
        return "ended by itself, without the answer"
    told = re.sub(r"\[Errno -?\d+\] |: '.*| '/.*|: \S*/.*", "", stopped).replace("|", "/").strip()
    return told.removeprefix("exit code 1: ")


def main(backend: str, seen: dict[str, dict[str, str]]) -> int:
    """Print what became of every attack; 1 if anything got a point, was not judged, harmed the host or survived."""
    before = processes()
    through = unjudged = 0
    print(f"sandbox: {backend}\n{'program':34} {'verdict':8} how it ended")
    with host() as attacked:
        for report in all_reports(backend, attacked):
            score = report.verdict.score
            through += bool(score) or report.breach
            unjudged += score is None
            verdict = "wrong" if score == 0 else "unjudged" if score is None else f"SCORE {score}"
            how = report.verdict.error or report.stopped
            print(f"{report.name:34} {verdict:8} {how}{' BREACH' * report.breach}", flush=True)
            seen.setdefault(report.name, {})[backend] = short(how) if score == 0 else f"**{verdict}**"
        harm = attacked.harm() + [f"process {pid} is left" for pid in survivors(before)]
    told = f"{len(ATTACKS)} programs, {through} got through, {unjudged} not judged"
    print(f"{told}; the host: {'; '.join(harm) or 'unharmed, no process left'}\n")
    return int(through > 0 or unjudged > 0 or bool(harm))


def table(seen: dict[str, dict[str, str]]) -> str:
    """The same in Markdown, one column for each backend: how a wrong answer ended, or that it is none."""
    backends = list(next(iter(seen.values())))
    lines = [f"| program | {' | '.join(backends)} |", "|---" * (1 + len(backends)) + "|"]
    lines += [f"| {name} | {' | '.join(how[backend] for backend in backends)} |" for name, how in seen.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    asked = [name for name in sys.argv[1:] if name != "--table"]
    ended: dict[str, dict[str, str]] = {}
    code = max([main(backend, ended) for backend in asked or BACKENDS])
    if "--table" in sys.argv:
        print(table(ended))
    sys.exit(code)
