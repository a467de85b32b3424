import errno
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.verifiers.sandbox import BACKENDS, Limits, Program, Sandbox, SandboxError, client
from rlvr.verifiers.sandbox.jail import seccomp, syscalls
from tests.verifiers import attacks

ROOT = Path(__file__).parents[2]
QUICK = Limits(seconds=1.0, memory=512)
DEEP = (
    "import functools, sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**27)\n"
    "def f(n): return n and 1 + f(n - 1)\n"
)


def have(backend: str) -> bool:
    """Does this machine have it?  If not, it must be refused with the reason."""
    with Sandbox(backend) as sandbox:
        try:
            sandbox.start()
        except SandboxError as error:
            assert f"no sandbox for generated code on this machine ({backend}: " in str(error)
            assert "allow_unsafe=true" in str(error)
            return False
        return True


HAVE = [backend for backend in BACKENDS if have(backend)]
each_backend = pytest.mark.parametrize("backend", HAVE)


@pytest.fixture(scope="module", params=HAVE)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(request.param) as made:
        yield made


def run(sandbox: Sandbox, code: str, stdin: str = "", limits: Limits = QUICK) -> client.Outcome:
    return sandbox.run(Program(code=code, stdin=stdin), limits)


def test_one_backend_at_least_holds_here() -> None:
    with Sandbox() as sandbox:
        assert sandbox.start() in BACKENDS


@each_backend
def test_no_attack_gets_through(backend: str) -> None:
    before = attacks.processes()
    with attacks.host() as host:
        reports = list(attacks.all_reports(backend, host))
        assert host.harm() == []
    assert attacks.survivors(before) == set()
    assert len(reports) == len(attacks.ATTACKS) > 40
    assert [report for report in reports if report.verdict.score != 0 or report.breach] == []


def test_the_scan_of_its_own_memory_can_find(sandbox: Sandbox) -> None:
    """Control of the attacks that look for the secret: they find one that is there."""
    planted = "planted = 'rlvr-' + 'secret-' + ''.join(['0123456789abcdef'])\n"
    with attacks.host() as host:
        for name in ("its own memory", "its own memory, by address", "all objects"):
            outcome = run(sandbox, planted + host.prelude() + attacks.PROGRAMS[name], limits=Limits(seconds=10))
            refused = "PermissionError: [Errno 13] Permission denied: '/proc/self/mem'" in outcome.stderr
            assert "rlvr-secret-0123456789abcdef" in outcome.stdout or (name == "its own memory" and refused), name


def test_ordinary_programs_run_as_everywhere(sandbox: Sandbox) -> None:
    cases = [
        ("print(sum(map(int, open(0).read().split())))", "1 2\n3\n", "6\n"),
        ("import sys\nfor line in sys.stdin: print(line[::-1].strip())", "ab\ncd\n", "ba\ndc\n"),
        ("import sys\nprint(sys.stdin.buffer.read().decode())", "h\u00e9\u00df\n", "h\u00e9\u00df\n\n"),
        ("print(open('/dev/stdin').read())", "x", "x\n"),
        ("if __name__ == '__main__': print('main')", "", "main\n"),
        ("import atexit\nlate = []\natexit.register(lambda: print(*late))\nlate.append('late')", "", "late\n"),
        ("import threading\nthreading.Thread(target=lambda: print('thread')).start()", "", "thread\n"),
        (DEEP + "threading.Thread(target=lambda: print(f(10**5))).start()", "", "100000\n"),
        (DEEP + "f = functools.lru_cache(None)(f)\nprint(f(20000))", "", "20000\n"),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: 'int' = 3\nprint(P())", "", "P(x=3)\n"),
        ("import sqlite3, zoneinfo, ssl, lzma, asyncio, multiprocessing\nprint(zoneinfo.ZoneInfo('UTC'))", "", "UTC\n"),
        ("from concurrent.futures import ThreadPoolExecutor as T\nprint(sum(T(4).map(abs, range(-9, 1))))", "", "45\n"),
        ("import sys\nprint(len(sys.stdin.read()))", "x" * 10**6, "1000000\n"),
        ("print('y' * 10**6)", "", "y" * 10**6 + "\n"),
        ("import os, sys\nprint(dict(os.environ), sys.argv)", "", "{} ['program.py']\n"),
    ]  # fmt: skip
    for code, stdin, stdout in cases:
        outcome = run(sandbox, code, stdin, Limits(seconds=10))
        assert (outcome.stdout, outcome.code, outcome.ended) == (stdout, 0, "exit"), (code, outcome.stderr)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("", 0), ("raise SystemExit", 0), ("raise SystemExit(7)", 7), ("raise SystemExit('text')", 1), ("1 / 0", 1),
     ("def", 1), ("raise KeyboardInterrupt", 1), ("import os; os.abort()", -signal.SIGABRT),
     ("import os; os._exit(3)", 3),
     ("import threading\nthreading.Thread(target=lambda: 1 / 0).start()", 0), ("import sys\nsys.stdout.close()", 1),
     ("x = '\ud800'", 1), ("x = '\0'", 1)],
)  # fmt: skip
def test_exit_codes(sandbox: Sandbox, code: str, exit_code: int) -> None:
    assert run(sandbox, code).code == exit_code


def test_functions_return_values_by_their_own_channel(sandbox: Sandbox) -> None:

    def value(code: str, *args: object, **kwargs: object) -> object:
        result = sandbox.run(Program(code=code, function="f", args=args, kwargs=kwargs), QUICK).result
        return json.loads(result) if result else None

    assert value("def f(a, b, c=0):\n    print('noise')\n    return [a + b, (c,), {1: None}]", 1, 2, c=3) == [
        3,
        [3],
        {"1": None},
    ]
    assert value("class Solution:\n    def f(self, x: List[int]) -> Optional[int]: return max(x)", [1, 5]) == 5
    assert value("f = lambda x: 'z' * x", 10**6) == "z" * 10**6
    assert value("def f():\n    return 1\nif __name__ == '__main__': input()") == 1
    for failing in ("def f(): return {1}", "def f(): 1 / 0", "g = 1", "def f(): exit(0)", "def f(x): return x"):
        assert value(failing) is None


def test_executions_are_alike_and_apart(sandbox: Sandbox) -> None:
    random = "import random\nprint(random.random(), hash('a'), list({'x', 'yy', 'z'}))"
    assert run(sandbox, random).stdout == run(sandbox, random).stdout
    run(sandbox, "import math, sys, builtins\nmath.pi = 3\nsys.path.clear()\nbuiltins.left = 1")
    assert run(sandbox, "import math, wave\nprint(math.pi > 3, 'left' in dir(__builtins__))").stdout == "True False\n"


def test_files_last_as_long_as_the_program(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "open('f', 'w').write('x' * 100)\nprint(open('f').read() == 'x' * 100)")
    assert outcome.stdout == ("True\n" if sandbox.backend == "namespaces" else "")
    assert run(sandbox, "import os\nprint(os.path.exists('f'))").stdout == "False\n"


def test_own_time_does_not_depend_on_the_load(sandbox: Sandbox) -> None:
    """Busy processes on all processors make a program wait for longer than it may run, at no cost to it."""
    code = "import time\nwhile time.process_time() < 0.5: pass"
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        start = time.monotonic()
        outcome = run(sandbox, code, limits=Limits(seconds=0.8, patience=60.0))
        wall = time.monotonic() - start
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert outcome.ended == "exit"
    assert outcome.seconds < 0.8 < wall


def test_time_is_computing_and_sleeping(sandbox: Sandbox) -> None:
    for code in ("while True: pass", "import time\ntime.sleep(9)", "import threading\nthreading.Event().wait()"):
        start = time.monotonic()
        outcome = run(sandbox, code, limits=Limits(seconds=0.3))
        assert outcome.ended == "time"
        assert 0.3 <= outcome.seconds < 0.6
        assert time.monotonic() - start < 20


def test_a_starved_program_is_not_judged(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="overloaded"):
        run(sandbox, "import time\ntime.sleep(9)", limits=Limits(seconds=5.0, patience=0.2))
    assert run(sandbox, "print(1)").stdout == "1\n"


def test_a_lost_zygote_is_replaced_and_nothing_stays() -> None:
    before = attacks.processes()
    with Sandbox() as sandbox:
        assert run(sandbox, "print(1)").stdout == "1\n"
        zygote = min(attacks.processes() - before)  # the watcher may not be gone yet
        os.kill(zygote, signal.SIGKILL)
        assert run(sandbox, "print(2)").stdout == "2\n"
    assert attacks.survivors(before) == set()


def test_everything_ends_with_a_killed_parent(sandbox: Sandbox) -> None:
    before = attacks.processes()
    code = (
        "from rlvr.verifiers.sandbox import *\n"
        f"s = Sandbox({sandbox.backend!r})\ns.start()\nprint('started', flush=True)\n"
        "s.run(Program(code='while True: pass'), Limits(seconds=60))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout
    assert parent.stdout.readline() == "started\n"
    while len(attacks.processes() - before - {parent.pid}) < 3:  # zygote, watcher, program
        assert parent.poll() is None
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert attacks.survivors(before) == set()


def test_without_a_backend_programs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_PROBE", "print('network')")
    with pytest.raises(SandboxError, match=r"\(namespaces: .*; landlock: .*\).*allow_unsafe=true"):
        Sandbox().start()
    monkeypatch.setattr(client.sys, "executable", "/bin/false")
    with pytest.raises(SandboxError, match="ended with exit code 1"):
        Sandbox().start()


def test_the_unsafe_backend_is_taken_only_if_allowed_and_still_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BACKENDS", ())
    with pytest.raises(SandboxError):
        Sandbox().start()
    with Sandbox(allow_unsafe=True) as sandbox:
        assert sandbox.start() == client.UNSAFE
        assert run(sandbox, "print(len(open('/proc/version').read()) > 0)").stdout == "True\n"
        for code in (
            "open('f', 'w')",
            "import socket; socket.socket()",
            "import os; os.fork()",
            "import os; os.kill(1, 0)",
        ):
            assert run(sandbox, code).stderr.strip().splitlines()[-1].startswith("PermissionError")


# Other users and machines.

CHECK = """
import os, sys
from rlvr.verifiers.sandbox import *
for backend in sys.argv[1:]:
    with Sandbox(backend) as sandbox:
        try:
            name = sandbox.start()
            outcome = sandbox.run(Program(code="import wave\\nprint(int(input()) + 1)", stdin="41"), Limits())
            print(backend, name, outcome.stdout.strip(), os.geteuid())
        except SandboxError as error:
            print(backend, "refused", error)
"""
# A user namespace of its own, in which no further ones are allowed, and in which the user is not root.
NO_NAMESPACES = """
import os
from rlvr.verifiers.sandbox.jail import kernel
user, group = os.geteuid(), os.getegid()
kernel.unshare(kernel.NEWUSER)
for name, text in (("setgroups", "deny"), ("uid_map", f"1000 {user} 1"), ("gid_map", f"1000 {group} 1")):
    open(f"/proc/self/{name}", "w").write(text)
open("/proc/sys/user/max_user_namespaces", "w").write("0")
"""
# An ordinary user, for whom the directories on the way to the interpreter and to this package are made passable.
AS_NOBODY = """
import os, pathlib, sys
from rlvr.verifiers.sandbox.jail import kernel
needed = {sys.base_prefix, sys.prefix, os.getcwd()}
parents = {str(parent) for path in needed for parent in pathlib.Path(path).parents}
private = {path for path in parents if os.stat(path).st_mode & 1 == 0}
tops = {p for p in private if not any(p.startswith(other + "/") for other in private)}
kernel.unshare(kernel.NEWNS)
kernel.mount(None, "/", None, kernel.REC | kernel.PRIVATE)
for top in tops:
    inside = {path: os.open(path, os.O_PATH) for path in needed if path.startswith(top + "/")}
    kernel.mount("tmpfs", top, "tmpfs", 0, "mode=755")
    for path, descriptor in inside.items():
        os.makedirs(path)
        kernel.mount(f"/proc/self/fd/{descriptor}", path, None, kernel.BIND | kernel.REC)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
"""


def check(before: str, *backends: str) -> list[str]:
    code = [sys.executable, "-c", before + CHECK, *backends]
    done = subprocess.run(code, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_ordinary_user_has_the_same_sandboxes() -> None:
    lines = check(AS_NOBODY if os.geteuid() == 0 else "", *BACKENDS)
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    for backend, line in zip(BACKENDS, lines, strict=True):
        assert line == f"{backend} {backend} 42 {user}" if backend in HAVE else line.startswith(f"{backend} refused")


def test_without_user_namespaces_landlock_is_taken() -> None:
    if "namespaces" not in HAVE:  # the machine itself is such a one
        assert check("", "namespaces")[0].startswith("namespaces refused no sandbox")
        return
    refused, taken = check(NO_NAMESPACES, "namespaces", "auto")
    assert refused.startswith("namespaces refused no sandbox for generated code on this machine (namespaces: unshare: ")
    assert taken == "auto landlock 42 1000" if "landlock" in HAVE else taken.startswith("auto refused")


# The filter, run by a small model of the kernel's interpreter.


def decide(code: bytes, architecture: int, number: int, *arguments: int) -> int:
    data = struct.pack("<IIQ6Q", number, architecture, 0, *[*arguments, *[0] * 6][:6])
    instructions = list(struct.iter_unpack("HBBI", code))
    at = accumulator = 0
    while True:
        operation, if_true, if_false, value = instructions[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x15:
            at += if_true if accumulator == value else if_false
        else:
            assert operation == 0x06
            return value


@pytest.mark.parametrize(
    ("machine", "socket", "execve", "clone", "openat", "kill", "chmod", "ptrace"),
    [("x86_64", 41, 59, 56, 257, 62, 90, 101), ("aarch64", 198, 221, 220, 56, 129, 53, 117)],
)
def test_what_the_filter_lets_through(
    machine: str, socket: int, execve: int, clone: int, openat: int, kill: int, chmod: int, ptrace: int
) -> None:
    here = syscalls.ARCHITECTURES[machine]
    allow, refuse = seccomp.ALLOW, seccomp.ERRNO | errno.EPERM
    for writing in (False, True):
        code = seccomp.program(machine, 77, writing)
        assert len(code) // 8 < 4096  # BPF_MAXINSNS
        for number in syscalls.reading(machine).values():
            assert decide(code, here, number) == allow
        for number in (
            socket,
            execve,
            ptrace,
            424,
            425,
            434,
            437,
            9999,
            syscalls.reading(machine)["read"] | 0x40000000,
        ):
            assert decide(code, here, number) == refuse
        assert decide(code, here, clone, 0x3D0F00) == allow  # what pthread_create asks for
        assert decide(code, here, clone, 17) == refuse  # fork
        assert decide(code, here, clone, 0x4111) == refuse  # vfork
        assert decide(code, here, clone, 0x10010000) == refuse  # a user namespace
        assert decide(code, here, 435) == seccomp.ERRNO | errno.ENOSYS
        assert decide(code, here, kill, 77, 9) == allow
        assert [decide(code, here, kill, pid, 9) for pid in (1, 78, 0, 2**32 - 1, 2**64 - 1)] == [refuse] * 5
        assert decide(code, here, openat, 0, 0, os.O_RDONLY | os.O_CLOEXEC) == allow
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC):
            assert decide(code, here, openat, 0, 0, flags) == (allow if writing else refuse)
        assert decide(code, here, chmod) == (allow if writing else refuse)
        assert decide(code, here ^ 1, 0) == seccomp.KILL


def test_the_tables_name_every_number_once() -> None:
    for machine in syscalls.ARCHITECTURES:
        tables = (syscalls.reading, syscalls.writing, syscalls.checked, syscalls.setup)
        numbers = [number for table in tables for number in table(machine).values()]
        assert len(numbers) == len(set(numbers)) > 100
    assert syscalls.reading("x86_64").keys() >= syscalls.reading("aarch64").keys()
