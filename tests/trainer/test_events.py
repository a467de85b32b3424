"""What happens between steps, in whole runs on fakes: who asks, in which order, recorded where, and after a restart."""

import os
import signal
from types import SimpleNamespace

import pytest

from rlvr.schema.triggers import WHEN, Event, TriggerConfig
from rlvr.trainer import run
from rlvr.trainer.events import HANDLERS, Events
from rlvr.trainer.triggers import KINDS
from tests.trainer.scripted import FakeEngines, Killed, Script, fired, hurry, play, small, told
from tests.trainer.test_triggers import CAUSES, config

STEPS = 14


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    hurry(monkeypatch)


def made(*overrides, **triggers):
    given = (f"steps={STEPS}", "validation.every=1", "checkpoint.every=1", "health.kl.action=off", *overrides)
    built = small(*given)
    built.triggers |= triggers
    return built


def measured(when, at=4):
    """A metric that is calm, moves at step `at` as its trigger watches for, and again and again."""
    threshold, calm, cause = CAUSES[when]
    values = calm + cause + 9 * [cause[-1] * (9 if when in ("kl_spike", "length_explosion") else 1)]
    return {KINDS[when].metric: dict(enumerate(values[:STEPS], 1))}, threshold, len(calm + cause)


@pytest.mark.parametrize("when", WHEN)
def test_each_trigger_resets_the_reference_once_for_its_cause(when, tmp_path, monkeypatch):
    metrics, threshold, at = measured(when)
    wanted = config(when, threshold, cooldown=STEPS, then=["reset_reference", "reset_optimizer"])
    script = Script({name: values for name, values in metrics.items()})
    engines = play(monkeypatch, tmp_path / "run", made(mine=wanted), script)
    assert engines.done == ["reset_reference", "reset_optimizer"]
    assert fired(tmp_path / "run") == [(at, "reset_reference"), (at, "reset_optimizer")]
    causes = {row["cause"] for row in told(tmp_path / "run", "events.jsonl")}
    assert len(causes) == 1 and causes.pop().startswith(f"trigger mine: {when}, ")


def test_a_cooldown_holds_a_trigger_back(tmp_path, monkeypatch):
    low = {"train/entropy": dict.fromkeys(range(1, STEPS + 1), 0.1)}
    wanted = config("entropy_collapse", 0.3, window=2, cooldown=5)
    play(monkeypatch, tmp_path / "run", made(mine=wanted), Script(low))
    assert fired(tmp_path / "run") == [(2, "reset_reference"), (8, "reset_reference"), (14, "reset_reference")]


def test_a_reset_starts_the_kl_again(tmp_path, monkeypatch):
    script = Script(scheduled={3: (Event.RESET_REFERENCE, Event.RESET_OPTIMIZER)})
    play(monkeypatch, tmp_path / "run", made("steps=5"), script)
    kl = [row["train/kl_ref_k3"] for row in told(tmp_path / "run")[1:]]
    moves = [1.0, 1.5, 1.75, 1.0, 1.5]  # momentum 0.5, cleared behind step 3
    assert kl == [sum(moves[start:end]) ** 2 for start, end in ((0, 1), (0, 2), (0, 3), (3, 4), (3, 5))]


def test_what_two_ask_for_is_done_once_and_in_order(tmp_path, monkeypatch):
    script = Script(
        {"validation/accuracy": {1: 0.6, 2: 0.5, 3: 0.4}}, scheduled={3: (Event.RESET_OPTIMIZER, Event.RESET_REFERENCE)}
    )
    wanted = config("validation_drop", 0.15, window=1, then=["reset_reference", "restore_best"])
    engines = play(monkeypatch, tmp_path / "run", made("steps=3", mine=wanted), script)
    assert engines.done == ["restore step_000001", "reset_reference", "reset_optimizer"]
    assert (engines.policy, engines.reference, engines.moment) == (1.0, 1.0, 0.0)  # as after step 1
    causes = {row["event"]: row["cause"] for row in told(tmp_path / "run", "events.jsonl")}
    assert list(causes) == ["restore_best", "reset_reference", "reset_optimizer"]
    assert causes["reset_reference"].startswith("the algorithm's schedule; trigger mine: validation_drop")


def test_the_best_is_not_restored_while_it_is_what_there_is(tmp_path, monkeypatch, capsys):
    script = Script({"train/entropy": {1: 0.1, 2: 0.1}, "validation/accuracy": {2: 0.7}})
    wanted = config("entropy_collapse", 0.3, window=1, then=["restore_best"])
    engines = play(monkeypatch, tmp_path / "run", made("steps=2", "validation.every=2", mine=wanted), script)
    assert engines.done == []
    said = capsys.readouterr().out
    assert "there is no best checkpoint yet" in said and "this is the best" in said


def test_stop_validates_and_saves_the_last_step_and_stays(tmp_path, monkeypatch, capsys):
    low = {"train/entropy": {3: 0.1}}
    wanted = config("entropy_collapse", 0.3, window=1, then=["stop"])
    built = made("validation.every=2", "checkpoint.every=50", mine=wanted)
    play(monkeypatch, tmp_path / "run", built, Script(low))
    rows = told(tmp_path / "run")
    assert rows[-1]["step"] == 3 and "validation/accuracy" in rows[-1]
    assert (tmp_path / "run" / "checkpoints" / "step_000003").exists()
    capsys.readouterr()
    play(monkeypatch, tmp_path / "run", built, Script(low))
    assert "stopped after step 3" in capsys.readouterr().out
    (tmp_path / "run" / run.SUMMARY).unlink()  # it was killed before the end was told
    play(monkeypatch, tmp_path / "run", built, Script(low))
    assert told(tmp_path / "run") == rows and (tmp_path / "run" / run.SUMMARY).exists()


def test_a_reset_after_every_step_is_said_once(tmp_path, monkeypatch, capsys):
    script = Script(scheduled=dict.fromkeys(range(2, 8), (Event.RESET_REFERENCE,)))
    play(monkeypatch, tmp_path / "run", made("steps=9"), script)
    assert capsys.readouterr().out.count("the algorithm's schedule") == 1
    assert len(fired(tmp_path / "run")) == 6


EVENTFUL = {
    "low": TriggerConfig(when="entropy_collapse", window=2, threshold=0.3, cooldown=3, then=["reset_optimizer"]),
    "flat": TriggerConfig(when="validation_plateau", window=3, threshold=0.0, cooldown=2, then=["reset_reference"]),
    "drop": TriggerConfig(when="validation_drop", window=1, threshold=0.2, cooldown=0, then=["restore_best"]),
}


def eventful(**more):
    accuracy = dict(enumerate([0.4, 0.5, 0.5, 0.4, 0.5, 0.6, 0.3, 0.6, 0.6, 0.6, 0.6, 0.7, 0.4, 0.5], 1))
    entropy = {step: 0.2 for step in (2, 3, 4, 9, 10, 11, 12)}
    return Script({"validation/accuracy": accuracy, "train/entropy": entropy}, {8: (Event.RESET_REFERENCE,)}, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with everything in it that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        play(patch, folder, made(**EVENTFUL), eventful())
    assert {event for _, event in fired(folder)} == {"reset_reference", "reset_optimizer", "restore_best"}
    return folder


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("at", range(1, STEPS + 1))
def test_a_killed_run_goes_on_as_if_never_stopped(whole, at, every, tmp_path, monkeypatch):
    """Resets, windows and cool-downs survive, and so does the KL to the reference across a reset."""

    def die():
        raise Killed

    built = made(f"checkpoint.every={every}", **EVENTFUL)
    with pytest.raises(Killed):
        play(monkeypatch, tmp_path / "run", built, eventful(happens={at: die}))
    play(monkeypatch, tmp_path / "run", built, eventful())
    for name in ("metrics.jsonl", "events.jsonl"):
        assert told(tmp_path / "run", name) == told(whole, name)


def test_sigterm_saves_and_asks_to_be_queued_again(whole, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    built = made("checkpoint.every=50", "checkpoint.best=true", **EVENTFUL)
    script = eventful(happens={5: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    with pytest.raises(SystemExit) as left:
        play(monkeypatch, tmp_path / "run", built, script)
    assert left.value.code == 85
    assert signal.getsignal(signal.SIGTERM) == before
    assert told(tmp_path / "run")[-1]["step"] == 5
    assert (tmp_path / "run" / "checkpoints" / "step_000005").exists()
    play(monkeypatch, tmp_path / "run", built, eventful())
    assert told(tmp_path / "run") == told(whole)


def test_sigterm_during_the_last_step_lets_the_run_end(tmp_path, monkeypatch):
    script = Script(happens={2: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    play(monkeypatch, tmp_path / "run", made("steps=2"), script)
    assert (tmp_path / "run" / run.SUMMARY).exists()


def test_all_ranks_do_what_the_leader_decides():
    """Even where their own metrics say otherwise."""
    decided = {Event.RESET_OPTIMIZER: "the leader saw it"}
    follower = SimpleNamespace(broadcast=lambda mine: decided, size=2)
    built = made(low=TriggerConfig(when="entropy_collapse", window=1, threshold=0.3, cooldown=0, then=["stop"]))
    engines, progress, silent = FakeEngines(), run.Progress(), SimpleNamespace(note=lambda what: None)
    events = Events(built, Script().parts(built, engines), progress, None, follower, silent)
    events.handle(events.due((), {"train/entropy": 0.1}))
    assert engines.done == ["reset_optimizer"] and not progress.stopped


def test_every_event_has_a_handler():
    assert set(HANDLERS) == set(Event)
