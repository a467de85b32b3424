"""Jobs on a real SLURM with two nodes: queued, told to leave, queued again, finished; and jobs in which ranks fail."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, missing

ROOT = Path(__file__).parents[2]
INSTEAD = Path(__file__).parent  # of the real trainer: folders that go before the package

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("slurm")) as up:
        yield up


@pytest.fixture
def submit(cluster, tmp_path):
    """Submit from a folder of its own; returns the job's number, and what was said."""

    def start(*arguments: str, trainer: str | None = "short", **env: str) -> tuple[str, str]:
        instead = {"real": [], "short": [INSTEAD / "short_trainer"], None: [INSTEAD / "no_trainer"]}[trainer]
        path = [str(folder) for folder in (*instead, ROOT)]
        env |= {"PYTHONPATH": os.pathsep.join(path), "WANDB_MODE": "offline"}
        command = [sys.executable, "-m", "rlvr.cli", "submit", "hardware.threads=1", *arguments]
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "WANDB"))}
        told = subprocess.run(
            command, env=own | cluster.environment | env, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert told.returncode == 0, told.stderr
        return re.findall(r"^job (\d+)", told.stdout, re.M)[-1], told.stdout

    return start


def log_of(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.glob("slurm/*.out")))


PATIENCE = 240.0  # seconds; a busy machine starts ranks slowly
TWO_NODES = ("hardware.nodes=2", "hardware.ranks=1")


def test_a_job_that_is_told_to_leave_comes_back_and_finishes(cluster, submit, tmp_path):
    """The whole of it, with the real trainer: two nodes, a signal to all processes in the middle of a step."""
    job, _ = submit(
        "run.name=whole", *TWO_NODES, "steps=4", "algorithm.group=4", "rollout.prompts=4", "rollout.max_tokens=4",
        "validation.every=0", "validation.test=false", "checkpoint.every=100", "log.wandb=off", "log.kl_every=0",
        "model.warm_accuracy=0.5", "data.sources.arithmetic.options.digits=1", "data.sources.arithmetic.train=30",
        "data.sources.arithmetic.validation=4", "data.sources.arithmetic.test=4", trainer="real",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )  # fmt: skip
    folder, end = tmp_path / "runs" / "whole", time.monotonic() + PATIENCE
    while not (folder / "metrics.jsonl").exists() or (folder / "metrics.jsonl").read_text().count("\n") < 2:
        assert time.monotonic() < end, log_of(folder)
        time.sleep(0.05)
    cluster.call("scancel", "--signal=USR2", job)
    record = cluster.end_of(job, PATIENCE)
    log = log_of(folder)
    assert "JobState=COMPLETED" in record and "Restarts=1" in record, log
    assert re.search(r"leaving \(SIGUSR2\): saved after step (\d)", log), log
    assert "resuming after step" in log and "Traceback" not in log
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2, 3, 4]
    assert len(list(folder.glob("slurm/*.out"))) == 1  # one log, added to


def test_the_time_limit_is_seen_coming(cluster, submit, tmp_path):
    job, _ = submit("run.name=long", *TWO_NODES, "steps=5", "slurm.time=1:00:00", RLVR_TEST="endless")
    record = cluster.end_of(job, PATIENCE)
    log = log_of(tmp_path / "runs" / "long")
    assert "JobState=COMPLETED" in record and "Restarts=1" in record, log
    told = re.search(r"leaving \((\d+) s are left, a step takes 1000000 s .* after step 3", log)
    assert told and 3000 < int(told[1]) < 3600 - 60, log  # as SLURM says, without the margin
    assert "all 5 steps, seed 0, 2 rank(s)" in log


def test_a_failing_rank_ends_the_job_with_its_traceback(cluster, submit, tmp_path):
    job, _ = submit("run.name=bad", *TWO_NODES, "steps=100", RLVR_TEST="fails")
    record = cluster.end_of(job, PATIENCE)
    log = log_of(tmp_path / "runs" / "bad")
    assert "JobState=FAILED" in record and "Restarts=0" in record, log
    assert "rank 1 failed:\nTraceback" in log and "ZeroDivisionError: the loss of rank 1" in log
    assert "it follows from the failure of rank 1 on" in log


def test_a_killed_rank_ends_the_job_in_seconds(cluster, submit, tmp_path):
    job, _ = submit("run.name=lost", *TWO_NODES, "steps=100", "slurm.wait=3", RLVR_TEST="killed")
    record = cluster.end_of(job, PATIENCE)
    log = log_of(tmp_path / "runs" / "lost")
    assert "JobState=FAILED" in record and "Restarts=0" in record, log
    assert "task 1: Killed" in log


def test_what_is_queued_again_and_in_which_order(cluster, submit, tmp_path):
    """A run that is submitted twice, an array, a chain and a hostile name, all at once, without any training."""
    hostile = "$(touch x) it's `touch y` %j; touch z"
    first, _ = submit("run.name=two", *TWO_NODES, trainer=None)
    second, _ = submit("run.name=two", *TWO_NODES, trainer=None)
    array, _ = submit("--seeds", "3,4", "run.name=few", trainer=None)
    last, said = submit("--chain", "2", "run.name=chain", trainer=None)
    strange, _ = submit(f'run.name="{hostile}"', trainer=None)
    one, two = re.findall(r"^job (\d+)", said, re.M)
    assert two == last
    for job in (first, second, f"{array}_3", f"{array}_4", strange):
        record = cluster.end_of(job, PATIENCE)
        assert "JobState=COMPLETED" in record and "Restarts=1" in record, record
    for job in (one, two):  # the next job of the chain goes on, and not the same one once more
        record = cluster.end_of(job, PATIENCE)
        assert "ExitCode=85" in record and "Restarts=0" in record, record
    for name in ("few-seed3", "few-seed4", hostile):
        assert re.findall("start . .*", log_of(tmp_path / "runs" / name))[-1].endswith(f"configuration True, in {name}")
    starts = [float(at) for at in re.findall(r"start . at ([\d.]+)", log_of(tmp_path / "runs" / "two"))]
    assert len(starts) == 8 and max(starts[:4]) < min(starts[4:])  # never two jobs in one directory
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]
    assert not (tmp_path / "runs" / "few").exists()
