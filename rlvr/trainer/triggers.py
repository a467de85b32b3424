"""Triggers: conditions on the history of a metric that ask for events.

A condition sees what was measured since its trigger last fired or the stage began, so that every treatment is judged
by what came after it.  None can be written that sees the test role: its accuracy is no metric of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from rlvr.schema.triggers import Event, TriggerConfig

Condition = Callable[[Sequence[float], int, float], str | None]


def validation_plateau(values: Sequence[float], window: int, threshold: float) -> str | None:
    """None of the last `window` accuracies is more than `threshold` above the best before them."""
    best, latest = max(values[:-window]), max(values[-window:])
    return f"{latest:.3f} is the best of {window}, {best:.3f} that before" if latest <= best + threshold else None


def validation_drop(values: Sequence[float], window: int, threshold: float) -> str | None:
    """All of the last `window` accuracies are more than `threshold` below the best before them."""
    best, latest = max(values[:-window]), max(values[-window:])
    return f"{latest:.3f} is the best of {window}, down from {best:.3f}" if latest < best - threshold else None


def kl_spike(values: Sequence[float], window: int, threshold: float) -> str | None:
    """The last value is more than `threshold` above the median of the `window` values before it."""
    usual, latest = median(values[-window - 1 : -1]), values[-1]
    return f"{latest:.3g}, the median of the {window} before is {usual:.3g}" if latest > usual + threshold else None


def entropy_collapse(values: Sequence[float], window: int, threshold: float) -> str | None:
    """The mean of the last `window` values is below `threshold`."""
    latest = mean(values[-window:])
    return f"the mean of {window} steps is {latest:.3g}, below {threshold:g}" if latest < threshold else None


def length_explosion(values: Sequence[float], window: int, threshold: float) -> str | None:
    """The mean of the last `window` values is more than `threshold` times that of the `window` values before them."""
    before, latest = mean(values[-2 * window : -window]), mean(values[-window:])
    return f"the mean of {window} steps is {latest:.4g}, up from {before:.4g}" if latest > threshold * before else None


@dataclass(frozen=True)
class Kind:
    """A condition, the metric that it reads, and how many values it needs at least."""

    metric: str
    condition: Condition
    least: Callable[[int], int]
    keeps_all: bool = False  # it looks further back than that


KL = "train/kl_ref_k3"  # k1 may be negative

KINDS = {
    "validation_plateau": Kind("validation/accuracy", validation_plateau, lambda window: window + 1, keeps_all=True),
    "validation_drop": Kind("validation/accuracy", validation_drop, lambda window: window + 1, keeps_all=True),
    "kl_spike": Kind(KL, kl_spike, lambda window: window + 1),
    "entropy_collapse": Kind("train/entropy", entropy_collapse, lambda window: window),
    "length_explosion": Kind("rollout/length", length_explosion, lambda window: 2 * window),
}


class Trigger:
    """One condition with its memory."""

    def __init__(self, config: TriggerConfig) -> None:
        self.config, self.kind = config, KINDS[config.when]
        self.values: list[float] = []
        self.fired: int | None = None  # the step of the last firing

    def see(self, step: int, row: Mapping[str, float]) -> str | None:
        """Take in the metrics of a step; the cause, if the trigger fires."""
        if self.kind.metric not in row:
            return None
        self.values.append(row[self.kind.metric])
        least = self.kind.least(self.config.window)
        if not self.kind.keeps_all:
            self.values = self.values[-least:]
        cooling = self.fired is not None and step <= self.fired + self.config.cooldown
        if cooling or len(self.values) < least:
            return None
        cause = self.kind.condition(self.values, self.config.window, self.config.threshold)
        if cause:
            self.fired, self.values = step, []
        return cause


class Triggers:
    """All triggers of a run."""

    def __init__(self, configs: Mapping[str, TriggerConfig]) -> None:
        self._triggers = {name: Trigger(config) for name, config in configs.items()}

    def see(self, step: int, row: Mapping[str, float]) -> list[tuple[Event, str]]:
        """Take in the metrics of a step.

        Args:
            step: completed rollout steps.
            row: metrics, equal on all ranks.

        Returns:
            The events that are asked for, each with its cause.
        """
        asked = []
        for name, trigger in self._triggers.items():
            if cause := trigger.see(step, row):
                told = f"trigger {name}: {trigger.config.when}, {cause}"
                asked += [(Event(event), told) for event in trigger.config.then]
        return asked

    def forget(self, metric: str | None = None) -> None:
        """Begin the histories of a metric, or all, anew: what is measured from now on cannot be compared with them."""
        for trigger in self._triggers.values():
            if metric in (None, trigger.kind.metric):
                trigger.values = []

    @property
    def state(self) -> dict[str, dict[str, Any]]:
        """For checkpoints; JSON."""
        return {
            name: {"when": trigger.config.when, "values": list(trigger.values), "fired": trigger.fired}
            for name, trigger in self._triggers.items()
        }

    @state.setter
    def state(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        for name, trigger in self._triggers.items():
            if name in state and state[name]["when"] == trigger.config.when:
                trigger.values, trigger.fired = list(state[name]["values"]), state[name]["fired"]
