import json

import pytest

from rlvr.data import files
from rlvr.keys import ConfigError
from tests.data.helpers import source


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def ten(tmp_path):
    write(tmp_path / "ten.jsonl", [{"question": f"q{i}", "answer": i} for i in range(10)])
    return tmp_path


def numbers(base, asked, **keys):
    return [raw.number for raw in files.read(source(train=asked, **keys), "mine", "train", base)]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("", range(10)),
        ("[2:5]", range(2, 5)),
        ("[:3]", range(3)),
        ("[7:]", range(7, 10)),
        ("[-2:]", range(8, 10)),
        ("[:-8]", range(2)),
        ("[:20%]", range(2)),
        ("[80%:]", range(8, 10)),
        ("[ 1 : 2 ]", range(1, 2)),
    ],
)
def test_slices(ten, part, expected):
    assert numbers(ten, f"ten.jsonl{part}") == list(expected)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("ten.jsonl[5:11]", r"mine.train: 11 lies outside ten.jsonl, which has 10 rows"),
        ("ten.jsonl[5:5]", r"takes nothing of the 10 rows"),
        ("ten.jsonl[5]", r"not understood"),
        ("ten.jsonl[:5][:2]", r"not understood"),
        ("none.jsonl", r"mine.train=none.jsonl: there is no file"),
        ("ten.csv", r"must end in .jsonl, .json, .parquet"),
    ],
)
def test_wrong_paths_and_slices_name_the_key(ten, asked, message):
    with pytest.raises(ConfigError, match=message):
        numbers(ten, asked)


def test_absolute_paths_need_no_base(ten, tmp_path_factory):
    assert numbers(tmp_path_factory.mktemp("elsewhere"), str(ten / "ten.jsonl")) == list(range(10))


def test_shuffled_parts_stay_disjoint(ten):
    options = {"shuffle": 4}
    first, last = (numbers(ten, f"ten.jsonl{part}", options=options) for part in ("[:6]", "[6:]"))
    assert sorted(first + last) == list(range(10))
    assert first != sorted(first)


def test_distinct_keeps_the_first_of_each_before_slicing(tmp_path):
    write(tmp_path / "rows.jsonl", [{"question": q, "answer": 1} for q in ("a b", "A  b", "c", None, "c ", "d", None)])
    assert numbers(tmp_path, "rows.jsonl", options={"distinct": True}) == [0, 2, 3, 5, 6]
    assert numbers(tmp_path, "rows.jsonl[-1:]", options={"distinct": True}) == [6]


def nested():
    said = [[{"role": "user", "content": f"q{i}"}] for i in range(3)]
    return [{"prompt": messages, "reward_model": {"ground_truth": str(i)}} for i, messages in enumerate(said)]


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
def test_nested_columns_in_every_format(tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(nested()), path)
    elif ending == "json":
        path.write_text(json.dumps(nested()))
    else:
        write(path, nested())
    config = source(train=path.name, question="prompt", answer="reward_model.ground_truth")
    rows = files.read(config, "mine", "train", tmp_path)
    assert [row.answer for row in rows] == ["0", "1", "2"]
    assert rows[2].question == [{"role": "user", "content": "q2"}]
    config.answer = "reward_model.truth"
    with pytest.raises(ConfigError, match=r"no column reward_model.truth .*`answer`.*: .*reward_model.ground_truth"):
        files.read(config, "mine", "train", tmp_path)
    config.question = "problem"
    with pytest.raises(ConfigError, match=r"no column problem .*`question`.*: prompt, reward_model.ground_truth"):
        files.read(config, "mine", "train", tmp_path)


def test_a_column_whose_own_name_has_a_dot(tmp_path):
    write(tmp_path / "rows.jsonl", [{"question": "q", "a.b": 1, "a": {"b": 2}}])
    assert files.read(source(train="rows.jsonl", answer="a.b"), "mine", "train", tmp_path)[0].answer == 1


def test_broken_json_names_file_and_line(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"question": "q", "answer": 1}\n\n{"question": \n')
    with pytest.raises(ValueError, match=r"rows.jsonl, line 3: not JSON"):
        numbers(tmp_path, "rows.jsonl")
    (tmp_path / "rows.jsonl").write_text("[1, 2]\n")
    with pytest.raises(ValueError, match=r"rows.jsonl, line 1: must be an object"):
        numbers(tmp_path, "rows.jsonl")
    (tmp_path / "rows.json").write_text('[{"question": "q"},\n oops]')
    with pytest.raises(ValueError, match=r"rows.json, line 2: not JSON"):
        numbers(tmp_path, "rows.json")


def test_a_broken_parquet_file_and_an_empty_one(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"not parquet")
    with pytest.raises(ValueError, match="not a readable Parquet file"):
        numbers(tmp_path, "rows.parquet")
    (tmp_path / "rows.jsonl").write_text("")
    with pytest.raises(ConfigError, match="rows.jsonl has no rows"):
        numbers(tmp_path, "rows.jsonl")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"answer_afer": "####"}, r"options.answer_afer: .*mean answer_after\? Known: answer_after, answer_boxed"),
        ({"answer_after": "####", "answer_boxed": True}, "exclude each other"),
        ({"answer_boxed": "yes"}, "options.answer_boxed=yes: must be true or false"),
        ({"shuffle": -1}, "options.shuffle=-1"),
        ({"where": "code"}, "options.where=code: must be a mapping"),
        ({"distractors": "w1"}, "options.distractors=w1: must be a list"),
    ],
)
def test_wrong_options_are_refused(ten, options, message):
    with pytest.raises(ConfigError, match=message):
        numbers(ten, "ten.jsonl", options=options)


def test_a_list_is_entered_by_number_and_several_columns_make_a_mapping(tmp_path):
    row = {"question": "q", "final": ["7", "8"], "meta": {"ids": ["a"], "kwargs": [{}]}}
    write(tmp_path / "rows.jsonl", [row])
    config = source(train="rows.jsonl", answer="final.0")
    assert files.read(config, "mine", "train", tmp_path)[0].answer == "7"
    config.answer = "meta.ids, meta.kwargs"
    assert files.read(config, "mine", "train", tmp_path)[0].answer == {"ids": ["a"], "kwargs": [{}]}
    config.answer = "final.2"
    with pytest.raises(ConfigError, match="no column final.2"):
        files.read(config, "mine", "train", tmp_path)


def test_the_first_of_several_columns_that_is_not_null(tmp_path):
    said = [{"role": "user", "content": "c"}]
    rows = [
        {"prompt": "a", "answer": 1},
        {"prompt": None, "messages": said, "answer": 2},
        {"prompt": None, "answer": 3},
    ]
    write(tmp_path / "rows.jsonl", rows)
    config = source(train="rows.jsonl", question="question|prompt|messages")
    assert [raw.question for raw in files.read(config, "mine", "train", tmp_path)] == ["a", said, None]


def test_rows_speak_for_themselves(tmp_path):
    write(tmp_path / "rows.jsonl", [{"question": "q", "answer": 1, "id": "x7", "verifier": "math", "source": "aime"}])
    (raw,) = files.read(source(train="rows.jsonl"), "mine", "train", tmp_path)
    assert (raw.id, raw.verifier, raw.source) == ("x7", "math", "aime")


def test_only_rows_with_the_wanted_values(tmp_path):
    rows = [{"question": f"q{i}", "answer": i, "about": {"kind": kind}} for i, kind in enumerate(["a", "b", "c", "a"])]
    write(tmp_path / "rows.jsonl", rows)
    assert numbers(tmp_path, "rows.jsonl", options={"where": {"about.kind": "a"}}) == [0, 3]
    assert numbers(tmp_path, "rows.jsonl[-1:]", options={"where": {"about.kind": ["b", "c"], "answer": [1, 2]}}) == [2]
    with pytest.raises(ConfigError, match="no row of rows.jsonl has {'about.kind': 'z'}"):
        numbers(tmp_path, "rows.jsonl", options={"where": {"about.kind": "z"}})
    with pytest.raises(ConfigError, match="no column kind .*`options.where`"):
        numbers(tmp_path, "rows.jsonl", options={"where": {"kind": "a"}})


def test_distractors_make_options_in_an_order_that_does_not_change(tmp_path):
    rows = [{"question": f"Which is {i}?", "answer": f"right {i}", "w1": "p", "w2": "q", "w3": None} for i in range(60)]
    write(tmp_path / "rows.jsonl", rows)
    config = source(train="rows.jsonl", options={"distractors": ["w1", "w2", "w3"]})
    made = files.read(config, "mine", "train", tmp_path)
    assert made == files.read(config, "mine", "train", tmp_path)
    for i, raw in enumerate(made):
        letter, options = raw.answer["answer"], raw.answer["options"]
        assert options["ABC".index(letter)] == f"right {i}"
        assert sorted(options) == ["p", "q", f"right {i}"]
        assert raw.question == f"Which is {i}?\n\nA. {options[0]}\nB. {options[1]}\nC. {options[2]}"
    assert all(5 < sum(raw.answer["answer"] == letter for raw in made) < 40 for letter in "ABC")


def test_shipped_samples_need_no_base(tmp_path):
    assert numbers(tmp_path, "package:math.jsonl[:2]") == [0, 1]
    with pytest.raises(ConfigError, match="package:none.jsonl: there is no file"):
        numbers(tmp_path, "package:none.jsonl")


def test_a_parquet_file_reads_the_columns_it_needs(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"prompt": "q", "gold": "1", "id": 7, "kind": "a", "unused": "x"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    config = source(train="rows.parquet", question="question|prompt", answer="gold", options={"where": {"kind": "a"}})
    (raw,) = files.read(config, "mine", "train", tmp_path)
    assert (raw.question, raw.answer, raw.id, raw.source) == ("q", "1", 7, None)
