"""All engines of a run behind a few verbs: sample, score, learn, reset."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlvr.algorithms.base import SCORED_BY, Algorithm, Event
from rlvr.batch import Batch
from rlvr.clock import Clock
from rlvr.engine.export import card_files
from rlvr.engine.learner import Learner
from rlvr.engine.models import ValueModel
from rlvr.engine.parts import SmallFile
from rlvr.engine.reference import Reference
from rlvr.engine.sampler import Decoding, Order, Sampler, never
from rlvr.engine.scorer import Scorer
from rlvr.keys import ConfigError
from rlvr.records import Completion, Source
from rlvr.schema.stages import staged
from rlvr.schema.train import TrainConfig
from rlvr.world import World


@dataclass(frozen=True)
class Speaker:
    """A model folder with what is needed to talk to it."""

    folder: str
    tokenizer: Any
    stop_ids: tuple[int, ...]


class Engines:
    """Learners, reference and sampler, kept in agreement."""

    def __init__(self, algorithm: Algorithm, speaker: Speaker, config: TrainConfig, world: World, clock: Clock) -> None:
        """Build what any stage of the run will need, as large as the longest needs it.

        Raises:
            ConfigError: if a reference is to be reset or watched that nothing reads.
        """
        self.config, self.world, self.clock, self.speaker = config, world, clock, speaker
        stages = staged(config)
        models = frozenset[str]().union(*(type(algorithm)(stage.algorithm).models for stage in stages))
        at = config.rollout.temperature
        self.sampler = Sampler(
            speaker.folder,
            config.model,
            config.hardware,
            world,
            speaker.tokenizer,
            speaker.stop_ids,
            config.data.max_prompt_tokens
            + max(config.validation.max_tokens or 0, *(stage.rollout.max_tokens for stage in stages)),
        )
        learner = partial(Learner, speaker.folder, config.model, config.hardware, config.optim, world, at)
        self.learners: dict[str, Learner] = {"policy": learner()}
        if "critic" in models:
            self.learners["critic"] = learner(ValueModel)
        wanted = "reference" in models or config.log.kl_every > 0
        if not wanted and (who := _refers(config)):
            raise ConfigError(f"{who}, but there is none: set algorithm.kl_coef > 0, or log.kl_every to watch it")
        self.reference = Reference(speaker.folder, config.model, config.hardware, world, at) if wanted else None
        self.policy_version = 0
        self._pinned: int | None = None
        self._sampler_lock = threading.RLock()

    # -- sampling ---------------------------------------------------------------------------

    @contextmanager
    def sampling(self, source: Source) -> Iterator[Any]:
        """The sampler with the weights of `source`; frees its memory at the end where the hardware asks for that.

        Yields:
            draw(orders, decoding, on_done, stop) -> completions, as `Sampler.generate`.
        """
        with self._sampler_lock:
            version = self._version(source)
            if self.sampler.version != version:
                with self.clock("transfer"), torch.no_grad():
                    self.sampler.load(self._weights(source), version)
            else:
                self.sampler.forget()  # a resumed run has no such cache, and what it saves changes the last bits
            yield partial(self._draw, version)
            self.sampler.sleep()

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Inside, the policy that is sampled stays the one of now: a thread may draw from it while this one moves the
        learner's weights."""
        with self.sampling("policy"):
            self._pinned = self.policy_version
        try:
            yield
        finally:
            self._pinned = None

    def _draw(
        self, version: str, orders: list[Order], decoding: Decoding, on_done: Any, stop: Callable[[], bool] = never
    ) -> list[Completion]:
        return self.sampler.generate(orders, decoding, version, on_done, stop)

    def _version(self, source: Source) -> str:
        if source == "policy":
            return f"policy@{self.policy_version if self._pinned is None else self._pinned}"
        assert self.reference is not None
        return f"reference@{self.reference.version}"

    def _weights(self, source: Source) -> Iterator[tuple[str, Tensor]]:
        if source == "policy":
            return self.learners["policy"].weights()
        assert self.reference is not None
        return self.reference.weights()

    # -- scoring ------------------------------------------------------------------------------

    def score(self, batch: Batch, fields: frozenset[str]) -> Batch:
        """Fill in `fields`, each by the model that owns it."""
        scorers: dict[str, Scorer | None] = {**self.learners, "reference": self.reference}
        made = {}
        for name in sorted(fields):
            scorer = scorers[SCORED_BY[name]]
            assert scorer is not None
            made[name] = scorer.score(batch)
        return batch.having(**made)

    # -- learning -------------------------------------------------------------------------------

    def updated(self) -> None:
        """The policy's weights have changed: what the sampler holds is old."""
        self.policy_version += 1

    def reset_reference(self) -> None:
        """The policy becomes the reference."""
        assert self.reference is not None
        self.reference.copy_from(self.learners["policy"].weights())

    def reset_optimizer(self) -> None:
        """Forget the moments of all learners."""
        for learner in self.learners.values():
            learner.reset_optimizer()

    def set_temperature(self, temperature: float) -> None:
        """Score at another sampling temperature from now on."""
        scorers: list[Scorer] = [*self.learners.values(), *filter(None, [self.reference])]
        for scorer in scorers:
            scorer.temperature = temperature

    def close(self) -> None:
        """End what would not end by itself in the right order; nothing collective may follow."""
        self.sampler.close()

    def parameters(self) -> int:
        """Number of the policy's parameters."""
        return sum(getattr(p, "ds_numel", p.numel()) for p in self.learners["policy"].model.parameters())

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """All models' state, copied to host memory: what this rank has to `write(folder)`; every rank calls it."""
        files: list[Any] = [file for name, learner in self.learners.items() for file in learner.snapshot(name)]
        if self.reference:
            files += self.reference.snapshot("reference")
        return files

    @cached_property
    def card(self) -> list[SmallFile]:
        """What else belongs to the policy as a Hugging Face model, below the folder "model"; one rank writes it."""
        return card_files(self.learners["policy"].model.hf, self.speaker.tokenizer, "model")

    def load(self, folder: Path, forgiven: Collection[str] = (), other_reference: bool = False) -> None:
        """The inverse of `snapshot`, on any number of ranks; the sampler gets the weights before it next draws.

        Args:
            forgiven: of "optimizer" and "critic": what may be missing, and then begins anew.
            other_reference: accept that the reference is another one than it was.

        Raises:
            ConfigError: if anything else is missing, damaged, or of another model.
        """
        self.restore(folder, forgiven)
        saved = folder / "reference"
        if self.reference and saved.exists():
            self.reference.load(saved, other_reference)

    def restore(self, folder: Path, forgiven: Collection[str] = ()) -> None:
        """Take weights and moments of what is trained from a checkpoint, and leave the reference where it is."""
        for name, learner in self.learners.items():
            if name in forgiven and not (folder / name).exists():
                continue
            learner.load(folder / name, forgiven)
        self.updated()

    # -- what went wrong --------------------------------------------------------------------------

    @torch.no_grad()
    def diagnose(self) -> str:
        """Which families of the policy's tensors do not reach the sampler; every rank calls it.

        Each family is pushed with noise: one whose noise leaves the sampler's log-probs of a probe
        unchanged is one that the transfer loses.
        """
        with self._sampler_lock:
            plain = self._probed(None)
            families = sorted({_family(name) for name, _ in self.learners["policy"].weights()})
            lost = [family for family in families if self._probed(family) == plain]
        return (
            f"Tensors that do not reach the sampler: {', '.join(lost)}"
            if lost
            else "Noise on any tensor family changes the sampler's log-probs: each arrives, at least in part."
        )

    def _probed(self, noisy: str | None) -> list[float]:
        noise = torch.Generator(device="cpu").manual_seed(0)
        stream = (
            (
                name,
                tensor + 0.1 * torch.randn(tensor.shape, generator=noise).to(tensor)
                if _family(name) == noisy
                else tensor,
            )
            for name, tensor in self.learners["policy"].weights()
        )
        self.sampler.load(stream, f"probe of {noisy}")
        return self.sampler.logprobs(range(3, 3 + 16))


def _refers(config: TrainConfig) -> str | None:
    """The first key that moves or watches a reference, whoever reads it."""
    for name, trigger in config.triggers.items():
        if trigger.when == "kl_spike" or Event.RESET_REFERENCE in trigger.then:
            return f"triggers.{name} needs a reference"
    for name, stage in config.stages.items():
        if Event.RESET_REFERENCE in stage.reset:
            return f"stages.{name}.reset needs a reference"
    return None


def _family(name: str) -> str:
    """A tensor's name without its layer number."""
    return re.sub(r"\.\d+\.", ".*.", name)
