"""Real processes under the launcher: who failed, how it is told, and with which exit code."""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlvr.keys import ConfigError
from rlvr.launch.local import End, Report, require_devices, root_cause, run
from tests.launch.ranks import RANK

ROOT = Path(__file__).parents[2]
TERM, KILL = -signal.SIGTERM, -signal.SIGKILL

LAUNCHER = """
import sys
from rlvr.launch.local import run
sys.exit(run([sys.executable, "-c", sys.argv[1]], 2, {}))
"""


@pytest.fixture(autouse=True)
def log_on_stderr():
    """As where logging is not configured; pytest does configure it."""
    logging.getLogger("rlvr").addHandler(logging.lastResort)
    yield
    logging.getLogger("rlvr").removeHandler(logging.lastResort)


@pytest.fixture
def train(tmp_path, capfd, monkeypatch):
    """Run a trainer on two ranks; gives the exit code, and what came on stderr."""
    monkeypatch.chdir(ROOT)

    def start(body: str, **env: str) -> tuple[int, str]:
        script = tmp_path / "rank.py"
        (tmp_path / "config.yaml").write_text("of an earlier start")
        script.write_text(RANK.replace("{trainer}", "\n".join(f"    {line}" for line in body.splitlines())))
        code = run([sys.executable, str(script), str(tmp_path)], 2, env | {"PYTHONPATH": str(ROOT)})
        return code, capfd.readouterr().err

    return start


def test_traceback_of_the_first_failure_comes_last(train, tmp_path):
    code, errors = train(
        "watchdog.enter('update')\n"
        "world.barrier()\n"
        "if world.rank == 1:\n"
        "    (run_dir / 'lost').touch()\n"
        "    raise ZeroDivisionError('the loss of rank 1')\n"
        "world.barrier()"
    )
    assert code == 1 and time.time() - (tmp_path / "lost").stat().st_mtime < 10
    assert errors.rstrip().endswith("ZeroDivisionError: the loss of rank 1")
    assert errors.rindex("rank 1 failed:\nTraceback") > errors.rfind("rank 0 failed")
    assert "torch.distributed.elastic" not in errors and "closing signal" not in errors


def test_a_hang_names_the_rank_and_its_phase(train, tmp_path):
    code, errors = train(
        "watchdog.enter('collect')\n"
        "world.barrier()\n"
        "watchdog.enter('collect/verify')\n"
        "if world.rank == 1:\n"
        "    (run_dir / 'lost').touch()\n"
        "    stuck_verifier()\n"
        "watchdog.enter('update')\n"
        "world.barrier()",
        TIMEOUT="2",
    )
    assert code == 124 and time.time() - (tmp_path / "lost").stat().st_mtime < 12
    last = errors.rstrip().splitlines()[-1]
    assert last.startswith("rank 1 is in collect/verify since") and last.endswith("the others wait in update")
    assert "stuck_verifier" in errors
    assert "rank 1 is in collect/verify" in (tmp_path / "ranks" / "hang.txt").read_text()


def test_a_mistake_of_the_user_is_one_message_and_code_2(train):
    code, errors = train("raise ConfigError('rollout.prompts=3 does not divide')")
    assert code == 2
    assert errors.splitlines().count("rollout.prompts=3 does not divide") == 1
    assert "Traceback" not in errors and "failed" not in errors


def test_numbers_that_would_slow_a_cpu_down_are_zero_in_all_threads(train):
    code, errors = train(
        "import threading\n"
        "torch.set_num_threads(2)\n"
        "made = []\n"
        "def fade():\n"
        "    made.append(torch.full((1_000_000,), 1e-30).mul(1e-10))  # enough for several threads of torch's\n"
        "fade()\n"
        "other = threading.Thread(target=fade)\n"
        "other.start()\n"
        "other.join()\n"
        "if len(made) != 2 or any(tensor.any() for tensor in made):\n"
        "    raise ValueError('denormal numbers')"
    )
    assert code == 0, errors


def test_leaving_together_keeps_the_code_and_is_quiet(train):
    code, errors = train("time.sleep(world.rank * 0.5)\nsys.exit(85)")
    assert code == 85
    assert "failed" not in errors and "Traceback" not in errors


def test_success_is_0_and_leaves_the_surroundings_alone(capfd):
    before, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    rank = "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['GIVEN'])"
    assert run([sys.executable, "-c", rank], 2, {"GIVEN": "yes"}) == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["0 2 yes", "1 2 yes"]
    assert dict(os.environ) == before and signal.getsignal(signal.SIGTERM) == handler


def test_a_single_rank_is_no_member_of_anything(capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "rlvr.rendezvous", None)  # importing it, and with it torch, would fail
    rank = "import os; print([name for name in os.environ if name in ('RANK', 'WORLD_SIZE', 'MASTER_PORT')])"
    assert run([sys.executable, "-c", rank], 1, {}) == 0
    assert capfd.readouterr().out == "[]\n"
    assert run([sys.executable, "-c", "import sys; sys.exit(3)"], 1, {}) == 3
    assert "rank 0 failed:\nexit code 3, without a traceback" in capfd.readouterr().err


def test_who_does_not_leave_in_time_is_killed():
    rank = (
        "import os, signal, sys, time\n"
        "if os.environ['RANK'] == '1': time.sleep(1); sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    )
    start = time.monotonic()
    assert run([sys.executable, "-c", rank], 2, {}, patience=1) == 7
    assert time.monotonic() - start < 10


def test_a_killed_rank_is_named_with_its_signal(capfd):
    rank = "import os, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), 9)\ntime.sleep(30)"
    start = time.monotonic()
    assert run([sys.executable, "-c", rank], 2, {}) == 137
    assert time.monotonic() - start < 10
    assert "rank 1 failed:\nkilled by SIGKILL" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("number", "leave", "expected"),
    [
        (signal.SIGINT, "os._exit(1)", 130),
        (signal.SIGTERM, "from rlvr.worker import report; sys.exit(report('', 85))", 85),
    ],
    ids=["ctrl-c", "save and leave"],
)
def test_signals_reach_the_ranks(tmp_path, number, leave, expected):
    rank = f"""
import os, signal, sys, time
from pathlib import Path
def handler(*_):
    time.sleep(0.5)
    Path({str(tmp_path)!r}, "left" + os.environ["RANK"]).touch()
    {leave}
signal.signal({int(number)}, handler)
Path({str(tmp_path)!r}, "up" + os.environ["RANK"]).touch()
time.sleep(60)
"""
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, rank], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 30
    while len(list(tmp_path.glob("up*"))) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    launcher.send_signal(number)
    _, errors = launcher.communicate(timeout=20)
    assert launcher.returncode == expected, errors
    assert sorted(path.name for path in tmp_path.glob("left*")) == ["left0", "left1"]
    assert "Traceback" not in errors


def test_slurm_signals_the_ranks_itself(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_PROCID", "0")
    rank = (
        "import os, signal, sys, time; times = []; signal.signal(15, lambda *_: times.append(1));"
        "os.environ['RANK'] == '0' and os.kill(os.getppid(), 15); os.kill(os.getpid(), 15);"
        "time.sleep(1); sys.exit(84 + len(times))"
    )
    assert run([sys.executable, "-c", rank], 2, {}) == 85


@pytest.mark.parametrize(
    ("ended", "told", "cause"),
    [
        ({0: (1, 100.0), 1: (1, 100.0)}, {0: 100.7, 1: 100.2}, 1),  # both wrote a traceback
        ({0: (1, 100.0), 1: (KILL, 100.0)}, {0: 99.9}, 1),  # killed; the other lost its connection
        ({0: (TERM, 100.0), 1: (1, 100.0)}, {1: 100.3}, 1),  # ended by the launcher
        ({0: (KILL, 130.0), 1: (1, 100.0)}, {1: 100.3}, 1),  # the launcher lost its patience
        ({0: (TERM, 100.0), 1: (TERM, 100.0)}, {}, 0),  # somebody else's SIGTERM
    ],
    ids=["first report", "killed first", "ended by the launcher", "killed by the launcher", "only SIGTERM"],
)
def test_root_cause(ended, told, cause):
    ends = {rank: End(code, time) for rank, (code, time) in ended.items()}
    assert root_cause(ends, {rank: Report("text", 1, time) for rank, time in told.items()}) == cause


def test_more_ranks_than_gpus_are_refused(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    require_devices("cuda", 2)
    require_devices("cpu", 64)
    with pytest.raises(ConfigError, match="hardware.ranks=4, but torch sees 2 GPU.*use hardware.ranks=2"):
        require_devices("cuda", 4)
