"""Questions that stand in two places, word for word or nearly so.

Two questions are equal if they agree but for case and spacing.  One is nearly another if runs of its words, rare ones,
stand in the other and cover at least half of its own words.  Runs are 13 words long (Brown et al. 2020,
arXiv:2005.14165, appendix C), or as long as the question where that is 8 to 12; shorter questions are compared as a
whole.  Runs that stand in more than ten of the other questions, or in more than a twentieth where there are few, are
phrases ("put your final answer within"): no evidence, and the words that they cover are not the question's own.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rlvr.data.rows import normalised, text_of
from rlvr.records import Row

LONGEST, SHORTEST = 13, 8  # words of a run
COMMON = 10  # most questions that may share a run before it counts as a phrase
SCARCE = 2  # the same, where there are few questions
SHARE = 0.5  # of a question's own words, from which on the other is nearly the same
CHUNK = 1 << 18  # words that are looked up at once

_WORD = re.compile(r"\w+")

Ints = np.ndarray[Any, np.dtype[np.int64]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True)
class Match:
    """Two questions that are equal (share 1) or nearly so."""

    row: str  # id of the one that is looked for
    other: str  # id of the one in which it was found
    share: float  # of the own words of `row` that stand in `other`
    equal: bool

    def __str__(self) -> str:
        return f"{self.other} {'=' if self.equal else f'has {self.share:.0%} of'} {self.row}"


class Questions:
    """Questions in the form in which they are compared; made once, compared with many.

    Args:
        ids: of the rows.
        texts: the questions.
    """

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        self.ids = list(ids)
        self.forms = [normalised(text) for text in texts]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Questions":
        """The questions of rows, with all that their messages say."""
        return cls([row.id for row in rows], [text_of(row.messages) for row in rows])

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def first(self) -> dict[str, int]:
        """The first row of each form."""
        found: dict[str, int] = {}
        for index, form in enumerate(self.forms):
            found.setdefault(form, index)
        return found

    @cached_property
    def distinct(self) -> "Words":
        """The words of the first row of each form."""
        return Words(list(self.first.values()), list(self.first))


class Words:
    """The words of questions as one array of hashes.

    `row_W` says whose word it is: an index into `rows`, which are indices of the questions.
    """

    def __init__(self, rows: Sequence[int], forms: Sequence[str]) -> None:
        self.rows = np.asarray(rows, dtype=np.int64)
        seen: dict[str, int] = {}
        words = [[seen.setdefault(word, len(seen)) for word in _WORD.findall(form)] for form in forms]
        self.length_N: Ints = np.fromiter(map(len, words), np.int64, len(words))
        self.start_N: Ints = np.cumsum(self.length_N) - self.length_N
        self.row_W: Ints = np.repeat(np.arange(len(words)), self.length_N)
        hashes = np.fromiter((_hash(word) for word in seen), np.uint64, len(seen))
        self.hash_W: Hashes = hashes[np.fromiter((i for own in words for i in own), np.int64, len(self.row_W))]

    def runs(self, size: int) -> tuple[Hashes, Ints]:
        """Hashes of all runs of `size` words within a question, and where they start."""
        count = len(self.hash_W) - size + 1
        if count < 1:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        whole: Ints = np.flatnonzero(self.row_W[:count] == self.row_W[size - 1 :])
        total = np.zeros(count, np.uint64)
        for offset in range(size):  # a polynomial in an odd number, modulo 2 to the 64
            total = total * np.uint64(0x9E3779B97F4A7C15) + self.hash_W[offset : offset + count]
        return _mixed(total[whole]), whole


def _hash(word: str) -> int:
    """64 bits of a word, the same in every process."""
    value = 0xCBF29CE484222325  # FNV-1a
    for byte in word.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def _mixed(hash_R: Hashes) -> Hashes:
    """Spread the bits (the finaliser of splitmix64)."""
    hash_R = (hash_R ^ (hash_R >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hash_R = (hash_R ^ (hash_R >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hash_R ^ (hash_R >> np.uint64(31))


def equal(wanted: Questions, among: Questions) -> list[Match]:
    """For each wanted question that is among the others, the first that equals it."""
    places = [(index, among.first.get(form)) for index, form in enumerate(wanted.forms)]
    return [Match(wanted.ids[i], among.ids[place], 1.0, True) for i, place in places if place is not None]


def near(wanted: Questions, among: Questions) -> list[Match]:
    """Pairs of which the wanted question is nearly, but not quite, one of the others.

    Of questions that are equal to each other only the first is looked at.  With `wanted is among` each pair comes once.
    """
    found: dict[tuple[int, int], float] = {}
    words, others = wanted.distinct, among.distinct
    for size in range(SHORTEST, LONGEST + 1):
        looked_for = np.minimum(words.length_N, LONGEST) == size
        if looked_for.any():
            for row, other, share in _covered(words, looked_for, others, size):
                found[row, other] = max(share, found.get((row, other), 0.0))
    pairs = []
    for (row, other), share in sorted(found.items()):
        same = wanted.forms[row] == among.forms[other]
        mirrored = wanted is among and row < other and (other, row) in found
        if not same and not mirrored:
            pairs.append(Match(wanted.ids[row], among.ids[other], share, False))
    return pairs


def _covered(words: Words, looked_for: Any, others: Words, size: int) -> Iterator[tuple[int, int, float]]:
    """Rows of `words`, rows of `others`, and which share of the first's own words stands in the second."""
    run_R, place_R = words.runs(size)
    mine = looked_for[words.row_W[place_R]]
    run_R, place_R = run_R[mine], place_R[mine]
    known_U, key_R = np.unique(run_R, return_inverse=True)
    # Which runs stand in which of the other questions, each pair once, in order of the runs.
    itself = words is others and bool(mine.all())
    key_P, other_P = _pairs(key_R, words.row_W[place_R], others) if itself else _occurrences(known_U, others, size)
    count_U = np.bincount(key_P, minlength=len(known_U))
    first_U = np.cumsum(count_U) - count_U
    common = min(COMMON, max(SCARCE, len(others.rows) // 20))
    own_W = _own_words(len(words.hash_W), place_R[count_U[key_R] > common], size)
    before_W = np.concatenate([[0], np.cumsum(own_W)])  # own words before each place
    own_N = before_W[words.start_N + words.length_N] - before_W[words.start_N]
    telling = (count_U[key_R] > (words is others)) & (count_U[key_R] <= common)
    key_T, place_T = key_R[telling], place_R[telling]
    # One entry per run of a wanted question and other question that has it.
    times_T = count_U[key_T]
    place_E = np.repeat(place_T, times_T)
    offset_E = np.arange(len(place_E)) - np.repeat(np.cumsum(times_T) - times_T, times_T)
    other_E = other_P[np.repeat(first_U[key_T], times_T) + offset_E]
    row_E = words.row_W[place_E]
    order = np.lexsort((place_E, other_E, row_E))
    row_E, other_E, place_E = row_E[order], other_E[order], place_E[order]
    new_E = np.ones(len(row_E), bool)
    new_E[1:] = (row_E[1:] != row_E[:-1]) | (other_E[1:] != other_E[:-1])
    end_E = place_E + size
    end_E[:-1] = np.where(new_E[1:], end_E[:-1], np.minimum(end_E[:-1], place_E[1:]))
    start_G = np.flatnonzero(new_E)
    if not len(start_G):
        return
    covered_G = np.add.reduceat(before_W[end_E] - before_W[place_E], start_G)
    share_G = covered_G / np.maximum(own_N[row_E[start_G]], 1)
    for group in np.flatnonzero(share_G >= SHARE):
        row, other = row_E[start_G[group]], other_E[start_G[group]]
        yield int(words.rows[row]), int(others.rows[other]), float(share_G[group])


def _occurrences(known_U: Hashes, others: Words, size: int) -> tuple[Ints, Ints]:
    """Index of a known run and row of a question that has it; see `_pairs`."""
    run_R, place_R = others.runs(size)
    keys, rows = [], []
    for start in range(0, len(run_R), CHUNK):
        some = run_R[start : start + CHUNK]
        key = np.minimum(np.searchsorted(known_U, some), len(known_U) - 1)
        hit = known_U[key] == some
        keys.append(key[hit])
        rows.append(others.row_W[place_R[start : start + CHUNK][hit]])
    nothing = [np.empty(0, np.int64)]
    return _pairs(np.concatenate(nothing + keys), np.concatenate(nothing + rows), others)


def _pairs(key_R: Ints, row_R: Ints, others: Words) -> tuple[Ints, Ints]:
    """Keys of runs and rows that have them: each pair once, sorted."""
    pair = np.unique(key_R * len(others.rows) + row_R)
    return pair // len(others.rows), pair % len(others.rows)


def _own_words(words: int, phrase_P: Ints, size: int) -> Ints:
    """1 for each word that no phrase covers; `phrase_P` are the places where phrases of `size` words start."""
    edge = np.zeros(words + 1, np.int64)
    np.add.at(edge, phrase_P, 1)
    np.add.at(edge, phrase_P + size, -1)
    return (np.cumsum(edge[:-1]) == 0).astype(np.int64)
