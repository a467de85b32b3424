"""A training checkpoint as a model: what it is told apart by, and that it is exported once."""

import shutil

import pytest
from safetensors.torch import load_file

from rlvr.evaluation.checkpoint import check, exported, exported_folder, identity, is_checkpoint
from rlvr.keys import ConfigError
from tests.trainer.test_checkpoint import WEIGHTS, saved


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """The folder of two checkpoints, which hold the same weights."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return saved(tmp_path, 1, 2, overrides=("checkpoint.keep=2",)).folder


def test_the_identity_is_that_of_the_policy(steps, tmp_path):
    first = identity(steps / "step_000001")
    assert identity(steps / "step_000002") == first  # their progress differs, and nothing of the policy
    moved = shutil.copytree(steps / "step_000001", tmp_path / "elsewhere")
    assert identity(moved) == first
    told = bytearray((moved / WEIGHTS).read_bytes())
    told[-1] ^= 1
    (moved / WEIGHTS).write_bytes(told)
    assert identity(moved) != first


def test_it_is_exported_once(steps, monkeypatch):
    path = steps / "step_000002"
    name = identity(path)
    assert exported(path, name) == exported_folder(name)
    assert list(load_file(exported_folder(name) / "model.safetensors")["weight"]) == [0.0] * 16
    assert [folder.name for folder in exported_folder(name).parent.iterdir()] == [name]
    monkeypatch.setattr("rlvr.engine.export.export_checkpoint", lambda *_: pytest.fail("exported again"))
    assert exported(path, name) == exported_folder(name)


def test_whoever_comes_second_takes_what_the_first_has_made(steps, monkeypatch):
    """Two hosts with one cache may export at the same time."""
    path = steps / "step_000002"
    name = identity(path)
    real = shutil.copytree

    def meanwhile(source, target):
        real(source, exported_folder(name))
        return real(source, target)

    monkeypatch.setattr("rlvr.engine.export.shutil.copytree", meanwhile)
    folder = exported(path, name)
    assert [other.name for other in folder.parent.iterdir()] == [name]


def test_what_is_not_whole_is_refused(steps):
    path = steps / "step_000002"
    assert is_checkpoint(path) and not is_checkpoint(steps.parent)
    check(path)
    (path / WEIGHTS).unlink()
    with pytest.raises(ConfigError, match="is missing"):
        check(path)
    (path / "complete.json").unlink()
    assert is_checkpoint(path)
    with pytest.raises(ConfigError, match="half written"):
        check(path)
