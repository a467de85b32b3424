"""Seeds are a function of place."""

from rlvr.rollout.seeds import seed_of


def test_a_seed_depends_on_every_part_of_its_place():
    places = [
        (0, "train", 1, "policy", 2),
        (1, "train", 1, "policy", 2),
        (0, "validation", 1, "policy", 2),
        (0, "train", 2, "policy", 2),
    ]
    places += [
        (0, "train", 1, "reference", 2),
        (0, "train", 1, "policy", 3),
        (0, "train", 12, "policy", 3),
        (0, "train", 1, "policy", 23),
    ]
    assert len({seed_of(*place) for place in places}) == len(places)
    assert all(0 <= seed_of(*place) < 2**31 for place in places)


def test_seeds_stay_the_same_between_versions():
    """A changed seed would change every resumed run."""
    assert seed_of(0, "train", 17, "policy", 3) == 570_445_451
