"""A reference that follows the policy on a schedule: shared by ProRL and ARMOR."""

from rlvr.algorithms.base import Algorithm, Event
from rlvr.schema.algorithm import MovingReferenceConfig


class MovingReference(Algorithm):
    """Resets the reference after every `reset_every`-th step, up to step `reset_until`."""

    config: MovingReferenceConfig

    def events(self, step: int, metrics: dict[str, float]) -> tuple[Event, ...]:
        config, done = self.config, step + 1
        over = config.reset_until is not None and done > config.reset_until
        if not config.reset_every or done % config.reset_every or over:
            return ()
        return (Event.RESET_REFERENCE, *[Event.RESET_OPTIMIZER] * config.reset_optimizer)
