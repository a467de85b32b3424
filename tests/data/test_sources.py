import json

import pytest

from rlvr.data.rows import normalised
from rlvr.data.sources import KINDS, LABELS, load_rows, refuse_overlap, stream_weights, verifier_options
from rlvr.keys import ConfigError
from rlvr.records import Row
from rlvr.schema import data as schema
from tests.data.helpers import data, number_only, source

GOLDS = [
    {"question": "text", "answer": "4"},
    {"question": "whole", "answer": 4},
    {"question": "float", "answer": 0.5},
    {"question": "proof", "answer": "proof"},
    {"question": "missing"},
    {"question": "null", "answer": None},
    {"question": "list", "answer": ["4"]},
    {"question": "mapping", "answer": {"value": 4}},
    {"question": "bool", "answer": True},
    {"answer": "4"},
]


@pytest.fixture
def golds(tmp_path):
    (tmp_path / "golds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in GOLDS))
    return tmp_path


def load(base, asked="golds.jsonl", check_answer=number_only, ungradable="drop", **keys):
    config = data(sources={"mine": source(train=asked, **keys)}, ungradable=ungradable)
    return load_rows(config, "train", check_answer, base)


def test_every_kind_of_the_schema_has_a_reader():
    assert set(KINDS) == set(schema.KINDS)


def test_ungradable_rows_are_dropped_and_reported(golds):
    rows, report = load(golds)
    assert [row.id for row in rows] == ["mine/train/0", "mine/train/1", "mine/train/2"]
    assert [row.answer for row in rows] == ["4", "4", "0.5"]
    assert rows[0].messages == ({"role": "user", "content": "text"},)
    (mine,) = report.sources
    assert (mine.read, mine.kept) == (10, 3)
    reasons = dict(mine.ungradable)
    assert list(reasons) == [f"mine/train/{i}" for i in range(3, 10)]
    assert "could not convert" in reasons["mine/train/3"]
    assert reasons["mine/train/4"] == reasons["mine/train/5"] == "no gold (missing or null)"
    assert "list" in reasons["mine/train/6"]
    assert "dict" in reasons["mine/train/7"]
    assert "bool" in reasons["mine/train/8"]
    assert "no question" in reasons["mine/train/9"]
    assert "mine: 10 rows read, 3 kept, 7 ungradable" in str(report)
    assert "mine/train/4  no gold (missing or null)" in str(report)


def test_ungradable_rows_stop_the_run_if_asked(golds):
    with pytest.raises(ValueError, match=r"(?s)7 ungradable.*mine/train/3.*data.ungradable=drop"):
        load(golds, ungradable="error")


def test_a_source_without_any_usable_row_stops_the_run(golds):
    with pytest.raises(ValueError, match=r"(?s)1 rows read, 0 kept.*mine/train/3"):
        load(golds, asked="golds.jsonl[3:4]")


def test_a_long_report_is_cut(tmp_path):
    rows = [{"question": f"q{i}", "answer": None if i else 1} for i in range(15)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, report = load(tmp_path, asked="rows.jsonl")
    assert "and 4 more" in str(report)
    assert str(report).count("no gold") == 10


def test_the_verifier_gets_its_own_options_only(golds):
    calls = []
    load(
        golds,
        asked="golds.jsonl[:1]",
        check_answer=lambda *call: calls.append(call),
        verifier="close",
        options={"distinct": True},
        verifier_options={"tolerance": 0.1},
    )
    assert calls == [("close", {"tolerance": 0.1}, "4")]


def test_a_wrong_verifier_is_not_blamed_on_the_rows(golds):
    def check_answer(verifier, options, answer):
        raise ConfigError("no verifier close")

    with pytest.raises(ConfigError, match="no verifier close"):
        load(golds, check_answer=check_answer)


def test_roles_that_are_null_give_nothing(golds):
    config = data(sources={"mine": source(train="golds.jsonl"), "held": source(test="golds.jsonl[:1]")})
    assert [row.id for row in load_rows(config, "test", number_only, golds)[0]] == ["held/test/0"]
    rows, report = load_rows(config, "validation", number_only, golds)
    assert rows == []
    assert report.sources == ()


def row(id, *texts):
    messages = tuple({"role": "user", "content": text} for text in texts)
    return Row(id=id, source=id.split("/")[0], messages=messages, answer="1", verifier="number")


def test_overlap_between_roles_is_refused_with_count_ids_and_cure():
    train = [row(f"a/train/{i}", f"What is {i} + 1 ?") for i in range(9)]
    test = [row(f"b/test/{i}", f"what  is {i}+1?\n") for i in range(4, 9)]
    with pytest.raises(ValueError) as error:
        refuse_overlap({"train": train, "validation": [], "test": test})
    message = str(error.value)
    assert message.startswith("5 question(s)")
    assert "a/train/4 (train) = b/test/4 (test)" in message
    assert message.count("(test)") == 3
    assert "[:7000]" in message


def test_repeats_inside_a_role_and_other_signs_are_no_overlap():
    refuse_overlap({"train": [row("a/train/0", "2+1"), row("a/train/1", "2+1")], "test": [row("a/test/0", "2-1")]})


def test_the_whole_conversation_is_compared():
    refuse_overlap({"train": [row("a/train/0", "one", "go on")], "test": [row("a/test/0", "two", "go on")]})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("A  b\tc\n", "a b c", True),
        ("f ( x ) = 1", "f(x)=1", True),
        ("ab", "a b", False),
        ("x = -1", "x = 1", False),
        ("1.5", "15", False),
    ],
)
def test_normalised(one, other, same):
    assert (normalised(one) == normalised(other)) is same


def own(base, rows, check_answer=number_only, **keys):
    (base / "own.jsonl").write_text(
        "".join(json.dumps({"question": f"q{i}", "answer": 1, **row}) + "\n" for i, row in enumerate(rows))
    )
    config = data(sources={"mine": source(train="own.jsonl", verifier_options={"tolerance": 0.1}, **keys)})
    return config, *load_rows(config, "train", check_answer, base)


def test_a_row_may_name_its_id_source_and_verifier(tmp_path):
    calls = []
    rows = [{}, {"id": "a/7", "source": "aime", "verifier": "math"}, {"verifier": "number"}]
    config, made, _ = own(tmp_path, rows, check_answer=lambda *call: calls.append(call))
    assert [(row.id, row.source, row.verifier) for row in made] == [
        ("mine/train/0", "mine", "number"),
        ("mine/train/a/7", "aime", "math"),
        ("mine/train/2", "mine", "number"),
    ]
    assert [options for _, options, _ in calls] == [{"tolerance": 0.1}, {}, {"tolerance": 0.1}]
    assert [verifier_options(config, row) for row in made] == [options for _, options, _ in calls]


def test_the_weight_of_a_file_is_shared_by_the_sources_of_its_rows(tmp_path):
    rows = [{"source": "a"}] * 3 + [{"source": "b"}]
    _, made, _ = own(tmp_path, [{**row, "question": str(i)} for i, row in enumerate(rows)])
    other = [row("else/train/0", "x"), row("b/train/0", "y")]
    weights = stream_weights({"mine": 2.0, "else": 1.0, "b": 0.5}, [*made, *other])
    assert weights == {"a": 1.5, "b": 1.0, "else": 1.0}


def test_rows_that_share_an_id_or_name_code_are_refused(tmp_path):
    rows = [
        {"id": 1},
        {"id": "1"},
        {"id": 2, "verifier": "mine.py:f"},
        {"id": 3, "verifier": 5},
        {"id": 4, "source": " "},
        {"id": 5},
    ]
    _, made, report = own(tmp_path, rows)
    assert [row.id for row in made] == ["mine/train/5"]
    assert [reason for _, reason in report.sources[0].ungradable] == [
        "2 rows have this id",
        "2 rows have this id",
        "its verifier is code, which only the config may name (data.sources.*.verifier)",
        "its verifier 5 is not a name",
        "its source ' ' is not a name",
    ]


def test_a_wrong_verifier_of_a_row_names_the_row(tmp_path):
    def check_answer(verifier, options, answer):
        raise ConfigError(f"no verifier {verifier}")

    with pytest.raises(ConfigError, match="row mine/train/0: no verifier mat"):
        own(tmp_path, [{"verifier": "mat"}], check_answer=check_answer)


def test_a_column_that_names_no_sources_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="`source` has 101 different values"):
        own(tmp_path, [{"source": f"https://{i}"} for i in range(LABELS + 1)])


def test_the_name_of_a_source_has_no_slash(tmp_path):
    with pytest.raises(ConfigError, match="data.sources.a/b: .*slash"):
        load_rows(data(sources={"a/b": source(train="x.jsonl")}), "train", number_only, tmp_path)
