"""Every YAML composes, is typed right, and survives a file."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rlvr import config as configuration
from rlvr import manual
from rlvr.config import catalogue, compose, find, given_keys, read, write
from rlvr.keys import ConfigError
from rlvr.schema import ALGORITHM_SCHEMAS, DAPOConfig, GRPOConfig, ModelConfig, TinyConfig
from rlvr.schema.data import SourceConfig
from rlvr.schema.train import TrainConfig
from rlvr.schema.triggers import StageConfig, TriggerConfig

REQUIRED = {  # what the user has to say
    "data=file": ["data.sources.file.train=a.jsonl", "data.sources.file.validation=b.jsonl"],
}
LARGE = "hardware.tokens_per_micro_batch=32768"  # holds the longest sequence of any choice, on any hardware


def choices() -> Iterator[str]:
    for group in manual.GROUPS:
        yield from (f"{group}={option}" for option in manual.choices(group))


@pytest.mark.parametrize("choice", choices())
def test_every_choice_composes_and_is_typed(choice: str, tmp_path: Path) -> None:
    config = compose([choice, LARGE, *REQUIRED.get(choice, [])])
    assert type(config.algorithm) is ALGORITHM_SCHEMAS[config.algorithm.name]
    assert type(config.model) is (TinyConfig if config.model.kind == "tiny" else ModelConfig)
    assert all(type(source) is SourceConfig for source in config.data.sources.values())
    group, _, option = choice.partition("=")
    if group in ("model", "data"):
        assert getattr(config, group).name == option
    write(config, tmp_path / "config.yaml")
    assert read(tmp_path / "config.yaml") == config


@pytest.mark.parametrize("experiment", manual.choices("experiment"))
def test_experiments_run_as_they_are(experiment: str) -> None:
    assert compose([f"experiment={experiment}"]).steps > 0


def test_dapo_lists_only_what_its_paper_changes() -> None:
    grpo, dapo = compose([]).algorithm, compose(["algorithm=dapo"]).algorithm
    changed = {f.name for f in dataclasses.fields(grpo) if getattr(grpo, f.name) != getattr(dapo, f.name)}
    assert changed == {"name", "average", "wrong_reward", "clip_high", "dual_clip"}
    dr_grpo = compose(["algorithm=dr_grpo"]).algorithm
    changed = {f.name for f in dataclasses.fields(grpo) if getattr(grpo, f.name) != getattr(dr_grpo, f.name)}
    assert changed == {"average", "scale_advantages"}


def test_an_experiment_of_ones_own_may_choose_the_algorithm(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\n"
        "defaults:\n  - override /algorithm: dapo\n  - _self_\n"
        "steps: 7\nalgorithm:\n  clip_high: 0.3\n"
    )
    here = f"hydra.searchpath=[file://{tmp_path}]"
    config = compose([here, "experiment=mine", "algorithm.clip_low=0.1"])
    assert type(config.algorithm) is DAPOConfig
    assert (config.steps, config.algorithm.clip_high, config.algorithm.clip_low) == (7, 0.3, 0.1)


def test_a_typo_in_an_experiment_names_key_and_file(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nalgorithm:\n  clip_hgh: 0.3\n")
    with pytest.raises(
        ConfigError, match=r"algorithm\.clip_hgh: .*algorithm\.clip_high\? \(in experiment/mine\.yaml\)"
    ):
        compose([f"hydra.searchpath=[file://{tmp_path}]", "experiment=mine"])


def test_a_stray_key_added_with_plus_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.klcoef: no such key; did you mean algorithm\.kl_coef\?"):
        compose(["+algorithm.klcoef=0.1"])
    with pytest.raises(ConfigError, match=r"^kl_coef: no such key; did you mean algorithm\.kl_coef\?"):
        compose(["+kl_coef=0.1"])


def test_entries_of_mappings_may_be_added() -> None:
    config = compose(["model=qwen3_8b_base", "+model.chat_kwargs.enable_thinking=false"])
    assert config.model.chat_kwargs == {"enable_thinking": False}


def test_deleting_a_section_is_refused() -> None:
    with pytest.raises(ConfigError, match="optim: no value"):
        compose(["~optim"])


def test_top_p_below_one_is_refused_for_training_only() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.top_p=0\.8"):
        compose(["rollout.top_p=0.8"])
    assert compose(["validation.top_p=0.8"]).validation.top_p == 0.8


def test_given_keys_are_those_of_the_command_line() -> None:
    given = given_keys(["algorithm=dapo", "algorithm.kl_coef=0", "+model.stop=[a]", "~seed", "hydra.run.dir=x"])
    assert given == {"algorithm", "algorithm.kl_coef", "model.stop"}


def test_a_key_without_effect_is_refused_only_if_it_was_given() -> None:
    assert compose([]).algorithm.kl_estimator == "k3"
    assert compose(["algorithm.kl_coef=0.1", "algorithm.kl_estimator=k1"]).algorithm.kl_estimator == "k1"
    with pytest.raises(ConfigError, match=r"algorithm\.kl_estimator is set but has no effect.*algorithm\.kl_coef > 0"):
        compose(["algorithm.kl_estimator=k1"])


# -- files ---------------------------------------------------------------------------------


def test_written_file_is_plain_and_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for steps in (3, 4):
        write(compose([f"steps={steps}", "algorithm=dapo"]), path)
    plain = yaml.safe_load(path.read_text())
    assert plain["schema"] == {"algorithm": "dapo", "model": "tiny"}
    assert (plain["steps"], plain["optim"]["lr"]) == (4, compose([]).optim.lr)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "text", ["${x}", r"\${x}", r"a\\${oc.env:HOME}$", r"\boxed{} $x$", "\u00fcber\n\ttab: '\"", "1e-3", ""]
)
def test_any_text_survives_a_file(text: str, tmp_path: Path) -> None:
    config = compose([])
    config.data.template = text
    config.data.sources["arithmetic"].options["deep"] = [{"text": text}]
    write(config, tmp_path / "config.yaml")
    assert read(tmp_path / "config.yaml") == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("steps: 200", "step: 200"), "step: no such key; did you mean steps"),
        (("steps: 200", "steps: many"), "steps=many: must be an integer"),
        (("steps: 200", "steps: 0"), "steps=0: must be at least 1"),
        (("schema:", "scheme:"), "not a resolved configuration"),
        (("  algorithm: grpo", "  algorithm: sarsa"), r"schema\.algorithm=sarsa: must be one of grpo, dapo"),
    ],
)
def test_a_wrong_file_is_refused(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write(compose(["steps=200"]), path)
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(ConfigError, match=message):
        read(path)


# -- the name of a run -----------------------------------------------------------------------


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_PTY_PORT", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.argv", ["rlvr", "seed=1"])
    return monkeypatch


def test_a_run_without_a_name_gets_a_new_one(outside: pytest.MonkeyPatch) -> None:
    first, second = (compose(["algorithm=dapo"]).run.name for _ in range(2))
    assert first != second
    assert first.endswith("-dapo-tiny")


def test_a_slurm_job_keeps_its_name_on_all_ranks_and_after_a_requeue(outside: pytest.MonkeyPatch) -> None:
    outside.setenv("SLURM_JOB_ID", "31")
    names = set()
    for rank in ("0", "1"):
        outside.setenv("SLURM_PROCID", rank)
        names.add(compose([]).run.name)
    assert len(names) == 1
    outside.setattr("sys.argv", ["rlvr", "seed=2"])  # another run of the same job
    assert compose([]).run.name not in names
    outside.setenv("SLURM_PTY_PORT", "4000")
    assert "31" not in compose([]).run.name.split("-")[0]


def test_torchrun_needs_a_name_that_all_ranks_agree_on(outside: pytest.MonkeyPatch) -> None:
    outside.setenv("TORCHELASTIC_RUN_ID", "none")
    with pytest.raises(ConfigError, match=r"run\.name=\.\.\."):
        compose([])
    assert compose(["run.name=mine"]).run.name == "mine"
    outside.setenv("TORCHELASTIC_RUN_ID", "abc")
    assert compose([]).run.name == compose([]).run.name


# -- the catalogue ---------------------------------------------------------------------------


def test_the_catalogue_holds_the_keys_of_every_class() -> None:
    known = catalogue()
    assert known["algorithm.overlong_buffer"].owners == ("dapo", "armor", "armor_qae", "prorl", "qae")
    assert set(known["algorithm.group"].owners) == set(ALGORITHM_SCHEMAS)
    assert known["model.layers"].owners == ("tiny",)
    assert {f"algorithm.{f.name}" for f in dataclasses.fields(GRPOConfig)} <= set(known)
    assert {f.name for f in dataclasses.fields(TrainConfig)} <= set(known)
    for mapping, kind in (("data.sources", SourceConfig), ("triggers", TriggerConfig), ("stages", StageConfig)):
        below = {name for name in known if name.startswith(f"{mapping}.")}
        assert below == {f"{mapping}.<name>.{f.name}" for f in dataclasses.fields(kind)}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("optim.lr", "optim.lr"),
        ("data.sources.mine.weight", "data.sources.<name>.weight"),
        ("data.sources.mine.options.digits.low", "data.sources.<name>.options"),
        ("data.sources.mine", "data.sources"),
        ("data.sources.mine.wieght", None),
        ("triggers.mine.when", "triggers.<name>.when"),
        ("triggers.mine.when.high", None),
        ("stages.mine.overrides.optim.lr", "stages.<name>.overrides"),
        ("model.chat_kwargs.enable_thinking", "model.chat_kwargs"),
        ("optim.lr.high", None),
        ("optim.momentum", None),
    ],
)
def test_find(name: str, found: str | None) -> None:
    assert find(name) == found


def test_types_in_words() -> None:
    words = configuration.type_in_words
    assert words(int | None) == "an integer or null"
    assert words(list[str]) == "a list"
    assert words(dict[str, SourceConfig]) == "a mapping"
    assert words(bool) == "true or false"
