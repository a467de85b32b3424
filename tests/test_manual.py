"""What is said about keys is what conf/ and the schema hold."""

import dataclasses
from typing import Any

import pytest

from rlvr import manual
from rlvr.config import catalogue, compose
from rlvr.keys import ConfigError


def resolved(name: str, overrides: list[str]) -> Any:
    value: Any = compose(overrides)
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize(
    "choice", ["algorithm=grpo", "algorithm=dapo", "algorithm=dr_grpo", "hardware=cpu", "hardware=gpu8"]
)
def test_settings_found_in_the_files_are_those_that_hydra_composes(choice: str) -> None:
    group, _, option = choice.partition("=")
    section = getattr(compose([choice]), group)
    for field in dataclasses.fields(section):
        told = manual.setting(f"{group}.{field.name}", option)
        value = getattr(section, field.name)
        plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value
        assert told is not None and told.value == plain, field.name


def test_a_setting_names_the_file_that_it_stands_in() -> None:
    assert manual.setting("optim.warmup") == (resolved("optim.warmup", []), "conf/train.yaml")
    assert manual.setting("optim.lr") == ("${model.lr}", "conf/train.yaml")
    assert manual.setting("algorithm.clip_low", "dapo") == (0.2, "conf/algorithm/grpo.yaml")
    assert manual.setting("algorithm.clip_high", "dapo") == (0.28, "conf/algorithm/dapo.yaml")
    assert manual.setting("algorithm.overlong_buffer", "grpo") is None


def test_explain_tells_meaning_type_range_origin_and_effect() -> None:
    text = manual.explain("algorithm.clip_high")
    assert "the importance ratio is clipped at 1 + this" in text
    assert "a number (ratio), at least 0" in text
    assert "default   0.2, from conf/algorithm/grpo.yaml" in text
    assert "otherwise 0.28, from conf/algorithm/dapo.yaml" in text
    assert "k1, k2, k3" in manual.explain("algorithm.kl_estimator")
    assert "only if algorithm.kl_coef > 0" in manual.explain("algorithm.kl_estimator")
    assert "algorithm=dapo" in manual.explain("algorithm.overlong_buffer")
    assert "a number, only 1" in manual.explain("rollout.top_p")
    assert "data.sources.gsm8k.verifier" in manual.explain("data.sources.gsm8k.verifier")


def test_explain_of_an_entry_tells_of_the_keys_that_all_entries_have() -> None:
    text = manual.explain("triggers.NAME.when")
    assert text.startswith("triggers.NAME.when\n") and "    type      validation_plateau, validation_drop, " in text
    assert "an integer or null (steps), at least 1" in manual.explain("stages.second.until")
    for name in ("data.sources", "data.sources.gsm8k"):
        text = manual.explain(name)
        assert "data.sources.<name>.weight " in text and "knights_knaves" not in text


def test_explain_of_a_group_lists_its_keys_and_choices() -> None:
    text = manual.explain("algorithm")
    assert "algorithm.kl_coef" in text
    assert "* algorithm=grpo" in text and "  algorithm=dapo" in text
    assert "smollm2_gym" in manual.explain("experiment")
    assert "optim.beta1" in manual.explain("optim")


def test_explain_names_the_nearest_key() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.kl_coef\?"):
        manual.explain("algorithm.kl_ceof")


def test_every_key_can_be_explained_and_is_in_the_reference() -> None:
    page = manual.reference()
    for name in catalogue():
        assert manual.explain(name).startswith(name)
        heading = f"## `{name}`" if f"## `{name}`" in page else f"| `{name}` |"
        assert heading in page, name


def test_mappings_of_sections_are_sections_of_the_reference() -> None:
    page = manual.reference()
    for section, key in (("triggers", "cooldown"), ("stages", "overrides")):
        own = page.split(f"## `{section}`\n")[1].split("\n## ")[0]
        assert f"| `{section}.<name>.{key}` |" in own
        assert f"| `{section}` |" not in page


def test_every_choice_says_what_it_is() -> None:
    for group in manual.GROUPS:
        for option in manual.choices(group):
            assert len(manual.describe(group, option)) > 10, f"conf/{group}/{option}.yaml: begin it with a comment"


def test_the_help_of_train_shows_groups_keys_and_examples() -> None:
    text = manual.train_help()
    assert "*grpo" in text and "*cpu" in text and "smollm2_135m" in text
    assert all(f"  {name} " in text for name in manual.COMMON)
    assert len(manual.COMMON) == 10
    assert "rlvr train -m " in text
