from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from rlvr.config import compose
from rlvr.data.arithmetic import OPTIONS as SUMS
from rlvr.data.gym import OPTIONS as PUZZLES
from rlvr.data.table import OPTIONS as TABLES
from rlvr.schema.data import DataConfig, SourceConfig

BLENDS = ("prorl_blend", "sums_worked")  # made of others, whose files are checked
FILES = [f for f in sorted((Path(__file__).parents[2] / "conf" / "data").glob("*.yaml")) if f.stem not in BLENDS]
OPTIONS = {"arithmetic": SUMS, "gym": PUZZLES, "file": TABLES, "hub": TABLES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_data_set_gives_every_key_and_says_where_it_comes_from(path):
    text = path.read_text()
    given = yaml.safe_load(text)
    assert text.startswith("# ")
    assert all(word in text for word in ("Source", "icence", "Columns: "))
    assert given.pop("defaults") == ["schema/data", "_self_"]
    assert {field.name for field in fields(DataConfig)} - set(given) <= {"benchmarks", "pass_rate", "retire"}
    assert set(given) <= {field.name for field in fields(DataConfig)}
    assert given["name"] == path.stem
    assert "{question}" in given["template"]
    for source in given["sources"].values():
        assert set(source) | {"template"} == {field.name for field in fields(SourceConfig)}
        assert set(source["options"]) <= set(OPTIONS[source["kind"]])


@pytest.mark.parametrize("name", BLENDS)
def test_a_blend_is_made_of_others(name):
    parts = compose([f"data={name}"]).data
    assert (
        parts.name == name
        and sum(source.weight > 0 and source.train is not None for source in parts.sources.values()) > 1
    )
    for source in parts.sources.values():
        assert source.train is None or source.train != source.validation


def test_the_files_are_found():
    assert {path.stem for path in FILES} >= {
        "arithmetic",
        "gym",
        "gsm8k",
        "math",
        "dapo_math_17k",
        "file",
        "five_domains",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_trained_on_is_validated_on_other_rows(path):
    for source in yaml.safe_load(path.read_text())["sources"].values():
        if source["weight"] > 0:
            assert (source["train"] is None) == (source["validation"] is None)
        assert (
            source["kind"] in ("arithmetic", "gym", "file")
            or source["train"] is None
            or source["train"] != source["validation"]
        )
