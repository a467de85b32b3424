"""`rlvr train -m` with ranks that only pretend, whichever launcher starts them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlvr.sweep.member import members
from rlvr.sweep.run import REQUEUE
from tests.test_cli_errors import clean_environment

# Imported by every Python that starts.  The accuracy of a run is its group / 100; a group of 5 ends with exit code 7,
# one of 6 breaks, one of 7 collapses, one of 3 is told to leave at its first start.
PRETEND = """
import json
import rlvr.launch

def start(config, run_dir):
    group = config.algorithm.group
    print("STARTED", run_dir.name, flush=True)
    if group == 6:
        raise RuntimeError("the ranks broke")
    if group == 5:
        return 7
    if group == 3 and not (run_dir / "saved").exists():
        (run_dir / "saved").touch()
        return 85
    row = {"step": 1, "validation/accuracy": group / 100, "train/loss": None if group == 7 else 0.1}
    (run_dir / "metrics.jsonl").write_text(json.dumps(row) + "\\n")
    return 0

rlvr.launch.start = start
"""


class Command:
    """Runs rlvr in a folder of its own."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        (cwd / "pretend").mkdir()
        (cwd / "pretend" / "sitecustomize.py").write_text(PRETEND)

    def __call__(self, *arguments: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, (str(self.cwd / "pretend"), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [sys.executable, "-m", "rlvr.cli", *arguments],
            cwd=self.cwd,
            env=clean_environment() | {"PYTHONPATH": path} | env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def sweep(self, *arguments: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        return self("train", "-m", "run.name=s", *arguments, code=code, **env)

    def told(self) -> list[dict[str, Any]]:
        lines = (self.cwd / "runs" / "s" / "sweep.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def log(self, folder: str) -> str:
        return (self.cwd / "runs" / "s" / folder / "train.log").read_text()


@pytest.fixture
def rlvr(tmp_path: Path) -> Command:
    return Command(tmp_path)


def started(done: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"STARTED (\S+)", done.stdout)


def test_a_sweep_goes_on_after_failures_and_the_same_command_takes_up_what_failed(rlvr: Command) -> None:
    done = rlvr.sweep("algorithm.group=4,0,5,6,7,8,abc,8", code=1)
    told = {t["swept"]["algorithm.group"]: t for t in rlvr.told()}
    assert {group: t["state"] for group, t in told.items()} == {
        "4": "finished",
        "0": "failed",
        "5": "failed",
        "6": "failed",
        "7": "pruned",
        "8": "finished",
        "abc": "failed",
    }
    causes = {group: t["cause"] for group, t in told.items() if t["cause"]}
    assert causes == {
        "0": "algorithm.group=0: must be at least 1 sequences",
        "5": "exit code 7",
        "6": "RuntimeError: the ranks broke",
        "7": "train/loss is not finite at step 1",
        "abc": "algorithm.group=abc: must be an integer",
    }
    assert causes["0"] in rlvr.log(told["0"]["directory"]) and causes["abc"] in rlvr.log(told["abc"]["directory"])
    assert "Traceback" in rlvr.log(told["6"]["directory"]) and rlvr.log(told["4"]["directory"]) == ""
    assert len(started(done)) == 5 and told["8"]["objective"] == 0.08
    assert "asked for again" in done.stdout  # the second 8
    assert "4 failed, 1 pruned, 2 finished" in done.stdout
    assert done.stdout.index("refused: algorithm.group=abc") < done.stdout.index("STARTED")  # all are checked first

    again = rlvr.sweep("algorithm.group=4,5,7,8,9", code=1)
    new = rlvr.told()[-1]
    assert (new["member"], new["swept"]["algorithm.group"]) == (7, "9")  # the others keep their numbers
    assert started(again) == [told["5"]["directory"], new["directory"]]
    assert started(rlvr.sweep("algorithm.group=4,7,9")) == []


def test_a_sweep_that_is_told_to_leave_goes_on_with_the_same_command(rlvr: Command) -> None:
    rlvr.sweep("algorithm.group=4,3,8", code=REQUEUE)
    assert [t["state"] for t in rlvr.told()] == ["finished", "interrupted", "waiting"]
    again = rlvr.sweep("algorithm.group=4,3,8")
    assert started(again) == [t["directory"] for t in rlvr.told()[1:]] and "3 finished" in again.stdout


def test_a_finished_member_is_not_taken_for_one_of_another_configuration(rlvr: Command) -> None:
    for name, steps in (("mine", 3), ("mine", 4)):
        (rlvr.cwd / "experiment").mkdir(exist_ok=True)
        (rlvr.cwd / "experiment" / f"{name}.yaml").write_text(f"# @package _global_\nsteps: {steps}\n")
        done = rlvr.sweep("experiment=mine", "seed=1,2", "--config-dir=.", code=int(steps == 4))
    assert started(done) == [] and "finished under another configuration (see steps)" in done.stdout


def test_fail_fast(rlvr: Command) -> None:
    refused = rlvr.sweep("sweep.fail_fast=true", "algorithm.group=4,abc", code=2)
    assert started(refused) == [] and refused.stderr.count("\n") == 1
    assert "a member is refused: algorithm.group=abc: must be an integer" in refused.stderr
    rlvr.sweep("sweep.fail_fast=true", "algorithm.group=4,6,8", code=1)
    assert [t["state"] for t in rlvr.told()] == ["finished", "failed", "waiting"]


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("override /hydra/launcher: submitit_local", "hydra.launcher is set by one of"),
        ("override /hydra/sweeper: optuna", "hydra.sweeper is set by one of"),
    ],
)
def test_a_launcher_inside_a_swept_configuration_is_refused(choice: str, told: str, rlvr: Command) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    pytest.importorskip("optuna")
    (rlvr.cwd / "experiment").mkdir()
    (rlvr.cwd / "experiment" / "a.yaml").write_text(f"# @package _global_\ndefaults:\n  - {choice}\n")
    (rlvr.cwd / "experiment" / "b.yaml").write_text("# @package _global_\nsteps: 3\n")
    done = rlvr.sweep("experiment=b,a", "--config-dir=.", code=2)
    assert told in done.stderr and "on the command line" in done.stderr and started(done) == []


@pytest.mark.parametrize("choice", ["hydra/launcher=submitit_slurm", "hydra/sweeper=optuna"])
def test_what_is_not_installed_is_named_with_its_command(choice: str, rlvr: Command) -> None:
    path = rlvr.cwd / "pretend" / "sitecustomize.py"
    path.write_text("import sys\nsys.modules['hydra_plugins'] = None\n")
    done = rlvr.sweep(choice, "seed=1,2", code=2)
    assert done.stderr.startswith(f"rlvr train: {choice} is not installed: pip install 'rlvr[sweep]'")


def test_ranks_do_not_sweep(rlvr: Command) -> None:
    done = rlvr.sweep("seed=1,2", code=2, RANK="0", WORLD_SIZE="2", TORCHELASTIC_RUN_ID="a")
    assert "every rank would sweep" in done.stderr


def test_jobs_of_another_process_keep_the_same_table(rlvr: Command) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    rlvr.sweep("hydra/launcher=submitit_local", "algorithm.group=4,6", r"data.template='{question}\=?'", code=1)
    assert [(t["state"], t["cause"]) for t in rlvr.told()] == [
        ("finished", ""),
        ("failed", "RuntimeError: the ranks broke"),
    ]
    assert "RuntimeError: the ranks broke" in rlvr.log(rlvr.told()[1]["directory"])


def test_optuna_maximises_and_what_failed_is_no_value(rlvr: Command) -> None:
    pytest.importorskip("optuna")
    choice = ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "algorithm.group=choice(4,6,7,8)"]
    first = rlvr.sweep(*choice, "hydra.sweeper.n_jobs=2", code=1)
    states = {t["swept"]["algorithm.group"]: t["state"] for t in rlvr.told()}
    best = max((g for g, state in states.items() if state == "finished"), key=int)
    results = (rlvr.cwd / "runs" / "s" / "optimization_results.yaml").read_text()
    assert f"algorithm.group: {best}" in results and f"best_value: 0.0{best}" in results
    again = rlvr.sweep(*choice, "hydra.sweeper.n_jobs=2", code=1)  # asks for the same members, with the same values
    assert set(started(again)) < set(started(first)) and "left alone" in again.stdout
    assert (rlvr.cwd / "runs" / "s" / "optimization_results.yaml").read_text() == results
    wrong = rlvr.sweep(*choice, "hydra.sweeper.direction=minimize", code=2)
    assert "an accuracy is maximised" in wrong.stderr
    none = rlvr.sweep("hydra/sweeper=optuna", "hydra.sweeper.n_trials=1", "algorithm.group=choice(5,6)", code=1)
    assert "no member has a value" in none.stdout + none.stderr


def test_the_code_of_a_run_that_saved_is_the_trainers() -> None:
    from rlvr.trainer.run import REQUEUE as TRAINERS

    assert REQUEUE == TRAINERS


def test_members_are_found_where_there_are_none(tmp_path: Path) -> None:
    assert members(tmp_path) == []
