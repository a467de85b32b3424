"""Stages: what is refused at the start, what they change and when, and that a restart finds its way back."""

import pytest

from rlvr.config import compose, read, write
from rlvr.keys import ConfigError
from rlvr.records import Prompt
from rlvr.schema.stages import changeable, staged
from rlvr.schema.triggers import StageConfig, TriggerConfig
from rlvr.trainer.stages import refuse_stages_without_data
from tests.trainer.scripted import Killed, Script, hurry, play, small, told, two_sources


def stage(until=None, reset=(), **overrides):
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return StageConfig(until=until, overrides=named, reset=list(reset))


STAGES = {
    "short": stage(until=2, rollout__max_tokens=6),
    "more": stage(5, ["reset_reference", "reset_optimizer"], algorithm__group=32, data__sources__b__weight=1.0),
    "long": stage(rollout__max_tokens=12, algorithm__group=8, optim__lr=1, rollout__temperature=1.2),
}


def made(*overrides, stages=None, **triggers):
    built = two_sources(small("steps=8", "validation.every=2", "checkpoint.every=1", *overrides))
    built.stages |= STAGES if stages is None else stages
    built.triggers |= triggers
    return built


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    hurry(monkeypatch)


def seen(folder):
    """What the rollouts of each step were sampled with."""
    by_step = {}
    for row in told(folder, "rollouts/rank0.jsonl"):
        by_step.setdefault(row["step"], set()).add((row["group"], row["max_tokens"], row["lr"]))
    return [by_step[step] for step in sorted(by_step)]


# -- the configuration ------------------------------------------------------------------------


def test_a_stage_keeps_what_those_before_it_changed():
    built = made()
    short, more, long = staged(built)
    assert (short.rollout.max_tokens, short.algorithm.group) == (6, 16)
    assert (more.rollout.max_tokens, more.algorithm.group, more.data.sources["b"].weight) == (6, 32, 1.0)
    assert (long.rollout.max_tokens, long.algorithm.group, long.data.sources["b"].weight) == (12, 8, 1.0)
    assert (built.rollout.max_tokens, built.data.sources["b"].weight) == (8, 0.0)  # untouched
    assert isinstance(long.optim.lr, float)
    assert [made(stages={})] == staged(made(stages={}))


def test_stages_survive_a_file_in_their_order(tmp_path):
    built = made(low=TriggerConfig(when="entropy_collapse", window=1, threshold=0.3, cooldown=0, then=["stop"]))
    write(built, tmp_path / "config.yaml")
    again = read(tmp_path / "config.yaml")
    assert again == built and list(again.stages) == ["short", "more", "long"]


def test_what_a_stage_may_change_depends_on_the_algorithm():
    prorl, rebel = (changeable(compose([f"algorithm={name}", "algorithm.group=4"])) for name in ("prorl", "rebel"))
    assert set(prorl) - set(rebel) >= {"algorithm.kl_coef", "algorithm.unfinished_penalty", "algorithm.overlong_buffer"}
    assert {"algorithm.group", "rollout.max_tokens", "data.sources.arithmetic.weight"} <= set(rebel)


def one(text):
    return f"+stages={{first: {{until: 3}}, second: {{until: null, {text}}}}}"


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (one("overrides: {algorithm.grup: 8}"), r"stages\.second\.overrides: algorithm\.grup .*mean algorithm\.group"),
        (one("overrides: {algorithm.minibatches: 2}"), r"algorithm\.minibatches is no key that a stage may change"),
        (one("overrides: {algorithm.group: two}"), r"algorithm\.group=two: must be an integer"),
        (one("overrides: {algorithm.kl_coef: true}"), r"algorithm\.kl_coef=True: must be a number"),
        (one("overrides: {algorithm.group: 0}"), r"in stages\.second: algorithm\.group=0: must be at least 1"),
        (one("overrides: {rollout.max_tokens: 99999}"), r"in stages\.second: hardware\.tokens_per_micro_batch"),
        (one("overrides: {algorithm.overlong_buffer: 9}"), r"in stages\.second: algorithm\.overlong_buffer=9 exceeds"),
        (one("overrides: {algorithm.overlong_factor: 0.5}"), r"in stages\.second: .*has no effect"),
        (one("overrides: {data.sources.arithmetic.weight: 0}"), r"in stages\.second: data\.sources: every source"),
        (one("overrides: {data.sources.arithmetik.weight: 2}"), r"mean data\.sources\.arithmetic\.weight"),
        (one("reset: [stop]"), r"stages\.second\.reset: stop must be one of restore_best, reset_reference"),
        ("+stages={a: {until: null}, b: {until: null}}", r"stages\.a\.until=null: .* never reached"),
        ("+stages={a: {until: 3}, b: {until: 5}}", r"stages\.b\.until=5: no stage follows"),
        ("+stages={a: {until: 3}, b: {until: 3}, c: {until: null}}", r"stages\.b\.until=3: must lie after .*\(3\)"),
        ("+stages={a: {until: 200}, b: {until: null}}", r"stages\.a\.until=200: must lie .*before steps=200"),
    ],
)
def test_a_stage_that_cannot_work_is_refused(stages, message):
    with pytest.raises(ConfigError, match=message):
        compose(["algorithm=prorl", "steps=200", stages])


def test_a_trigger_may_end_a_stage_without_an_end():
    trigger = "+triggers={flat: {when: validation_plateau, window: 2, threshold: 0.0, cooldown: 0, then: [next_stage]}}"
    assert len(compose([trigger, "+stages={a: {until: null}, b: {until: null}}"]).stages) == 2


def test_a_stage_that_brings_in_a_source_without_rows_is_refused_before_the_engines_start():
    built = compose(["experiment=prorl_1_5b"])
    there = [Prompt(id="deepscaler/train/0", source="deepscaler", text="", tokens=(1,), answer="", verifier="exact")]
    with pytest.raises(ConfigError, match=r"stages\.run3\.overrides gives data\.sources\.instructions a weight, but"):
        refuse_stages_without_data(built, there)
    mine = Prompt(id="instructions/train/0", source="mine", text="", tokens=(1,), answer="", verifier="exact")
    refuse_stages_without_data(built, [*there, mine])


def test_the_eight_runs_of_the_paper():
    built = compose(["experiment=prorl_1_5b"])
    runs = staged(built)
    assert list(built.stages) == [f"run{number}" for number in range(1, 9)]
    assert [r.algorithm.group for r in runs] == 5 * [16] + 2 * [32] + [16]
    assert [r.rollout.max_tokens for r in runs] == 7 * [8096] + [15360]
    assert [r.algorithm.unfinished_penalty > 0 for r in runs] == 3 * [False] + 5 * [True]
    weights = [r.data.sources["instructions"].weight for r in runs]
    assert weights == 2 * [0.0] + 6 * [10.0]  # of 136, in thousands
    assert all(set(built.stages[f"run{n}"].reset) == {"reset_reference", "reset_optimizer"} for n in (2, 6, 7))


# -- the run ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run through all stages that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        engines = play(patch, folder, made(), Script())
    return folder, engines


def test_each_stage_has_its_values_and_its_resets(whole):
    folder, engines = whole
    lr = small().optim.lr
    assert seen(folder) == 2 * [{(16, 6, lr)}] + 3 * [{(32, 6, lr)}] + 3 * [{(8, 12, 1.0)}]
    assert engines.done == ["reset_reference", "reset_optimizer"]
    assert engines.temperature == 1.2
    assert [row["stage"] for row in told(folder)[1:]] == [1, 1, 2, 2, 2, 3, 3, 3]
    events = told(folder, "events.jsonl")
    assert [(e["step"], e["event"]) for e in events] == [
        (2, "reset_reference"), (2, "reset_optimizer"), (2, "next_stage"), (5, "next_stage")
    ]  # fmt: skip
    assert [e["cause"] for e in events[1:3]] == ["stage more begins", "stage short lasted until step 2"]


def test_data_come_in_with_their_stage(whole):
    rows = told(whole[0], "rollouts/rank0.jsonl")
    early = {row["id"].split("/")[0] for row in rows if row["step"] <= 2}
    late = [row["id"].split("/")[0] for row in rows if row["step"] > 2]
    assert early == {"arithmetic"}
    assert abs(late.count("b") - late.count("arithmetic")) <= 1
    own = [row["id"] for row in rows if row["id"].startswith("arithmetic")]
    assert all(len(set(own[i : i + 6])) == 6 for i in range(0, len(own) - 6, 6))  # its epochs go on across stages


def test_the_batch_of_a_stage_is_told(tmp_path, monkeypatch, capsys):
    play(monkeypatch, tmp_path / "run", made("steps=6"), Script())
    said = " ".join(capsys.readouterr().out.split())
    assert "stage short since step 0: rollout.max_tokens=6; per step 4 prompts x 16 = 64 sequences" in said
    assert "stage more since step 2: algorithm.group=32, data.sources.b.weight=1.0; per step 4 prompts x 32" in said


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("at", range(1, 9))
def test_a_killed_run_comes_back_to_its_stage(whole, at, every, tmp_path, monkeypatch):
    def die():
        raise Killed

    built = made(f"checkpoint.every={every}")
    with pytest.raises(Killed):
        play(monkeypatch, tmp_path / "run", built, Script(happens={at: die}))
    play(monkeypatch, tmp_path / "run", built, Script())
    for name in ("metrics.jsonl", "events.jsonl", "rollouts/rank0.jsonl"):
        assert told(tmp_path / "run", name) == told(whole[0], name)


def test_a_trigger_begins_the_next_stage_with_empty_windows(tmp_path, monkeypatch):
    stages = {"a": stage(rollout__max_tokens=6), "b": stage(reset=["reset_reference"]), "c": stage()}
    grows = TriggerConfig(when="length_explosion", window=1, threshold=1.5, cooldown=0, then=["next_stage"])
    script = Script({"rollout/length": {1: 10, 2: 10, 3: 20, 4: 40, 5: 80, 6: 200, 7: 500, 8: 999}})
    play(monkeypatch, tmp_path / "run", made(stages=stages, grows=grows), script)
    events = told(tmp_path / "run", "events.jsonl")
    assert [(e["step"], e["event"]) for e in events] == [
        (3, "reset_reference"), (3, "next_stage"), (5, "next_stage"), (7, "next_stage")
    ]  # fmt: skip
    assert [row["stage"] for row in told(tmp_path / "run")[1:]] == [1, 1, 1, 2, 2, 3, 3, 3]  # none follows the third


def test_a_stage_that_is_gone_is_refused(tmp_path, monkeypatch):
    def die():
        raise Killed

    with pytest.raises(Killed):
        play(monkeypatch, tmp_path / "run", made(), Script(happens={4: die}))
    with pytest.raises(ConfigError, match="the checkpoint was in stage more"):
        play(monkeypatch, tmp_path / "run", made(stages={"short": stage()}), Script())


def test_the_config_that_was_asked_for_stays_as_it_was(tmp_path, monkeypatch):
    built = made()
    play(monkeypatch, tmp_path / "run", built, Script())
    assert built == made()
