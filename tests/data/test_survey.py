import json

import pytest

from rlvr.data.sources import load_rows
from rlvr.data.survey import pass_rates
from rlvr.keys import ConfigError
from tests.data.helpers import data, number_only, source


@pytest.fixture
def base(tmp_path):
    rows = [{"question": f"q{i}", "answer": i} for i in range(5)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def survey(base, *results):
    lines = [
        {"id": f"mine/train/{i}", "solved": solved, "judged": judged} for i, (solved, judged) in enumerate(results)
    ]
    (base / "survey.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def load(base, low=0.25, high=0.75, role="train"):
    sources = {"mine": source(train="rows.jsonl", test="rows.jsonl")}
    config = data(sources=sources, survey="survey.jsonl", pass_rate=[low, high])
    return load_rows(config, role, number_only, base)


def test_rows_in_the_range_are_kept_ends_included(base):
    survey(base, (0, 4), (1, 4), (3, 4), (4, 4), (0, 0))
    rows, report = load(base)
    assert [row.id for row in rows] == ["mine/train/1", "mine/train/2"]
    assert "2 rows kept; left out: 1 solved less often, 1 more often, 1 without a judged response" in str(report)


def test_only_training_rows_are_filtered(base):
    survey(base)
    assert len(load(base, role="test")[0]) == 5


def test_rows_without_a_result_are_refused(base):
    survey(base, (1, 4), (1, 4))
    with pytest.raises(ValueError, match=r"no result of 3 of 5 training rows.*mine/train/2"):
        load(base)


def test_a_range_that_leaves_nothing_is_refused(base):
    survey(base, *[(4, 4)] * 5)
    with pytest.raises(ValueError, match=r"0 rows kept.*5 more often.*widen data.pass_rate"):
        load(base)


@pytest.mark.parametrize("pass_rate", [[], [0.5], [0.9, 0.1], [-1, 1], [0, 2]])
def test_a_wrong_range_names_the_key(base, pass_rate):
    survey(base, *[(1, 2)] * 5)
    config = data(sources={"mine": source(train="rows.jsonl")}, survey="survey.jsonl", pass_rate=pass_rate)
    with pytest.raises(ConfigError, match="data.pass_rate="):
        load_rows(config, "train", number_only, base)


@pytest.mark.parametrize(
    "line",
    [
        '{"id": "a", "solved": 3, "judged": 2}',
        '{"id": "a", "solved": 1}',
        "[1]",
        "oops",
        '{"id": 1, "solved": 0, "judged": 1}',
    ],
)
def test_broken_lines_are_named(tmp_path, line):
    path = tmp_path / "survey.jsonl"
    path.write_text('{"id": "b", "solved": 1, "judged": 2}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"survey.jsonl, line 2: not"):
        pass_rates(path)


def test_two_results_of_one_row_and_no_file(tmp_path):
    path = tmp_path / "survey.jsonl"
    path.write_text('{"id": "b", "solved": 1, "judged": 2}\n' * 2)
    with pytest.raises(ValueError, match="line 2: b has a result already"):
        pass_rates(path)
    with pytest.raises(ConfigError, match="data.survey=.*there is no such file"):
        pass_rates(tmp_path / "none.jsonl")
