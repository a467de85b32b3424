from decimal import Decimal

import pytest

from rlvr.data.gold import gold, last_box


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(" 42 ", "42"), (42, "42"), (-1.5, "-1.5"), (Decimal("2.50"), "2.50"), ([1, 2], [1, 2]), ({"a": 1}, {"a": 1})],
)
def test_texts_are_stripped_numbers_become_texts_and_the_rest_is_left(answer, expected):
    assert gold(answer, {}) == expected


@pytest.mark.parametrize("answer", [None, "", "  ", float("nan"), float("inf"), True, b"5"])
def test_no_usable_gold(answer):
    with pytest.raises(ValueError, match="gold"):
        gold(answer, {})


def test_after_the_last_mark():
    assert gold("3 #### 4\nso\n#### 1,234", {"answer_after": "####"}) == "1,234"
    with pytest.raises(ValueError, match="no '####' in the answer column"):
        gold("1234", {"answer_after": "####"})


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        (r"so $\boxed{3}$, no, $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"$\boxed{\{1,2\}}$", r"\{1,2\}"),
        (r"\fbox{7}", "7"),
    ],
)
def test_the_last_box(solution, expected):
    assert last_box(solution) == expected


@pytest.mark.parametrize(("solution", "message"), [("42", "no .*boxed"), (r"\boxed{1} then \boxed{2", "not closed")])
def test_no_complete_box(solution, message):
    with pytest.raises(ValueError, match=message):
        gold(solution, {"answer_boxed": True})
