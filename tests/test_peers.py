"""A rank that fails, or falls silent, is known to the others by name, wherever they are stuck."""

import threading
import time

import pytest

from rlvr import peers
from rlvr.peers import Peers
from rlvr.rendezvous import serve


@pytest.fixture
def watch(monkeypatch):
    """Peers of three ranks in this process, on a store of their own; what is told of losses comes into `told`."""
    for name, seconds in (("BEAT", 0.05), ("GRACE", 0.2), ("ANSWER", 2.0)):
        monkeypatch.setattr(peers, name, seconds)
    store, told, made = serve(0, everywhere=False), {}, []
    heard = threading.Event()

    def start(rank: int, silence: float = 60.0) -> Peers:
        def on_loss(text: str) -> None:
            told[rank] = text
            made[rank]._stopped.set()
            heard.set()

        made.append(Peers(store, rank, 3, on_loss, silence))
        return made[-1]

    start.told, start.heard = told, heard
    yield start
    for one in made:
        one.stop()


def test_the_others_learn_of_the_first_failure_by_name(watch):
    ranks = [watch(rank) for rank in range(3)]
    assert ranks[1].failed("ZeroDivisionError: the loss\nof rank 1") is None  # it is the first
    assert "rank 1 on " in ranks[2].failed("connection closed by peer")  # follows within its grace
    assert watch.heard.wait(5)  # rank 0 is stuck and cannot fail by itself
    assert "rank 0 on" in watch.told[0] and "after the failure of rank 1 on" in watch.told[0]
    assert watch.told[0].endswith("ZeroDivisionError: the loss") and 2 not in watch.told


def test_a_rank_that_falls_silent_is_named(watch):
    ranks = [watch(rank, silence=0.4) for rank in range(3)]
    time.sleep(0.3)
    ranks[2].stop()
    assert watch.heard.wait(5)
    assert "after the failure of rank 2 on" in next(iter(watch.told.values()))
    assert "no sign of life" in next(iter(watch.told.values()))


def test_nobody_is_blamed_while_all_is_well(watch):
    for rank in range(3):
        watch(rank, silence=1.0)
    time.sleep(2.0)
    assert not watch.told
