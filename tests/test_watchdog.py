"""The diagnosis in words, and a process that is really stuck."""

import json
import subprocess
import sys
import time
from pathlib import Path

from rlvr.watchdog import HUNG, State, Watchdog, describe

ROOT = Path(__file__).parents[1]

STUCK = """
import sys, time
from pathlib import Path
from rlvr.watchdog import Watchdog
directory = Path(sys.argv[1])
Watchdog(directory, 0, 2, 600).enter("collect")          # the peer: one phase behind this one
watchdog = Watchdog(directory, 1, 2, 1.0, on_hang=lambda text: (directory / "told.txt").write_text(text))
def stuck_here():
    time.sleep(60)
time.sleep(0.3)
watchdog.enter("collect")
watchdog.enter("collect/verify")
stuck_here()
"""


def test_the_rank_with_fewest_phases_is_behind():
    states = {0: State(0, "collect", 8, 995.0), 1: State(1, "verify", 7, 700.0), 2: State(2, "collect", 8, 990.0)}
    text = describe(states, 3, now=1000.0)
    assert text.splitlines() == [
        "  rank 0: in collect since 5 s",
        "  rank 1: in verify since 300 s",
        "  rank 2: in collect since 10 s",
        "rank 1 is in verify since 300 s; the others wait in collect",
    ]


def test_same_phase_everywhere_blames_nobody():
    states = {rank: State(rank, "update", 4, 100.0) for rank in range(2)}
    assert describe(states, 2, now=160.0).splitlines()[-1] == "all ranks are in update: none is behind"


def test_a_rank_that_never_reported_is_named():
    last = describe({0: State(0, "start", 0, 100.0)}, 2, now=160.0).splitlines()[-1]
    assert last == "rank 1 is not started, or without a word; the others wait in start"


def test_state_files_are_throttled_but_end_up_right(tmp_path):
    watchdog = Watchdog(tmp_path, 0, 1, timeout=60)
    start = time.perf_counter()
    for i in range(10_000):
        watchdog.enter(f"phase {i}")
    assert time.perf_counter() - start < 1.0  # entering costs no file access
    end = time.monotonic() + 5
    while json.loads((tmp_path / "rank0.json").read_text())["count"] != 10_000 and time.monotonic() < end:
        time.sleep(0.01)
    watchdog.stop()
    state = json.loads((tmp_path / "rank0.json").read_text())
    assert (state["rank"], state["phase"], state["count"]) == (0, "phase 9999", 10_000)


def test_progress_keeps_it_quiet(tmp_path):
    watchdog = Watchdog(tmp_path, 0, 1, timeout=0.5)
    for i in range(8):
        time.sleep(0.1)
        watchdog.enter(f"phase {i}")
    watchdog.stop()  # had it fired, this process would have ended
    time.sleep(0.6)
    assert not (tmp_path / "hang.txt").exists()


def test_a_stuck_rank_ends_and_says_where(tmp_path):
    start = time.monotonic()
    stuck = subprocess.run(
        [sys.executable, "-c", STUCK, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert stuck.returncode == HUNG and time.monotonic() - start < 10
    assert "no progress on rank 1 for 1 s" in stuck.stderr
    assert "rank 0 is in collect since 1 s; the others wait in collect/verify" in stuck.stderr
    assert "stuck_here" in stuck.stderr  # the stacks of all threads
    assert "rank 0 is in collect" in (tmp_path / "hang.txt").read_text()
    assert "rank 0 is in collect" in (tmp_path / "told.txt").read_text()


def test_it_watches_on_where_it_cannot_write(tmp_path):
    watchdog = Watchdog(tmp_path / "ranks", 0, 1, timeout=60)
    (tmp_path / "ranks").rename(tmp_path / "gone")
    watchdog.enter("update")
    time.sleep(0.2)
    assert watchdog._thread.is_alive()
    (tmp_path / "gone").rename(tmp_path / "ranks")
    watchdog.enter("save")
    watchdog.stop()
    assert json.loads((tmp_path / "ranks" / "rank0.json").read_text())["phase"] == "save"
