from collections import Counter

import pytest

from rlvr.data.shuffle import Shuffle


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 1000, 4097])
def test_every_element_once(size):
    order = Shuffle(size, 7, "x")
    assert sorted(order.at(i) for i in range(size)) == list(range(size))


def test_the_order_depends_on_every_part_of_the_key():
    keys = [(0,), (1,), (0, "a"), (0, "b"), (0, "b", 1)]
    assert len({tuple(Shuffle(50, *key).at(i) for i in range(50)) for key in keys}) == len(keys)


def test_the_order_is_fixed_for_good():
    """A resumed run reads the order of the run before it: these numbers may never change."""
    assert [Shuffle(10, 0, "rows").at(i) for i in range(10)] == [4, 6, 5, 3, 9, 1, 0, 8, 2, 7]


@pytest.mark.parametrize("size", [3, 5, 8])
def test_every_element_comes_first_equally_often(size):
    keys = 2000
    first = Counter(Shuffle(size, key).at(0) for key in range(keys))
    spread = (keys * (1 / size) * (1 - 1 / size)) ** 0.5
    assert all(abs(first[i] - keys / size) < 4 * spread for i in range(size))


def test_a_space_too_large_to_list():
    order = Shuffle(10**40, 0)
    seen = {order.at(i) for i in range(500)}
    assert len(seen) == 500
    assert max(seen) < 10**40
    assert max(seen) - min(seen) > 9 * 10**39


@pytest.mark.parametrize("index", [-1, 5])
def test_outside_the_range(index):
    with pytest.raises(IndexError):
        Shuffle(5, 0).at(index)
