"""`rlvr plan` as a user meets it: recipes fit, misfits are named with what would help, and no torch is needed."""

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr import manual, plan_cli
from rlvr.config import compose
from rlvr.keys import ConfigError
from rlvr.plan.fit import Room, changes, judge, problems, room_of, with_change
from rlvr.plan.memory import GIB, TIGHT
from rlvr.plan.report import spelled, text
from rlvr.plan.shapes import shape_of
from rlvr.plan.work import Work
from rlvr.trainer import misfit as warning

ROOT = Path(__file__).parent.parent
BIG = ["hardware=gpu1", "model=qwen2_5_7b", "data=math"]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    code = (
        "import sys; from rlvr.cli import main; code = main(); "
        "print('heavy', [m for m in ('torch', 'transformers', 'vllm') if m in sys.modules]); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "plan", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=os.environ | {"COLUMNS": "200"})


def test_a_plan_is_printed_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run("experiment=dapo_qwen2_5_math_7b", "hardware.machine.nodes=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "heavy []" in done.stdout
    assert "16 x cuda on 2 machine(s)" in done.stdout and "verdict fits" in done.stdout
    for word in (
        "policy, moments",
        "16 ranks",
        "saved activations",
        "seconds of a step",
        "tokens/s per device",
        "days",
    ):
        assert word in done.stdout, word
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_ends_with_1_and_says_what_would(tmp_path: Path) -> None:
    done = run(*BIG, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "verdict does not fit" in done.stdout
    assert "most of it policy, moments" in done.stdout
    assert "it fits with hardware.offload_optimizer=true" in done.stdout


def test_mistakes_are_those_of_train(tmp_path: Path) -> None:
    done = run("algorithm.groop=3", cwd=tmp_path)
    assert done.returncode == 2 and "did you mean algorithm.group?" in done.stderr


def test_a_batch_must_divide_among_all_machines() -> None:
    config = compose(["experiment=gsm8k_qwen2_5_1_5b"])
    with pytest.raises(ConfigError, match="does not divide among 24 rank"):
        plan_cli.make(config, 24)


@pytest.mark.parametrize("name", manual.choices("experiment"))
def test_every_recipe_fits_on_the_hardware_that_it_names(name: str) -> None:
    config = compose([f"experiment={name}"])
    room = Room(24 * GIB, 24 * GIB) if config.hardware.device == "cpu" else room_of(config.hardware)
    verdict = judge(config, config.hardware.ranks, shape_of(config.model), room)
    assert verdict.state == "fits", verdict


@pytest.mark.parametrize("name", manual.choices("machine"))
def test_every_machine_describes_a_gpu(name: str) -> None:
    made = plan_cli.make(compose([f"machine={name}", "hardware=gpu1", "model=qwen2_5_1_5b", "data=gsm8k"]), 1)
    assert made.time is not None and 0 < made.time.mfu < 1


@pytest.mark.parametrize(
    ("overrides", "world"),
    [
        (BIG, 1),
        (["experiment=qae_qwen3_8b", "machine=a100_40"], 8),
        ([*BIG, "hardware=gpu8", "machine=rtx4090", "rollout.prompts=64"], 8),
        (["experiment=ppo_math_1_5b", "machine=a100_40", "hardware.sampler_sleep=false"], 4),
    ],
)
def test_the_proposal_fits_and_nothing_smaller_does(overrides: list[str], world: int) -> None:
    config = compose(overrides)
    shape, room = shape_of(config.model), room_of(config.hardware)
    verdict = judge(config, world, shape, room)
    assert verdict.state == "does not fit" and verdict.change
    work = Work.of(config, world)
    assert not problems(with_change(work, verdict.change), shape, room, True, TIGHT)
    smaller = [c for c in changes(work) if len(c) < len(verdict.change)]
    assert all(problems(with_change(work, c), shape, room, True, TIGHT) for c in smaller)
    compose([*overrides, *spelled(verdict.change).split()])  # and the command line takes it


def test_a_model_that_is_too_large_for_everything_says_so() -> None:
    config = compose([*BIG, "machine=rtx4090"])
    room = Room(4 * GIB, 4 * GIB)
    verdict = judge(config, 1, shape_of(config.model), room)
    assert verdict.state == "does not fit" and verdict.change is None
    made = replace(plan_cli.make(config, 1), verdict=verdict)
    assert "take more or larger devices" in text(made)


def test_a_cpu_run_has_its_memory_planned_without_times() -> None:
    page = text(plan_cli.make(compose([]), 1))
    assert "scripts/bench/plan.py measures them" in page and "sampler, KV cache" in page


def test_training_warns_before_the_engines_start(monkeypatch: Any) -> None:
    world: Any = SimpleNamespace(size=1, local_size=1)
    assert warning.misfit(compose([]), world) == []
    monkeypatch.setattr(warning, "host_memory", lambda: 1.0 * GIB)
    lines = warning.misfit(compose([]), world)
    assert "NOT fit" in lines[0] and "of 1.0 GiB" in lines[1]
    config = compose(["model=qwen2_5_7b", "data=math", "model.path=nobody/nothing"])
    assert "was not planned" in warning.misfit(config, world)[0]


def test_the_page_on_scaling_has_the_table_that_its_script_prints(monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "bench"))
    table = importlib.import_module("scaling").scaling()
    assert table in (ROOT / "docs" / "scaling.md").read_text(), "run scripts/bench/scaling.py"
