"""`rlvr eval` on the command line, before any rank starts; and every suite that is shipped."""

import sys

import pytest

from rlvr import eval_cli, manual
from rlvr.cli import main
from rlvr.config import compose, write
from rlvr.evaluation.settings import compose_eval, is_evaluation, read_eval
from rlvr.keys import ConfigError
from rlvr.schema.eval import settled
from tests.evaluation.samples import evaluation, scored


def rlvr(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["rlvr", *map(str, arguments)])
    return main()


@pytest.mark.parametrize("suite", manual.choices("eval"))
def test_every_suite_is_whole(suite):
    assert manual.describe("eval", suite)
    config = compose_eval([f"eval={suite}"])
    assert config.eval.name == suite
    for name, benchmark in settled(config.eval).items():
        assert benchmark.k[-1] == benchmark.samples, name


def test_the_papers_settings():
    armor, dapo, prorl = (settled(compose_eval([f"eval={name}"]).eval) for name in ("armor", "dapo", "prorl"))
    assert (armor["aime24"].samples, armor["aime24"].temperature, armor["aime24"].top_p) == (80, 1.0, 0.7)
    assert (dapo["aime24"].samples, dapo["aime24"].temperature, dapo["aime24"].top_p) == (32, 1.0, 0.7)
    assert {(b.samples, b.temperature, b.top_p, b.max_tokens) for b in prorl.values()} == {(16, 0.6, 0.95, 32768)}


def test_values_for_all_benchmarks():
    own = settled(compose_eval(["eval.everywhere.samples=3", "eval.everywhere.rows=5"]).eval)
    assert {(b.samples, b.rows, tuple(b.k)) for b in own.values()} == {(3, 5, (1, 2, 3))}


def test_the_configuration_is_read_as_it_was_written(tmp_path):
    config = compose_eval(["eval=code", "seed=3"])
    write(config, tmp_path / "config.yaml")
    assert read_eval(tmp_path / "config.yaml") == config and is_evaluation(tmp_path / "config.yaml")
    write(compose(), tmp_path / "train.yaml")
    assert not is_evaluation(tmp_path / "train.yaml")
    with pytest.raises(ConfigError, match="not the configuration of an evaluation"):
        read_eval(tmp_path / "train.yaml")


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["eval.benchmarks.sums.sampels=3"], "did you mean eval.benchmarks.sums.samples?"),
        (["eval.benchmarks.sums.k=[1,8]"], "k has 8, but with samples=4 an unbiased pass@k needs 1 <= k <= 4"),
        (["eval.everywhere.temperature=0"], "4 samples at temperature 0 are the same greedy answer"),
        (["eval.benchmarks.sums.role=train", "eval.benchmarks.shipped.role=train"], "no source of data=shipped"),
        (["eval.benchmarks.more.samples=2"], "DIR/eval/mine.yaml"),
        (["eval=smok"], "did you mean eval=smoke?"),
        (["steps=3"], "not a key of this command"),
    ],
)
def test_mistakes_are_named(overrides, complaint):
    with pytest.raises(ConfigError) as told:
        compose_eval(overrides)
    assert complaint in str(told.value)


def test_training_does_not_know_the_keys_of_evaluations():
    with pytest.raises(ConfigError, match="not a key of this command"):
        compose(["origin=x"])


def test_a_refusal_comes_before_the_ranks(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(eval_cli.launch, "start", lambda *_: pytest.fail("a rank was started"))
    assert rlvr(monkeypatch, "eval", "checkpoint=runs/nothing", "hydra.run.dir=out", "hydra/job_logging=none") == 2


def test_two_results_are_compared_on_the_command_line(monkeypatch, tmp_path, capsys):
    one, two = (evaluation(tmp_path / n, scored([1, s], [0, 0], [1, s])) for n, s in (("a", 0), ("b", 1)))
    assert rlvr(monkeypatch, "eval", "compare", one, two, "--write", tmp_path / "told.json") == 0
    assert "+33.3" in capsys.readouterr().out and (tmp_path / "told.json").exists()
    assert rlvr(monkeypatch, "eval", "compare", one, tmp_path) == 2


def test_help_lists_the_suites(monkeypatch, capsys):
    assert rlvr(monkeypatch, "eval", "--help") == 0
    told = capsys.readouterr().out
    assert "* smoke" in told and all(suite in told for suite in manual.choices("eval"))
