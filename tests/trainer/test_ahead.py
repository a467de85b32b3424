"""Which rollouts are drawn ahead, by which policy, and what comes of those in flight; on the scripted trainer."""

import json
import os
import signal

import pytest

from rlvr.config import compose
from rlvr.keys import ConfigError
from rlvr.schema.triggers import Event
from tests.trainer.scripted import Killed, Script, hurry, play, small, told

AHEAD = ("steps=9", "rollout.async_steps=1", "validation.every=0", "checkpoint.best=false", "checkpoint.every=5")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    hurry(monkeypatch)


def staleness(folder):
    return {row["step"]: row["rollout/staleness"] for row in told(folder) if row["step"]}


def drawn_by(folder):
    """The policy that drew the rollouts of each step."""
    lines = (folder / "rollouts" / "rank0.jsonl").read_text().splitlines()
    return {row["step"]: row["policy"] for row in map(json.loads, lines)}


def test_each_step_learns_from_the_policy_before_the_last_one_but_for_those_behind_a_checkpoint(tmp_path, monkeypatch):
    play(monkeypatch, tmp_path / "now", small(*AHEAD, "rollout.async_steps=0"), Script())
    play(monkeypatch, tmp_path / "run", small(*AHEAD), Script())
    newest = drawn_by(tmp_path / "now")  # the script's policy moves by the step alone
    assert staleness(tmp_path / "run") == {1: 0, 2: 0, 3: 1, 4: 1, 5: 1, 6: 0, 7: 1, 8: 1, 9: 1}
    assert drawn_by(tmp_path / "run") == {
        step: newest[step - late] for step, late in staleness(tmp_path / "run").items()
    }
    assert "rollout/staleness" not in told(tmp_path / "now")[1]
    same = {"step", "id", "position"}
    one, other = (told(tmp_path / run, "rollouts/rank0.jsonl") for run in ("now", "run"))
    assert [{k: row[k] for k in same} for row in one] == [{k: row[k] for k in same} for row in other]


@pytest.mark.parametrize("at", [3, 6, 8])
def test_a_killed_run_goes_on_as_if_never_stopped(tmp_path, monkeypatch, at):
    def die():
        raise Killed

    built = small(*AHEAD, "validation.every=2", "checkpoint.best=true", "checkpoint.keep=9")
    better = {"validation/accuracy": {2: 0.6, 6: 0.7}}
    play(monkeypatch, tmp_path / "whole", built, Script(better))
    with pytest.raises(Killed):
        play(monkeypatch, tmp_path / "run", built, Script(better, happens={at: die}))
    play(monkeypatch, tmp_path / "run", built, Script(better))
    assert told(tmp_path / "run") == told(tmp_path / "whole")
    assert told(tmp_path / "run", "rollouts/rank0.jsonl") == told(tmp_path / "whole", "rollouts/rank0.jsonl")


def test_an_event_that_changes_something_empties_the_pipeline(tmp_path, monkeypatch):
    asked = {3: (Event.WARN,), 4: (Event.RESET_REFERENCE,)}
    play(monkeypatch, tmp_path, small(*AHEAD, "checkpoint.every=0"), Script(scheduled=asked))
    assert staleness(tmp_path) == {1: 0, 2: 0, 3: 1, 4: 1, 5: 0, 6: 1, 7: 1, 8: 1, 9: 1}


def test_a_stage_begins_with_rollouts_of_its_own(tmp_path, monkeypatch):
    stages = "+stages={short: {until: 4}, long: {until: null, overrides: {rollout.max_tokens: 12}}}"
    play(monkeypatch, tmp_path, small(*AHEAD, "rollout.max_tokens=6", stages), Script())
    assert staleness(tmp_path)[5] == 0
    limits = {row["step"]: row["max_tokens"] for row in told(tmp_path, "rollouts/rank0.jsonl")}
    assert limits == {step: 6 if step <= 4 else 12 for step in range(1, 10)}


def test_a_run_that_must_leave_does_so_behind_the_step_it_learns_from(tmp_path, monkeypatch):
    asked = Script(happens={3: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    with pytest.raises(SystemExit) as left:
        play(monkeypatch, tmp_path, small(*AHEAD), asked)
    assert left.value.code == 85 and told(tmp_path)[-1]["step"] == 3
    play(monkeypatch, tmp_path, small(*AHEAD), Script())
    assert staleness(tmp_path) == {1: 0, 2: 0, 3: 1, 4: 0, 5: 1, 6: 0, 7: 1, 8: 1, 9: 1}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm.mismatch=none"], r"async_steps=1 with algorithm\.mismatch=none: .*token_truncate"),
        (["algorithm=armor"], "async_steps=1 with algorithm=armor: anchors"),
        (["hardware=gpu1"], r"async_steps=1 with hardware\.sampler_sleep=true"),
        (["hardware.ranks=2"], "async_steps=1 on 2 ranks"),
    ],
)
def test_what_cannot_be_drawn_ahead_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        compose([*overrides, "rollout.async_steps=1"])


@pytest.mark.parametrize(
    "overrides",
    [
        ["hardware=gpu1", "hardware.sampler_sleep=false"],
        ["algorithm=rebel"],  # a regression holds for samples of any policy
        ["algorithm=armor", "algorithm.anchor=none", "algorithm.gate=variance"],  # draws nothing from the reference
    ],
)
def test_what_can_be_is_not(overrides):
    assert compose([*overrides, "rollout.async_steps=1"]).rollout.async_steps == 1
