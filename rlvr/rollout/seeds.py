"""Randomness as a function of place: a completion's seed follows from where it stands in the run."""

import hashlib


def seed_of(run_seed: int, *place: int | str) -> int:
    """A seed in [0, 2**31) that depends on the run's seed and on `place`, and on nothing else.

    Example: seed_of(0, "train", 17, "policy", 3) is the fourth policy completion of the prompt at stream position 17,
    on any number of ranks and after any number of restarts.
    """
    told = "/".join(map(str, (run_seed, *place)))
    return int.from_bytes(hashlib.blake2b(told.encode(), digest_size=8).digest(), "big") >> 33
