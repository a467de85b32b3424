"""Accuracy on held-out problems, with an interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.clock import Clock
from rlvr.engine.engines import Engines
from rlvr.engine.sampler import Decoding, Order
from rlvr.ops import stats
from rlvr.records import Prompt, Role
from rlvr.rollout.judge import Judge
from rlvr.rollout.seeds import seed_of
from rlvr.schema.train import TrainConfig
from rlvr.world import World

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Answered:
    """One graded completion of a held-out problem."""

    problem: int
    source: str
    score: float | None
    length: int
    truncated: bool
    row: dict[str, Any]  # for the sample table


class Evaluator:
    """Answers a role's problems with the current policy, under the same seeds every time, so that two validations of
    a run differ by the policy alone."""

    def __init__(self, engines: Engines, judge: Judge, config: TrainConfig, world: World, clock: Clock) -> None:
        self.engines, self.judge, self.config, self.world, self.clock = engines, judge, config, world, clock

    def evaluate(self, role: Role, prompts: Sequence[Prompt]) -> tuple[dict[str, float], Rows, Rows]:
        """Accuracy of the policy on `prompts`.

        Returns:
            Metrics named "<role>/...", the rows of a sample table, and one row per problem; equal on all ranks.
        """
        settings = self.config.validation
        mine = [i for i in range(len(prompts)) if i % self.world.size == self.world.rank]
        orders = [
            Order(prompts[i], seed_of(self.config.seed, role, prompts[i].id, k))
            for i in mine
            for k in range(settings.samples)
        ]
        decoding = Decoding(
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_tokens=settings.max_tokens or self.config.rollout.max_tokens,
            source="policy",
        )
        tickets: dict[int, int] = {}
        with self.engines.sampling("policy") as sample, self.clock("validate"):
            with self.clock("generate"):
                completions = sample(orders, decoding, self.judge.submitter([o.prompt for o in orders], tickets))
            verdicts = self.judge.gather([tickets[i] for i in range(len(orders))])
        answers = [
            Answered(
                problem=mine[i // settings.samples],
                source=order.prompt.source,
                score=verdict.score,
                length=len(completion.tokens),
                truncated=completion.truncated,
                row={
                    "prompt": order.prompt.text,
                    "response": completion.text,
                    "answer": str(order.prompt.answer)[:200],
                    "score": verdict.score,
                    "source": order.prompt.source,
                    "truncated": completion.truncated,
                },
            )
            for i, (order, completion, verdict) in enumerate(zip(orders, completions, verdicts, strict=True))
        ]
        everyone = [answer for part in self.world.gather(answers) for answer in part]
        everyone.sort(key=lambda a: a.problem)
        told = _summary(everyone, settings.samples, self.config.seed)
        metrics = {f"{role}/{name}": value for name, value in told.items()}
        samples = [a.row for a in everyone[:: settings.samples][: self.config.log.samples]]
        return metrics, samples, _problems(everyone, prompts)


def _problems(answers: Sequence[Answered], prompts: Sequence[Prompt]) -> Rows:
    """What became of each problem: its answers' scores (None: could not be judged) and lengths, in order."""
    by_problem: dict[int, list[Answered]] = defaultdict(list)
    for answer in answers:
        by_problem[answer.problem].append(answer)
    return [
        {
            "id": prompts[problem].id,
            "source": prompts[problem].source,
            "scores": [a.score for a in given],
            "lengths": [a.length for a in given],
            "truncated": sum(a.truncated for a in given),
        }
        for problem, given in by_problem.items()
    ]


def _summary(answers: Sequence[Answered], samples: int, seed: int) -> dict[str, float]:
    """avg@k with its interval: Wilson's for one binary answer per problem, a bootstrap over problems otherwise.

    What could not be judged counts as not right, and is reported.
    """
    if not answers:
        return {}
    accuracy, low, high = _accuracy(answers, samples, seed)
    told = {"accuracy": accuracy, "accuracy_low": low, "accuracy_high": high}
    sources = sorted({a.source for a in answers})
    for source in sources if len(sources) > 1 else ():
        told[f"accuracy/{source}"] = _accuracy([a for a in answers if a.source == source], samples, seed)[0]
    told["length"] = sum(a.length for a in answers) / len(answers)
    told["truncated"] = sum(a.truncated for a in answers) / len(answers)
    told["unjudged"] = sum(a.score is None for a in answers) / len(answers)
    return told


def _accuracy(answers: Sequence[Answered], samples: int, seed: int) -> tuple[float, float, float]:
    by_problem: dict[int, list[float]] = defaultdict(list)
    for answer in answers:
        by_problem[answer.problem].append(answer.score or 0.0)
    rates = [sum(scores) / len(scores) for scores in by_problem.values()]
    mean = sum(rates) / len(rates)
    if samples == 1 and all(rate in (0.0, 1.0) for rate in rates):
        return mean, *stats.wilson_interval(round(sum(rates)), len(rates))
    return mean, *stats.bootstrap_interval(rates, seed=seed)
