"""Stages: the one place where the configuration of a run changes while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr.data.sources import entry_of, stream_weights
from rlvr.data.stream import PromptStream
from rlvr.engine.engines import Engines
from rlvr.keys import ConfigError
from rlvr.records import Prompt
from rlvr.schema.stages import put
from rlvr.schema.train import TrainConfig, arithmetic
from rlvr.trainer.checkpoint import Progress


def refuse_stages_without_data(config: TrainConfig, prompts: Sequence[Prompt]) -> None:
    """Make sure that every source which a stage brings in has prompts to train on.

    Raises:
        ConfigError: naming the stage and the source.
    """
    filled = {entry_of(prompt) for prompt in prompts}
    for stage, told in config.stages.items():
        for source in config.data.sources:
            if told.overrides.get(f"data.sources.{source}.weight") and source not in filled:
                raise ConfigError(
                    f"stages.{stage}.overrides gives data.sources.{source} a weight, but it has no rows to train on: "
                    f"give data.sources.{source}.train, or leave the override out (stages.{stage}.overrides={{}})"
                )


class Stages:
    """Where a run stands among its stages.

    Args:
        config: of the run; its sections are those that algorithm, collector, updater and evaluator hold, who read them
            anew in every step.
        prompts: what the stream draws from.
        progress: holds the stages that were entered, with the step and the stream position at which they were.
    """

    def __init__(
        self,
        config: TrainConfig,
        progress: Progress,
        engines: Engines,
        stream: PromptStream,
        prompts: Sequence[Prompt],
    ) -> None:
        self.config, self.progress, self.engines = config, progress, engines
        self.stream, self.prompts = stream, prompts

    def begin(self) -> None:
        """Enter the first stage, or those that a resumed run has entered before.

        Raises:
            ConfigError: if there is no such stage any more.
        """
        for entry in self.progress.stages:
            if entry["name"] not in self.config.stages:
                raise ConfigError(
                    f"the checkpoint was in stage {entry['name']}, which `stages` no longer has: put it back, or start "
                    "a new run from the exported model (model.path)"
                )
            self._apply(entry["name"], entry["cursor"])
        if not self.progress.stages and self.config.stages:
            self.enter_next()

    @property
    def current(self) -> str | None:
        """The name of the stage that the run is in; None in a run without."""
        return self.progress.stages[-1]["name"] if self.progress.stages else None

    @property
    def next(self) -> str | None:
        """The name of the stage that follows, if one does."""
        return next(iter(list(self.config.stages)[self.number :]), None)

    @property
    def number(self) -> int:
        """The place of the current stage, counted from 1; 0 in a run without."""
        return [None, *self.config.stages].index(self.current)

    def ended(self) -> str | None:
        """Why the current stage is over after `progress.step` steps; None if it is not, or if none follows."""
        until = self.config.stages[self.current].until if self.current else None
        if self.next is None or until is None or self.progress.step < until:
            return None
        return f"stage {self.current} lasted until step {until}"

    def enter_next(self) -> None:
        """Let the stage that follows begin with the next step."""
        name = self.next
        assert name is not None
        self.progress.stages.append({"name": name, "step": self.progress.step, "cursor": self.progress.cursor})
        self._apply(name, self.progress.cursor)

    def describe(self, world_size: int) -> str:
        """The current stage in words: what it changed, and the batch that follows from it."""
        assert self.current is not None
        changes = self.config.stages[self.current].overrides
        told = ", ".join(f"{name}={value}" for name, value in changes.items()) or "nothing changes"
        batch = arithmetic(self.config, world_size)
        return (
            f"stage {self.current} since step {self.progress.stages[-1]['step']}: {told}; per step "
            f"{batch.prompts} prompts x {self.config.algorithm.group} = {batch.sequences} sequences, "
            f"{batch.updates} update(s) of {batch.sequences_per_update}"
        )

    def _apply(self, last: str, cursor: int) -> None:
        """Set what the stages up to `last` override."""
        for name, stage in self.config.stages.items():
            for key, value in stage.overrides.items():
                put(self.config, key, value)
            if name == last:
                break
        weights = {name: source.weight for name, source in self.config.data.sources.items()}
        self.stream.reweigh(stream_weights(weights, self.prompts), cursor)
        self.engines.set_temperature(self.config.rollout.temperature)
