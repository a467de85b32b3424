"""The check of worked numbers: it agrees where they are right, and says so by name where it cannot."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from rlvr.ops.check import KINDS, kind_of, main

WORKED = Path(__file__).parents[2].parent / "shared" / "design" / "worked_examples.json"

TOKENS = {
    "logp": [[-1.1, -0.45, -1.8, -0.62], [-0.6, -2.0]],
    "old_logp": [[-1.2, -0.7, -2.0, -0.3], [-0.9, -1.5]],
    "adv": [0.7071057811879616, -0.7071057811879616],
}
CASES: dict[str, dict[str, Any]] = {
    "dapo_two_rows": {
        "inputs": TOKENS | {"eps_low": 0.2, "eps_high": 0.28},
        "expected": {
            "loss": -0.2572526145484492,
            "grad": [
                [-0.13024545756201622, 0.0, -0.1439434919089963, -0.08557736368647972],
                [0.15908216110408002, 0.0],
            ],
        },
    },
    "cispo_two_sided_verl_0p2_0p28": {
        "inputs": TOKENS | {"clip": "two_sided_verl_0p2_0p28"},
        "expected": {"loss": 0.24963344001781154},
    },
    "gae_one_row": {
        "inputs": {"rewards": [0.0, 0.0, 0.0, 1.0], "values": [0.5, 0.6, 0.4, 0.7], "gamma": 1.0, "lam": 0.95},
        "expected": {
            "advantages": [0.4379625, 0.35575, 0.585, 0.30000000000000004],
            "whitened_ddof1_eps1e_8": [
                0.14753889360039663,
                -0.5158439833162399,
                1.334002749639685,
                -0.965697659923842,
            ],
        },
    },
    "tis_other_bounds": {
        "inputs": {
            "old_logp_trainer": [[-1.0, -0.5, -2.0], [-0.7, -1.2]],
            "rollout_logp": [[-1.1, -0.5, -3.2], [-0.6, -0.4]],
            "adv": [1.0, -1.0],
        },
        "expected": {
            "token_mask_0p9_2": [[1.1051709180756477, 1.0, 0.0], [0.9048374180359596, 0.0]],
            "geo_mean": [1.5423902651101746, 0.6376281516217733],
            "mismatch_k1": -0.08000000000000007,
        },
    },
    "advantage_qae_g4": {
        "inputs": {"group_size": 4, "K": [0.5]},
        "expected": {"correct=0_of_4": {"K=0.5": {"baseline_paper": 0.0, "adv_correct_paper": None}}},
    },
    "armor_gate": {
        "inputs": {"n_on": 3, "n_ref": 2},
        "expected": {"cases": [{"on_correct": 1, "ref": [0, 1], "keep": True, "anchor_index": 1}]},
    },
    "pass_at_k": {"inputs": {}, "expected": {"n=16,c=3,k=8": 0.9, "n=16,c=0,k=1": 0.0}},
}


def run(cases: dict[str, Any], tmp_path: Path) -> int:
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps({"cases": cases}))
    return main([str(path)])


@pytest.mark.skipif(not WORKED.exists(), reason="the shared file of worked examples is not here")
def test_every_shared_worked_example_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(WORKED)]) == 0, capsys.readouterr().out


def test_right_numbers_agree_one_line_per_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(CASES, tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [["ok", name] for name in CASES]


def leaves(x: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else None
    if items is None:
        return [path]
    return [leaf for key, value in items for leaf in leaves(value, (*path, key))]


@pytest.mark.parametrize("name", CASES)
def test_any_wrong_number_is_a_miss(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = kind_of(name).given
    for path in leaves(CASES[name]["expected"]):
        if given.intersection(map(str, path)):
            continue
        case = copy.deepcopy(CASES[name])
        inside = case["expected"]
        for key in path[:-1]:
            inside = inside[key]
        right = inside[path[-1]]
        inside[path[-1]] = not right if isinstance(right, bool) else 1e-9 if not right else right * (1 + 1e-9)
        assert run({name: case}, tmp_path) == 1, path
        assert "FAIL" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "case", "told"),
    [
        ("sarsa_beta1", CASES["dapo_two_rows"], "unknown kind"),
        ("dapo_x", CASES["dapo_two_rows"] | {"expected": {"loss": -0.2572526145484492, "regret": 1.0}}, "regret"),
        ("dapo_x", CASES["dapo_two_rows"] | {"expected": {}}, "nothing is expected"),
        ("dapo_x", {"inputs": {"logp": [[-1.0]]}, "expected": {"loss": 0.0}}, "old_logp"),
        ("cispo_x", {"inputs": TOKENS | {"clip": "sideways"}, "expected": {"loss": 0.0}}, "sideways"),
        ("dapo_x", {"inputs": CASES["dapo_two_rows"]["inputs"], "expected": {"grad": [[0.0], [0.0]]}}, "4 got|got 4"),
    ],
)
def test_what_cannot_be_verified_is_an_error_by_name(
    name: str, case: dict[str, Any], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run({"pass_at_k": CASES["pass_at_k"], name: case}, tmp_path) == 1
    out = capsys.readouterr().out
    assert any(part in out for part in told.split("|")) and f"not {name}" in out


@pytest.mark.parametrize("content", ["{}", '{"cases": {}}', "[1]", "not json", '{"cases": {"dapo": 3}}'])
def test_a_file_without_cases_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    path.write_text(content)
    assert main([str(path)]) == 2
    assert main([str(tmp_path / "absent.json")]) == main([]) == 2


def test_longest_name_wins() -> None:
    assert kind_of("armor_gate_keep_probability") is KINDS["armor_gate_keep"]
    assert kind_of("armor_gate") is KINDS["armor_gate"]
