import pytest

from rlvr.config import compose
from rlvr.data.retire import Retirement
from rlvr.data.stream import PromptStream
from rlvr.keys import ConfigError
from rlvr.records import Prompt


def stream(count: int = 4) -> PromptStream:
    made = [Prompt(id=f"p{i}", source="s", text="", tokens=(1,), answer="", verifier="exact") for i in range(count)]
    return PromptStream({"s": made}, {"s": 1.0}, 0)


def test_so_many_groups_in_a_row_have_to_be_right() -> None:
    retirement = Retirement([2, 10])
    for step, right in enumerate([True, False, True]):
        retirement.learn([(step, "p0", right)], step)
        assert retirement.resting(step + 1) == 0
    retirement.learn([(3, "p0", True)], 3)
    assert [retirement.resting(step) for step in (4, 13, 14)] == [1, 1, 0]  # ten steps: 4 to 13


def test_a_recheck_that_fails_starts_anew() -> None:
    retirement = Retirement([2, 10])
    retirement.learn([(0, "p0", True), (1, "p0", True)], 0)
    retirement.learn([(9, "p0", True)], 11)
    assert retirement.resting(12) == 1  # still solved: it rests again at once
    retirement.learn([(20, "p0", False)], 22)
    assert retirement.state == {}
    retirement.learn([(21, "p0", True)], 23)
    assert retirement.resting(24) == 0


def test_groups_of_one_step_count_in_the_order_of_the_stream() -> None:
    retirement = Retirement([1, 5])
    retirement.learn([(7, "p0", True), (3, "p0", False)], 0)
    assert retirement.resting(1) == 1


def test_resting_prompts_are_passed_over() -> None:
    prompts, retirement = stream(), Retirement([1, 5])
    first = prompts.at(0).id
    retirement.learn([(0, first, True)], 0)
    assert retirement.awake(prompts, 0, 1) == 1
    assert retirement.awake(prompts, 0, 6) == 0


def test_where_all_rest_the_next_is_tried_early() -> None:
    prompts, retirement = stream(), Retirement([1, 5])
    retirement.learn([(i, f"p{i}", True) for i in range(4)], 0)
    assert retirement.awake(prompts, 6, 1) == 6


@pytest.mark.parametrize("rule", ["[1]", "[0,5]", "[3,0]", "[1,2,3]"])
def test_a_rule_is_two_numbers(rule: str) -> None:
    with pytest.raises(ConfigError, match="data.retire"):
        compose([f"data.retire={rule}"])
