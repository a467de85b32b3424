"""The scripts that measure: what they make of arguments and of numbers; what they measure is not run here."""

import importlib
import random
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parent.parent / "scripts" / "bench"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


def test_what_is_not_a_setting_is_for_the_run(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = script("_runs")
    monkeypatch.setattr(sys, "argv", ["x.py", "steps=3", "hardware=gpu1", "data.seed=4"])
    assert runs.settings_and_overrides(steps="9", work="tiny") == (
        {"steps": "3", "work": "tiny"},
        ["hardware=gpu1", "data.seed=4"],
    )
    with pytest.raises(SystemExit, match="unknown: hardware=gpu1"):
        runs.settings(steps="9")


def test_folders_differ_where_settings_do_and_hydra_can_read_them(script: Any) -> None:
    slug = script("_runs").slug
    told = [slug("tiny", "rollout.prompts=2"), slug("tiny", "rollout.prompts=3"), slug("x" * 90), slug("x" * 91)]
    assert len(set(told)) == 4
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-_") for name in told)


def test_a_slope_is_found_with_its_interval(script: Any) -> None:
    draw = random.Random(0)
    steps = [float(step) for step in range(2000)]
    noisy = [5.0 + 0.001 * step + draw.gauss(0, 0.5) for step in steps]
    line = script("flat").Line.through(steps, noisy, 20)
    assert 0 < line.half < 2e-4
    assert abs(line.slope - 0.001) < 2 * line.half
    level = script("flat").Line.through(steps, [draw.gauss(5, 0.5) for _ in steps], 20)
    assert abs(level.slope) < 2 * level.half


def test_the_floor_takes_each_least_part_of_the_fastest_layout(script: Any) -> None:
    def update(*seconds: float) -> dict[str, float]:
        return dict(zip(("forward", "backward", "optimizer"), seconds, strict=True))

    measured = {
        "seconds": {"generate": [3.0, 2.0], "transfer": [0.1, 0.2]},
        "updates": {"packed, shared": [update(1, 4, 1), update(2, 3, 1)], "padded": [update(0.5, 5, 1)]},
    }
    told, layout = script("floor").least(measured)
    assert layout == "packed, shared"
    assert told == {"generate": 2.0, "transfer": 0.1, "forward": 1, "backward": 3, "optimizer": 1}


def test_all_that_is_to_be_run_is_there(script: Any) -> None:
    scripts = runpy.run_path(str(BENCH / "__main__.py"), run_name="bench")["SCRIPTS"]
    assert {name for name, *_ in scripts} <= {path.stem for path in BENCH.glob("[a-z]*.py")}
