import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.data.stream import PromptStream, Turns
from rlvr.records import Prompt


def prompts(source, count):
    same = dict(source=source, text="", answer="", verifier="number")
    return [Prompt(id=f"{source}/{i}", tokens=(i,), **same) for i in range(count)]


def ids(stream, positions):
    return [stream.at(position).id for position in positions]


def test_every_epoch_has_every_prompt_once_in_another_order():
    stream = PromptStream({"a": prompts("a", 8)}, {"a": 1.0}, seed=0)
    epochs = [ids(stream, range(8 * e, 8 * e + 8)) for e in range(4)]
    assert all(sorted(epoch) == [f"a/{i}" for i in range(8)] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_a_cursor_resumes_anywhere_epoch_boundaries_included():
    """8 rows in batches of 4 for 2 epochs, killed after step 2: the other half comes out, no more and no less."""
    sources, weights = {"a": prompts("a", 8)}, {"a": 1.0}
    whole = ids(PromptStream(sources, weights, seed=5), range(16))
    for cursor in range(0, 16, 4):
        assert ids(PromptStream(sources, weights, seed=5), range(cursor, 16)) == whole[cursor:]


def test_positions_may_be_read_in_any_order():
    sources, weights = {"a": prompts("a", 5), "b": prompts("b", 3)}, {"a": 2.0, "b": 1.0}
    forward = ids(PromptStream(sources, weights, seed=1), range(60))
    backward = ids(PromptStream(sources, weights, seed=1), reversed(range(60)))
    assert forward == backward[::-1]


def test_ranks_that_take_turns_see_what_one_rank_sees():
    sources, weights = {"a": prompts("a", 7), "b": prompts("b", 4)}, {"a": 0.6, "b": 0.4}
    alone = ids(PromptStream(sources, weights, seed=2), range(24))
    for world in (2, 4):
        ranks = [ids(PromptStream(sources, weights, seed=2), range(rank, 24, world)) for rank in range(world)]
        assert [ranks[position % world][position // world] for position in range(24)] == alone


def test_epochs_hold_inside_a_mixture():
    stream = PromptStream({"a": prompts("a", 6), "b": prompts("b", 4)}, {"a": 0.7, "b": 0.3}, seed=0)
    drawn = ids(stream, range(200))
    for source, size in (("a", 6), ("b", 4)):
        own = [prompt for prompt in drawn if prompt.startswith(source)]
        for start in range(0, len(own) - size, size):
            assert len(set(own[start : start + size])) == size


def test_seeds_and_sources_have_orders_of_their_own():
    a = {seed: ids(PromptStream({"a": prompts("a", 20)}, {"a": 1.0}, seed=seed), range(20)) for seed in (0, 1)}
    b = ids(PromptStream({"b": prompts("b", 20)}, {"b": 1.0}, seed=0), range(20))
    assert a[0] != a[1]
    assert [prompt[2:] for prompt in a[0]] != [prompt[2:] for prompt in b]


def test_another_process_gives_the_same_order():
    call = "ids(PromptStream({'a': prompts('a', 9), 'b': prompts('b', 5)}, {'a': 1.0, 'b': 2.0}, seed=3), range(40))"
    command = [sys.executable, "-c", f"from tests.data.test_stream import *; print({call})"]
    root, here = (
        Path(__file__).parents[2],
        ids(PromptStream({"a": prompts("a", 9), "b": prompts("b", 5)}, {"a": 1.0, "b": 2.0}, seed=3), range(40)),
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
        assert ran.stdout == f"{here}\n"


@pytest.mark.parametrize(
    "weights",
    [[1.0], [1, 1], [0.7, 0.2, 0.1], [0.5, 0.25, 0.125, 0.125], [1, 2, 3, 4, 5], [0.9, 0.013, 0.05, 0.037], [1] * 10],
)
def test_after_any_number_of_turns_each_source_is_within_one_of_its_share(weights):
    named = {f"s{i}": weight for i, weight in enumerate(weights)}
    turns, total, had = Turns(named), sum(weights), dict.fromkeys(named, 0)
    for n in range(1, 500):
        source, before = turns.at(n - 1)
        assert before == had[source]
        had[source] += 1
        assert all(abs(had[s] - weight / total * n) < 1 for s, weight in named.items())


def test_far_positions_cost_nothing_where_the_weights_repeat():
    assert Turns({"a": 3.0, "b": 1.0}).at(4 * 10**12)[1] in (3 * 10**12, 10**12)


@pytest.mark.parametrize(
    ("sources", "weights", "message"),
    [
        ({}, {}, "no prompts"),
        ({"a": []}, {"a": 1.0}, "source a has no prompts"),
        ({"a": prompts("a", 1)}, {"b": 1.0}, "source a needs a weight"),
        ({"a": prompts("a", 1)}, {"a": -1.0}, "source a needs a weight"),
        ({"a": prompts("a", 1)}, {"a": 0.0}, "one of the sources a needs a weight greater than 0"),
    ],
)
def test_nothing_to_draw_from(sources, weights, message):
    with pytest.raises(ValueError, match=message):
        PromptStream(sources, weights, seed=0)


def test_negative_positions_are_refused():
    with pytest.raises(IndexError):
        PromptStream({"a": prompts("a", 3)}, {"a": 1.0}, seed=0).at(-1)


# -- other weights from a position on -------------------------------------------------------


def test_a_source_of_weight_zero_waits_for_its_turn():
    sources = {"a": prompts("a", 6), "b": prompts("b", 4)}
    stream = PromptStream(sources, {"a": 1.0, "b": 0.0}, seed=0)
    assert all(prompt.startswith("a/") for prompt in ids(stream, range(20)))
    stream.reweigh({"a": 1.0, "b": 1.0}, position=20)
    drawn = ids(stream, range(20, 40))
    assert sum(prompt.startswith("b/") for prompt in drawn) == 10
    stream.reweigh({"a": 0.0, "b": 1.0}, position=40)
    assert all(prompt.startswith("b/") for prompt in ids(stream, range(40, 60)))


def test_reweighing_keeps_the_past_and_the_epochs():
    sources, weights = {"a": prompts("a", 6), "b": prompts("b", 4)}, {"a": 0.7, "b": 0.3}
    plain, changed = (PromptStream(sources, weights, seed=3) for _ in range(2))
    changed.reweigh({"a": 1.0, "b": 4.0}, position=17)
    changed.reweigh({"a": 2.0, "b": 1.0}, position=51)
    assert ids(changed, range(17)) == ids(plain, range(17))
    drawn = ids(changed, range(200))
    assert ids(changed, reversed(range(200))) == drawn[::-1]
    for source, size in (("a", 6), ("b", 4)):
        own = [prompt for prompt in drawn if prompt.startswith(source)]
        for start in range(0, len(own) - size, size):
            assert len(set(own[start : start + size])) == size


def test_the_same_weights_change_nothing():
    sources, weights = {"a": prompts("a", 6), "b": prompts("b", 4)}, {"a": 0.7, "b": 0.3}
    plain, same = (PromptStream(sources, weights, seed=3) for _ in range(2))
    same.reweigh(weights, position=5)
    assert ids(same, range(50)) == ids(plain, range(50))


@pytest.mark.parametrize("count", [0, 1, 6, 7, 10, 93])
def test_had_counts_the_turns(count):
    turns = Turns({"a": 0.7, "b": 0.2, "c": 0.1})
    first = [turns.at(n)[0] for n in range(count)]
    assert turns.had(count) == {s: first.count(s) for s in "abc"}
