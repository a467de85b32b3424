"""One pass of the reference over all training prompts, before training: which of them can be learned from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from rlvr.algorithms.base import Algorithm
from rlvr.records import Prompt
from rlvr.rollout.draw import score_seen
from rlvr.rollout.reference import ReferenceSampler
from rlvr.schema.train import TrainConfig
from rlvr.world import World

PORTION = 8  # times hardware.sampler_sequences: completions of a rank between two writes to the store


@dataclass(frozen=True)
class Try:
    """One completion of the reference, as far as a survey wants to know it."""

    score: float  # as the algorithm sees it; NaN where the verifier could not judge
    truncated: bool
    error: str | None  # why it could not be judged


@dataclass(frozen=True)
class Surveyed:
    """What the reference made of one prompt."""

    id: str
    source: str
    tries: tuple[Try, ...]
    facts: dict[str, float] | None  # of `Algorithm.summarize`; None drops the prompt

    @property
    def judged(self) -> list[float]:
        """The scores that there are."""
        return [t.score for t in self.tries if not math.isnan(t.score)]

    @property
    def solved(self) -> int:
        """How many completions scored more than 0."""
        return sum(score > 0 for score in self.judged)

    @property
    def mixed(self) -> bool:
        """Whether some completions scored better than others."""
        return len(set(self.judged)) > 1


def survey_count(algorithm: Algorithm, config: TrainConfig) -> int | None:
    """Completions per prompt, or None for no survey."""
    return algorithm.survey.count if algorithm.survey else config.survey.count


def survey(
    algorithm: Algorithm,
    reference: ReferenceSampler,
    prompts: Sequence[Prompt],
    config: TrainConfig,
    world: World,
    on_progress: Callable[[float], None] = lambda share: None,
) -> list[Surveyed]:
    """Ask the reference `survey_count` times for each prompt, and `survey.extra` times more where nothing was solved.

    Prompts are dealt out to the ranks.  What was drawn is in the reference's store after every portion, so that a
    survey that was killed goes on where it was.  The extra completions make V* of the prompts that stay unsolved
    surer, and lift the estimate a little: prompts get more tries for having failed.

    Args:
        on_progress: told the share of the prompts that is done, 0 to 1, in each of the two passes.

    Returns:
        One per prompt, in their order; the same on every rank.
    """
    count, extra = survey_count(algorithm, config), config.survey.extra
    assert count is not None
    passed = _Pass(reference, config, world, on_progress)
    tries = passed.over(prompts, range(count))
    if extra:
        again = [i for i, tried in enumerate(tries) if not any(t.score > 0 for t in tried)]
        for i, more in zip(again, passed.over([prompts[i] for i in again], range(count, count + extra)), strict=True):
            tries[i] += more
    facts = [algorithm.summarize(torch.tensor([t.score for t in tried])) for tried in tries]
    return [
        Surveyed(prompt.id, prompt.source, tuple(tried), learned)
        for prompt, tried, learned in zip(prompts, tries, facts, strict=True)
    ]


def learned(prompts: Sequence[Prompt], surveyed: Sequence[Surveyed]) -> list[Prompt]:
    """The prompts to train on, with what was learned of each; those that the algorithm drops are left out."""
    return [
        replace(prompt, facts=prompt.facts | told.facts)
        for prompt, told in zip(prompts, surveyed, strict=True)
        if told.facts is not None
    ]


class _Pass:
    """All prompts once, in portions."""

    def __init__(
        self, reference: ReferenceSampler, config: TrainConfig, world: World, on_progress: Callable[[float], None]
    ) -> None:
        self.reference, self.config, self.world, self.on_progress = reference, config, world, on_progress

    def over(self, prompts: Sequence[Prompt], numbers: range) -> list[list[Try]]:
        """Completions `numbers` of each prompt, in order of the prompts, on every rank."""
        own: dict[int, list[Try]] = {}
        per_rank = math.ceil(PORTION * self.config.hardware.sampler_sequences / len(numbers))
        size = per_rank * self.world.size
        for start in range(0, len(prompts), size):
            mine = range(start, min(start + size, len(prompts)))[self.world.rank :: self.world.size]
            drawn = self.reference.draw([prompts[i] for i in mine], numbers)
            for i, graded in zip(mine, drawn, strict=True):
                own[i] = [
                    Try(score_seen(c, v, self.config.algorithm.truncated), c.truncated, v.error) for c, v in graded
                ]
            self.on_progress(min(1.0, (start + size) / len(prompts)))
        everyone = {i: tried for part in self.world.gather(own) for i, tried in part.items()}
        return [everyone[i] for i in range(len(prompts))]
