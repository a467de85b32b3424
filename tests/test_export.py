"""`rlvr export`: which checkpoint is taken, what is written, what is refused.  On real weights: test_resume.py."""

import json
import sys

import pytest
from safetensors.torch import load_file

from rlvr.cli import main
from tests.trainer.test_checkpoint import WEIGHTS, saved


@pytest.fixture
def run(tmp_path):
    """A run with three checkpoints, the second of which is the best."""
    return saved(tmp_path, 1, 2, 3, overrides=("checkpoint.keep=3",), best_step=2).folder.parent


def export(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["rlvr", "export", *map(str, arguments)])
    return main()


@pytest.mark.parametrize("extra, step", [((), 3), (("--best",), 2)])
def test_the_newest_or_the_best_is_written_whole(run, extra, step, tmp_path, monkeypatch, capsys):
    assert export(monkeypatch, run, "--to", tmp_path / "deep" / "hf", *extra) == 0
    assert f"step_{step:06d}" in capsys.readouterr().out
    assert list(load_file(tmp_path / "deep" / "hf" / "model.safetensors")["weight"]) == [0.0] * 16
    assert json.loads((tmp_path / "deep" / "hf" / "config.json").read_text()) == {"dtype": "float32"}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["hf"]


def test_a_damaged_checkpoint_is_passed_over_in_a_run_and_refused_by_name(run, tmp_path, monkeypatch, capsys):
    newest = run / "checkpoints" / "step_000003"
    (newest / WEIGHTS).unlink()
    assert export(monkeypatch, run, "--to", tmp_path / "hf", "--dtype", "float16") == 0
    assert "step_000002" in capsys.readouterr().out
    assert export(monkeypatch, newest, "--to", tmp_path / "other") == 2
    assert f"{WEIGHTS} is missing" in capsys.readouterr().err and not (tmp_path / "other").exists()


def test_what_cannot_be_exported_is_refused(run, tmp_path, monkeypatch, capsys):
    (tmp_path / "there").mkdir()
    cases = {
        (run, "--to", tmp_path / "there"): "is there already",
        (tmp_path / "there", "--to", tmp_path / "hf"): "no ch",
    }
    for arguments, reason in cases.items():
        assert export(monkeypatch, *arguments) == 2
        assert reason in capsys.readouterr().err
