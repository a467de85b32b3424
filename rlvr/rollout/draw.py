"""Draw and grade: the one way from orders to judged completions while training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from rlvr.clock import Clock
from rlvr.engine.engines import Engines
from rlvr.engine.sampler import Decoding, Order
from rlvr.records import Completion, Source, Verdict
from rlvr.rollout.judge import Judge
from rlvr.rollout.store import Graded
from rlvr.schema.train import TrainConfig


class Abandoned(Exception):
    """The run must leave, and what was being sampled is given up on all ranks: it will be sampled again."""


class Drawer:
    """Samples under the keys of `rollout` and has completions graded while others are still being drawn."""

    def __init__(
        self,
        engines: Engines,
        judge: Judge,
        config: TrainConfig,
        clock: Clock,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`over` says whether this rank should stop sampling; it is asked often."""
        self.engines, self.judge, self.config, self.clock, self.over = engines, judge, config, clock, over
        self.unwanted = False  # what is being drawn: nobody will look at it
        self.sampled = Counter[Source]()  # completions that this rank has sampled, until somebody clears it

    def draw(self, source: Source, orders: Sequence[Order]) -> list[Graded]:
        """One graded completion per order; every rank calls it.

        Raises:
            Abandoned: on all ranks, if one of them should stop; or if it is unwanted.
        """
        rollout, tickets = self.config.rollout, dict[int, int]()
        decoding = Decoding(
            temperature=rollout.temperature, top_p=rollout.top_p, max_tokens=rollout.max_tokens, source=source
        )
        with self.engines.sampling(source) as sample, self.clock("generate"):
            submit = self.judge.submitter([o.prompt for o in orders], tickets)
            completions = sample(list(orders), decoding, submit, self._over)
        self._stop_together()
        with self.clock("verify"):
            verdicts = self.judge.gather([tickets[i] for i in range(len(orders))])
        self.sampled[source] += len(orders)
        self._stop_together()
        return [Graded(c, v) for c, v in zip(completions, verdicts, strict=True)]

    def _over(self) -> bool:
        return self.unwanted or self.over()

    def _stop_together(self) -> None:
        if self.engines.world.any(self._over()):
            raise Abandoned


def score_seen(completion: Completion, verdict: Verdict, truncated: str) -> float:
    """The score that `Algorithm.select` and `summarize` see; NaN where the verifier could not judge.

    Args:
        truncated: the algorithm's key; with "wrong", what the length limit has cut scores 0, as it will in the reward.
    """
    if truncated == "wrong" and completion.truncated:
        return 0.0
    return math.nan if verdict.score is None else verdict.score
