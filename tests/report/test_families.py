"""Which runs are one family, what families are called, and how many configurations were tried."""

import pytest
import yaml

from rlvr.keys import ConfigError
from rlvr.report.build import build
from rlvr.report.families import configurations_tried, families, what_seeds_vary
from rlvr.report.problems import shared
from rlvr.report.runs import find_runs
from tests.report.made_up import make_run, two_families


def told(path):
    return [(family.name, family.seeds) for family in families(find_runs([path]))]


def test_runs_that_differ_by_seed_name_and_records_are_one_family(tmp_path):
    make_run(tmp_path / "b", seed=1)
    make_run(tmp_path / "a", seed=0, config={"log.samples": 3})
    assert told(tmp_path) == [("grpo", [0, 1])]


def test_families_are_named_after_what_was_chosen_and_what_differs(tmp_path):
    two_families(tmp_path, seeds=1)
    make_run(tmp_path / "slow", "algorithm=grpo", "optim.lr=1e-5")
    names = [name for name, _ in told(tmp_path)]
    assert names == ["dapo_gate lr=0.0003", "grpo lr=0.0003", "grpo lr=1e-05"]  # dapo_gate is of armor's class


def test_seeds_of_data_make_other_problems_but_no_other_family(tmp_path):
    for seed in range(2):
        make_run(tmp_path / str(seed), seed=seed, config={"data.sources.arithmetic.options.seed": seed})
    (family,) = families(find_runs([tmp_path]))
    assert len(family.runs) == 2
    assert shared(family.runs, "validation") == shared(family.runs, "test") == []
    assert shared(family.runs[:1], "test") == sorted(family.runs[0].test)


def test_what_is_given_in_terms_of_the_seed_makes_no_other_family(tmp_path):
    for seed in range(2):
        for start in ("best", "last"):
            run = make_run(
                tmp_path / start / str(seed),
                "model=any",
                f"model.path=runs/seed{seed}/{start}",
                seed=seed,
            )
            told_there = [f"model.path=runs/seed$\\{{seed\\}}/{start}", f"seed={seed}"]
            (run / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(told_there))
    found = families(find_runs([tmp_path]))
    assert [family.seeds for family in found] == [[0, 1], [0, 1]]
    assert [family.computed["model.path"] for family in found] == ["runs/seed${seed}/best", "runs/seed${seed}/last"]
    assert "the starting model (model.path)" in what_seeds_vary(found[0].runs)


def test_one_draw_of_luck_counts_once(tmp_path, monkeypatch):
    monkeypatch.setattr("rlvr.report.build.panels", lambda found: [])
    make_run(tmp_path / "first", seed=0)
    make_run(tmp_path / "again", seed=0)
    assert told(tmp_path) == [("grpo", [0])]
    build([tmp_path], tmp_path / "report")
    left_out = f"Same configuration and seeds as a later one, and left out: {tmp_path / 'again'}"
    assert left_out.replace("_", "\\_") in (tmp_path / "report" / "report.md").read_text()


def test_all_members_of_a_sweep_count_as_tried(tmp_path):
    for number, lr in enumerate(("1e-3", "1e-4", "1e-5")):
        run = make_run(tmp_path / "sweep" / f"{number}", f"optim.lr={lr}")
        (run / "member.json").write_text('{"state": "finished"}')
    runs = find_runs([tmp_path / "sweep" / "0"])
    assert configurations_tried(runs) == (3, [(tmp_path / "sweep").resolve()])
    alone = find_runs([make_run(tmp_path / "elsewhere" / "run")])
    make_run(tmp_path / "elsewhere" / "unrelated", "optim.lr=1e-3")
    assert configurations_tried(alone) == (1, [])


def test_a_directory_without_runs_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no run in it or below"):
        find_runs([tmp_path])


def test_what_seeds_vary_is_told(tmp_path):
    for seed in range(3):
        keys = ("model.warm_seed", "data.sources.arithmetic.options.seed")
        make_run(
            tmp_path / "all" / str(seed), seed=seed, config=dict.fromkeys(keys, seed), sources=("arithmetic", "far")
        )
        make_run(tmp_path / "few" / str(seed), "algorithm=dapo", seed=seed)
    everything, sampling = families(find_runs([tmp_path]))
    assert what_seeds_vary(everything.runs) == (
        "sampling and the order of prompts, the starting model (model.warm_seed), sampling of the reference, "
        "the problems of arithmetic; the same in all seeds: the problems of far"
    )
    assert what_seeds_vary(sampling.runs).endswith(
        "the same in all seeds: the starting model, the problems of arithmetic"
    )
    assert what_seeds_vary(sampling.runs[:1]) == "nothing, there is one seed"
