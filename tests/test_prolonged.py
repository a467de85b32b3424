"""Triggers, resets and stages on the real engines: each kind of trigger fires, and the reference moves when it does."""

import json

import pytest

from tests.test_end_to_end import cache, finish, rows, start  # noqa: F401  (a fixture)

# Thresholds at which each kind must fire sooner or later, in a run whose learning rate is sure to wreck the model.
TRIGGERS = {
    "plateau": "{when: validation_plateau, window: 1, threshold: 1.0, cooldown: 9, then: [reset_optimizer]}",
    "drop": "{when: validation_drop, window: 1, threshold: 0.0, cooldown: 9, then: [reset_optimizer, restore_best]}",
    "spike": "{when: kl_spike, window: 1, threshold: 0.01, cooldown: 9, then: [reset_reference]}",
    "collapse": "{when: entropy_collapse, window: 4, threshold: 9.0, cooldown: 9, then: [reset_reference]}",
    "explosion": "{when: length_explosion, window: 1, threshold: 1.0001, cooldown: 9, then: [next_stage]}",
}
STAGES = (
    "{first: {until: null}, second: {until: null, overrides: {rollout.temperature: 0.8, algorithm.kl_coef: 0.01}, "
    "reset: [reset_reference]}}"
)
KINDS = ("validation_plateau", "validation_drop", "kl_spike", "entropy_collapse", "length_explosion")


@pytest.fixture(scope="module")
def wrecked(tmp_path_factory, cache):  # noqa: F811
    folder = tmp_path_factory.mktemp("wrecked") / "run"
    given = ["algorithm=grpo", "algorithm.minibatches=1", "algorithm.group=8", "steps=8", "validation.every=1"]
    given += ["optim.lr=0.02", "optim.warmup=0", "optim.schedule=constant", "rollout.max_tokens=8", "log.wandb=off"]
    given += ["model.warm_accuracy=0.9", "checkpoint.every=0"]
    triggers = ", ".join(f"{name}: {told}" for name, told in TRIGGERS.items())
    out = finish(start(folder, cache, *given, f"+triggers={{{triggers}}}", f"+stages={STAGES}"))
    return folder, out


def test_every_kind_of_trigger_fires_for_its_cause(wrecked):
    folder, out = wrecked
    told = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    causes = " ".join(str(row) for row in told)
    for kind in KINDS:
        assert kind in causes, causes
        assert kind in out
    assert (folder / "curve.png").stat().st_size > 10_000


def test_the_kl_begins_anew_at_each_reset_of_the_reference(wrecked):
    folder, _ = wrecked
    told = rows(folder)
    resets = [row["step"] for row in told if row.get("event/reset_reference")]
    assert len(resets) >= 2  # the spike with the stage that begins, later the collapse
    kl = {row["step"]: row["train/kl_ref_k3"] for row in told[1:]}
    for step in resets:
        if step + 1 in kl:
            assert kl[step + 1] < 1e-6, kl  # one update per step: measured before the policy leaves
    others = [step for step in kl if step > 1 and step - 1 not in resets]
    assert any(kl[step] > 1e-3 for step in others), kl


def test_the_second_stage_has_its_own_values(wrecked):
    folder, _ = wrecked
    stages = [row["stage"] for row in rows(folder)[1:]]
    assert stages[0] == 1 and stages[-1] == 2
