"""Draw, verify, select, refill: from the prompt stream to a training batch.

A step has `rollout.prompts` slots.  Slot s lives on rank s % size for good, and a slot whose prompt
the algorithm rejects gets the next prompt of the stream.  Which prompts a step sees, and every
sampled token, therefore depend on the seed alone, not on the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from rlvr.algorithms.base import Algorithm
from rlvr.batch import Batch
from rlvr.data.retire import Retirement
from rlvr.data.stream import PromptStream
from rlvr.engine.sampler import Order
from rlvr.records import Completion, Prompt, Verdict
from rlvr.rollout.draw import Drawer, score_seen
from rlvr.rollout.reference import ReferenceSampler
from rlvr.rollout.seeds import seed_of
from rlvr.rollout.store import Graded
from rlvr.schema.train import TrainConfig
from rlvr.tally import Tally
from rlvr.world import World


@dataclass
class Group:
    """Everything drawn for one prompt, in the order of the algorithm's draws."""

    slot: int
    position: int  # of the prompt in the stream
    prompt: Prompt
    completions: list[Completion] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)  # which of them are trained on; empty if the prompt is rejected
    rejected: list[str] = field(default_factory=list)  # why it is not trained on, in the words of the algorithm's gate

    @property
    def scores(self) -> list[float]:
        """One per completion; NaN where the verifier could not judge."""
        return [math.nan if v.score is None else v.score for v in self.verdicts]

    @property
    def all_right(self) -> bool:
        """Whether every response of the policy that could be judged has the full score."""
        judged = [v.score for c, v in zip(self.completions, self.verdicts, strict=True) if c.source == "policy"]
        scores = [score for score in judged if score is not None]
        return bool(scores) and min(scores) >= 1


@dataclass(frozen=True)
class Collected:
    """One step's rollouts on this rank."""

    batch: Batch
    cursor: int  # stream position after this step
    tally: Tally  # over all that was sampled, by all ranks
    rows: list[dict[str, Any]]  # all that was sampled, for the record
    prompts: list[dict[str, Any]]  # one row per prompt that was tried: how often it was solved, and why it was rejected
    retired: int  # prompts that the next step leaves out because they are solved every time
    solved: list[tuple[int, str, bool]] = field(default_factory=list)  # what `Retirement.learn` wants to know
    staleness: int = 0  # steps that the policy has learned from since it drew these


class Collector:
    """Makes the batch of a step."""

    def __init__(
        self,
        algorithm: Algorithm,
        drawer: Drawer,
        reference: ReferenceSampler,
        stream: PromptStream,
        config: TrainConfig,
        world: World,
    ) -> None:
        self.algorithm, self.drawer, self.reference, self.stream = algorithm, drawer, reference, stream
        self.config, self.world = config, world
        self.retirement = Retirement(config.data.retire)

    def collect(self, cursor: int, step: int) -> Collected:
        """The rollouts of a step, from the policy of now; arguments and errors as in `roll_out`."""
        return self.noted(self.roll_out(cursor, step), step)

    def noted(self, collected: Collected, step: int) -> Collected:
        """Take note, for the steps that follow, of what was solved in this one."""
        self.retirement.learn(collected.solved, step)
        return replace(collected, retired=self.retirement.resting(step + 1))

    def roll_out(self, cursor: int, step: int) -> Collected:
        """Fill every slot, in at most `rollout.max_rounds` rounds; nothing is noted that changes a later step.

        Args:
            cursor: stream position of the first prompt.
            step: number of the step, counted from 0.

        Raises:
            RuntimeError: if some prompts are missing after the last round and rollout.exhausted is "error".
        """
        rollout, tally = self.config.rollout, Tally()
        self.drawer.sampled.clear()
        missing = list(range(rollout.prompts))
        kept: dict[int, Group] = {}
        spare: dict[int, Group] = {}
        tried: list[Group] = []
        for round_number in range(rollout.max_rounds):
            wanted = math.ceil(len(missing) * (rollout.oversample if round_number else 1))
            positions = self._positions(cursor, wanted, step)
            groups = [
                Group(missing[i % len(missing)], position, self.stream.at(position))
                for i, position in enumerate(positions)
                if missing[i % len(missing)] % self.world.size == self.world.rank
            ]
            cursor = positions[-1] + 1
            self._draw(groups, cursor, step)
            self._select(groups, tally)
            for group in groups:
                target = kept if group.chosen else spare
                target.setdefault(group.slot, group)
                _count(group, tally)
            tried += groups
            filled = {slot for part in self.world.gather(sorted(kept)) for slot in part}
            missing = [slot for slot in missing if slot not in filled]
            if not missing:
                break
        self._check_filled(missing)
        tally.add("rounds", round_number + 1)
        tally.add("unfilled", len(missing) / rollout.prompts)
        for source in {draw.source for draw in self.algorithm.draws}:
            tally.add(f"sequences/{source}", self.drawer.sampled[source], 1 / self.world.size)  # the sum over ranks
        told = [(group.position, group.prompt.id, group.all_right) for group in tried if self.config.data.retire]
        return Collected(
            batch=self._batch(kept, spare),
            cursor=cursor,
            tally=Tally.merged(self.world.gather(tally)),
            rows=[row for group in tried for row in _rows(group)],
            prompts=[_outcome(group) for group in tried],
            retired=0,
            solved=[group for part in self.world.gather(told) for group in part],
        )

    def _positions(self, cursor: int, count: int, step: int) -> list[int]:
        """The next positions from `cursor` on whose prompts do not rest."""
        positions: list[int] = []
        for _ in range(count):
            positions.append(self.retirement.awake(self.stream, cursor, step))
            cursor = positions[-1] + 1
        return positions

    def _draw(self, groups: Sequence[Group], cursor: int, step: int) -> None:
        """Sample from each source, the reference first so that the policy's weights are in the sampler at the end."""
        draws = self.algorithm.draws
        drawn: dict[int, list[list[Graded]]] = {}
        for index in sorted(range(len(draws)), key=lambda i: draws[i].source == "policy"):
            count = draws[index].count
            if draws[index].source == "reference":
                drawn[index] = self.reference.draw([g.prompt for g in groups], range(count), self._ahead(cursor, step))
            else:
                drawn[index] = self._own(groups, count)
        for index in range(len(draws)):
            for group, graded in zip(groups, drawn[index], strict=True):
                group.completions += [g.completion for g in graded]
                group.verdicts += [g.verdict for g in graded]

    def _own(self, groups: Sequence[Group], count: int) -> list[list[Graded]]:
        """The policy's: other ones each time a prompt is met."""
        orders = [
            Order(group.prompt, seed_of(self.config.seed, "train", group.position, "policy", k))
            for group in groups
            for k in range(count)
        ]
        graded = self.drawer.draw("policy", orders)
        return [graded[i : i + count] for i in range(0, len(graded), count)]

    def _ahead(self, cursor: int, step: int) -> list[Prompt]:
        """This rank's share of the prompts that the next steps will want, if none is rejected and shifts the stream."""
        rollout = self.config.rollout
        later = self._positions(cursor, (rollout.reference_prefetch - 1) * rollout.prompts, step)
        return [self.stream.at(position) for position in later if position % self.world.size == self.world.rank]

    def _select(self, groups: Sequence[Group], tally: Tally) -> None:
        if not groups:
            return
        score_PN = torch.tensor([self._seen(group) for group in groups])
        reasons, learned = self.algorithm.gate(score_PN), self.algorithm.facts(score_PN)
        for row, (group, chosen_N) in enumerate(zip(groups, self.algorithm.select(score_PN), strict=True)):
            group.chosen = chosen_N.nonzero()[:, 0].tolist()
            group.rejected = [reason for reason, holds_P in reasons.items() if holds_P[row]]
            facts = {name: fact_P[row].item() for name, fact_P in learned.items()}
            group.prompt = replace(group.prompt, facts=group.prompt.facts | facts)
            for reason in reasons:
                tally.add(f"gate/{reason}", float(reason in group.rejected))

    def _seen(self, group: Group) -> list[float]:
        truncated = self.config.algorithm.truncated
        return [score_seen(c, v, truncated) for c, v in zip(group.completions, group.verdicts, strict=True)]

    def _check_filled(self, missing: Sequence[int]) -> None:
        rollout = self.config.rollout
        if missing and rollout.exhausted == "error":
            raise RuntimeError(
                f"{len(missing)} of {rollout.prompts} prompts are still missing after "
                f"rollout.max_rounds={rollout.max_rounds}; raise it, or allow smaller batches with "
                "rollout.exhausted=smaller"
            )

    def _batch(self, kept: dict[int, Group], spare: dict[int, Group]) -> Batch:
        """Slots in order; one that stayed unfilled holds a rejected group of weight zero: shapes never change."""
        size = self.config.algorithm.group
        slots = range(self.world.rank, self.config.rollout.prompts, self.world.size)
        groups = [kept.get(slot) or spare[slot] for slot in slots]
        picks = [(g, i) for g in groups for i in (g.chosen or range(size))]
        batch = Batch.of(
            [g.prompt for g, _ in picks],
            [g.completions[i] for g, i in picks],
            [g.verdicts[i] for g, i in picks],
            group=size,
            limit=self.config.rollout.max_tokens,
            total=self.world.sum,
        )
        filled_B = torch.tensor([float(bool(g.chosen)) for g, _ in picks])
        return batch.having(mask_BT=batch.mask_BT * filled_B[:, None])


def _count(group: Group, tally: Tally) -> None:
    """What every sampled completion adds to the step's statistics."""
    own = [i for i, c in enumerate(group.completions) if c.source == "policy"]
    scores = [s for i in own if not math.isnan(s := group.scores[i])]
    solved = [s for s in scores if s > 0]
    tally.add("kept", float(bool(group.chosen)))
    tally.add("solved_none", float(not solved))
    tally.add("solved_all", float(len(solved) == len(scores) > 0))
    tally.add("solved_some", float(0 < len(solved) < len(scores)))
    for name in ("score", f"score/{group.prompt.source}"):
        tally.add(name, sum(scores), len(scores))
    for index in own:
        completion, verdict = group.completions[index], group.verdicts[index]
        tally.add("length", len(completion.tokens))
        tally.add("repetition", *repeated(completion.tokens))
        tally.add("truncated", float(completion.truncated))
        tally.add("unjudged", float(verdict.score is None))
        for part, value in verdict.parts.items():
            tally.add(f"part/{group.prompt.source}/{part}", value)


def repeated(tokens: Sequence[int], n: int = 4) -> tuple[float, float]:
    """(share of n-grams that stood there before, 1), or (0, 0) if there is no n-gram."""
    grams = list(zip(*(tokens[i:] for i in range(n)), strict=False))
    return (1.0 - len(set(grams)) / len(grams), 1.0) if grams else (0.0, 0.0)


def _rows(group: Group) -> list[dict[str, Any]]:
    return [
        {
            "id": group.prompt.id,
            "position": group.position,
            "prompt": group.prompt.text,
            "response": completion.text,
            "tokens": list(completion.tokens),
            "sampler": completion.source,
            "score": verdict.score,
            "error": verdict.error,
            "truncated": completion.truncated,
            "trained": index in group.chosen,
        }
        for index, (completion, verdict) in enumerate(zip(group.completions, group.verdicts, strict=True))
    ]


def _outcome(group: Group) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": group.prompt.id,
        "source": group.prompt.source,
        "position": group.position,
        "kept": bool(group.chosen),
        "rejected": group.rejected,
    }
    for sampler in ("policy", "reference"):
        scores = [
            s for c, s in zip(group.completions, group.scores, strict=True) if c.source == sampler and not math.isnan(s)
        ]
        told |= {f"{sampler}_judged": len(scores), f"{sampler}_solved": sum(s > 0 for s in scores)}
    return told
