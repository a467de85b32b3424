"""Differences of two evaluations, and which two are not compared."""

import pytest

from rlvr.evaluation.compare import compare, comparison
from rlvr.keys import ConfigError
from tests.evaluation.samples import evaluation, sample, scored
from tests.ops.test_stats import BETTER, RATES


def of(rates):
    return scored(*([1] * round(32 * rate) + [0] * round(32 - 32 * rate) for rate in rates))


def test_problems_are_paired(tmp_path):
    told = compare(evaluation(tmp_path / "a", of(RATES)), evaluation(tmp_path / "b", of(BETTER)))
    score = told["benchmarks"]["sums"]["score"]
    assert score["difference"] == pytest.approx(0.025)
    assert (score["high"] - score["low"]) / 2 == pytest.approx(2.04523 * 0.005685735326841775, rel=0.02)
    assert (score["better"], score["worse"], score["problems"]) == (12, 0, 30)
    assert (score["p"], score["exact"], score["p_holm"]) == (2 / 2**12, True, 2 / 2**12)
    assert {"score", "pass@1", "pass@32", "majority"} == set(told["benchmarks"]["sums"])
    text = comparison(told)
    assert "+2.5 [+1.3, +3.7]" in text and "12/0/30" in text and "0.0005" in text


def test_the_order_of_the_problems_does_not_matter(tmp_path):
    samples = scored([1, 1], [0, 0], [1, 0])
    told = compare(evaluation(tmp_path / "a", samples), evaluation(tmp_path / "b", samples[4:] + samples[:4]))
    assert told["benchmarks"]["sums"]["score"]["p"] == 1.0
    assert told["benchmarks"]["sums"]["score"]["low"] == -told["benchmarks"]["sums"]["score"]["high"]
    assert "+0.0 [-" in comparison(told)


@pytest.mark.parametrize(
    ("samples", "changes", "complaint"),
    [
        (scored([1, 0], [0, 0]), {"temperature": 0.6}, "temperature is 1.0 and 0.6"),
        (scored([1, 0], [0, 0]), {"questions": "r"}, "other questions, answers or verifiers"),
        (scored([1], [0]), {}, "2 and 1 samples per problem"),
        (scored([1, 0]), {}, "1 problems are in one of the two only, such as sums/test/1"),
        (scored([1, 0], [0, 0]), {"name": "other"}, "only one of the two has other, sums"),
    ],
)
def test_what_differs_is_named(tmp_path, samples, changes, complaint):
    one = evaluation(tmp_path / "a", scored([1, 0], [0, 0]))
    with pytest.raises(ConfigError, match=complaint):
        compare(one, evaluation(tmp_path / "b", samples, **changes))


def test_an_evaluation_that_is_not_complete_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no complete evaluation"):
        compare(tmp_path, tmp_path)


def test_other_versions_and_selection_data_are_told(tmp_path):
    one = evaluation(tmp_path / "a", [sample("p", 0, 1.0), sample("q", 0, 0.0)], label="selection data")
    two = evaluation(tmp_path / "b", [sample("p", 0, 1.0), sample("q", 0, 1.0)], versions={"rlvr": "1", "vllm": "2"})
    text = comparison(compare(one, two))
    assert "Versions differ: vllm." in text and "**SELECTION DATA**: sums is no test" in text
