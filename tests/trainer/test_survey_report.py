"""What a survey's report says, on surveys made by hand."""

import io
import json
import math

import pytest
import torch
from rich.console import Console

from rlvr.data.survey import pass_rates
from rlvr.keys import ConfigError
from rlvr.ops.stats import wilson_interval
from rlvr.records import Verdict
from rlvr.rollout.survey import Surveyed, Try
from rlvr.trainer import survey_report
from rlvr.trainer.display import Display
from rlvr.trainer.survey_report import estimator_bias, plain, report, survey_first, verdict, write
from tests.algorithms.builders import make
from tests.rollout.fakes import FakeEngines, FakeJudge, FakeWorld, config, prompt, reference_sampler

ASTAR = make("astar_po", group=1)
GRPO = make("grpo")
NAN = math.nan


def row(number: int, scores: list[float], source: str = "sums", algorithm=ASTAR, truncated: int = 0) -> Surveyed:
    tries = tuple(Try(s, i < truncated, "too slow" if math.isnan(s) else None) for i, s in enumerate(scores))
    return Surveyed(f"{source}/train/{number}", source, tries, algorithm.summarize(torch.tensor(scores)))


def right(count: int, of: int = 8) -> list[float]:
    return [1.0] * count + [0.0] * (of - count)


SURVEY = [
    row(0, right(0)),
    row(1, right(8)),
    row(2, right(2)),
    row(3, right(6)),
    row(4, right(7), "logic"),
    row(5, [*right(1, of=2), *[NAN] * 6], "logic"),
    row(6, [NAN] * 8, "logic"),
    row(7, right(0, of=16), "logic"),  # it had extra tries
]


@pytest.mark.parametrize(
    ("rate", "count", "expected", "exact", "unsolved"),
    [
        (0.05, 8, 0.11012387635773256, 0.13860855447247034, 0.6634204312890623),
        (0.01, 32, 0.028447407585593554, 0.03096626470816591, 0.7249803359578534),
        (0.25, 1, 0.25, 0.47722929639662026, 0.75),
        (0.9, 8, 0.9520439833311174, 0.9547823996540754, 9.999999999999982e-09),
    ],
)
def test_the_estimators_bias_equals_the_worked_example(rate, count, expected, exact, unsolved):
    told = estimator_bias(ASTAR, rate, count)
    assert told == {
        "rate": rate,
        "v_star": pytest.approx(exact, rel=1e-9),
        "expected": pytest.approx(expected, rel=1e-9),
        "unsolved": pytest.approx(unsolved, rel=1e-9),
    }


def test_dropping_what_was_never_solved_biases_the_rest_upwards():
    """One try: what is kept was solved, so its estimate is 1."""
    told = estimator_bias(make("astar_po", group=1, drop_unsolved=True), 0.1, 1)
    assert told["expected"] == pytest.approx(1.0) and told["v_star"] < 0.5


def test_numbers_of_a_survey():
    told = report(SURVEY, ASTAR, 8)
    logic, all_ = told["sources"]["logic"], told["all"]
    assert told["sources"]["sums"] == {
        "prompts": 4,
        "dropped": 0,
        "success": 0.5,
        "solved": 0.75,
        "never": 0.25,
        "always": 0.25,
        "no_signal": 0.5,
        "histogram": {"none": 1, "up to 1/4": 1, "up to 1/2": 0, "up to 3/4": 1, "less than all": 0, "all": 1},
        "truncated": 0.0,
        "unjudged": 0.0,
    }
    assert logic["histogram"] == {
        "none": 1, "up to 1/4": 0, "up to 1/2": 1, "up to 3/4": 0, "less than all": 1, "all": 0
    }  # fmt: skip
    assert logic["success"] == pytest.approx((7 / 8 + 1 / 2 + 0) / 3)
    assert (logic["dropped"], logic["no_signal"], logic["never"], logic["unjudged"]) == (1, 0.5, 0.25, 14 / 40)
    assert all_["prompts"] == 8 and sum(all_["histogram"].values()) == 7
    low, high = wilson_interval(0, 16)
    assert told["hardest"] == {"id": "logic/train/7", "solved": 0, "tries": 16, "low": low, "high": high}
    assert told["v_star"]["min"] == 0.0 and told["v_star"]["max"] == pytest.approx(1.0)
    assert [b["rate"] for b in told["bias"]] == [0.01, 0.05, 0.1, 0.25, 0.5, 0.9]
    json.dumps(told, allow_nan=False)


def test_an_algorithm_without_v_star_has_no_table_of_it():
    told = report([row(0, right(1), algorithm=GRPO)], GRPO, 8)
    assert "v_star" not in told and "bias" not in told
    assert "V*" not in plain(told, verdict(told, config()))


def said(rows, **changed):
    return verdict(report(rows, ASTAR, 8), config(**changed))


def test_the_verdict_on_good_data():
    assert said([row(i, right(4)) for i in range(9)] + [row(9, right(0))]) == (
        "The reference gets 45% of its tries right; of 10 prompts it never solved 10% and always solved 0% in 8 "
        "tries. "
        "90% of the prompts are sometimes right and sometimes wrong: there is much to learn from. "
        "Where nothing was solved V* is at its lowest and wrong answers teach nothing; a prompt that is solved 5% of "
        "the time looks so with chance 66%, and survey.extra=N would look closer."
    )


def test_the_verdict_on_data_that_is_too_hard_and_cut():
    text = said([row(0, right(1), truncated=4)] + [row(i, right(0), truncated=2) for i in range(1, 10)], max_tokens=64)
    assert "Most prompts (90%) carry no learning signal at the start: look for easier problems" in text
    assert "28% of the completions were cut at rollout.max_tokens=64" in text
    assert text.count(". ") + text.endswith(".") <= 4


def test_the_verdict_on_data_that_is_too_easy():
    text = said([row(i, right(8)) for i in range(5)] + [row(i, right(4)) for i in range(5, 10)])
    assert "50% of the prompts carry no learning signal at the start: harder problems" in text
    assert "V*" not in text


def test_the_verdict_where_nothing_could_be_judged():
    assert said([row(0, [NAN] * 8)]).startswith("Not one completion could be judged.")


def test_files_can_be_read_again(tmp_path):
    told = report(SURVEY, ASTAR, 8)
    write(tmp_path, SURVEY, told, "Fine.")
    assert pass_rates(tmp_path / "survey.jsonl") == {
        "sums/train/0": 0.0,
        "sums/train/1": 1.0,
        "sums/train/2": 0.25,
        "sums/train/3": 0.75,
        "logic/train/4": 0.875,
        "logic/train/5": 0.5,
        "logic/train/6": None,
        "logic/train/7": 0.0,
    }
    assert json.loads((tmp_path / "survey.json").read_text()) == told | {"verdict": "Fine."}
    text = (tmp_path / "survey.txt").read_text()
    for part in ("pass@8", "never solved", "logic/train/7", "success rate 0.05", "0.110", "-0.028", "66.3%", "Fine."):
        assert part in text, part


# -- before training -----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def first(tmp_path, algorithm, judge=None, engines=None):
    told = config(algorithm=algorithm.config)
    reference = reference_sampler(engines or FakeEngines(), told, judge=judge)
    display = Display(1, console=Console(file=io.StringIO()))
    prompts = [prompt(i) for i in range(12)]
    kept = survey_first(algorithm, reference, prompts, told, FakeWorld(), display, tmp_path, lambda share: None)
    return prompts, kept


def test_prompts_without_a_use_are_dropped_before_training(tmp_path):
    prompts, kept = first(tmp_path, make("astar_po", group=1, survey_count=2, drop_unsolved=True))
    lines = [json.loads(line) for line in (tmp_path / "survey.jsonl").read_text().splitlines()]
    assert [p.id for p in kept] == [line["id"] for line in lines if line["solved"]]
    assert 0 < len(kept) < len(prompts)
    assert [p.facts for p in kept] == [line["facts"] for line in lines if not line["dropped"]]
    assert all(set(p.facts) == {"v_star", "ref_success"} for p in kept)


def test_a_survey_that_leaves_nothing_is_refused_and_still_told(tmp_path, monkeypatch):
    monkeypatch.setattr(survey_report, "learned", lambda prompts, surveyed: [])
    with pytest.raises(ConfigError, match="leaves out every prompt"):
        first(tmp_path, make("astar_po", group=1, survey_count=2))
    assert (tmp_path / "survey.txt").exists()


def test_a_verifier_that_fails_stops_the_run_with_its_cause(tmp_path):
    class Broken(FakeJudge):
        def _verdict(self, completion):
            return Verdict(score=None, error="no such library")

    with pytest.raises(RuntimeError, match=r"100\.0% .* health\.unjudged\.limit=0\.9; causes: no such library"):
        first(tmp_path, make("astar_po", group=1, survey_count=2), judge=Broken())


def test_a_run_without_a_reference_is_refused(tmp_path):
    class Without(FakeEngines):
        reference = None

    with pytest.raises(ConfigError, match=r"log\.kl_every"):
        first(tmp_path, make("grpo"), engines=Without())
