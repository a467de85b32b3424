"""Watch over the other ranks, so that one that fails, is killed or vanishes with its host ends all of them by name.

Where one launcher holds all ranks it sees that itself; torchrun on several hosts and NCCL do not.
"""

import socket
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

BEAT = 2.0  # seconds between two signs of life
SILENCE = 120.0  # seconds without one after which a rank counts as lost
GRACE = 10.0  # seconds that a rank has to fail by itself, once another has
ANSWER = 20.0  # seconds until the store counts as gone
FAILED = "failed"  # key of the first failure


class Peers:
    """What this rank knows of the others' life, through the store in which they met."""

    def __init__(
        self, store: Any, rank: int, size: int, on_loss: Callable[[str], None], silence: float = SILENCE
    ) -> None:
        """
        Args:
            store: of the rendezvous; another connection to it is made.
            on_loss: told what happened, on a thread; must end the process.
            silence: seconds without a sign of life after which a rank counts as lost.
        """
        self._store, self._rank, self._size = store.clone(), rank, size
        self._store.set_timeout(timedelta(seconds=ANSWER))
        self._on_loss, self._patience = on_loss, silence / BEAT
        self._name = f"rank {rank} on {socket.gethostname()}"
        self._quiet: dict[int, tuple[bytes, int]] = {}  # of each rank: its last sign of life, and beats since
        self._stopped = threading.Event()
        self._store.set(_beat(rank), self._name)
        self._thread = threading.Thread(target=self._watch, name="peers", daemon=True)
        self._thread.start()

    def failed(self, text: str) -> str | None:
        """Book the failure of this rank; the one before it, if there was one, which it then follows from.

        Args:
            text: the reason; its first line is told.
        """
        self._stopped.set()
        mine = f"{self._name}: {text.strip().splitlines()[0]}"
        try:
            first = self._store.compare_set(FAILED, "", mine).decode()
        except RuntimeError as error:
            print(f"{self._name}: rank 0 is gone, or its launcher ({error})", file=sys.stderr, flush=True)
            return None
        return None if first == mine else str(first)

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        count = 0
        while not self._stopped.wait(BEAT):
            count += 1
            try:
                first = self._first_failure(count)
            except RuntimeError as error:
                first = f"rank 0, or its launcher, which is gone ({error})"
            if first and not self._stopped.wait(GRACE):
                self._on_loss(f"{self._name} ends, after the failure of {first}")

    def _first_failure(self, count: int) -> str | None:
        """Give a sign of life, look for those of others, and for failures."""
        self._store.set(_beat(self._rank), f"{self._name} {count}")
        if self._rank == 0:
            self._look_for_silence()
        return self._store.get(FAILED).decode() if self._store.check([FAILED]) else None

    def _look_for_silence(self) -> None:
        ranks = [rank for rank in range(1, self._size) if self._store.check([_beat(rank)])]
        for rank, sign in zip(ranks, self._store.multi_get([_beat(r) for r in ranks]) if ranks else [], strict=True):
            last, beats = self._quiet.get(rank, (b"", 0))
            self._quiet[rank] = (sign, beats + 1 if sign == last else 0)
            if self._quiet[rank][1] > self._patience:
                name = sign.decode().rpartition(" ")[0]
                self._store.compare_set(FAILED, "", f"{name}: killed, frozen, or its host is gone: no sign of life")


def _beat(rank: int) -> str:
    return f"beat/{rank}"
