"""Completions of the reference, graded; each a function of seed, prompt and number, whatever is stored already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlvr import __version__
from rlvr.data.sources import verifier_options
from rlvr.engine.sampler import Order
from rlvr.engine.tiny import cache_folder
from rlvr.records import Completion, Prompt, Verdict
from rlvr.rollout.draw import Drawer
from rlvr.rollout.seeds import seed_of
from rlvr.rollout.store import Graded, ReferenceStore, key_of
from rlvr.schema.train import TrainConfig
from rlvr.world import World

FORMAT = 1  # raise it when the same settings would give other completions


class Place(NamedTuple):
    """The k-th completion of a prompt."""

    prompt: Prompt
    k: int


class ReferenceSampler:
    """Draws from the reference; what is stored is not drawn again.

    Seeds do not depend on the step, so that a stored completion is the one that would be drawn: the store changes what
    a run costs and never what it trains on.  Only the reference that a run starts with is stored: it is shared by
    many runs and hashed once.  One that has been moved belongs to its run alone, may move again at every step, and is
    drawn from anew.
    """

    def __init__(self, drawer: Drawer, config: TrainConfig, world: World) -> None:
        self.drawer, self.config, self.world = drawer, config, world
        self._identity: str | None = None
        self._opened: ReferenceStore | None = None

    def draw(self, prompts: Sequence[Prompt], numbers: range, ahead: Sequence[Prompt] = ()) -> list[list[Graded]]:
        """Completions `numbers` of each prompt; every rank calls it.

        Args:
            prompts: this rank's.
            numbers: which completions, counted from 0.
            ahead: prompts that the store is filled for by the way, if anything has to be drawn at all.
        """
        places = [Place(prompt, k) for prompt in prompts for k in numbers]
        if (store := self._store()) is None:
            graded = self._sample(places)
        else:
            graded = self._through(store, places, [Place(prompt, k) for prompt in ahead for k in numbers])
        return [graded[i : i + len(numbers)] for i in range(0, len(graded), len(numbers))]

    def _through(self, store: ReferenceStore, places: Sequence[Place], later: Sequence[Place]) -> list[Graded]:
        with self.drawer.clock("store"):
            store.refresh()
            keys = [self._key(place) for place in places]
            missing = {key: place for key, place in zip(keys, places, strict=True) if key not in store}
        drawn: dict[str, Graded] = {}
        if self.world.any(bool(missing)):
            missing |= {key: place for place in later if (key := self._key(place)) not in store}
            drawn = dict(zip(missing, self._sample(list(missing.values())), strict=True))
        with self.drawer.clock("store"):
            store.add(drawn.items())
            stored = {key: store[key] for key in keys if key not in drawn}
        return self._judged(places, [drawn.get(key) or stored[key] for key in keys])

    def _judged(self, places: Sequence[Place], found: Sequence[tuple[Completion, Verdict | None]]) -> list[Graded]:
        """Judge what could not be judged when it was stored."""
        judge = self.drawer.judge
        waiting = [i for i, (_, verdict) in enumerate(found) if verdict is None]
        tickets = [judge.submit(places[i].prompt, found[i][0]) for i in waiting]
        verdicts = dict(zip(waiting, judge.gather(tickets), strict=True))
        return [Graded(completion, verdict or verdicts[i]) for i, (completion, verdict) in enumerate(found)]

    def _sample(self, places: Sequence[Place]) -> list[Graded]:
        seed = self.config.rollout.reference_seed
        orders = [Order(prompt, seed_of(seed, "reference", prompt.id, k)) for prompt, k in places]
        return self.drawer.draw("reference", orders)

    def _key(self, place: Place) -> str:
        return key_of(place.prompt, verifier_options(self.config.data, place.prompt), place.k)

    def _store(self) -> ReferenceStore | None:
        """The store of the reference as it is now, or None; the first time, every rank walks through all weights."""
        reference = self.drawer.engines.reference
        assert reference is not None  # it was built because something is drawn from it
        if not self.config.rollout.reference_store or reference.version:
            return None
        if self._identity is None:
            with self.drawer.clock("store"):
                self._identity = reference.identity()
        settings = self._settings(self._identity)
        if self._opened is None or self._opened.settings != settings:  # a stage may change how it is sampled
            with self.drawer.clock("store"):
                self._opened = ReferenceStore(cache_folder().parent / "reference", settings, f"rank{self.world.rank}")
        return self._opened

    def _settings(self, identity: str) -> dict[str, object]:
        """All that decides which tokens are drawn for a prompt."""
        rollout = self.config.rollout
        return {
            "format": FORMAT,
            "rlvr": __version__,  # verifiers may change between versions
            "reference": identity,
            "dtype": self.config.hardware.dtype,
            "seed": rollout.reference_seed,
            "temperature": rollout.temperature,
            "top_p": rollout.top_p,
            "max_tokens": rollout.max_tokens,
            "stop_ids": sorted(self.drawer.engines.sampler.stop_ids),
        }
