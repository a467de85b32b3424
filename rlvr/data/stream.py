"""The order in which training sees prompts: a pure function of a seed and a position."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm

from rlvr.data.shuffle import Shuffle
from rlvr.records import Prompt


class PromptStream:
    """An endless order of prompts, read at any position.

    There is no iterator to save: the cursor is one integer that the trainer owns, and resuming is
    reading on from it.  Inside a source every prompt comes once per epoch, each epoch in another
    order.  Sources take turns so that after any N draws each has been drawn within 1 of its share of N;
    `reweigh` changes the shares from a position on.

    Args:
        prompts: by source; none empty.
        weights: of at least these sources, relative to each other; a source of weight 0 is not drawn from.
        seed: of the run.

    Raises:
        ValueError: if a source is empty or has no weight, or if no weight is positive.
    """

    def __init__(self, prompts: Mapping[str, Sequence[Prompt]], weights: Mapping[str, float], seed: int) -> None:
        for source in prompts:
            if not prompts[source]:
                raise ValueError(f"source {source} has no prompts to train on")
            if not weights.get(source, -1) >= 0:
                raise ValueError(f"source {source} needs a weight that is not negative")
        if not prompts:
            raise ValueError("there are no prompts to train on")
        self._prompts = prompts
        self._seed = seed
        self._mixes = [Mix(0, self._shares(weights), dict.fromkeys(prompts, 0))]
        self._order = lru_cache(maxsize=64 * len(prompts))(self._epoch_order)

    def __len__(self) -> int:
        """The number of different prompts."""
        return sum(map(len, self._prompts.values()))

    def at(self, position: int) -> Prompt:
        """The prompt at `position`, counted from 0 over the whole run."""
        mix = next((mix for mix in reversed(self._mixes) if mix.start <= position), self._mixes[0])
        source, drawn = mix.at(position)
        prompts = self._prompts[source]
        epoch, index = divmod(drawn, len(prompts))
        return prompts[self._order(source, epoch).at(index)]

    def reweigh(self, weights: Mapping[str, float], position: int) -> None:
        """Let sources take turns by other weights from `position` on, which lies behind all such positions before.

        Every source goes on where it was, so that its epochs stay whole.

        Raises:
            ValueError: if no weight is positive.
        """
        last, shares = self._mixes[-1], self._shares(weights)
        if shares != last.shares:
            self._mixes.append(Mix(position, shares, last.had(position)))

    def _shares(self, weights: Mapping[str, float]) -> dict[str, float]:
        shares = {source: weights[source] for source in self._prompts if weights[source] > 0}
        if not shares:
            raise ValueError(f"one of the sources {', '.join(self._prompts)} needs a weight greater than 0")
        return shares

    def _epoch_order(self, source: str, epoch: int) -> Shuffle:
        return Shuffle(len(self._prompts[source]), self._seed, source, epoch)


@dataclass
class Mix:
    """The order of sources from one position on."""

    start: int
    shares: dict[str, float]
    before: dict[str, int]  # how often each source was drawn up to there

    def __post_init__(self) -> None:
        self._turns = Turns(self.shares)

    def at(self, position: int) -> tuple[str, int]:
        """The source at `position` of the stream, and how often it was drawn before."""
        source, drawn = self._turns.at(position - self.start)
        return source, self.before[source] + drawn

    def had(self, position: int) -> dict[str, int]:
        """How often each source was drawn before `position`."""
        since = self._turns.had(position - self.start)
        return {source: count + since.get(source, 0) for source, count in self.before.items()}


class Turns:
    """Whose turn it is, by weight: source i has had its share of any first n turns to within less than 1.

    The chairman assignment of Tijdeman (1980): of the sources that may be served without running
    ahead of their share, serve the one that would first fall behind.  Exact integer arithmetic; the
    turns repeat once everybody has had exactly his share, and are worked out as far as they are asked for.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        exact = [Fraction(str(weight)) for weight in weights.values()]
        scale = lcm(*(weight.denominator for weight in exact))
        whole = [int(weight * scale) for weight in exact]
        self._sources = list(weights)
        self._weights = [weight // gcd(*whole) for weight in whole]
        self._cycle = sum(self._weights)
        self._had = [0] * len(weights)
        self._who, self._which = array("H"), array("q")

    def at(self, position: int) -> tuple[str, int]:
        """The source whose turn it is at `position`, and how many turns it has had before.

        Raises:
            IndexError: if the position is negative.
        """
        if position < 0:
            raise IndexError(f"position {position} is negative")
        cycles, turn = divmod(position, self._cycle)
        while len(self._who) <= turn:
            self._serve()
        who = self._who[turn]
        return self._sources[who], self._which[turn] + cycles * self._weights[who]

    def had(self, count: int) -> dict[str, int]:
        """How many of the first `count` turns each source has."""
        cycles, rest = divmod(count, self._cycle)
        while len(self._who) < rest:
            self._serve()
        begun = self._who[:rest]
        return {s: cycles * self._weights[i] + begun.count(i) for i, s in enumerate(self._sources)}

    def _serve(self) -> None:
        turn, total = len(self._who) + 1, self._cycle
        slack = max(1, 2 * len(self._weights) - 2)
        owed = [weight * turn - total * had for weight, had in zip(self._weights, self._had, strict=True)]
        may = [i for i, debt in enumerate(owed) if debt * slack >= total]
        who = min(may, key=lambda i: (Fraction(total * (slack - 1) - slack * owed[i], self._weights[i]), i))
        self._who.append(who)
        self._which.append(self._had[who])
        self._had[who] += 1
