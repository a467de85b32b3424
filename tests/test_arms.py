"""Experiments with arms: one factor, and the same seeds, data and budget, or a refusal that says what is not."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rlvr import arms as module
from rlvr.arms import arms, check, load, shipped
from rlvr.keys import ConfigError
from tests.report.made_up import make_run
from tests.test_cli_errors import clean_environment

PLAIN = {
    "question": "Does the gate help?",
    "factor": ["algorithm"],
    "budget": "steps",
    "seeds": [0, 1, 2],
    "base": ["steps=20", "algorithm.group=8"],
    "arms": {"plain": ["algorithm=dapo"], "gate": ["algorithm=dapo_gate"]},
}


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(**changes) -> str:
        Path("mine.yaml").write_text(yaml.safe_dump(PLAIN | changes, sort_keys=False))
        return "mine.yaml"

    return write


@pytest.mark.parametrize("name", sorted(shipped()))
def test_shipped_experiments_are_comparisons(name):
    experiment = load(name)
    check(experiment)
    assert len(experiment.seeds) >= (3 if name == "lab_quick" else 5)


@pytest.mark.parametrize(
    ("arm", "key"),
    [
        ("optim.lr=1e-5", "optim.lr"),
        ("data.sources.arithmetic.train=100", "data.sources.arithmetic.train"),
        ("steps=30", "steps"),
        ("validation.rows=5", "validation.rows"),
    ],
)
def test_a_second_factor_is_refused(file, arm, key):
    name = file(arms={"plain": ["algorithm=dapo"], "gate": ["algorithm=dapo_gate", arm]})
    with pytest.raises(ConfigError, match=re.escape(f"arms plain and gate differ in {key} ")):
        check(load(name))


def test_a_difference_is_the_factor_where_the_file_says_so(file):
    check(load(file(arms={"fast": ["optim.lr=1e-3"], "slow": ["optim.lr=1e-5"]}, factor=["optim.lr"])))


def test_a_budget_of_sequences_is_counted(file):
    wide = {"narrow": ["algorithm.group=4", "rollout.prompts=16"], "wide": ["algorithm.group=8", "rollout.prompts=8"]}
    factor = ["algorithm.group", "rollout.prompts"]
    check(load(file(base=["steps=20"], arms=wide, factor=factor, budget="sequences")))
    wide["wide"] = ["algorithm.group=8", "rollout.prompts=16"]
    with pytest.raises(ConfigError, match="different numbers of sequences: narrow 1280, wide 2560"):
        check(load(file(base=["steps=20"], arms=wide, factor=factor, budget="sequences")))


def test_seeds_are_shared(file):
    with pytest.raises(ConfigError, match="arm plain: seed is set, but arms share their seeds: give seeds="):
        check(load(file()), ["seed=3"])
    with pytest.raises(ConfigError, match=re.escape("model.warm_seed is set, but arms share their seeds")):
        check(load(file()), ["model.warm_seed=3"])
    check(load(file()), ["model.warm_seed=${seed}", "data.sources.arithmetic.options.seed=${seed}"])
    with pytest.raises(ConfigError, match="seeds=a: write whole numbers"):
        arms([file(), "seeds=a"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": "hours"}, "budget=hours: must be one of steps, sequences"),
        ({"arms": {"one": []}}, "arms: name at least two"),
        ({"sedes": [0]}, "no others; look at sedes"),
    ],
)
def test_a_wrong_file_is_refused(file, changes, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(file(**changes))


def test_an_unknown_experiment_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean gate_alone"):
        load("gate_alon")


def test_every_arm_is_a_sweep_over_the_seeds_and_then_there_is_a_report(file, monkeypatch, capsys):
    """The command of each arm is run for real only in its shape: what it would have trained is made up."""
    commands = []

    def run(command, check):
        commands.append(command)
        words = dict(word.split("=", 1) for word in command if "=" in word)
        for seed in words["seed"].split(","):
            make_run(
                Path(words["hydra.sweep.dir"]) / seed,
                f"algorithm={words['algorithm']}",
                "algorithm.group=8",
                seed=int(seed),
            )
        return type("Ended", (), {"returncode": 0})

    monkeypatch.setattr(module.subprocess, "run", run)
    monkeypatch.setattr("rlvr.report.build.panels", lambda found: [])
    assert arms([file(), "seeds=3,4,5", "optim.lr=1e-3"]) == 0
    assert [command[3:6] for command in commands] == [["train", "-m", "steps=20"]] * 2
    assert all({"seed=3,4,5", "optim.lr=1e-3", "algorithm.group=8"} <= set(command) for command in commands)
    assert json.loads(Path("runs/mine/gate/arm.json").read_text())["arm"] == "gate"
    text = Path("runs/mine/report/report.md").read_text()
    assert "| plain | 3 (3, 4, 5) |" in text and "| gate | validation accuracy after 20 steps" in text
    assert "minus plain" in text and "gate against plain: matched in seeds, problems of all roles" in text
    assert capsys.readouterr().out.endswith("runs/mine/report/report.html\n")


@pytest.mark.parametrize(("ended", "code"), [(130, 130), (85, 85), (-9, 137)])
def test_an_arm_that_is_stopped_ends_the_experiment(file, monkeypatch, ended, code):
    calls = []
    monkeypatch.setattr(
        module.subprocess, "run", lambda command, check: calls.append(1) or type("Ended", (), {"returncode": ended})
    )
    assert arms([file()]) == code and calls == [1]


# The ranks only pretend: a run's files are there at once, and the first start of the arm `gate` with seed 4 is killed.
PRETEND = """
import json
import os
import rlvr.launch

def start(config, run_dir):
    print("STARTED", run_dir.parent.name, config.seed, flush=True)
    if run_dir.parent.name == "gate" and config.seed == 4 and not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), 9)
    rows = [{"step": step, "validation/accuracy": step / 40, "train/loss": 0.1} for step in (0, 20)]
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    (run_dir / "summary.json").write_text(json.dumps({"first": rows[0], "last": rows[1]}))
    return 0

rlvr.launch.start = start
"""


def test_a_killed_experiment_goes_on_where_it_was(file, tmp_path):
    (tmp_path / "pretend").mkdir()
    (tmp_path / "pretend" / "sitecustomize.py").write_text(PRETEND)
    paths = os.pathsep.join(map(str, (tmp_path / "pretend", Path(module.__file__).parents[1])))
    command = [sys.executable, "-m", "rlvr.cli", "arms", file(), "seeds=3,4"]

    def run():
        done = subprocess.run(
            command, env=clean_environment() | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=120
        )
        return done, re.findall(r"STARTED (.*)", done.stdout)

    done, started = run()
    assert (done.returncode, started) == (137, ["plain 3", "plain 4", "gate 3", "gate 4"]), done.stderr
    assert "arm gate was stopped, exit code 137; the same command goes on" in done.stderr
    assert not Path("runs/mine/report").exists()
    done, started = run()
    assert (done.returncode, started) == (0, ["gate 4"]), done.stderr
    text = Path("runs/mine/report/report.md").read_text()
    assert "| plain | 2 (3, 4) |" in text and "| gate | 2 (3, 4) |" in text
