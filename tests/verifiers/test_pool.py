import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.verifiers.pool import Job, VerifierPool

USER = """
import os, subprocess, sys, time

def grade(response, answer):
    print("a verifier may print")
    if response == "hang":
        time.sleep(1000)
    if response == "die":
        os._exit(3)
    if response == "raise":
        raise KeyError("boom")
    if response.startswith("child "):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        open(response.split()[1], "w").write(str(child.pid))
        time.sleep(1000)
    if response == "slow":
        time.sleep(0.3)
    return float(response == answer)
"""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("user") / "mine.py"
    path.write_text(USER)
    return f"{path}:grade"


@pytest.fixture
def pool(user: str) -> Iterator[VerifierPool]:
    with VerifierPool(workers=2, timeout=1.0) as made:
        made.warm(user)
        yield made


def submit(pool: VerifierPool, verifier: str, responses: list[str], answer: object = "a") -> list[int]:
    return [pool.submit(Job(verifier=verifier, response=response, answer=answer)) for response in responses]


def test_ten_hang_then_ten_score(pool: VerifierPool, user: str) -> None:
    verdicts = pool.gather(submit(pool, user, ["hang"] * 10 + ["a", "b"] * 5))
    assert all(v.score is None and v.error == "timeout after 1 s" for v in verdicts[:10])
    assert [v.score for v in verdicts[10:]] == [1.0, 0.0] * 5
    stats = pool.stats()
    assert (stats["judged"], stats["unjudged"], stats["unjudged/timeout"]) == (10, 10, 10)
    assert stats["busy_seconds"] >= 10


def test_neighbours_of_hung_items_are_graded_in_time(user: str) -> None:
    responses = ["hang" if i in (0, 1, 20, 40) else "ab"[i % 2] for i in range(64)]
    with VerifierPool(workers=2, timeout=2.0) as pool:
        pool.warm(user)
        start = time.monotonic()
        verdicts = pool.gather(submit(pool, user, responses))
        assert time.monotonic() - start < 10
    assert [v.score for v in verdicts] == [{"hang": None, "a": 1.0, "b": 0.0}[r] for r in responses]


def test_a_dead_worker_costs_its_item_only(pool: VerifierPool, user: str) -> None:
    verdicts = pool.gather(submit(pool, user, ["a", "die", "a", "b", "die", "a"]))
    assert [v.score for v in verdicts] == [1.0, None, 1.0, 0.0, None, 1.0]
    assert verdicts[1].error == "worker died: exit code 3"
    assert pool.stats()["unjudged/worker died"] == 2


def test_exactly_the_raising_half_is_not_judged(pool: VerifierPool, user: str) -> None:
    verdicts = pool.gather(submit(pool, user, ["raise", "a", "raise", "b"] * 10))
    assert [v.score for v in verdicts] == [None, 1.0, None, 0.0] * 10
    assert verdicts[0].error == "KeyError: 'boom'"
    assert pool.stats() | {"queue_seconds": 0, "busy_seconds": 0} == {
        "judged": 20, "unjudged": 20, "unjudged/KeyError": 20, "queue_seconds": 0, "busy_seconds": 0,
    }  # fmt: skip
    pool.reset()
    assert pool.stats() == {"judged": 0, "unjudged": 0, "queue_seconds": 0, "busy_seconds": 0}


def test_the_children_of_a_hung_item_are_killed(pool: VerifierPool, user: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    (verdict,) = pool.gather(submit(pool, user, [f"child {note}"]))
    assert verdict.error == "timeout after 1 s"
    pid = int(note.read_text())
    for _ in range(50):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} is still there")


def test_submission_overlaps_grading_and_tickets_are_gathered_in_any_order(pool: VerifierPool, user: str) -> None:
    start = time.monotonic()
    first, second = submit(pool, user, ["slow"]), submit(pool, user, ["a"])
    assert time.monotonic() - start < 0.2
    assert pool.gather(second)[0].score == 1
    assert pool.gather(first)[0].score == 0
    with pytest.raises(KeyError, match="gathered"):
        pool.gather(first)


def test_a_verifier_that_cannot_be_used(pool: VerifierPool) -> None:
    with pytest.raises(RuntimeError, match="did you mean 'number'"):
        pool.warm("nmber")
    (verdict,) = pool.gather(submit(pool, "exact:", ["a"]))
    assert verdict.error is not None and "write it as path/to/file.py:name" in verdict.error
    assert pool.gather(submit(pool, "exact", ["a"]))[0].score == 1


def test_answers_are_json(pool: VerifierPool) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        pool.submit(Job(verifier="exact", response="a", answer=object()))


def test_math_bombs_end_in_time_and_good_answers_are_graded() -> None:
    bombs = ["9^{9^{9}}", "\\left(10^{10^{10}}\\right)!", "\\sum_{k=1}^{10^{9}} \\frac{1}{k}", "\\binom{10^8}{5}"]
    with VerifierPool(workers=2, timeout=2.0) as pool:
        pool.warm("math")
        start = time.monotonic()
        verdicts = pool.gather(submit(pool, "math", [f"\\boxed{{{x}}}" for x in bombs + ["4", "5"] * 30], "4"))
        assert time.monotonic() - start < 10
    assert all(v.score in (0, None) for v in verdicts[:4])
    assert [v.score for v in verdicts[4:]] == [1.0, 0.0] * 30


def test_closing_does_not_wait_for_hung_items(user: str) -> None:
    pool = VerifierPool(workers=1, timeout=60)
    pool.warm(user)
    tickets = submit(pool, user, ["a"])
    assert pool.gather(tickets)[0].score == 1
    submit(pool, user, ["hang", "hang"])
    time.sleep(0.3)
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 10
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(Job(verifier=user, response="a", answer="a"))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("verifier-")]


def test_workers_end_with_a_killed_trainer(user: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"""
import time
from rlvr.verifiers.pool import Job, VerifierPool
pool = VerifierPool(workers=1, timeout=600)
pool.submit(Job(verifier={user!r}, response="child {note}", answer="a"))
time.sleep(600)
"""
    trainer = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    while not (note.exists() and note.read_text()):
        assert trainer.poll() is None
        time.sleep(0.05)
    worker = int(Path(f"/proc/{note.read_text()}/stat").read_text().rpartition(")")[2].split()[1])
    trainer.kill()
    trainer.wait()
    for _ in range(100):
        if not Path(f"/proc/{worker}").exists():
            break
        time.sleep(0.05)
    os.kill(int(note.read_text()), 9)
    assert not Path(f"/proc/{worker}/fd/0").exists()


@pytest.mark.parametrize("verifier", ["number", "exact"])
def test_throughput_of_one_worker(verifier: str) -> None:
    count = 3000  # at 1,000 per second, a fifth of what an idle core does
    with VerifierPool(workers=1, timeout=5) as pool:
        pool.warm(verifier)
        start = time.monotonic()
        verdicts = pool.gather(submit(pool, verifier, ["7" if i % 3 else "8" for i in range(count)], "7"))
        assert count / (time.monotonic() - start) > 1000
    assert [v.score for v in verdicts] == [float(i % 3 != 0) for i in range(count)]


def test_worker_speaks_json_lines() -> None:
    lines = [
        {"warm": ["exact", {}]},
        {"items": [["exact", {}, "a", "a"], ["exact", {}, "b", "a"]]},
        {"warm": ["exact", {"no": 1}]},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "rlvr.verifiers.worker"],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    warm, right, wrong, refused = map(json.loads, done.stdout.splitlines())
    assert warm == {"warm": None, "patience": 0.0}
    assert (right[0], wrong[0]) == (1.0, 0.0)
    assert "no option 'no'" in refused["warm"]
