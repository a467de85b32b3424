from pathlib import Path

import pytest

from rlvr.data import arithmetic
from rlvr.keys import ConfigError
from tests.data.helpers import source

HERE = Path()


def sums(**keys):
    options = dict(operands=2, digits=1, operators=["+"], seed=0) | keys.pop("options", {})
    return source(kind="arithmetic", options=options, **keys)


def questions(config, role):
    return [raw.question for raw in arithmetic.read(config, "sums", role, HERE)]


def unordered(question):
    return tuple(sorted(question.rstrip("=").split("+")))


def test_roles_share_nothing_not_even_the_other_order():
    config = sums(train="40", validation="5", test="5")
    roles = {role: questions(config, role) for role in ("train", "validation", "test")}
    assert {role: len(asked) for role, asked in roles.items()} == {"train": 40, "validation": 5, "test": 5}
    every = [unordered(question) for asked in roles.values() for question in asked]
    assert len(set(every)) == 50


def test_question_and_answer():
    raw = arithmetic.read(sums(train="55"), "sums", "train", HERE)
    for row in raw:
        left, right = row.question.rstrip("=").split("+")
        assert row.question.endswith("=")
        assert row.answer == str(int(left) + int(right))


def test_all_55_sums_of_two_digits_exist_and_no_more():
    assert len({unordered(q) for q in questions(sums(train="55"), "train")}) == 55
    with pytest.raises(ConfigError, match=r"56 rows, but only 55 different problems"):
        questions(sums(train="50", test="6"), "train")


def test_asking_for_more_training_rows_leaves_the_held_out_ones_alone():
    few, many = sums(train="5", validation="5", test="5"), sums(train="45", validation="5", test="5")
    assert questions(few, "test") == questions(many, "test")
    assert questions(few, "validation") == questions(many, "validation")
    assert questions(many, "train")[:5] == questions(few, "train")


def test_the_seed_decides():
    assert questions(sums(train="20"), "train") == questions(sums(train="20"), "train")
    assert questions(sums(train="20"), "train") != questions(sums(train="20", options={"seed": 1}), "train")


def test_both_orders_of_a_sum_turn_up():
    pairs = [list(map(int, q.rstrip("=").split("+"))) for q in questions(sums(train="55"), "train")]
    assert 10 < sum(a > b for a, b in pairs) < 35


@pytest.mark.parametrize(
    ("problem", "text", "value"),
    [
        (((47, 85), ("+",)), "47+85=", 132),
        (((3, 10), ("-",)), "3-10=", -7),
        (((9, 2, 3), ("-", "*")), "9-2*3=", 3),
        (((2, 3, 4, 5), ("*", "+", "-")), "2*3+4-5=", 5),
    ],
)
def test_text_and_value(problem, text, value):
    assert arithmetic.text(problem) == text
    assert arithmetic.value(problem) == value


def test_a_difference_has_an_order_and_a_product_none():
    same = arithmetic.canonical
    assert same(((1, 2), ("-",))) != same(((2, 1), ("-",)))
    assert same(((1, 2, 3), ("+", "*"))) == same(((3, 2, 1), ("*", "+")))
    assert same(((1, 2, 3), ("+", "*"))) != same(((1, 2, 3), ("*", "+")))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (dict(train="-3"), r"sums.train=-3: .* count of rows"),
        (dict(train="rows.jsonl"), r"sums.train=rows.jsonl: .* count of rows"),
        (dict(train="3", options={"digit": 2}), r"options.digit: .*did you mean digits\? Known: operands, digits"),
        (dict(train="3", options={"digits": 0}), r"options.digits=0"),
        (dict(train="3", options={"operators": ["/"]}), r"options.operators="),
    ],
)
def test_wrong_configs_name_the_key(keys, message):
    with pytest.raises(ConfigError, match=message):
        questions(sums(**keys), "train")


def test_a_missing_option():
    config = sums(train="3")
    del config.options["seed"]
    with pytest.raises(ConfigError, match="options.seed is missing"):
        questions(config, "train")


def test_sums_with_working_add_up_from_the_left():
    rows = arithmetic.read(sums(train="5", options={"operands": 4, "worked": True}), "sums", "train", HERE)
    for row in rows:
        numbers = [int(number) for number in row.question.rstrip("=").split("+")]
        *lines, total = [[int(number) for number in line.split("+")] for line in row.answer.split("=")]
        assert lines == [[sum(numbers[:2]), *numbers[2:]], [sum(numbers[:3]), *numbers[3:]]]
        assert total == [sum(numbers)]


def test_working_is_for_sums_alone():
    with pytest.raises(ConfigError, match=r"options.worked=True: true or false, and true for operators: \['\+'\]"):
        arithmetic.read(sums(train="5", options={"operators": ["-"], "worked": True}), "sums", "train", HERE)
