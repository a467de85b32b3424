"""What a member's files say, and what is made of several of them."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlvr.naming import member_folder
from rlvr.sweep import sweep
from rlvr.sweep.member import Member, Owner, State, aborted, collapse, last_line, members, progress, read, swept
from rlvr.sweep.table import markdown, mean_interval, over_seeds, rows, write_tables

INTERVAL = {"validation/accuracy_low": 0.1, "validation/accuracy_high": 0.9}


def write_rows(directory: Path, *told: dict[str, Any], name: str = "metrics.jsonl") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text("".join(json.dumps(row) + "\n" for row in told))


def member(sweep_dir: Path, number: int, state: State, accuracy: float | None, *overrides: str) -> None:
    directory = sweep_dir / member_folder(overrides)
    if accuracy is not None:
        write_rows(directory, {"step": 1, "validation/accuracy": accuracy, "time/step": 2.0, **INTERVAL})
    Member(directory, number, overrides, state, "why" if state is State.FAILED else "").write()


# -- directories -------------------------------------------------------------------------------


def test_a_folder_is_readable_and_begins_with_groups_and_seed() -> None:
    folder = member_folder(["optim.lr=1e-3", "seed=2", "algorithm=dapo", "run.name=x", "sweep.fail_fast=true"])
    assert folder.startswith("algorithm-dapo-seed-2-lr-1e-3-")
    assert folder == member_folder(["algorithm=dapo", "seed=2", "optim.lr=1e-3"])


@pytest.mark.parametrize("value", ["'a b'", r"a\=b", '"${x}/../é"', "[1,2]", "{a: b}", "x" * 500, "", "%j", "a:b"])
def test_a_folder_is_a_plain_short_name(value: str) -> None:
    folder = member_folder([f"data.template={value}"])
    assert folder.isascii() and len(folder) < 120
    assert set(folder) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert not folder.startswith((".", "-"))


def test_folders_of_different_overrides_differ() -> None:
    long = "x" * 500
    several = [["a=1", "b=2"], ["a=1,b=2"], ["a=1 b=2"], [f"a={long}1"], [f"a={long}2"], ["+a=1"], []]
    assert len({member_folder(overrides) for overrides in several}) == len(several)


# -- the run -----------------------------------------------------------------------------------


def test_the_objective_is_the_best_or_last_validation_after_a_step(tmp_path: Path) -> None:
    accuracies = [0.9, 0.2, None, 0.6, 0.4]  # that of the untrained model does not count
    lines = [
        {"step": i, "time/step": 2.0} | ({"validation/accuracy": a} if a else {}) for i, a in enumerate(accuracies)
    ]
    lines[3] |= INTERVAL
    write_rows(tmp_path, *lines)
    best, last = progress(tmp_path, "best"), progress(tmp_path, "last")
    assert (best.objective, best.interval, best.step, best.seconds) == (0.6, (0.1, 0.9), 4, 8.0)
    assert (last.objective, last.interval) == (0.4, None)
    assert progress(tmp_path / "nothing", "best").objective is None


def test_nothing_measured_on_the_test_role_reaches_the_objective(tmp_path: Path) -> None:
    write_rows(tmp_path, {"step": 1, "validation/accuracy": 0.5})
    before = progress(tmp_path, "best")
    for name in ("test/accuracy", "test/accuracy_low", "test/length"):
        write_rows(tmp_path, {"step": 1, "validation/accuracy": 0.5, name: 1.0})
        assert dataclasses.replace(progress(tmp_path, "best"), last=before.last) == before
    (tmp_path / "summary.json").write_text(json.dumps({"first": {}, "last": {"test/accuracy": 1.0}}))
    assert progress(tmp_path, "best").objective == 0.5
    write_rows(tmp_path, {"step": 1, "test/accuracy": 1.0})
    assert progress(tmp_path, "best").objective is None


def test_a_collapsed_run_is_told_from_one_that_is_done(tmp_path: Path) -> None:
    write_rows(tmp_path, {"step": 1, "train/loss": 0.1})
    assert collapse(tmp_path) == ""
    plateau = {"step": 1, "event": "stop", "cause": "trigger t: validation_plateau, 0.5 is the best"}
    write_rows(tmp_path, plateau, name="events.jsonl")
    assert collapse(tmp_path) == ""
    write_rows(tmp_path, {"step": 1, "event": "stop", "cause": "trigger t: entropy_collapse"}, name="events.jsonl")
    assert "entropy_collapse" in collapse(tmp_path) and aborted(tmp_path) == ""
    write_rows(tmp_path, {"step": 1, "event": "abort", "cause": "health.entropy: it is 0"}, name="events.jsonl")
    assert aborted(tmp_path) == "health.entropy: it is 0" and collapse(tmp_path) == ""
    write_rows(tmp_path, {"step": 2, "train/loss": None})
    assert collapse(tmp_path) == "train/loss is not finite at step 2"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("rank 0 failed:\nTraceback (most recent call last):\n  File\nValueError: bad\n", "ValueError: bad"),
        ("rlvr.keys.ConfigError: a=1: no\n\nDuring handling\nKeyError: 'x'\n  note", "KeyError: 'x'"),
        ("rlvr train: steps=0: must be at least 1", "steps=0: must be at least 1"),
        ("rank 1 failed:\nkilled by SIGKILL, often the kernel's", "killed by SIGKILL, often the kernel's"),
        ("", ""),
    ],
)
def test_the_line_that_names_the_cause(text: str, line: str) -> None:
    assert last_line(text) == line


# -- the file ----------------------------------------------------------------------------------


def test_a_member_survives_its_file(tmp_path: Path) -> None:
    one = Member(tmp_path / "a", 3, ("seed=1", 'x="ü"')).at(State.RUNNING)
    one.write()
    assert read(tmp_path / "a") == one and one.owner == Owner.this() and one.owner.alive()
    assert read(tmp_path) is None
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["member.json"]


def test_a_member_whose_process_is_gone_is_interrupted(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    running = Member(tmp_path / "a", 0, ()).at(State.RUNNING)
    assert running.owner is not None
    stat = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    owner = dataclasses.replace(running.owner, pid=child.pid, born=stat)
    dataclasses.replace(running, owner=owner).write()
    found = read(tmp_path / "a")
    assert found and found.state is State.RUNNING
    child.communicate(b"\n")
    found = read(tmp_path / "a")
    assert found and found.state is State.INTERRUPTED
    assert not dataclasses.replace(owner, pid=os.getpid()).alive()  # a later process of the same number
    assert not dataclasses.replace(owner, host="elsewhere", pid=os.getpid()).alive()


# -- the table ---------------------------------------------------------------------------------


def test_members_are_named_by_what_differs(tmp_path: Path) -> None:
    member(tmp_path, 0, State.WAITING, None, "steps=3", "algorithm=dapo", "seed=1")
    assert swept(members(tmp_path)) == ["steps", "algorithm", "seed"]
    member(tmp_path, 1, State.WAITING, None, "steps=3", "algorithm=dapo", "seed=2")
    assert swept(members(tmp_path)) == ["seed"]
    member(tmp_path, 2, State.WAITING, None, "steps=3", "seed=3", "+optim.lr=1")
    assert swept(members(tmp_path)) == ["algorithm", "seed", "optim.lr"]


def test_seeds_are_averaged_and_three_of_them_have_an_interval(tmp_path: Path) -> None:
    for number, (algorithm, seed, accuracy) in enumerate(
        [("dapo", 1, 0.2), ("dapo", 2, 0.4), ("dapo", 3, 0.6), ("armor", 1, 0.1), ("armor", 2, 0.3)]
    ):
        member(tmp_path, number, State.FINISHED, accuracy, f"algorithm={algorithm}", f"seed={seed}")
    member(tmp_path, 5, State.FAILED, 0.9, "algorithm=armor", "seed=3")
    dapo, armor = over_seeds(rows(tmp_path, "best"))
    assert (dapo["algorithm"], dapo["seeds"], dapo["mean"]) == ("dapo", 3, pytest.approx(0.4))
    assert dapo["95%"] == pytest.approx((0.4 - 4.30265 * 0.2 / 3**0.5, 0.4 + 4.30265 * 0.2 / 3**0.5), rel=1e-5)
    assert (armor["seeds"], armor["of"], armor["mean"], armor["95%"]) == (2, 3, pytest.approx(0.2), None)
    text = markdown(rows(tmp_path, "best"), "best")
    assert "2 of 3" in text and "1 failed, 5 finished" in text and "| why" in text


def test_the_quantiles_are_those_of_student() -> None:
    stats = pytest.importorskip("scipy.stats")
    for n in range(3, 18):
        values = [0.0] * (n - 1) + [1.0]
        low, high = mean_interval(values) or (0.0, 0.0)
        expected = stats.t.interval(0.95, n - 1, loc=1 / n, scale=stats.sem(values))
        assert (low, high) == pytest.approx(expected, abs=2e-4)
    assert mean_interval([0.1, 0.2]) is None


def test_the_table_is_written_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    member(tmp_path, 0, State.FINISHED, 0.5, "seed=1", "data.template=a|b")
    member(tmp_path, 1, State.FAILED, None, "seed=2", "data.template=c")
    write_tables(tmp_path, "best")
    told = [json.loads(line) for line in (tmp_path / "sweep.jsonl").read_text().splitlines()]
    assert [(t["member"], t["state"], t["objective"]) for t in told] == [(0, "finished", 0.5), (1, "failed", None)]
    assert told[0]["swept"] == {"seed": "1", "data.template": "a|b"} and told[0]["interval"] == [0.1, 0.9]
    assert sweep(["show", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown == (tmp_path / "sweep.md").read_text()
    assert len({line.replace("\\|", "  ").count("|") for line in shown.splitlines()[:4]}) == 1
