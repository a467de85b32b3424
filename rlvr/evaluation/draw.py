"""The samples of one benchmark: what is missing in the store is drawn and judged, by all ranks together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlvr.data.sources import options_of
from rlvr.data.template import opened_thought
from rlvr.engine.sampler import Decoding, Order, Sampler
from rlvr.evaluation.store import Line, Place, SampleStore
from rlvr.records import Completion, Prompt, Row, Verdict
from rlvr.rollout.judge import Judge
from rlvr.rollout.seeds import seed_of
from rlvr.schema.data import VerifyConfig
from rlvr.schema.eval import BenchmarkConfig, EvalConfig
from rlvr.world import World

VISIBLE = 60.0  # seconds until a shared file system shows what another host has written
TOGETHER = 256  # verdicts that are waited for at once


@dataclass(frozen=True)
class Problems:
    """A benchmark that is ready to be answered."""

    name: str
    config: BenchmarkConfig
    rows: list[Row]
    prompts: list[Prompt]
    left_out: int  # rows that are too long, or whose own answer the verifier cannot use
    by_id: dict[str, Prompt] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {prompt.id: prompt for prompt in self.prompts})

    def identity(self) -> list[list[Any]]:
        """What is asked and how it is judged, as JSON: a change of any of it makes other samples."""
        sources = self.config.data.sources
        return [
            [p.id, list(p.tokens), p.answer, p.verifier, options_of(sources[p.id.partition("/")[0]], p.verifier)]
            for p in self.prompts
        ]

    def questions(self) -> list[list[Any]]:
        """What is asked and how it is judged, whatever the model: a chat template is no part of it."""
        sources = self.config.data.sources
        return [
            [r.id, list(r.messages), r.answer, r.verifier, options_of(sources[r.id.partition("/")[0]], r.verifier)]
            for r in self.rows
        ]

    def places(self) -> list[Place]:
        """All samples that are wanted."""
        return [(prompt.id, k) for prompt in self.prompts for k in range(self.config.samples)]


@dataclass(frozen=True)
class Drawer:
    """Draws and judges what a store lacks.

    Args:
        sampler: starts the engine when it is first called.
        alive: told the phase at every sign of progress.
        note: told the share of this rank's samples that is drawn, for people.
    """

    config: EvalConfig
    world: World
    sampler: Callable[[], tuple[Sampler, str]]
    alive: Callable[[str], None]
    note: Callable[[str], None]

    def complete(self, problems: Problems, store: SampleStore) -> list[Line]:
        """All wanted samples, in the order of problems; collective, and the same on every number of ranks.

        Raises:
            RuntimeError: if samples of other ranks do not show up in the store.
        """
        missing, unjudged = self.world.broadcast(self._lacking(problems, store))
        if missing or unjudged:
            verify = VerifyConfig(workers=self.config.verify.workers, timeout=self.config.verify.timeout)
            judge = Judge(problems.config.data, verify, problems.prompts)
            try:
                self._fill(problems, store, judge, missing, unjudged)
            finally:
                judge.close()
                store.close()
            self.world.barrier()
        return self._samples(problems, store)

    def _lacking(self, problems: Problems, store: SampleStore) -> tuple[list[Place], list[Place]]:
        """What was never drawn, and what was drawn but has no verdict; one that could not be given is asked again."""
        drawn, wanted = store.read("drawn").keys(), problems.places()
        judged = {place for place, line in store.read("judged").items() if not line["error"]}
        return [p for p in wanted if p not in drawn], [p for p in wanted if p in drawn and p not in judged]

    def _fill(
        self, problems: Problems, store: SampleStore, judge: Judge, missing: list[Place], unjudged: list[Place]
    ) -> None:
        world, tickets = self.world, {}
        mine, old = missing[world.rank :: world.size], unjudged[world.rank :: world.size]
        if old:
            drawn = store.read("drawn")
            for place in old:
                tickets[place] = judge.submit(problems.by_id[place[0]], _completion(drawn[place]))
        if missing:
            tickets |= self._draw(problems, store, judge, mine)
        places = list(tickets)
        for start in range(0, len(places), TOGETHER):
            self.alive("judge")
            some = places[start : start + TOGETHER]
            for place, verdict in zip(some, judge.gather([tickets[p] for p in some]), strict=True):
                store.add("judged", _judged(place, verdict))

    def _draw(self, problems: Problems, store: SampleStore, judge: Judge, mine: list[Place]) -> dict[Place, int]:
        """Every sample is written as soon as it is complete; judging goes on at the same time."""
        tickets: dict[Place, int] = {}
        sampler, version = self.sampler()
        seed = self.config.seed
        orders = [Order(problems.by_id[row], seed_of(seed, problems.name, row, k)) for row, k in mine]
        told: set[int] = set()

        def on_done(index: int, completion: Completion) -> None:
            order, place = orders[index], mine[index]
            store.add("drawn", _drawn(place, order, completion))
            tickets[place] = judge.submit(order.prompt, completion)
            self.alive("generate")
            tenth = 10 * len(tickets) // len(orders)
            if tenth and tenth not in told:
                told.add(tenth)
                self.note(f"{problems.name}: {10 * tenth} % of {len(orders) * self.world.size} samples")

        own = problems.config
        decoding = Decoding(temperature=own.temperature, top_p=own.top_p, max_tokens=own.max_tokens, source="policy")
        self.alive("generate")
        sampler.generate(orders, decoding, version, on_done)
        return tickets

    def _samples(self, problems: Problems, store: SampleStore) -> list[Line]:
        end, wanted = time.monotonic() + VISIBLE, problems.places()
        while True:
            drawn, judged = store.read("drawn"), store.read("judged")
            lost = [place for place in wanted if place not in drawn]
            if not lost:
                return [_whole(drawn[place], judged.get(place), problems.by_id[place[0]]) for place in wanted]
            if time.monotonic() > end:
                raise RuntimeError(
                    f"{len(lost)} samples are not in {store.folder}, such as {lost[0]}: do all hosts share this folder?"
                )
            time.sleep(0.5)


def _drawn(place: Place, order: Order, completion: Completion) -> Line:
    return {
        "problem": place[0],
        "sample": place[1],
        "seed": order.seed,
        "tokens": len(completion.tokens),
        "truncated": completion.truncated,
        "response": completion.text,
    }


def _judged(place: Place, verdict: Verdict) -> Line:
    told = {"score": verdict.score, "parts": verdict.parts, "error": verdict.error, "answer": verdict.answer}
    return {"problem": place[0], "sample": place[1], **told}


def _completion(drawn: Line) -> Completion:
    return Completion(tokens=(), logprobs=(), text=drawn["response"], truncated=drawn["truncated"], source="policy")


def _whole(drawn: Line, judged: Line | None, prompt: Prompt) -> Line:
    verdict = judged or {"score": None, "parts": {}, "error": "not judged", "answer": None}
    return {**drawn, **verdict, "source": prompt.source, "response": opened_thought(prompt.text) + drawn["response"]}
