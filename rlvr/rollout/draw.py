"""Draw and grade: the one way from orders to judged completions while training."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlvr.clock import Clock
from rlvr.engine.engines import Engines
from rlvr.engine.sampler import Decoding, Order
from rlvr.records import Completion, Source, Verdict
from rlvr.rollout.judge import Judge
from rlvr.rollout.store import Graded
from rlvr.schema.train import TrainConfig


class Drawer:
    """Samples under the keys of `rollout` and has completions graded while others are still being drawn."""

    def __init__(self, engines: Engines, judge: Judge, config: TrainConfig, clock: Clock) -> None:
        self.engines, self.judge, self.config, self.clock = engines, judge, config, clock

    def draw(self, source: Source, orders: Sequence[Order]) -> list[Graded]:
        """One graded completion per order; every rank calls it."""
        rollout, tickets = self.config.rollout, dict[int, int]()
        decoding = Decoding(
            temperature=rollout.temperature, top_p=rollout.top_p, max_tokens=rollout.max_tokens, source=source
        )
        with self.engines.sampling(source) as sample, self.clock("generate"):
            completions = sample(list(orders), decoding, self.judge.submitter([o.prompt for o in orders], tickets))
        with self.clock("verify"):
            verdicts = self.judge.gather([tickets[i] for i in range(len(orders))])
        return [Graded(c, v) for c, v in zip(completions, verdicts, strict=True)]


def score_seen(completion: Completion, verdict: Verdict, truncated: str) -> float:
    """The score that `Algorithm.select` and `summarize` see; NaN where the verifier could not judge.

    Args:
        truncated: the algorithm's key; with "wrong", what the length limit has cut scores 0, as it will in the reward.
    """
    if truncated == "wrong" and completion.truncated:
        return 0.0
    return math.nan if verdict.score is None else verdict.score
