"""What a checkpoint survives, what is kept, and what is refused with its reason."""

import errno
import json
import os
import shutil
import subprocess
import time
from types import SimpleNamespace

import pytest
import torch

from rlvr.engine.parts import Part, PartsFile, SmallFile
from rlvr.keys import ConfigError, RunError
from rlvr.trainer.checkpoint import SUPERSEDED, Checkpoints, Progress, steps_in
from rlvr.trainer.sealed import MANIFEST, incomplete
from tests.trainer.scripted import ALONE, FakeEngines, Script, hurry, play, small, told

ALGORITHM = SimpleNamespace(state={"steps": 1.0})
WEIGHTS, OPTIMIZER = "policy/weights-00000-of-00001.safetensors", "policy/optimizer-00000-of-00001.safetensors"


class Engines(FakeEngines):
    """Writes `numbers` float32 numbers beside its state, after `seconds`."""

    def __init__(self, numbers=16, seconds=0.0):
        super().__init__()
        self.numbers, self.seconds = numbers, seconds

    def snapshot(self):
        part = Part("weight", (self.numbers,), 0, torch.zeros(self.numbers))
        return [Slow("", self.seconds), *super().snapshot(), PartsFile(WEIGHTS, (part,)), PartsFile(OPTIMIZER, (part,))]


class Slow(SmallFile):
    def write(self, folder):
        time.sleep(self.content)
        return []


class Broken(SmallFile):
    def write(self, folder):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder))


def made(folder, *overrides):
    return Checkpoints(folder, small("checkpoint.background=false", *overrides), ALONE)


def saved(folder, *steps, overrides=(), **progress):
    """The checkpoints of a run that saved after each of `steps`."""
    checkpoints = made(folder, *overrides)
    for step in steps:
        checkpoints.save(Progress(step=step, **progress), Engines(), ALGORITHM)
    return checkpoints


def kept(checkpoints):
    return sorted(steps_in(checkpoints.folder))


# -- what is kept --------------------------------------------------------------------------------


def test_the_last_the_best_and_milestones_are_kept(tmp_path):
    overrides = ("checkpoint.keep=2", "checkpoint.milestones=4")
    assert kept(saved(tmp_path, *range(1, 11), overrides=overrides, best_step=3)) == [3, 4, 8, 9, 10]


def test_milestones_are_saved_whatever_the_calendar_says(tmp_path, monkeypatch):
    hurry(monkeypatch)
    config = small(
        "steps=7", "checkpoint.every=5", "checkpoint.keep=1", "checkpoint.milestones=3", "validation.every=0"
    )
    config.checkpoint.best = False
    play(monkeypatch, tmp_path, config, Script())
    assert sorted(steps_in(tmp_path / "checkpoints")) == [3, 6, 7]


def test_saving_a_step_again_replaces_it(tmp_path):
    checkpoints = saved(tmp_path, 1, 1)
    assert kept(checkpoints) == [1] and not list(checkpoints.folder.glob(".*"))


# -- behind the loop -------------------------------------------------------------------------------


def test_the_loop_is_held_for_the_copy_alone(tmp_path):
    checkpoints = made(tmp_path, "checkpoint.background=true")
    start = time.perf_counter()
    checkpoints.save(Progress(step=1), Engines(seconds=0.5), ALGORITHM)
    assert time.perf_counter() - start < 0.4
    checkpoints.check()
    assert kept(checkpoints) == []
    checkpoints.settle()
    assert kept(checkpoints) == [1] and incomplete(checkpoints.folder / "step_000001") is None


def test_what_is_saved_is_the_state_of_its_step(tmp_path):
    checkpoints, progress = made(tmp_path, "checkpoint.background=true"), Progress(step=1, triggers={"a": {"fired": 1}})
    checkpoints.save(progress, Engines(seconds=0.2), ALGORITHM)
    progress.step, progress.triggers["a"]["fired"] = 2, 2
    checkpoints.settle()
    found = Checkpoints.progress_of(checkpoints.folder / "step_000001")
    assert (found.step, found.triggers) == (1, {"a": {"fired": 1}})


def test_an_error_behind_the_loop_ends_the_next_step(tmp_path, monkeypatch):
    checkpoints = made(tmp_path, "checkpoint.background=true")
    checkpoints.save(Progress(step=1), Engines(), ALGORITHM)
    checkpoints.settle()
    engines = Engines()
    monkeypatch.setattr(engines, "snapshot", lambda: [Broken("", "")])
    checkpoints.save(Progress(step=2), engines, ALGORITHM)
    checkpoints._own._thread.join()
    with pytest.raises(RunError, match="Input/output error: .*\n.*checkpoint of step 1 is whole"):
        checkpoints.check()


def test_a_run_does_not_end_before_its_checkpoint(tmp_path, monkeypatch):
    hurry(monkeypatch)
    before = FakeEngines.snapshot
    monkeypatch.setattr(FakeEngines, "snapshot", lambda self: [Slow("", 0.3), *before(self)])
    play(monkeypatch, tmp_path, small("steps=1", "checkpoint.every=1"), Script())
    assert incomplete(tmp_path / "checkpoints" / "step_000001") is None


# -- disks that fail ----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "rlvr-test", disk], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_ends_in_one_sentence_and_leaves_the_last_checkpoint(small_disk):
    checkpoints = saved(small_disk, 1)
    with pytest.raises(RunError, match=r"No space left on device: .*\n.*checkpoint of step 1 is whole; mend the disk"):
        checkpoints.save(Progress(step=2), Engines(numbers=10**6), ALGORITHM)
    assert kept(checkpoints) == [1] and checkpoints.find("auto") == checkpoints.folder / "step_000001"
    assert not list(checkpoints.folder.glob(".*")), "what was half written takes up no room"
    saved(small_disk, 2)


def test_a_disk_too_full_for_records_says_so(small_disk, monkeypatch):
    hurry(monkeypatch)

    def fill():
        with (small_disk / "other").open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(bytes(4096))

    with pytest.raises(RunError, match="could not be written: No space left"):
        play(monkeypatch, small_disk, small("steps=4", "checkpoint.every=1"), Script(happens={3: fill}))
    (small_disk / "other").unlink()
    play(monkeypatch, small_disk, small("steps=4", "checkpoint.every=1"), Script())
    assert [row["step"] for row in told(small_disk)] == [0, 1, 2, 3, 4]


def test_a_disk_that_turns_read_only(small_disk):
    checkpoints = saved(small_disk, 1)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(RunError, match="Read-only file system"):
        checkpoints.save(Progress(step=2), Engines(), ALGORITHM)
    assert checkpoints.find("auto") == checkpoints.folder / "step_000001"


def test_a_run_directory_that_vanishes_is_not_made_again(tmp_path):
    (tmp_path / "run").mkdir()
    checkpoints = saved(tmp_path / "run", 1)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RunError, match="No such file or directory"):
        checkpoints.save(Progress(step=2), Engines(), ALGORITHM)
    assert not (tmp_path / "run").exists()


# -- damage -------------------------------------------------------------------------------------------


def truncate(path):
    os.truncate(path / WEIGHTS, (path / WEIGHTS).stat().st_size - 1)


def manifest(path, **changes):
    told = json.loads((path / MANIFEST).read_text()) | changes
    (path / MANIFEST).write_text(json.dumps(told))


DAMAGE = {
    "half written": (lambda path: (path / MANIFEST).unlink(), "half written, or no checkpoint of rlvr"),
    "truncated": (truncate, f"{WEIGHTS} has .* bytes instead of"),
    "a file missing": (lambda path: (path / WEIGHTS).unlink(), f"{WEIGHTS} is missing"),
    "no optimizer": (lambda path: (path / OPTIMIZER).unlink(), f"{OPTIMIZER} is missing"),
    "manifest cut": (lambda path: os.truncate(path / MANIFEST, 20), "complete.json cannot be read"),
    "manifest of another kind": (lambda path: (path / MANIFEST).write_text("[]"), "complete.json cannot be read"),
    "newer format": (lambda path: manifest(path, format=99), "its format is 99.*a newer rlvr"),
    "older format": (lambda path: manifest(path, format=1), "its format is 1, .*an older rlvr"),
    "progress unreadable": (
        lambda path: (path / "progress.json").write_bytes(b"\xff" * (path / "progress.json").stat().st_size),
        "progress.json or config.json cannot be read",
    ),
}
each_damage = pytest.mark.parametrize("damage, reason", DAMAGE.values(), ids=DAMAGE)


@each_damage
def test_damage_is_skipped_with_its_reason(damage, reason, tmp_path, capsys):
    checkpoints = saved(tmp_path, 1, 2)
    damage(checkpoints.folder / "step_000002")
    assert checkpoints.find("auto") == checkpoints.folder / "step_000001"
    said = capsys.readouterr().out
    assert "skipping checkpoint" in said
    with pytest.raises(ConfigError, match=reason):
        checkpoints.find(str(checkpoints.folder / "step_000002"))


@each_damage
def test_a_run_whose_checkpoints_are_all_damaged_is_not_begun_anew(damage, reason, tmp_path):
    checkpoints = saved(tmp_path, 1)
    damage(checkpoints.folder / "step_000001")
    with pytest.raises(ConfigError, match=f"(?s)no checkpoint can be resumed from.*{reason}.*never"):
        checkpoints.find("auto")


def test_what_a_kill_leaves_is_no_checkpoint_and_goes(tmp_path):
    checkpoints = saved(tmp_path, 1, 2)
    (checkpoints.folder / "step_000002").rename(checkpoints.folder / ".step_000002.tmp")  # a moment before its rename
    assert checkpoints.find("auto") == checkpoints.folder / "step_000001"
    checkpoints.save(Progress(step=2), Engines(), ALGORITHM)
    assert not list(checkpoints.folder.glob(".*"))


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    for path in (tmp_path / "model", tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="no checkpoint of rlvr"):
            made(tmp_path).find(str(path))


def test_a_part_may_be_missing_if_it_is_named(tmp_path):
    checkpoints = saved(tmp_path, 1)
    (checkpoints.folder / "step_000001" / OPTIMIZER).unlink()
    forgiving = made(tmp_path, "checkpoint.allow_missing=[optimizer]")
    assert forgiving.find("auto") == checkpoints.folder / "step_000001"
    (checkpoints.folder / "step_000001" / WEIGHTS).unlink()
    with pytest.raises(ConfigError, match=f"{WEIGHTS} is missing"):
        forgiving.find("auto")
    with pytest.raises(ConfigError, match="checkpoint.allow_missing=policy: must be one of optimizer, critic"):
        made(tmp_path, "checkpoint.allow_missing=[policy]")


# -- going back ----------------------------------------------------------------------------------------


def test_the_future_behind_an_older_checkpoint_is_set_aside_once(tmp_path, monkeypatch):
    """And the same command then goes on, as after a pre-emption, in place of going back again."""
    hurry(monkeypatch)
    common = ("checkpoint.every=1", "checkpoint.keep=9")
    play(monkeypatch, tmp_path, small("steps=4", *common), Script())
    folder = tmp_path / "checkpoints"
    back = small("steps=3", *common, f"run.resume={folder / 'step_000001'}")
    (tmp_path / "summary.json").unlink()
    play(monkeypatch, tmp_path, back, Script(), start=1)
    assert sorted(steps_in(folder)) == [1, 2, 3]
    assert sorted(steps_in(folder / SUPERSEDED)) == [2, 3, 4]
    assert [row["step"] for row in told(tmp_path)] == [0, 1, 2, 3]
    checkpoints = Checkpoints(tmp_path, back, ALONE)
    assert checkpoints.find(back.run.resume) == folder / "step_000003"


def test_never_begins_anew_and_keeps_the_old_checkpoints(tmp_path, monkeypatch):
    hurry(monkeypatch)
    play(monkeypatch, tmp_path, small("steps=3", "checkpoint.every=1"), Script())
    play(monkeypatch, tmp_path, small("steps=1", "checkpoint.every=1", "run.resume=never"), Script(), start=0)
    assert sorted(steps_in(tmp_path / "checkpoints")) == [1]
    assert 3 in steps_in(tmp_path / "checkpoints" / SUPERSEDED)
    assert [row["step"] for row in told(tmp_path)] == [0, 1]


# -- the command line over the checkpoint -----------------------------------------------------------------


def resumed(monkeypatch, folder, capsys, *overrides):
    hurry(monkeypatch)
    play(monkeypatch, folder, small("steps=2", "checkpoint.every=1"), Script())
    (folder / "summary.json").unlink()
    capsys.readouterr()
    play(monkeypatch, folder, small("steps=3", "checkpoint.every=1", *overrides), Script())
    return capsys.readouterr().out


def test_changed_keys_are_told(tmp_path, monkeypatch, capsys):
    said = resumed(monkeypatch, tmp_path, capsys, "optim.lr=1e-5", "run.name=other")
    assert "optim.lr: 0.0003 -> 1e-05" in said and "steps: 2 -> 3" in said and "run.name" not in said


@pytest.mark.parametrize("change", ["seed=1", "model.hidden=64", "data.max_prompt_tokens=77", "algorithm=grpo"])
def test_another_experiment_is_refused_unless_it_is_named(change, tmp_path, monkeypatch, capsys):
    key = change.split("=")[0].replace("algorithm", "algorithm.name")
    with pytest.raises(ConfigError, match=rf"(?s){key}: .* -> .*run.allow_change=\[.*{key}"):
        resumed(monkeypatch, tmp_path, capsys, change, "data=arithmetic")
    again = small("steps=3", change, f"run.allow_change=[{key.split('.')[0]},rollout.reference_seed]")
    play(monkeypatch, tmp_path, again, Script())
    assert [row["step"] for row in told(tmp_path)] == [0, 1, 2, 3]
