"""Time the comparison of questions: made-up word problems, some of them copied or changed a little.

    python scripts/bench/overlap.py [rows=100000] [held=5000] [words=80]

Prints the seconds of each part, the largest memory, and whether every planted copy was found and nothing else.
"""

import random
import resource
import time

from _runs import settings

from rlvr.data.overlap import Questions, equal, near


def made_up(count: int, length: int, draw: random.Random) -> list[str]:
    """Questions of about `length` words of a vocabulary with the frequencies of a language (Zipf)."""
    vocabulary = [f"word{i}" for i in range(20_000)]
    weights = [1 / (i + 1) for i in range(len(vocabulary))]
    sizes = [draw.randint(length // 2, 3 * length // 2) for _ in range(count)]
    words = draw.choices(vocabulary, weights, k=sum(sizes))
    texts, at = [], 0
    for size in sizes:
        texts.append("Solve the following problem step by step: " + " ".join(words[at : at + size]) + "?")
        at += size
    return texts


def main() -> None:
    """Measure and print."""
    given = {name: int(value) for name, value in settings(rows="100000", held="5000", words="80").items()}
    draw = random.Random(0)
    train, held = (made_up(given[name], given["words"], draw) for name in ("rows", "held"))
    copies = {i: train[i] for i in range(100)}
    changed = {100 + i: train[1000 + i].replace("word0", "other", 2) for i in range(100)}
    for place, text in (copies | changed).items():
        held[place] = text
    start = time.perf_counter()
    among = Questions([f"train/{i}" for i in range(len(train))], train)
    wanted = Questions([f"test/{i}" for i in range(len(held))], held)
    _ = among.distinct, wanted.distinct
    read = time.perf_counter()
    same = equal(wanted, among)
    close = near(wanted, among)
    compared = time.perf_counter()
    within = near(among, among)
    done = time.perf_counter()
    unchanged = sum(held[place] == train[1000 + place - 100] for place in changed)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{len(train):,} training rows, {len(held):,} held-out rows, {len(among.distinct.hash_W):,} words")
    print(f"reading          {read - start:6.1f} s")
    print(f"against held-out {compared - read:6.1f} s  {len(same)} equal, {len(close)} near")
    print(f"within training  {done - compared:6.1f} s  {len(within)} near")
    print(f"together         {done - start:6.1f} s, {memory:.1f} GiB")
    assert len(same) == 100 + unchanged and len(close) == 100 - unchanged and not within, "planted pairs were missed"


if __name__ == "__main__":
    main()
