import pytest

from rlvr.keys import ConfigError
from rlvr.verifiers import build, judge

NUMBER = build("number")


@pytest.mark.parametrize(
    ("gold", "response", "score"),
    [
        ("42", "2+40=42\n#### 42\nand some chatter", 1),
        (42, "So 40 and 2 make 42.", 1),
        ("42", "The answer is 42 marbles because 40+2=42.", 1),
        ("-5", "The final answer is -5.", 1),
        ("5", "The final answer is -5.", 0),
        ("5", "Answer: 1-5", 0),
        ("200000", "So his profit is $200,000.", 1),
        ("1/3", "#### \\frac13", 1),
        ("1/3", "#### 0.3333333333333333", 0),
        ("0.1", "#### 1e-1", 1),
        ("28%", "\\boxed{28}", 1),
        ("28", "\\boxed{28\\%}", 0),
        ("3", "\\boxed{3 or 5}", 0),
        ("5", "\\boxed{3 or x=5}", 0),
        ("3", "The answer is 3 or 5.", 0),
        ("3", "#### 3, 5", 0),
        ("3", "The answer is not 3.", 0),
        ("3", "The answer is 3 (not counting the dog).", 1),
        ("7", "so the total is $3+4=7$.", 1),
        ("5", "<think>5", 0),
        ("5", "<think>7</think>5", 1),
        ("5", "", 0),
        ("100", "1 2 3 ... 99 101", 0),
        ("9007199254740993", "#### 9007199254740992", 0),
    ],
)
def test_number(gold: object, response: str, score: int) -> None:
    assert judge(NUMBER, response, gold).score == score


@pytest.mark.parametrize(
    ("extract", "response", "score"),
    [
        ("boxed", "#### 5", 0), ("boxed", "\\boxed{5}", 1), ("hash", "\\boxed{5}", 0), ("hash", "#### 5", 1),
        ("answer", "Answer: 5, #### 6", 0), ("answer", "Answer: 5", 1), ("last", "\\boxed{4} no, 5", 1),
        ("whole", " 5 ", 1), ("whole", "it is 5", 0),
    ],
)  # fmt: skip
def test_extract_modes(extract: str, response: str, score: int) -> None:
    assert judge(build("number", {"extract": extract}), response, "5").score == score


def test_tolerance_is_relative() -> None:
    near = build("number", {"tolerance": 0.01})
    assert judge(near, "#### 1.009", "1").score == 1
    assert judge(near, "#### 1.011", "1").score == 0
    assert judge(near, "#### 1e-20", "1e-21").score == 0
    assert judge(near, "#### 1e-20", "0").score == 0


@pytest.mark.parametrize("gold", ["", "proof", None, True, [5], "3 or 5", "1/0"])
def test_ungradable(gold: object) -> None:
    with pytest.raises(ValueError, match="answer"):
        NUMBER.check_answer(gold)


def test_wrong_options_name_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'tolerance'"):
        build("number", {"tolerence": 1})
    with pytest.raises(ConfigError, match="did you mean 'boxed'"):
        build("number", {"extract": "boxd"})
    with pytest.raises(ConfigError, match="must be in"):
        build("number", {"tolerance": -1})


def test_parts_count_boxes() -> None:
    assert judge(NUMBER, "\\boxed{1} then \\boxed{2}", "2").parts == {"answered": 1.0, "boxes": 2.0}
    assert judge(NUMBER, "nothing", "2").parts == {"answered": 0.0, "boxes": 0.0}
