import json

import pytest

from rlvr.data.apart import keep_apart
from rlvr.data.checks import findings
from rlvr.keys import ConfigError
from rlvr.records import Row
from tests.data.helpers import data, source

LONG = "A farmer has twelve hens and each of them lays three eggs in every week of the long dry summer"
NEAR = LONG.replace("twelve", "eleven") + ". How many?"


def row(id, text, answer="1", source=None):
    said = ({"role": "user", "content": text},)
    return Row(id=id, source=source or id.split("/")[0], messages=said, answer=answer, verifier="number")


def made(**keys):
    return data(sources={"a": source(), "sums": source(kind="arithmetic")}, **keys)


def rows(train=(), validation=(), test=()):
    given = {"train": train, "validation": validation, "test": test}
    return {role: [row(f"a/{role}/{i}", text) for i, text in enumerate(texts)] for role, texts in given.items()}


def ids(some):
    return [row.id for row in some]


def test_error_refuses_equal_questions_and_leaves_near_ones(tmp_path):
    kept, report = keep_apart(made(), rows(train=[LONG], test=[NEAR]), tmp_path)
    assert (len(kept["train"]), str(report)) == (1, "")
    with pytest.raises(ValueError, match=r"a/train/0 \(train\) = a/test/0 \(test\).*data.overlap=drop"):
        keep_apart(made(), rows(train=[LONG], test=[LONG.upper()]), tmp_path)


def test_drop_leaves_out_equal_and_near_training_rows_and_all_their_repeats(tmp_path):
    some = rows(train=["5 + 5", LONG, "other", LONG + " ", "5+5"], validation=["5+5"], test=[NEAR])
    kept, report = keep_apart(made(overlap="drop"), some, tmp_path)
    assert ids(kept["train"]) == ["a/train/2"]
    assert ids(kept["validation"] + kept["test"]) == ["a/validation/0", "a/test/0"]
    assert report.dropped == 4
    assert "4 training rows" in str(report)
    assert "a/train/0 = a/validation/0" in str(report)
    assert "a/train/1 has" in str(report)


def test_validation_and_test_are_kept_apart_either_way(tmp_path):
    for overlap in ("error", "drop"):
        with pytest.raises(ValueError, match=r"\(validation\) = .*\(test\)"):
            keep_apart(made(overlap=overlap), rows(train=["x"], validation=["y"], test=["y"]), tmp_path)


def test_dropping_everything_is_refused(tmp_path):
    with pytest.raises(ValueError, match="leaves no training row"):
        keep_apart(made(overlap="drop"), rows(train=["y"], test=["y"]), tmp_path)


def test_a_benchmark_is_a_file_or_a_source(tmp_path):
    (tmp_path / "bench.jsonl").write_text("".join(json.dumps({"problem": text}) + "\n" for text in ("x", NEAR)))
    by_file = made(benchmarks=["bench.jsonl"])
    with pytest.raises(ValueError, match=r"1 question\(s\) of data.benchmarks.*a/train/0 has .* of bench.jsonl:1"):
        keep_apart(by_file, rows(train=[LONG]), tmp_path)
    kept, _ = keep_apart(made(benchmarks=["bench.jsonl"], overlap="drop"), rows(train=[LONG, "z"]), tmp_path)
    assert ids(kept["train"]) == ["a/train/1"]
    keep_apart(made(benchmarks=["bench.jsonl[:1]"]), rows(train=[LONG]), tmp_path)
    with pytest.raises(ValueError, match="of data.benchmarks"):
        keep_apart(made(benchmarks=["a"]), rows(train=[LONG], test=[NEAR]), tmp_path)
    with pytest.raises(ConfigError, match=r"data.benchmarks: b is no source .*did you mean a\?|b is no source"):
        keep_apart(made(benchmarks=["b"]), rows(train=[LONG], test=[NEAR]), tmp_path)


def test_generated_questions_are_alike_and_only_compared_as_a_whole(tmp_path):
    some = {"train": [row("sums/train/0", LONG)], "validation": [], "test": [row("sums/test/0", NEAR)]}
    assert len(keep_apart(made(overlap="drop"), some, tmp_path)[0]["train"]) == 1


def test_findings_name_every_kind(tmp_path):
    some = rows(train=["5+5", LONG, "5 + 5"], validation=[NEAR], test=["5+5 "])
    some["train"].append(row("a/train/3", "5+5", answer="2"))
    found = {
        finding.title.split(",")[0]: (finding.refused, finding.cases) for finding in findings(made(), some, tmp_path)
    }
    assert found == {
        "train: questions that repeat another (options.distinct=true keeps the first)": (
            True,
            ("a/train/2 = a/train/0",),
        ),
        "train: the same question with another answer": (True, ("a/train/3 = a/train/0, golds 2 and 1",)),
        "questions of validation are in train": (True, ("a/train/1 has 73% of a/validation/0",)),
        "questions of test are in train": (True, ("a/train/0 = a/test/0",)),
    }


def test_clean_rows_give_no_findings(tmp_path):
    assert findings(made(), rows(train=["1"], validation=["2"], test=["3"]), tmp_path) == []
