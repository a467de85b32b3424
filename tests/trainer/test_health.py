"""Guards: each condition by hand, then what is done about it in whole runs on fakes, and after a restart."""

import json
import math
import time
from dataclasses import fields
from types import SimpleNamespace

import pytest

from rlvr.keys import ConfigError
from rlvr.rollout.collect import repeated
from rlvr.schema.health import HealthConfig
from rlvr.schema.triggers import Event
from rlvr.tally import Tally
from rlvr.trainer import checkpoint, run
from rlvr.trainer.health import KINDS, Health, above, below, drift, growth, spike, zero
from rlvr.trainer.sealed import put
from tests.trainer.scripted import ALONE, Killed, Script, fired, hurry, play, small, told

STEPS = 10
NAN = math.nan


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    hurry(monkeypatch)


def made(*overrides):
    calm = [f"health.{name}.action=off" for name in ("kl", "entropy_low", "length", "memory")]
    return small(f"steps={STEPS}", "validation.every=1", "checkpoint.every=1", *calm, *overrides)


def step(health, *, rollout=None, update=None, late=None, errors=()):
    """One step of the loop as the guards see it: what is asked for, and whether the update is applied."""
    tally = Tally()
    for name, value in (rollout or {}).items():
        tally.add(name, value)
    health.begin(SimpleNamespace(tally=tally, rows=[{"error": error} for error in errors]))
    applied = health.admits({f"train/{name}": value for name, value in (update or {}).items()})
    return health.end(late or {}), applied


def only(name, *overrides):
    """The guards of a run with all but one off."""
    others = [g for g in KINDS if g not in (name, "nonfinite")]
    return Health(small(*(f"health.{g}.action=off" for g in others), *overrides).health, ALONE)


# -- conditions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "values", "window", "limit", "finds"),
    [
        (above, [9.0, 0.1, 0.3], 2, 0.19, True),
        (above, [9.0, 0.1, 0.3], 2, 0.2, False),
        (above, [0.3, NAN], 2, 0.2, True),  # NaN is left to the guard on what is not finite
        (above, [NAN, NAN], 2, 0.0, False),
        (above, [0.1, math.inf], 2, 99.0, True),
        (below, [9.0, 0.1, 0.3], 2, 0.21, True),
        (below, [9.0, 0.1, 0.3], 2, 0.2, False),
        (spike, [1.0, 2.0, 3.0, 20.1], 3, 10.0, True),  # median 2
        (spike, [1.0, 2.0, 3.0, 20.0], 3, 10.0, False),
        (spike, [1.0, math.inf, 3.0, 20.1], 3, 10.0, True),  # what is not finite is no measure: median 2
        (spike, [1.0, 2.0, 3.0, math.inf], 3, 10.0, False),  # and left to the guard on what is not finite
        (spike, [0.0, 0.0, 0.0, 0.1], 3, 10.0, True),
        (drift, [100.0, 100.0, 210.0, 200.0], 2, 2.0, True),
        (drift, [100.0, 100.0, 200.0, 200.0], 2, 2.0, False),
        (drift, [100.0, 100.0, 50.0, 49.0], 2, 2.0, True),
        (drift, [100.0, 100.0, 50.0, 50.0], 2, 2.0, False),
        (growth, [float(2 * i) for i in range(9)], 9, 1.9, True),
        (growth, [float(2 * i) for i in range(9)], 9, 2.0, False),
        (growth, [0.0, 0.0, 900.0, 900.0, 900.0, 900.0, 900.0, 900.0], 8, 0.0, False),  # a jump, and no more
        (zero, [1.0, 0.0, 0.0], 2, 0.0, True),
        (zero, [0.0, 0.0, 1e-30], 3, 0.0, False),
    ],
)
def test_conditions(condition, values, window, limit, finds):
    assert bool(condition(values, window, limit)) == finds


def test_every_guard_has_a_section_and_a_condition():
    assert set(KINDS) == {f.name for f in fields(HealthConfig)} - {"patience", "restores"}


@pytest.mark.parametrize(
    ("tokens", "share"),
    [([1, 2, 3], None), ([1, 2, 3, 4], 0.0), ([1, 2, 3, 4] * 3, 5 / 9), ([7] * 103, 0.99)],
)
def test_repetition_is_the_share_of_4_grams_that_were_there_before(tokens, share):
    total, count = repeated(tokens)
    assert (total / count if count else None) == (None if share is None else pytest.approx(share))


# -- one guard -------------------------------------------------------------------------------------------


def test_a_warning_is_told_once_per_episode_and_counted_every_time():
    health = only("entropy_high", "health.entropy_high.window=1")
    asked, counts = [], []
    for entropy in (1.0, 4.0, 4.0, 4.0, 1.0, 4.0):
        events, applied = step(health, update={"entropy": entropy})
        assert applied
        asked.append([event for event, _ in events])
        counts.append(health.counted().get("health/entropy_high"))
    assert asked == [[], [Event.WARN], [], [], [], [Event.WARN]]
    assert counts == [None, 1.0, 1.0, 1.0, None, 1.0]


@pytest.mark.parametrize("metric", ["loss", "grad_norm", "critic/loss", "critic/grad_norm", "mismatch_gap"])
@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_an_update_that_is_not_finite_is_never_applied(metric, value):
    health = only("nonfinite")
    events, applied = step(health, update={"loss": 0.1, "grad_norm": 1.0} | {metric: value})
    assert not applied and [event for event, _ in events] == [Event.SKIP]
    assert health.counted() == {"health/nonfinite": 1.0, "health/skipped": 1.0}
    assert step(health, update={"loss": 0.1, "grad_norm": 1.0}) == ([], True)


def test_a_reward_that_is_not_finite_leaves_out_all_updates_of_its_step():
    health = only("nonfinite")
    health.begin(SimpleNamespace(tally=Tally(), rows=[]))
    health.reward(NAN)
    assert not health.admits({"train/loss": 0.1}) and not health.admits({"train/loss": 0.1})
    assert health.counted() == {"health/nonfinite": 1.0, "health/skipped": 2.0}
    assert step(health, update={"loss": 0.1})[1]


@pytest.mark.parametrize(("action", "applied", "event"), [("warn", True, "warn"), ("skip", False, "skip")])
def test_a_gradient_spike_is_found_before_it_is_applied(action, applied, event):
    health = only("gradient_spike", f"health.gradient_spike.action={action}", "health.gradient_spike.window=3")
    norms = [1.0, 900.0, 1.0, 1.0, 1.0, 30.0, 1.0]  # the second comes before there is a median to speak of
    done = [step(health, update={"grad_norm": norm}) for norm in norms]
    assert [was for _, was in done] == [True] * 5 + [applied, True]
    ((asked, cause),) = done[5][0]
    assert (
        asked == event and cause == "health.gradient_spike: train/grad_norm: it is 30, the median of the 3 before is 1"
    )


def test_a_critic_is_measured_by_its_own_gradients():
    health = only("gradient_spike", "health.gradient_spike.window=2")
    for _ in range(3):
        health.begin(SimpleNamespace(tally=Tally(), rows=[]))
        health.admits({"train/grad_norm": 1.0})
        health.admits({"train/critic/grad_norm": 1000.0})
        assert health.end({}) == []


def test_rollouts_can_leave_out_the_updates_that_would_learn_from_them():
    health = only("repetition", "health.repetition.action=skip", "health.repetition.window=1")
    assert step(health, rollout={"repetition": 0.5}) == ([], True)
    events, applied = step(health, rollout={"repetition": 0.9})
    assert not applied and events[0][0] == Event.SKIP


def test_verifiers_that_fail_too_often_stop_the_run_before_it_learns():
    health = only("unjudged")
    assert step(health, rollout={"unjudged": 0.1}, errors=["KeyError: x"]) == ([], True)
    events, applied = step(health, rollout={"unjudged": 0.11}, errors=["KeyError: x", None, "KeyError: x", "OSError"])
    assert not applied
    assert events == [
        (Event.ABORT, "health.unjudged: rollout/unjudged: it is 0.11, above 0.1 (causes: KeyError: x; OSError)")
    ]


@pytest.mark.parametrize(
    ("accuracies", "rewards", "finds"),
    [
        ([0.5, 0.6, 0.5, 0.5], [0.1, 0.2, 0.3, 0.4], True),
        ([0.5, 0.6, 0.5, 0.5], [0.1, 0.2, 0.1, 0.2], False),  # reward falls too: not learned at its expense
        ([0.5, 0.6, 0.5, 0.58], [0.1, 0.2, 0.3, 0.4], False),  # one of the two came back
        ([0.5, 0.6, 0.5], [0.1, 0.2, 0.3], False),  # one is not enough
    ],
)
def test_reward_that_rises_while_validation_falls(accuracies, rewards, finds):
    health = only("over_optimization")
    asked = []
    for accuracy, reward in zip(accuracies, rewards, strict=True):
        for late in ({}, {"validation/accuracy": accuracy}):  # every other step is validated
            asked += step(health, late={"train/reward": reward} | late)[0]
    assert bool(asked) == finds


def test_memory_that_grows_with_every_step_is_told():
    health = only("memory", "health.memory.window=10", "health.memory.limit=5")
    grown = [event for i in range(30) for event, _ in step(health, late={"memory/host_mib": 1000.0 + 6 * i})[0]]
    steady = only("memory", "health.memory.window=10", "health.memory.limit=5")
    calm = [event for i in range(30) for event, _ in step(steady, late={"memory/host_mib": 1000.0 + 4 * i})[0]]
    assert grown == [Event.WARN] and calm == []


def test_a_guard_that_is_off_sees_nothing():
    assert list(only("nonfinite").guards) == ["nonfinite"]


def test_the_leading_rank_decides():
    for decided in (True, False):
        follower = SimpleNamespace(broadcast=lambda mine, refused=decided: refused)
        health = Health(small().health, follower)
        health.begin(SimpleNamespace(tally=Tally(), rows=[]))
        assert health.admits({"train/loss": 0.0}) is not decided


# -- whole runs --------------------------------------------------------------------------------------------


def test_a_step_that_is_not_finite_is_left_out_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    engines = play(monkeypatch, tmp_path / "run", made(), Script({"train/loss": {3: NAN, 4: NAN, 7: NAN}}))
    assert fired(tmp_path / "run") == [(3, "skip"), (7, "skip")]
    counts = [
        (r["step"], r["health/nonfinite"], r["health/skipped"]) for r in told(tmp_path / "run") if "health/skipped" in r
    ]
    assert counts == [(3, 1.0, 1.0), (4, 1.0, 1.0), (7, 1.0, 1.0)]
    moves, policy = 0.0, 0.0
    for _ in range(STEPS - 3):  # what it would be had these three steps not been
        moves = 0.5 * moves + 1.0
        policy += moves
    assert engines.policy == policy
    out = capsys.readouterr().out
    assert "step 3: skip: health.nonfinite: train/loss: it is nan" in out and "health nonfinite, skipped" in out


def test_patience_ends_and_the_last_checkpoint_stays(tmp_path, monkeypatch, capsys):
    script = Script({"train/grad_norm": dict.fromkeys(range(4, 99), math.inf)})
    with pytest.raises(SystemExit) as left:
        play(
            monkeypatch,
            tmp_path / "run",
            made("health.patience=3", "checkpoint.keep=1", "checkpoint.best=false"),
            script,
        )
    assert left.value.code == run.UNHEALTHY == 3
    rows = told(tmp_path / "run")
    assert rows[-1]["step"] == 6 and rows[-1]["event/abort"] == 1.0
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step_000005"]
    assert not (tmp_path / "run" / run.SUMMARY).exists()
    out = capsys.readouterr().out
    assert "stopped as failed in step 6: health.patience: 3 updates in a row were left out" in out
    assert "the same command goes on from" in out
    play(monkeypatch, tmp_path / "run", made("health.patience=3"), Script())  # the cause was mended
    assert [row["step"] for row in told(tmp_path / "run")] == list(range(STEPS + 1))


def test_a_run_that_is_stopped_finishes_the_checkpoint_that_it_is_writing(tmp_path, monkeypatch, capsys):
    def slowly(work, target):
        time.sleep(0.2)
        put(work, target)

    monkeypatch.setattr(checkpoint, "put", slowly)
    with pytest.raises(SystemExit):
        play(monkeypatch, tmp_path / "run", made("health.nonfinite.action=stop"), Script({"train/loss": {4: NAN}}))
    assert f"goes on from {tmp_path / 'run/checkpoints/step_000003'};" in capsys.readouterr().out


@pytest.mark.parametrize("restores", [0, 1, 2])
def test_restorations_are_counted_and_the_data_go_on(restores, tmp_path, monkeypatch, capsys):
    script = Script({"train/loss": dict.fromkeys((4, 6, 8), NAN), "validation/accuracy": {2: 0.9}})
    built = made("health.nonfinite.action=restore", f"health.restores={restores}")
    with pytest.raises(SystemExit):
        play(monkeypatch, tmp_path / "run", built, script)
    restored = [at for at, event in fired(tmp_path / "run") if event == "restore_best"]
    assert restored == [4, 6][:restores]
    assert fired(tmp_path / "run")[-1] == ((4, 6, 8)[restores], "abort")
    assert f"health.restores={restores} are used up" in capsys.readouterr().out
    positions = [
        json.loads(line)["position"] for line in (tmp_path / "run/rollouts/rank0.jsonl").read_text().splitlines()
    ]
    assert positions == list(range(len(positions)))


def test_a_restoration_brings_back_weights_and_moments(tmp_path, monkeypatch):
    script = Script({"train/entropy": {5: 9.0}, "validation/accuracy": {2: 0.9}})
    built = made("steps=5", "health.entropy_high.action=restore", "health.entropy_high.window=1")
    engines = play(monkeypatch, tmp_path / "run", built, script)
    assert engines.done == ["restore step_000002"] and (engines.policy, engines.moment) == (2.5, 1.5)


@pytest.mark.parametrize(
    ("override", "metric", "cause"),
    [
        ("health.starved.window=3", "rollout/kept", "health.starved: rollout/kept: it was 0 3 times in a row"),
        ("health.idle.window=3", "train/grad_norm", "health.idle: train/grad_norm: it was 0 3 times in a row"),
    ],
)
def test_a_run_that_does_nothing_is_stopped_with_the_numbers(override, metric, cause, tmp_path, monkeypatch, capsys):
    script = Script({metric: dict.fromkeys((1, 2, 4, 5, 6), 0.0)})
    with pytest.raises(SystemExit):
        play(monkeypatch, tmp_path / "run", made(override), script)
    assert fired(tmp_path / "run") == [(6, "abort")]
    out = capsys.readouterr().out
    assert cause in out and "use easier or harder data" in out


EVENTFUL = (
    "health.nonfinite.action=restore",
    "health.gradient_spike.action=skip",
    "health.gradient_spike.window=2",
    "health.entropy_high.window=2",
    "health.over_optimization.window=1",
)


def eventful(**more):
    norms = {1: 1.0, 2: 1.0, 3: 50.0, 4: 60.0, 8: 40.0}
    accuracy = dict(enumerate([0.4, 0.5, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5, 0.7, 0.6], 1))
    reward = {step: 0.1 * step for step in range(1, STEPS + 1)}
    entropy = {step: 4.0 for step in (4, 5, 6, 9, 10)}
    measured = {"train/grad_norm": norms, "validation/accuracy": accuracy, "train/entropy": entropy}
    return Script(measured | {"train/reward": reward, "train/loss": {7: NAN}}, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        play(patch, folder, made(*EVENTFUL), eventful())
    assert {event for _, event in fired(folder)} == {"warn", "skip", "restore_best"}
    return folder


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("at", range(1, STEPS + 1))
def test_a_killed_run_goes_on_as_if_never_stopped(whole, at, every, tmp_path, monkeypatch):
    def die():
        raise Killed

    built = made(*EVENTFUL, f"checkpoint.every={every}")
    with pytest.raises(Killed):
        play(monkeypatch, tmp_path / "run", built, eventful(happens={at: die}))
    play(monkeypatch, tmp_path / "run", built, eventful())
    for name in ("metrics.jsonl", "events.jsonl"):
        assert told(tmp_path / "run", name) == told(whole, name)


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["health.nonfinite.action=off"], r"health\.nonfinite\.action=off: must be one of skip, restore, stop"),
        (["health.memory.action=skip"], r"health\.memory\.action=skip: must be one of off, warn, stop"),
        (["health.kl.action=restore", "validation.every=0"], r"health\.kl\.action=restore, which reads validations"),
        (
            ["health.kl.action=restore", "checkpoint.best=false"],
            r"health\.kl\.action=restore, but checkpoint\.best=false",
        ),
        (["health.kl.action=off", "health.kl.limit=3"], r"health\.kl\.limit is set but has no effect"),
        (["health.kl.limt=3"], r"did you mean health\.kl\.limit"),
        (["steps=0"], r"steps=0: must be at least 1"),
    ],
)
def test_what_cannot_work_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        small(*overrides)


def test_a_checkpoint_with_nothing_left_to_train_is_refused(tmp_path, monkeypatch):
    play(monkeypatch, tmp_path / "first", made("steps=3"), Script())
    there = tmp_path / "first" / "checkpoints" / "step_000003"
    with pytest.raises(ConfigError, match=r"stands at step 3, and steps=3: there is nothing to train"):
        play(monkeypatch, tmp_path / "second", made("steps=3", f"run.resume={there}"), Script())
    play(monkeypatch, tmp_path / "third", made("steps=4", f"run.resume={there}"), Script())
    assert told(tmp_path / "third")[-1]["step"] == 4
