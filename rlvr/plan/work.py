"""How much a step asks for: ranks, tokens, passes and models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rlvr.schema.algorithm import ARMORConfig, AStarPOConfig, PPOConfig
from rlvr.schema.stages import staged
from rlvr.schema.train import Arithmetic, TrainConfig, arithmetic


@dataclass(frozen=True, kw_only=True)
class Demands:
    """What an algorithm asks of the engines."""

    draws: dict[str, int]  # completions of each prompt, by who samples them
    old: bool  # the loss reads the policy's log-probs from before the step
    old_in_signal: bool  # and they must be there before the update
    reference: bool  # log-probs of the reference are scored in every step
    critic: bool
    entropy_learns: bool


def demands(algorithm: Any) -> Demands:
    """What `rlvr.algorithms` says of itself, from the configuration alone; a test holds the two equal."""
    kl = getattr(algorithm, "kl_coef", 0.0) > 0
    draws, mixes = {"policy": algorithm.group}, False
    if isinstance(algorithm, ARMORConfig):
        draws["policy"] -= algorithm.anchored
        if algorithm.draws_reference:
            draws["reference"] = algorithm.anchor_tries
        mixes = algorithm.mixes_reference
    regresses = isinstance(algorithm, AStarPOConfig)
    return Demands(
        draws=draws,
        old=not regresses,
        old_in_signal=kl and algorithm.kl_in == "reward",
        reference=kl or mixes or regresses,
        critic=isinstance(algorithm, PPOConfig),
        entropy_learns=regresses and algorithm.entropy_coef > 0,
    )


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Of a step's sequences, in tokens."""

    prompt: float  # mean
    completion: float  # mean
    longest: int  # completion


def expected(config: TrainConfig) -> Lengths:
    """What `plan.*` takes for granted."""
    plan, rollout = config.plan, config.rollout
    return Lengths(
        prompt=plan.prompt_tokens or max(1.0, config.data.max_prompt_tokens / 4),
        completion=min(plan.completion_tokens or max(1.0, rollout.max_tokens / 2), rollout.max_tokens),
        longest=rollout.max_tokens,
    )


def longest(config: TrainConfig) -> Lengths:
    """Every completion as long as may be, since the micro-batch of the longest ones must fit."""
    limit = config.rollout.max_tokens
    return Lengths(prompt=expected(config).prompt, completion=limit, longest=limit)


@dataclass(frozen=True, kw_only=True)
class Micro:
    """One micro-batch of a rank; see `rlvr.engine.packing.Packed`."""

    sequences: float
    tokens: float  # N, laid end to end
    padded: float  # n L, where attention lays them out in rows
    predicted: float  # M


@dataclass(frozen=True)
class Work:
    """A run's numbers, derived once from its configuration."""

    config: TrainConfig
    world: int

    @classmethod
    def of(cls, config: TrainConfig, world: int) -> Work:
        """The stage of a run that asks for most tokens.

        Raises:
            ConfigError: if the batch does not divide among the ranks.
        """
        stages = staged(config)
        return cls(max(stages, key=lambda c: c.rollout.max_tokens * c.algorithm.group), world)

    @property
    def numbers(self) -> Arithmetic:
        """The batch, as `rlvr train` prints it."""
        return arithmetic(self.config, self.world)

    @property
    def demands(self) -> Demands:
        """Of the algorithm."""
        return demands(self.config.algorithm)

    @property
    def has_reference(self) -> bool:
        """Whether a reference is built, as `Engines` decides it."""
        asked = self.demands
        return asked.reference or "reference" in asked.draws or self.config.log.kl_every > 0

    @property
    def reference_passes(self) -> float:
        """Forward passes of the reference per step: always, or on each step that is measured."""
        every = self.config.log.kl_every
        return 1.0 if self.demands.reference else 1 / every if every else 0.0

    @property
    def old_passes(self) -> int:
        """Forward passes of the policy before the update; one update per step reads its own forward instead."""
        asked = self.demands
        return int(asked.old and (asked.old_in_signal or self.numbers.updates > 1))

    def sampled(self) -> dict[str, float]:
        """Completions per step over all ranks, by who samples them; rejected prompts included."""
        prompts = self.numbers.prompts / self.config.plan.kept
        return {who: prompts * count for who, count in self.demands.draws.items()}

    def tokens_of(self, sequences: float, lengths: Lengths) -> float:
        """Tokens that the learner lays out for `sequences` neighbours; a group's prompt once where it is shared."""
        hardware, group = self.config.hardware, self.config.algorithm.group
        shared = hardware.share_prompts and hardware.attention == "packed"
        prompts = math.ceil(sequences / group) if shared else sequences
        return sequences * lengths.completion + prompts * lengths.prompt

    def micro_batches(self, lengths: Lengths) -> int:
        """Of one update on a rank: as few as `hardware.tokens_per_micro_batch` allows.

        Each leaves half a sequence of its limit unused on average, and pays again for the prompt of a parted group.
        """
        limit = self.config.hardware.tokens_per_micro_batch
        total = self.tokens_of(self.numbers.sequences_per_rank_update, lengths)
        if total <= limit:
            return 1
        return math.ceil(total / max(limit / 2, limit - (lengths.prompt + lengths.completion) / 2))

    def micro(self, lengths: Lengths) -> Micro:
        """The mean micro-batch of an update: its share of the sequences."""
        count = self.micro_batches(lengths)
        sequences = self.numbers.sequences_per_rank_update / count
        padded = sequences * (lengths.prompt + lengths.longest)
        tokens = padded if self.config.hardware.attention == "padded" else self.tokens_of(sequences, lengths)
        return Micro(sequences=sequences, tokens=tokens, padded=padded, predicted=sequences * lengths.completion)
