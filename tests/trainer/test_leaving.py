"""A run that leaves while it samples, or because its job ends, and comes back; on the scripted trainer."""

import os
import signal
import time

import pytest

from rlvr.rollout.draw import Abandoned
from rlvr.trainer import run
from tests.trainer.scripted import Script, hurry, play, small, told


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    hurry(monkeypatch)


class Leaves(Script):
    """Is told to leave while it samples step `at`, with every process signalled, twice at the same time."""

    def __init__(self, at: int, numbers=(signal.SIGUSR2, signal.SIGTERM, signal.SIGUSR2)) -> None:
        super().__init__()
        self.at, self.numbers = at, numbers

    def parts(self, config, engines):
        parts = super().parts(config, engines)
        collect = parts.collector.collect

        def interrupted(cursor, step):
            collected = collect(cursor, step)
            if self.step == self.at:
                for number in self.numbers:
                    os.kill(os.getpid(), number)
                raise Abandoned
            return collected

        parts.collector.collect = interrupted
        return parts


def saves(folder):
    return sorted(path.name for path in (folder / "checkpoints").glob("step_*"))


@pytest.mark.parametrize("every", [1, 50])
def test_what_was_being_sampled_is_sampled_again(tmp_path, monkeypatch, every, capsys):
    built = small("steps=6", f"checkpoint.every={every}", "checkpoint.best=false", "checkpoint.keep=9")
    play(monkeypatch, tmp_path / "whole", built, Script())
    with pytest.raises(SystemExit) as left:
        play(monkeypatch, tmp_path / "run", built, Leaves(at=4))
    assert left.value.code == 85 and "leaving (SIGUSR2): saved after step 3" in capsys.readouterr().out
    assert saves(tmp_path / "run")[-1] == "step_000003" and told(tmp_path / "run")[-1]["step"] == 3
    play(monkeypatch, tmp_path / "run", built, Script())
    assert told(tmp_path / "run") == told(tmp_path / "whole")


def test_leaving_before_the_first_step_saves_nothing(tmp_path, monkeypatch):
    with pytest.raises(SystemExit) as left:
        play(monkeypatch, tmp_path / "run", small("steps=3"), Leaves(at=1))
    assert left.value.code == 85 and saves(tmp_path / "run") == []


def test_the_end_of_the_job_is_seen_coming(tmp_path, monkeypatch, capsys):
    built = small("steps=6", "checkpoint.every=50", "checkpoint.best=false", "run.margin=0")
    monkeypatch.setenv("RLVR_JOB_END", str(time.time() + 3600))
    slow = Script(happens={3: lambda: monkeypatch.setattr(run.time, "perf_counter", lambda: 1e6)})  # a step of days
    with pytest.raises(SystemExit) as left:
        play(monkeypatch, tmp_path / "run", built, slow)
    assert left.value.code == 85 and saves(tmp_path / "run") == ["step_000003"]
    assert "s are left, a step takes" in capsys.readouterr().out


def test_a_job_too_short_for_one_step_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("RLVR_JOB_END", str(time.time() - 1))
    with pytest.raises(RuntimeError, match="no room for a single step"):
        play(monkeypatch, tmp_path / "run", small("steps=6"), Leaves(at=1, numbers=()))
