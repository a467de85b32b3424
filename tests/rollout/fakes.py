"""A model, a verifier and two ranks without a GPU: completions are functions of prompt, seed and weights alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from rlvr.clock import Clock
from rlvr.records import Completion, Prompt, Verdict
from rlvr.rollout.draw import Drawer
from rlvr.rollout.reference import ReferenceSampler

OnDone = Callable[[int, Completion], None]

RIGHT = 7  # a completion is right if its last token is this
UNJUDGED = 8  # and cannot be judged if it is this


def prompt(number: int, source: str = "sums", **changed: Any) -> Prompt:
    told = dict(id=f"{source}/train/{number}", source=source, text=f"p{number}", tokens=(1, 10 + number), answer="7")
    return Prompt(**(told | {"verifier": "exact"} | changed))


@dataclass
class FakeEngines:
    """`weights` name the reference; `drawn` lists what was asked for, as (source, prompt id, seed)."""

    weights: str = "base"
    version: int = 0
    dies_after: int | None = None  # completions, as a process that is killed
    drawn: list[tuple[str, str, int]] = field(default_factory=list)
    swaps: int = 0
    hashed: int = 0
    world: Any = field(default_factory=lambda: FakeWorld())

    def __post_init__(self) -> None:
        self.sampler = SimpleNamespace(stop_ids=[1])

    @property
    def reference(self) -> Any:
        return SimpleNamespace(version=self.version, identity=self._identity)

    def _identity(self) -> str:
        self.hashed += 1
        return self.weights

    @contextmanager
    def sampling(self, source: str) -> Iterator[Callable[..., list[Completion]]]:
        self.swaps += 1
        yield self._draw

    def _draw(self, orders: Sequence[Any], decoding: Any, on_done: OnDone, stop: Any = None) -> list[Completion]:
        made = []
        for order in orders:
            if self.dies_after is not None and len(self.drawn) >= self.dies_after:
                raise KeyboardInterrupt
            self.drawn.append((decoding.source, order.prompt.id, order.seed))
            draw = random.Random(f"{self.weights}/{order.prompt.tokens}/{order.seed}/{decoding}")
            tokens = tuple(draw.randrange(5, 9) for _ in range(draw.randrange(1, decoding.max_tokens + 1)))
            made.append(
                Completion(
                    tokens=tokens,
                    logprobs=tuple(-draw.random() for _ in tokens),
                    text=" ".join(map(str, tokens)),
                    truncated=len(tokens) == decoding.max_tokens,
                    source=decoding.source,
                )
            )
        for index in reversed(range(len(made))):  # they end in any order
            on_done(index, made[index])
        return made


@dataclass
class FakeJudge:
    """Says what the last token says; `jobs` counts what it was asked."""

    jobs: list[Completion] = field(default_factory=list)
    error: str | None = "too slow"  # of the completions that end in UNJUDGED; None judges them

    def submit(self, prompt: Prompt, completion: Completion) -> int:
        self.jobs.append(completion)
        return len(self.jobs) - 1

    def submitter(self, prompts: Sequence[Prompt], tickets: dict[int, int]) -> Callable[[int, Completion], None]:
        def on_done(index: int, completion: Completion) -> None:
            tickets[index] = self.submit(prompts[index], completion)

        return on_done

    def gather(self, tickets: Sequence[int]) -> list[Verdict]:
        return [self._verdict(self.jobs[ticket]) for ticket in tickets]

    def _verdict(self, completion: Completion) -> Verdict:
        last = completion.tokens[-1]
        if last == UNJUDGED and self.error:
            return Verdict(score=None, error=self.error)
        return Verdict(score=float(last == RIGHT), parts={"last": float(last)})


@dataclass
class FakeWorld:
    """One of `size` threads that meet in every collective."""

    rank: int = 0
    size: int = 1
    shared: Any = None

    @property
    def leader(self) -> bool:
        return self.rank == 0

    def gather(self, told: Any) -> list[Any]:
        if self.size == 1:
            return [told]
        self.shared.box[self.rank] = told
        self.shared.barrier.wait()
        found = list(self.shared.box)
        self.shared.barrier.wait()
        return found

    def any(self, flag: bool) -> bool:
        return any(self.gather(flag))

    def sum(self, x: Any) -> Any:
        return sum(self.gather(x))


def on_ranks(size: int, work: Callable[[FakeWorld], Any]) -> list[Any]:
    """What `work` returns on each of `size` ranks."""
    shared = SimpleNamespace(box=[None] * size, barrier=threading.Barrier(size, timeout=10))
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, [FakeWorld(rank, size, shared) for rank in range(size)]))


def config(**changed: Any) -> Any:
    """What the room reads of a configuration; `changed` are keys of `rollout`, `survey`, or `algorithm`, `options`."""
    rollout = dict(prompts=4, max_rounds=20, oversample=1.5, exhausted="smaller")
    rollout |= dict(max_tokens=3, temperature=1.0, top_p=1.0)
    rollout |= dict(reference_seed=0, reference_store=True, reference_prefetch=1)
    retire = changed.pop("retire", [])
    survey = dict(count=4, extra=0, only=False)
    algorithm = changed.pop("algorithm", SimpleNamespace(truncated="keep", name="fake"))
    source = SimpleNamespace(verifier="exact", verifier_options=changed.pop("options", {}))
    for name, value in changed.items():
        section = survey if name in survey else rollout
        assert name in section
        section[name] = value
    return SimpleNamespace(
        seed=3,
        rollout=SimpleNamespace(**rollout),
        survey=SimpleNamespace(**survey),
        algorithm=algorithm,
        data=SimpleNamespace(sources={"sums": source, "logic": source}, retire=retire),
        hardware=SimpleNamespace(dtype="fp32", sampler_sequences=1),
        health=SimpleNamespace(unjudged=SimpleNamespace(action="stop", limit=0.9)),
    )


def reference_sampler(
    engines: FakeEngines, told: Any, world: FakeWorld | None = None, judge: FakeJudge | None = None
) -> ReferenceSampler:
    engines.world = world or engines.world
    drawer = Drawer(engines, judge or FakeJudge(), told, Clock())  # type: ignore[arg-type]
    return ReferenceSampler(drawer, told, world or FakeWorld())  # type: ignore[arg-type]
