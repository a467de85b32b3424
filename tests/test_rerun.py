"""`rlvr rerun`: what is compared and what is left out, what differs in the environment, and who is refused."""

import json
import math
import shutil

import pytest

from rlvr import rerun as module
from rlvr.keys import ConfigError
from rlvr.report.runs import RunData
from rlvr.rerun import changed, compare, rerun
from tests.report.made_up import ENVIRONMENT, make_run


def rows(*rewards, seconds=1.0):
    return [
        {"step": step, "train/reward": reward, "time/step": seconds, "memory/peak_gib": seconds}
        for step, reward in enumerate(rewards)
    ]


def test_equal_runs_may_differ_in_time_and_memory():
    found = compare(rows(0.1, 0.2, None), rows(0.1, 0.2, None, seconds=9.0))
    assert found.equal and str(found) == "equal: 3 rows, all 6 values to the last bit"


def test_the_first_and_the_worst_difference_are_named():
    found = compare(rows(0.1, 0.2, 0.3, 0.4), rows(0.1, 0.2 + 1e-12, 0.3, 0.2))
    assert not found.equal
    first, worst = str(found).splitlines()
    assert first.startswith("differs first at step 1 in train/reward: 0.2 then, 0.2000000")
    assert worst == "2 of 8 values differ; most of all train/reward at step 3, by 50.0%"


def test_a_missing_row_or_metric_is_a_difference():
    assert str(compare(rows(0.1, 0.2), rows(0.1))) == "only one of the two has step(s) 1"
    found = compare(rows(0.1), [{"step": 0, "train/reward": 0.1, "train/loss": 1.0}])
    assert [(a.metric, a.before, a.relative) for a in found.apart] == [("train/loss", None, math.inf)]


def test_what_is_not_as_it_was_is_told_line_by_line(tmp_path):
    run = RunData(make_run(tmp_path / "run"))
    assert changed(run, ENVIRONMENT, "") == ["nothing"]
    now = ENVIRONMENT | {"versions": {"torch": "2.14.0", "vllm": "0.32.0"}, "gpus": ["a card"]}
    now["git"] = {"commit": "f" * 16, "dirty": False}
    told = changed(run, now, "")
    assert "versions.torch: 2.13.0 then, 2.14.0 now" in told and "gpus: [] then, ['a card'] now" in told
    assert f"git.commit: 0123456789abcdef then, {'f' * 16} now" in told and len(told) == 3
    (run.directory / "changes.patch").write_text("then\n")
    assert changed(run, ENVIRONMENT, "now\n") == ["uncommitted changes of the code: others than in changes.patch"]


@pytest.fixture
def engines(monkeypatch):
    """Ranks that copy the metrics of the first run."""
    monkeypatch.setattr(module, "_here", lambda: (ENVIRONMENT, ""))

    def start(config, out):
        shutil.copy(out.parent / "run" / "metrics.jsonl", out / "metrics.jsonl")
        return 0

    monkeypatch.setattr(module.launch, "start", start)


def test_the_same_configuration_runs_in_a_directory_beside_it(tmp_path, engines, capsys):
    make_run(tmp_path / "run", seed=4)
    assert rerun([str(tmp_path / "run")]) == 0
    first, again = RunData(tmp_path / "run").config, RunData(tmp_path / "run-rerun").config
    assert again | {"run.name": "run"} == first and again["run.name"] == "run-rerun" and again["seed"] == 4
    out = capsys.readouterr().out
    assert "not as it was then:\n  nothing\n" in out and "equal: 21 rows" in out
    with pytest.raises(ConfigError, match="run-rerun exists; name another with --out"):
        rerun([str(tmp_path / "run")])


def test_a_run_that_comes_out_otherwise_fails(tmp_path, engines, monkeypatch, capsys):
    make_run(tmp_path / "run")

    def start(config, out):
        changed_rows = [
            row | {"train/reward": 0.5} if row["step"] == 3 else row for row in RunData(tmp_path / "run").rows
        ]
        (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed_rows))
        return 0

    monkeypatch.setattr(module.launch, "start", start)
    assert rerun([str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 1
    assert "differs first at step 3 in train/reward" in capsys.readouterr().out


def test_a_failed_start_is_its_exit_code(tmp_path, engines, monkeypatch):
    make_run(tmp_path / "run")
    monkeypatch.setattr(module.launch, "start", lambda config, out: 7)
    assert rerun([str(tmp_path / "run")]) == 7


def test_several_runs_at_once_are_refused(tmp_path):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    with pytest.raises(ConfigError, match="name one run's own directory; there are 2 below"):
        rerun([str(tmp_path)])
