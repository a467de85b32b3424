"""The reference's completions on disk."""

import pytest

from rlvr.records import Completion, Verdict
from rlvr.rollout.store import Graded, ReferenceStore, key_of
from tests.rollout.fakes import prompt

SETTINGS = {"reference": "abc", "temperature": 1.0}


def graded(*tokens: int, score: float | None = 1.0) -> Graded:
    completion = Completion(
        tokens=tokens, logprobs=tuple(-1 / (3 + t) for t in tokens), text="a\nb", truncated=False, source="reference"
    )
    return Graded(completion, Verdict(score=score, parts={"x": 0.1}, error=None if score is not None else "slow"))


def key(number: int = 0, k: int = 0) -> str:
    return key_of(prompt(number), {}, k)


def test_what_is_read_is_what_was_written_to_the_last_bit(tmp_path):
    one = graded(5, 6, 7)
    ReferenceStore(tmp_path, SETTINGS, "rank0").add([(key(), one), (key(k=1), graded(8, score=0.5))])
    again = ReferenceStore(tmp_path, SETTINGS, "rank0")
    assert again[key()] == one
    assert again[key(k=1)] == graded(8, score=0.5)
    assert len(again) == 2 and key(k=2) not in again


def test_a_verdict_that_could_not_be_given_is_not_kept(tmp_path):
    store = ReferenceStore(tmp_path, SETTINGS, "rank0")
    store.add([(key(), graded(5, score=None))])
    assert store[key()] == (graded(5).completion, None)


def test_what_one_process_writes_another_finds_after_a_refresh(tmp_path):
    one, other = (ReferenceStore(tmp_path, SETTINGS, f"rank{rank}") for rank in range(2))
    one.add([(key(), graded(5))])
    assert key() not in other
    other.refresh()
    assert other[key()] == graded(5)
    other.add([(key(1), graded(6))])
    one.add([(key(2), graded(7))])
    assert one[key(1)] == graded(6) and len(one) == 3
    assert len(list(one.folder.glob("*.jsonl"))) == 2  # no two processes write to one file


def test_a_torn_last_line_is_left_out_until_it_is_whole(tmp_path):
    store = ReferenceStore(tmp_path, SETTINGS, "rank0")
    store.add([(key(k), graded(5, k)) for k in range(2)])
    (file,) = store.folder.glob("*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    reader = ReferenceStore(tmp_path, SETTINGS, "rank0")
    assert len(reader) == 1
    file.write_bytes(whole)
    reader.refresh()
    assert reader[key(1)] == graded(5, 1)


def test_a_line_that_is_no_row_is_named(tmp_path):
    store = ReferenceStore(tmp_path, SETTINGS, "rank0")
    store.add([(key(), graded(5))])
    (store.folder / "own.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(ValueError, match=r"own\.jsonl, byte 0: not a row"):
        ReferenceStore(tmp_path, SETTINGS, "rank0")


@pytest.mark.parametrize("change", [{"temperature": 0.7}, {"reference": "abd"}, {"stop_ids": [2]}])
def test_other_settings_are_another_folder(tmp_path, change):
    ReferenceStore(tmp_path, SETTINGS, "rank0").add([(key(), graded(5))])
    assert len(ReferenceStore(tmp_path, SETTINGS | change, "rank0")) == 0
    assert len(ReferenceStore(tmp_path, SETTINGS, "rank0")) == 1


def test_a_key_depends_on_all_that_decides_tokens_and_verdict():
    told = [
        key_of(prompt(0), {}, 0),
        key_of(prompt(0), {}, 1),
        key_of(prompt(1), {}, 0),
        key_of(prompt(0, tokens=(1, 11)), {}, 0),
        key_of(prompt(0, answer="8"), {}, 0),
        key_of(prompt(0, verifier="number"), {}, 0),
        key_of(prompt(0), {"strict": True}, 0),
    ]
    assert len(set(told)) == len(told)
    assert key_of(prompt(0, facts={"v_star": 1.0}), {}, 0) == told[0]


def test_a_verifier_of_ones_own_is_known_by_its_code(tmp_path):
    file = tmp_path / "mine.py"
    keys = []
    for text in ("def f(): return 0", "def f(): return 1"):
        file.write_text(text)
        key_of.__globals__["_own_code"].cache_clear()
        keys += [key_of(prompt(0, verifier=f"{file}:f"), {}, 0), key_of(prompt(0), {"parts": {"a": f"{file}:f"}}, 0)]
    assert len(set(keys)) == 4
