"""What happens between two steps: events that the algorithm's schedule, triggers or the calendar of stages ask for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rlvr.schema.train import TrainConfig
from rlvr.schema.triggers import Event
from rlvr.trainer.checkpoint import Checkpoints, Progress
from rlvr.trainer.display import Display
from rlvr.trainer.setup import Parts
from rlvr.trainer.stages import Stages
from rlvr.trainer.triggers import KL, Triggers
from rlvr.world import World

Causes = dict[Event, str]
SCHEDULE = "the algorithm's schedule"


class Events:
    """Decides after every step what is to be done, and does it."""

    def __init__(
        self,
        config: TrainConfig,
        parts: Parts,
        progress: Progress,
        checkpoints: Checkpoints,
        world: World,
        display: Display,
    ) -> None:
        """Take up triggers and stages where `progress` left them; `config` is the one that `parts` were built with."""
        self.engines, self.progress, self.checkpoints, self.health = parts.engines, progress, checkpoints, parts.health
        self.rollouts, self.world, self.display = parts.rollouts, world, display
        self.stages = Stages(config, progress, parts.engines, parts.collector.stream, parts.prompts["train"])
        self.triggers = Triggers(config.triggers)
        self.triggers.state = progress.triggers
        self.health.state = progress.health
        self.stages.begin()
        if self.stages.current:
            display.note(self.stages.describe(world.size))
        self._last: Causes = {}

    def due(self, scheduled: Sequence[Event], row: Mapping[str, float]) -> Causes:
        """What is to be done after the step that was just counted, in the order of `Event`, and why.

        The leading rank decides: metrics are equal on all ranks, but a rounding that was not would part them for good.

        Args:
            scheduled: what the algorithm asks for.
            row: the metrics of the step, validation included.
        """
        causes: defaultdict[Event, list[str]] = defaultdict(list)
        for event in scheduled:
            causes[event].append(SCHEDULE)
        for event, cause in [*self.triggers.see(self.progress.step, row), *self.health.end(row)]:
            causes[event].append(cause)
        if over := self.stages.ended():
            causes[Event.NEXT_STAGE].append(over)
        if Event.NEXT_STAGE in causes and (following := self.stages.next):
            for name in self.stages.config.stages[following].reset:
                causes[Event(name)].append(f"stage {following} begins")
        return self.world.broadcast({event: "; ".join(causes[event]) for event in Event if event in causes})

    def handle(self, causes: Causes) -> None:
        """Carry out what is due; every rank calls it."""
        for event, cause in causes.items():
            if self._last.get(event) != cause:  # a reset after every step is told once
                self.display.note(f"step {self.progress.step}: {event}: {cause}")
            HANDLERS[event](self)
            if HANDLERS[event] is not Events._told:
                self.rollouts.drop()  # drawn from, or for, what is no more
        self._last = causes
        self.progress.triggers, self.progress.health = self.triggers.state, self.health.state

    def _restore_best(self) -> None:
        if self.progress.best_step == self.progress.step:
            self.display.note("nothing to restore: this is the best")
        elif (best := self.world.broadcast(self.checkpoints.best(self.progress))) is None:
            self.display.note("nothing to restore: there is no best checkpoint yet")
        else:
            self.engines.restore(best)
            self._forget()

    def _reset_reference(self) -> None:
        self.engines.reset_reference()
        self._forget(KL)

    def _reset_optimizer(self) -> None:
        self.engines.reset_optimizer()

    def _next_stage(self) -> None:
        if self.stages.next is None:
            self.display.note(f"no stage follows {self.stages.current}")
            return
        self.stages.enter_next()
        self._forget()
        self.display.note(self.stages.describe(self.world.size))

    def _stop(self) -> None:
        self.progress.stopped = True

    def _forget(self, metric: str | None = None) -> None:
        self.triggers.forget(metric)
        self.health.forget(metric)

    def _told(self) -> None:
        """Nothing is left to be done: of a warning, or for the one who has done it or will."""


HANDLERS = {
    Event.WARN: Events._told,
    Event.SKIP: Events._told,
    Event.RESTORE_BEST: Events._restore_best,
    Event.RESET_REFERENCE: Events._reset_reference,
    Event.RESET_OPTIMIZER: Events._reset_optimizer,
    Event.NEXT_STAGE: Events._next_stage,
    Event.STOP: Events._stop,
    Event.ABORT: Events._told,
}
