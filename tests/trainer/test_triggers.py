"""Each kind by hand, then the memory around it."""

import json

import pytest

from rlvr.config import compose
from rlvr.keys import ConfigError
from rlvr.schema.triggers import WHEN, Event, TriggerConfig
from rlvr.trainer.triggers import KINDS, Triggers

METRIC = {when: kind.metric for when, kind in KINDS.items()}
CAUSES = {  # a calm history, and what makes the trigger fire behind it: window 2
    "validation_plateau": (0.01, [0.50, 0.52], [0.53, 0.53]),
    "validation_drop": (0.05, [0.50, 0.60], [0.54, 0.50]),
    "kl_spike": (0.1, [0.02, 0.03, 0.04], [0.14]),
    "entropy_collapse": (0.3, [0.9, 0.35, 0.31], [0.28]),
    "length_explosion": (1.5, [100.0, 110.0, 120.0, 130.0], [200.0, 190.0]),
}


def config(when, threshold, window=2, cooldown=0, then=(Event.RESET_REFERENCE,)):
    return TriggerConfig(when=when, window=window, threshold=threshold, cooldown=cooldown, then=list(then))


def fed(triggers, metric, values, start=1):
    """The steps at which something fires."""
    return [step for step, value in enumerate(values, start) if triggers.see(step, {metric: value})]


def test_the_schema_and_the_conditions_know_the_same_kinds():
    assert tuple(KINDS) == WHEN


@pytest.mark.parametrize(
    ("when", "values", "window", "threshold", "fires"),
    [
        ("validation_plateau", [0.50, 0.50], 1, 0.0, True),  # equal is no progress
        ("validation_plateau", [0.50, 0.52], 1, 0.02, True),
        ("validation_plateau", [0.50, 0.53], 1, 0.02, False),
        ("validation_plateau", [0.50, 0.40, 0.56, 0.45], 3, 0.05, False),  # one of the three is enough
        ("validation_plateau", [0.60, 0.40, 0.50, 0.61], 2, 0.02, True),  # the best may lie far back
        ("validation_drop", [0.60, 0.54], 1, 0.05, True),
        ("validation_drop", [0.60, 0.55], 1, 0.06, False),
        ("validation_drop", [0.60, 0.40, 0.58], 2, 0.05, False),  # it came back
        ("validation_drop", [0.60, 0.58, 0.54, 0.50], 2, 0.05, True),
        ("kl_spike", [0.1, 0.1, 0.3, 0.31], 3, 0.2, True),  # median 0.1
        ("kl_spike", [0.1, 0.3, 0.3, 0.31], 3, 0.2, False),
        ("kl_spike", [0.0, 0.001, 0.01], 2, 0.1, False),  # ten times more, but next to nothing
        ("kl_spike", [0.1, 0.1, float("inf")], 2, 0.2, True),
        ("entropy_collapse", [0.5, 0.2, 0.3], 2, 0.26, True),  # mean 0.25
        ("entropy_collapse", [0.5, 0.2, 0.3], 2, 0.25, False),
        ("length_explosion", [100, 100, 160, 140], 2, 1.4, True),
        ("length_explosion", [100, 100, 160, 140], 2, 1.5, False),  # 1.5 times, not more
        ("length_explosion", [900, 100, 100, 160, 140], 2, 1.4, True),  # the 900 is out of sight
    ],
)
def test_conditions(when, values, window, threshold, fires):
    assert bool(KINDS[when].condition(values, window, threshold)) == fires


@pytest.mark.parametrize("when", WHEN)
def test_each_fires_at_its_cause_and_not_before(when):
    threshold, calm, cause = CAUSES[when]
    triggers = Triggers({"mine": config(when, threshold)})
    assert fed(triggers, METRIC[when], calm + cause) == [len(calm + cause)]


@pytest.mark.parametrize("when", WHEN)
def test_the_cause_is_told(when):
    threshold, calm, cause = CAUSES[when]
    triggers = Triggers({"mine": config(when, threshold, then=["restore_best", "stop"])})
    asked = [triggers.see(step, {METRIC[when]: value}) for step, value in enumerate(calm + cause)][-1]
    assert [event for event, _ in asked] == [Event.RESTORE_BEST, Event.STOP]
    assert all(told.startswith(f"trigger mine: {when}, ") for _, told in asked)


@pytest.mark.parametrize("least", [1, 2, 3, 4])
def test_no_window_no_firing(least):
    triggers = Triggers({"low": config("entropy_collapse", threshold=0.5, window=least)})
    assert fed(triggers, "train/entropy", [0.1] * least) == [least]


def test_a_trigger_fires_again_after_its_cooldown():
    triggers = Triggers({"low": config("entropy_collapse", threshold=0.5, window=1, cooldown=3)})
    assert fed(triggers, "train/entropy", [0.1] * 10) == [1, 5, 9]


def test_after_a_firing_the_window_is_filled_anew():
    triggers = Triggers({"low": config("entropy_collapse", threshold=0.5, window=3, cooldown=0)})
    assert fed(triggers, "train/entropy", [0.1] * 9) == [3, 6, 9]
    drop = Triggers({"drop": config("validation_drop", threshold=0.1, window=1)})
    assert fed(drop, "validation/accuracy", [0.6, 0.4, 0.4, 0.4, 0.2]) == [2, 5]  # 0.4 is what the treatment left


def test_steps_without_a_measurement_do_not_count():
    triggers = Triggers({"low": config("entropy_collapse", threshold=0.5, window=2)})
    assert not triggers.see(1, {"train/entropy": 0.1})
    assert not triggers.see(2, {"train/reward": 0.1})
    assert triggers.see(3, {"train/entropy": 0.1})


def test_forgetting_one_metric_leaves_the_others():
    triggers = Triggers({"a": config("kl_spike", 0.1, window=1), "b": config("entropy_collapse", 0.5, window=2)})
    assert not triggers.see(1, {METRIC["kl_spike"]: 0.0, "train/entropy": 0.1})
    triggers.forget(METRIC["kl_spike"])
    asked = triggers.see(2, {METRIC["kl_spike"]: 9.0, "train/entropy": 0.1})
    assert [told.split(":")[0] for _, told in asked] == ["trigger b"]
    triggers.forget()
    assert not triggers.see(3, {METRIC["kl_spike"]: 0.0, "train/entropy": 0.1})


@pytest.mark.parametrize("cut", range(12))
@pytest.mark.parametrize("when", WHEN)
def test_a_restart_anywhere_changes_nothing(when, cut):
    threshold, calm, cause = CAUSES[when]
    values, configs = 3 * (calm + cause), {"mine": config(when, threshold, cooldown=3)}
    whole = fed(Triggers(configs), METRIC[when], values)
    first, second = Triggers(configs), Triggers(configs)
    before = fed(first, METRIC[when], values[:cut])
    second.state = json.loads(json.dumps(first.state))
    assert before + fed(second, METRIC[when], values[cut:], start=cut + 1) == whole
    assert whole


def test_a_trigger_of_another_kind_does_not_inherit_the_memory():
    first = Triggers({"mine": config("entropy_collapse", 0.5, window=2)})
    first.see(1, {"train/entropy": 0.1})
    second = Triggers({"mine": config("length_explosion", 2.0, window=2)})
    second.state = first.state
    assert second.state["mine"]["values"] == []


def test_memory_is_bounded_where_the_condition_is():
    triggers = Triggers({"long": config("length_explosion", 99.0, window=3)})
    fed(triggers, "rollout/length", range(100))
    assert triggers.state["long"]["values"] == [94, 95, 96, 97, 98, 99]


def test_nothing_reads_the_test_role():
    assert not any(metric.startswith("test/") for metric in METRIC.values())


@pytest.mark.parametrize(
    ("changes", "others", "message"),
    [
        ("when: kl_spik", [], r"triggers\.mine\.when=kl_spik: must be one of .*did you mean kl_spike"),
        ("window: 0", [], r"triggers\.mine\.window=0: must be at least 1"),
        ("then: [reset]", [], r"triggers\.mine\.then: reset is no event.*reset_reference"),
        ("then: []", [], r"triggers\.mine\.then is empty"),
        ("then: [next_stage]", [], "there are no stages"),
        ("then: [restore_best]", ["checkpoint.best=false"], "checkpoint.best=false keeps no best checkpoint"),
        ("when: validation_drop", ["validation.every=0"], "validation.every=0 makes none"),
        ("when: validation_drop", ["data.sources.arithmetic.validation=null"], "validation is null for every source"),
        ("when: length_explosion", [], r"threshold=0\.1: must be greater than 1"),
        ("then: [reset_reference]", ["algorithm=astar_po"], r"triggers\.mine\.then has reset_reference, but the V\*"),
    ],
)
def test_a_trigger_that_cannot_work_is_refused(changes, others, message):
    given = {"when": "entropy_collapse", "window": "2", "threshold": "0.1", "cooldown": "5", "then": "[stop]"}
    given |= [changes.split(": ")]
    told = ", ".join(f"{name}: {value}" for name, value in given.items())
    with pytest.raises(ConfigError, match=message):
        compose([f"+triggers={{mine: {{{told}}}}}", *others])
