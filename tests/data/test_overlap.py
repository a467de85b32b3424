import random

import pytest

from rlvr.data.overlap import COMMON, Questions, equal, near

# 26 different words, so that runs of 13 words have known places.
WORDS = [f"w{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]


def questions(*texts, name="q"):
    return Questions([f"{name}/{i}" for i in range(len(texts))], texts)


def told(matches):
    return [(match.row, match.other, round(match.share, 4)) for match in matches]


def test_equal_but_for_case_and_spacing():
    train, test = questions("What is 2+3 ?", "x", "what is 2 + 3?", name="train"), questions("WHAT  is 2+3?", "2-3")
    assert told(equal(test, train)) == [("q/0", "train/0", 1.0)]


def test_the_share_is_that_of_the_words_which_stand_in_the_other():
    text = " ".join(WORDS)
    changed = " ".join([*WORDS[:20], "other", *WORDS[21:]])  # runs 0 to 7 survive: words 0 to 19
    assert told(near(questions(text), questions(changed, name="train"))) == [("q/0", "train/0", round(20 / 26, 4))]
    early = " ".join([*WORDS[:12], "other", *WORDS[13:]])  # run 13 alone survives: words 13 to 25
    assert told(near(questions(text), questions(early, name="train"))) == [("q/0", "train/0", 0.5)]
    middle = " ".join([*WORDS[:12], "other", "more", *WORDS[14:]])  # no run of 13 words is left
    assert near(questions(text), questions(middle, name="train")) == []


def test_a_question_inside_a_longer_one_is_found_whatever_its_signs():
    inside = f"Think. {', '.join(WORDS)}! And then answer."
    assert told(near(questions(" ".join(WORDS)), questions(inside, name="train"))) == [("q/0", "train/0", 1.0)]
    assert near(questions(inside), questions("wa wb", name="train")) == []


@pytest.mark.parametrize(("words", "found"), [(12, True), (8, True), (7, False)])
def test_short_questions_are_looked_for_as_a_whole(words, found):
    text = " ".join(WORDS[:words])
    assert bool(near(questions(text), questions(f"please say {text} now", name="train"))) is found


def test_equal_ones_are_not_near():
    assert near(questions(" ".join(WORDS)), questions(" ".join(WORDS).upper(), name="train")) == []


def test_phrases_of_many_questions_are_no_evidence_and_no_words_of_their_own():
    phrase = " ".join(WORDS[:14])
    rest = [" ".join(f"v{i}x{j}" for j in range(20)) for i in range(400)]
    train = questions(*(f"{phrase} {text}" for text in rest), name="train")
    assert near(questions(f"{phrase} nothing of the rest"), train) == []
    # 10 of the 20 own words: v5x0 to v5x9 in one run with the last words of the phrase
    half = f"{phrase} " + " ".join([*rest[5].split()[:10], *(f"u{j}" for j in range(10))])
    assert told(near(questions(half), train)) == [("q/0", "train/5", 0.5)]
    assert len(rest) > COMMON


def test_within_one_set_each_pair_comes_once():
    text = " ".join(WORDS)
    same = questions(text, text + " end", "quite another question of many more words than thirteen and some other ones")
    assert told(near(same, same)) == [("q/1", "q/0", round(26 / 27, 4))]


def test_agrees_with_a_plain_search():
    draw = random.Random(0)
    texts = [[f"w{draw.randrange(60)}" for _ in range(draw.randint(9, 40))] for _ in range(300)]
    for i in range(60):
        at = draw.randrange(len(texts[i]) // 2)
        texts[200 + i] = [*texts[i][:at], "changed", *texts[i][at + 1 :]]
    train = questions(*(" ".join(words) for words in texts[:200]), name="train")
    test = questions(*(" ".join(words) for words in texts[200:]))
    assert {(m.row, m.other): pytest.approx(m.share) for m in near(test, train)} == plain(texts[200:], texts[:200])


def plain(wanted, others):
    """Shares of at least a half, run by run; no run is common here."""
    found = {}
    for i, row in enumerate(wanted):
        size = min(13, len(row))
        for j, other in enumerate(others):
            runs = {tuple(other[k : k + size]) for k in range(len(other) - size + 1)}
            covered = {
                k + d for k in range(len(row) - size + 1) if tuple(row[k : k + size]) in runs for d in range(size)
            }
            if len(covered) >= len(row) / 2 and row != other:
                found[f"q/{i}", f"train/{j}"] = len(covered) / len(row)
    assert len(found) > 30
    return found
