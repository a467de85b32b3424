"""From samples to numbers, by hand; and what a report makes of them."""

import json
from pathlib import Path

import pytest

from rlvr.evaluation.measure import majority, measure, suite_mean
from rlvr.evaluation.report import markdown
from tests.evaluation.samples import sample, scored
from tests.ops.test_stats import RATES

EXAMPLES = Path(__file__).parents[3] / "shared" / "design" / "worked_examples.json"


def votes(*answers: str) -> list[dict]:
    """Samples of one problem; those that say "right" are."""
    return [sample("p", k, float(answer.startswith("right")), answer) for k, answer in enumerate(answers)]


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        (("right", "right", "wrong"), 1),
        (("right", "wrong", "wrong"), 0),
        (("right", "wrong"), 0.5),
        (("right", "a", "b"), 1 / 3),
        (("right 1/2", "right 0.5", "wrong", "wrong", "right"), 1),  # right answers are one answer, however written
        (("", "", "right"), 1),  # no answer is no vote
        (("", ""), 0),
    ],
)
def test_the_majority_is_the_most_frequent_answer(answers, wanted):
    assert majority(votes(*answers)) == pytest.approx(wanted)


def test_pass_at_k_is_unbiased_and_the_mean_over_problems():
    told = measure(scored([1, 1, 1, *[0] * 13], [0] * 16), 16, [1, 2, 4, 8, 16])["metrics"]
    exact = {1: 0.1875, 2: 0.35, 4: 0.6071428571428571, 8: 0.9, 16: 1.0}  # of 3 right ones in 16
    assert {name: value["value"] for name, value in told.items() if name.startswith("pass@")} == pytest.approx(
        {f"pass@{k}": value / 2 for k, value in exact.items()}
    )
    assert told["score"]["value"] == pytest.approx(told["pass@1"]["value"])


def test_standard_errors_are_those_of_the_worked_set():
    samples = scored(*([1] * round(32 * rate) + [0] * round(32 - 32 * rate) for rate in RATES))
    told = measure(samples, 32, [1])
    assert told["metrics"]["score"]["value"] == pytest.approx(0.3302083333333333)
    assert told["metrics"]["score"]["se"] == pytest.approx(0.0755529682919229)
    assert told["se_again"] == pytest.approx(0.007734263274870977)
    assert told["metrics"]["score"]["method"] == "clustered"


@pytest.mark.skipif(not EXAMPLES.exists(), reason="the worked examples are not beside this checkout")
def test_every_worked_pass_at_k():
    found = json.loads(EXAMPLES.read_text())["cases"]["pass_at_k"]["expected"]
    for case, wanted in found.items():
        n, c, k = (int(part.partition("=")[2]) for part in case.split(","))
        told = measure(scored([1] * c + [0] * (n - c)), n, [k])["metrics"][f"pass@{k}"]["value"]
        assert told == pytest.approx(wanted, rel=1e-12), case


def test_one_binary_sample_per_problem_has_wilsons_interval_and_no_majority():
    told = measure(scored([1], [1], [0], [1]), 1, [1])["metrics"]
    assert told["score"]["method"] == "wilson"
    assert (told["score"]["low"], told["score"]["high"]) == pytest.approx((0.3006, 0.9544), abs=1e-4)
    assert "majority" not in told


def test_what_went_wrong_is_counted():
    samples = [
        sample("p", 0, 1.0, "1", parts={"answered": 1.0}, tokens=4),
        sample("p", 1, 0.0, "", parts={"answered": 0.0}, truncated=True),
        sample("q", 0, None),
        sample("q", 1, 0.5, None, parts={"math/answered": 1.0}),
    ]
    told = measure(samples, 2, [1, 2])
    assert (told["truncated"], told["unjudged"], told["length"]) == (0.25, 0.25, 8.5)
    assert told["unanswered"] == pytest.approx(1 / 3)
    assert told["errors"] == {"timeout after 5 s": 1}
    assert told["metrics"]["score"]["value"] == 0.375  # what could not be judged counts as 0
    assert told["metrics"]["pass@2"]["value"] == 0.5  # and half right is not right
    assert told["se_again"] is None


def test_sources_have_scores_of_their_own():
    told = measure([*scored([1, 1], [0, 0]), *scored([1, 0], source="other")], 2, [1])
    assert {name: (s["value"], s["problems"]) for name, s in told["sources"].items()} == {
        "sums": (0.5, 2),
        "other": (0.5, 1),
    }
    assert told["sources"]["other"]["low"] is None  # one problem says nothing of others


def test_a_problem_that_lacks_samples_is_refused():
    with pytest.raises(ValueError, match="sums/test/1 has 1 samples, not 2"):
        measure(scored([1, 0], [1]), 2, [1])


def test_a_report_is_loud_where_a_number_is_no_result():
    one = measure(scored([1, 0], [0, 0]), 2, [1, 2]) | {"left_out": 3}
    standing = {"label": "selection data", "reason": "2 of 2 questions chose checkpoints in first"}
    held_out = {"label": "held out", "reason": ""}
    result = {
        "suite": "mine",
        "checkpoint": "runs/first",
        "model": "abc",
        "seed": 0,
        "chosen": "the last step of the run, 4; no score chose it",
        "mean": suite_mean([one, one]),
        "benchmarks": {
            "seen": one | {"standing": standing},
            "new": one | {"standing": held_out},
        },
    }
    text = markdown(result)
    assert "**SELECTION DATA**: seen is no test: 2 of 2 questions chose checkpoints in first." in text
    assert text.count("SELECTION DATA") == 2 and "| held out" in text
    assert "| mean of these" in text and "25.0 -+ " in text
