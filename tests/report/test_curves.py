"""Curves over seeds, at matched steps, sequences and seconds; differences, and what they are matched in."""

import json

import numpy as np
import pytest

from rlvr.ops.resample import difference as difference_of
from rlvr.report.compare import aspects, differences, validated
from rlvr.report.curves import ACCURACY, common_end, curve
from rlvr.report.facts import cost
from rlvr.report.families import families
from rlvr.report.problems import columns, shared
from rlvr.report.runs import find_runs
from tests.report.made_up import EVERY, STEPS, make_run, two_families


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    gate, grpo = families(find_runs([two_families(tmp_path_factory.mktemp("runs"))]))
    return grpo, gate


def test_a_curve_is_the_mean_over_seeds_with_a_band(pair):
    found = curve(pair[0], ACCURACY)
    assert found.x_T.tolist() == list(range(0, STEPS + 1, EVERY))
    rows = [[row[ACCURACY] for row in run.rows if ACCURACY in row] for run in pair[0].runs]
    assert found.band.mean_T == pytest.approx(np.mean(rows, axis=0))
    assert np.all(found.band.low_T < found.band.mean_T) and np.all(found.band.mean_T < found.band.high_T)
    assert curve(pair[0], "train/never_measured") is None


def test_axes_are_sums_over_the_run(pair):
    grpo, gate = pair
    assert curve(grpo, ACCURACY, "sequences").x_T[-1] == 64 * STEPS
    assert common_end([grpo, gate], "sequences") == 64 * STEPS
    assert common_end([grpo], "seconds") == pytest.approx(2.0 * STEPS)  # the fastest seed's end


def test_sequences_of_a_survey_come_first(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "survey.jsonl").write_text('{"id": "a", "solved": 1, "judged": 2, "tries": [{}, {}]}\n')
    (family,) = families(find_runs([run]))
    assert curve(family, ACCURACY, "sequences").x_T[0] == 2


def test_a_curve_ends_where_the_shortest_run_ends(tmp_path):
    for seed, steps in enumerate((20, 20, 10)):
        make_run(tmp_path / str(seed), seed=seed, steps=steps)
    (family,) = families(find_runs([tmp_path]))
    assert curve(family, ACCURACY).x_T[-1] == 10
    assert [len(x) for x, _ in curve(family, "train/reward").members] == [20, 20, 10]


def test_differences_are_paired_by_seed_and_problem_at_each_budget(pair):
    told = differences(*pair)
    words = [found.where for found in told]
    assert words[0] == "validation accuracy after 20 steps" and words[1] == "validation accuracy after 1,280 sequences"
    assert words[3] == "test accuracy after the last step"
    assert [found.pairs for found in told] == ["by seeds and problems"] * 4
    last = [[np.mean(list(run.validation[STEPS].values())) for run in family.runs] for family in pair]
    assert told[0].band.mean_T[0] == pytest.approx(np.mean(last[1]) - np.mean(last[0]))
    assert told[1].band.mean_T[0] < told[0].band.mean_T[0]  # at equal sequences it has done fewer steps


def test_what_is_matched_is_told(pair, tmp_path):
    unmatched = {aspect.name for aspect in aspects(*pair) if not aspect.matched}
    assert unmatched == {"sampled sequences"}
    make_run(tmp_path / "run", "algorithm=grpo", "data.sources.arithmetic.train=100", seed=7)
    (other,) = families(find_runs([tmp_path]))
    told = {aspect.name: aspect for aspect in aspects(pair[0], other)}
    assert not any(told[name].matched for name in ("seeds", "problems of all roles", "order of training prompts"))
    assert told["seeds"].told == ("0, 1, 2", "7") and told["starting model"].matched
    (found, *_) = differences(pair[0], other)
    assert (found.pairs, found.band.low_T) == ("by problems", None)  # how many rows train changes no other row


def test_seconds_of_a_survey_come_first(tmp_path):
    run = make_run(tmp_path / "run")
    rows = [
        {"step": 0, "start_seconds": 3.0, "survey_seconds": 7.0},
        {"step": 9, "start_seconds": 3.0, "survey_seconds": 1.0},
    ]
    (run / "starts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (family,) = families(find_runs([run]))
    assert curve(family, ACCURACY, "seconds").x_T[0] == 8.0
    cells = dict(zip(cost([family]).blocks[0].head, cost([family]).blocks[0].rows[0], strict=True))
    assert (cells["start-up"], cells["survey"]) == ("6 s", "8 s")


# -- problems that seeds share, and problems of their own ------------------------------------------


def pair_of(root, **seeds):
    """Two families of three seeds with two sources, whose own seeds are these functions of the run's."""
    for name, algorithm, gain in (("a", "grpo", 0.2), ("b", "dapo", 0.4)):
        for seed in range(3):
            data = {f"data.sources.{source}.options.seed": of(seed) for source, of in seeds.items()}
            make_run(root / name / str(seed), f"algorithm={algorithm}", seed=seed, gain=gain, config=data,
                     sources=("arithmetic", "far"))  # fmt: skip
    return families(find_runs([root]))


def test_problems_of_seeds_are_never_paired_with_each_other(tmp_path):
    """Under the same ids stand other problems: what they add is in the spread of the seeds, and is counted once."""
    pair = pair_of(tmp_path, arithmetic=int, far=int)
    assert [len(family.runs) for family in pair] == [3, 3]
    (found, *_) = told = differences(*pair)
    assert {difference.pairs for difference in told} == {"by seeds, each seed with problems of its own"}
    last = [[np.mean(list(run.validation[STEPS].values())) for run in family.runs] for family in pair]
    expected = difference_of(*(np.array(side)[None, :, None] for side in last), paired=True)
    assert (found.band.low_T, found.band.high_T) == (pytest.approx(expected.low_T), pytest.approx(expected.high_T))


def test_problems_that_all_seeds_share_are_resampled_too(tmp_path):
    pair = pair_of(tmp_path, arithmetic=int, far=lambda seed: 1000)
    (found, *_) = differences(*pair)
    assert found.pairs == "by seeds and 20 of 40 problems, each seed with problems of its own"
    assert {id_.partition("/")[0] for id_ in shared(pair[0].runs, "validation")} == {"far"}
    last = [[np.mean(list(run.validation[STEPS].values())) for run in family.runs] for family in pair]
    assert found.band.mean_T[0] == pytest.approx(np.mean(last[1]) - np.mean(last[0]))
    far, near = (validated(*pair, "steps", source) for source in ("far", "arithmetic"))
    assert (far.pairs, near.pairs) == ("by seeds and problems", "by seeds, each seed with problems of its own")
    assert (far.band.mean_T + near.band.mean_T) / 2 == pytest.approx(found.band.mean_T)


def test_columns_have_the_mean_of_all_and_the_spread_of_the_shared():
    rates = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.5}
    assert columns(rates, []).tolist() == [0.5]
    assert columns(rates, ["a", "b"]).tolist() == [0.75, 0.25]
    assert columns(rates, list(rates)).tolist() == list(rates.values())


def test_a_seed_of_the_model_that_differs_between_arms_is_told(tmp_path):
    for name, algorithm, add in (("a", "grpo", 0), ("b", "dapo", 5)):
        for seed in range(3):
            make_run(
                tmp_path / name / str(seed), f"algorithm={algorithm}", seed=seed, config={"model.warm_seed": seed + add}
            )
    told = {aspect.name: aspect.matched for aspect in aspects(*families(find_runs([tmp_path])))}
    assert told["seeds"] and not told["starting model"]
