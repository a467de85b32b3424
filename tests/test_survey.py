"""`rlvr survey` on the command line, with ranks that only pretend, and what configurations it refuses."""

import pytest

from rlvr.config import compose, read
from rlvr.keys import ConfigError
from tests.test_cli import rlvr, started


def test_it_is_a_train_application_that_ends_with_the_survey(tmp_path):
    done = rlvr(tmp_path, "survey", "algorithm=astar_po", "algorithm.survey_count=4", "run.name=look", "survey.extra=2")
    ((directory, name, _),) = started(done)
    assert directory == str(tmp_path / "runs/look") and name == "look"
    config = read(tmp_path / "runs/look/config.yaml")
    assert config.survey.only and config.survey.extra == 2


def test_an_algorithm_without_a_survey_needs_a_count(tmp_path):
    done = rlvr(tmp_path, "survey", "algorithm=grpo", code=2)
    assert "give survey.count, such as survey.count=8" in done.stderr and not started(done)
    assert started(rlvr(tmp_path, "survey", "algorithm=grpo", "survey.count=8"))


def test_it_ends_with_the_exit_code_of_its_ranks(tmp_path):
    rlvr(tmp_path, "survey", "survey.count=8", "algorithm.group=5", code=7)


def test_help_starts_nothing(tmp_path):
    done = rlvr(tmp_path, "survey", "--help")
    assert "survey.count=N" in done.stdout and not started(done)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["algorithm=astar_po", "survey.count=4"], "algorithm.survey_count"),
        (["survey.extra=4"], "give survey.count"),
        (["rollout.reference_store=false", "rollout.reference_prefetch=2"], "rollout.reference_store=true"),
        (["algorithm=armor", "algorithm.reset_every=2", "rollout.reference_prefetch=3"], "algorithm.reset_every=2"),
    ],
)
def test_contradictions_are_refused(overrides, complaint):
    with pytest.raises(ConfigError, match=complaint):
        compose(overrides)


def test_runs_share_the_references_completions_unless_their_seeds_differ():
    assert compose(["seed=5"]).rollout.reference_seed == 5
    assert compose(["seed=5", "rollout.reference_seed=0"]).rollout.reference_seed == 0
    assert compose(["algorithm=armor", "algorithm.reset_every=2", "rollout.reference_prefetch=2"])
