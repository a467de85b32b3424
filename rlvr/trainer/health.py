"""Guards: they see every measurement as soon as it is made, which for most is before an update moves the weights.

A guard that finds fault begins an episode, which ends when it looks again and finds none.  Its action is asked for at
the beginning of an episode; each finding is counted as `health/<guard>`, each update that was left out as
`health/skipped`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from statistics import mean, median
from typing import Any

from rlvr.rollout.collect import Collected
from rlvr.schema.health import HealthConfig
from rlvr.schema.triggers import Event
from rlvr.world import World

Row = Mapping[str, float]
Condition = Callable[[Sequence[float], int, float], str | None]

EVENTS = {"warn": Event.WARN, "skip": Event.SKIP, "restore": Event.RESTORE_BEST, "stop": Event.ABORT}
REFUSE = ("skip", "restore", "stop")  # actions that leave out the update
SKIPPED = "skipped"
LISTED = 3  # most errors that are told


# -- conditions: on the values of one metric, the latest last ------------------------------------------


def above(values: Sequence[float], window: int, limit: float) -> str | None:
    """The mean of the last `window` values is above `limit`; NaN is left to the guard on what is not finite."""
    latest = mean([value for value in values[-window:] if not math.isnan(value)] or [0.0])
    return f"{_mean_of(window)} {latest:.4g}, above {limit:g}" if latest > limit else None


def below(values: Sequence[float], window: int, limit: float) -> str | None:
    """The mean of the last `window` values is below `limit`."""
    latest = mean(values[-window:])
    return f"{_mean_of(window)} {latest:.4g}, below {limit:g}" if latest < limit else None


def spike(values: Sequence[float], window: int, limit: float) -> str | None:
    """The last value is more than `limit` times the median of the `window` before; those not finite do not count."""
    before, latest = [v for v in values[-window - 1 : -1] if math.isfinite(v)], values[-1]
    if not before or not math.isfinite(latest) or latest <= limit * median(before):
        return None
    return f"it is {latest:.4g}, the median of the {window} before is {median(before):.4g}"


def drift(values: Sequence[float], window: int, limit: float) -> str | None:
    """The mean of the last `window` values is more than `limit` times that of the `window` before, or the other way."""
    before, latest = mean(values[-2 * window : -window]), mean(values[-window:])
    moved = latest > limit * before or latest * limit < before
    return f"{_mean_of(window)} {latest:.4g}, that of the {window} before {before:.4g}" if moved else None


def growth(values: Sequence[float], window: int, limit: float) -> str | None:
    """The median slope of all pairs of the last `window` values (Theil and Sen's) is above `limit`; a jump is none."""
    pairs = combinations(enumerate(values[-window:]), 2)
    slope = median((y - x) / (j - i) for (i, x), (j, y) in pairs)
    return f"it has grown by {slope:.4g} per step over {window} steps" if slope > limit else None


def zero(values: Sequence[float], window: int, limit: float) -> str | None:
    """All of the last `window` values are 0."""
    return None if any(values[-window:]) else f"it was 0 {window} times in a row"


def not_finite(values: Sequence[float], window: int, limit: float) -> str | None:
    """The last value is NaN or infinite."""
    return None if math.isfinite(values[-1]) else f"it is {values[-1]}"


# -- guards ----------------------------------------------------------------------------------------------


def _errors(collected: Collected) -> str:
    """What this rank's verifiers failed on most often."""
    counts = Counter(str(row["error"]) for row in collected.rows if row["error"])
    return "causes: " + ("; ".join(text for text, _ in counts.most_common(LISTED)) or "on other ranks")


def _outcomes(collected: Collected) -> str:
    """How the prompts and responses of a step came out."""
    told = collected.tally.means()
    words = {
        "solved_all": "of the prompts were always solved",
        "solved_none": "never",
        "solved_some": "sometimes",
        "truncated": "of the responses were truncated",
    }
    shares = ", ".join(f"{told[name]:.0%} {text}" for name, text in words.items() if name in told)
    return f"in the last step {shares}; use easier or harder data, a larger algorithm.group or longer responses"


@dataclass(frozen=True)
class Kind:
    """What a guard reads, when it finds fault, how many values it needs, and what it can add to the cause."""

    metrics: tuple[str, ...]  # each judged by itself
    condition: Condition | None  # None: the guard has a judgement of its own
    least: Callable[[int], int] = lambda window: window
    late: bool = False  # it reads the row of a whole step, after its updates
    explain: Callable[[Collected], str] | None = None


KINDS = {
    "nonfinite": Kind(
        (
            "train/reward",
            "train/mismatch_gap",
            "train/stale_gap",
            *(f"train/{model}{name}" for model in ("", "critic/") for name in ("loss", "grad_norm")),
        ),
        not_finite,
    ),
    "gradient_spike": Kind(("train/grad_norm", "train/critic/grad_norm"), spike, lambda window: window + 1),
    "kl": Kind(("train/kl_ref_k3",), above),
    "entropy_low": Kind(("train/entropy",), below),
    "entropy_high": Kind(("train/entropy",), above),
    "length": Kind(("rollout/length",), drift, lambda window: 2 * window),
    "repetition": Kind(("rollout/repetition",), above),
    "mismatch": Kind(("train/mismatch_gap",), above),
    "unjudged": Kind(("rollout/unjudged",), above, explain=_errors),
    "over_optimization": Kind(("validation/accuracy",), None, late=True),
    "memory": Kind(("memory/host_mib",), growth, late=True),
    "idle": Kind(("train/grad_norm",), zero, late=True, explain=_outcomes),
    "starved": Kind(("rollout/kept",), zero, explain=_outcomes),
}


class Guard:
    """One guard with its memory."""

    def __init__(self, name: str, config: Any) -> None:
        self.kind, self.action = KINDS[name], config.action
        self.window, self.limit = getattr(config, "window", 1), getattr(config, "limit", 0.0)
        self.values: dict[str, list[float]] = {}
        self.on: set[str] = set()  # metrics that are in an episode

    def look(self, row: Row) -> tuple[str | None, bool]:
        """Take in what is new.

        Returns:
            The cause, if it finds fault, and whether that begins an episode.
        """
        judged = {metric: self._judge(metric, row[metric]) for metric in self.kind.metrics if metric in row}
        found = {metric: cause for metric, cause in judged.items() if cause}
        began = not self.on.issuperset(found)
        self.on = (self.on - judged.keys()) | found.keys()
        return "; ".join(f"{metric}: {cause}" for metric, cause in found.items()) or None, began

    def forget(self) -> None:
        """Begin anew: what is measured from now on cannot be compared with what was."""
        self.values, self.on = {}, set()

    def _judge(self, metric: str, value: float) -> str | None:
        assert self.kind.condition is not None
        least = self.kind.least(self.window)
        values = self.values[metric] = [*self.values.get(metric, []), value][-least:]
        return self.kind.condition(values, self.window, self.limit) if len(values) >= least else None


class OverOptimization(Guard):
    """Sees validations, each with the mean reward of the steps since the one before."""

    def look(self, row: Row) -> tuple[str | None, bool]:
        if "train/reward" in row:
            self.values.setdefault("train/reward", []).append(row["train/reward"])
        return super().look(row)

    def _judge(self, metric: str, value: float) -> str | None:
        since = self.values.pop("train/reward", [])
        accuracies, rewards = (self.values.setdefault(name, []) for name in (metric, "reward"))
        accuracies.append(value)
        rewards.append(mean(since) if since else math.nan)
        best = max(range(len(accuracies)), key=accuracies.__getitem__)
        drop, rise = accuracies[best] - max(accuracies[-self.window :]), mean(rewards[-self.window :]) - rewards[best]
        if drop <= self.limit or not rise > 0:
            return None
        return f"{self.window} validation(s) are {drop:.3f} below the best, while the reward rose by {rise:.3g}"


class Health:
    """All guards of a run.  Every rank has one and calls the same methods; the leading rank decides."""

    def __init__(self, config: HealthConfig, world: World) -> None:
        self.config, self.world = config, world
        chosen = {f.name: getattr(config, f.name) for f in fields(config) if f.name in KINDS}
        special = {"over_optimization": OverOptimization}
        self.guards = {
            name: special.get(name, Guard)(name, guard) for name, guard in chosen.items() if guard.action != "off"
        }
        self.in_a_row = 0  # updates left out since the last one that was applied
        self.restored = 0  # restorations that guards have asked for
        self._collected: Collected | None = None
        self._refused = False  # all further updates of this step
        self._asked: defaultdict[Event, list[str]] = defaultdict(list)
        self._counts: Counter[str] = Counter()

    # -- looking, in the order of a step -----------------------------------------------------------------

    def begin(self, collected: Collected) -> None:
        """Look at the rollouts of a step, before its first update."""
        self._collected, self._refused = collected, False
        self._asked.clear()
        self._counts.clear()
        self._refused = self._look(collected.tally.means("rollout/"))

    def reward(self, value: float) -> None:
        """Look at the mean reward of a step, before its first update."""
        self._refused = self._look({"train/reward": value}) or self._refused

    def admits(self, row: Row) -> bool:
        """Look at one update that is ready, and say whether it is to be applied; equal on all ranks.

        Args:
            row: its metrics, with the norm of its gradient.
        """
        refused = self.world.broadcast(self._look(row) or self._refused)
        self.in_a_row = self.in_a_row + 1 if refused else 0
        if refused:
            self._counts[SKIPPED] += 1
            if self.in_a_row == self.config.patience:
                self._ask("stop", f"health.patience: {self.in_a_row} updates in a row were left out")
        return not refused

    def end(self, row: Row) -> list[tuple[Event, str]]:
        """Look at the row of a step, with its validation; all that is asked for in this step, with causes."""
        self._look(row, late=True)
        return [(event, "; ".join(causes)) for event, causes in self._asked.items()]

    def counted(self) -> dict[str, float]:
        """Metrics of this step: findings by guard, and updates that were left out."""
        return {f"health/{name}": float(count) for name, count in self._counts.items()}

    def _look(self, row: Row, late: bool = False) -> bool:
        """Whether the guards want an update left out because of what is new in `row`."""
        refused = False
        for name, guard in self.guards.items():
            cause, began = guard.look(row) if guard.kind.late == late else (None, False)
            if cause is None:
                continue
            self._counts[name] += 1
            refused = refused or guard.action in REFUSE
            if began:
                more = f" ({guard.kind.explain(self._collected)})" if guard.kind.explain and self._collected else ""
                self._ask(guard.action, f"health.{name}: {cause}{more}")
        return refused

    def _ask(self, action: str, cause: str) -> None:
        if action == "restore":
            self.restored += 1
            if self.restored > self.config.restores:
                action, cause = "stop", f"{cause}; health.restores={self.config.restores} are used up"
        self._refused = self._refused or action in ("restore", "stop")
        self._asked[EVENTS[action]].append(cause)

    # -- memory --------------------------------------------------------------------------------------------

    def forget(self, metric: str | None = None) -> None:
        """Begin the histories of a metric, or all, anew."""
        for guard in self.guards.values():
            if metric is None or metric in guard.kind.metrics:
                guard.forget()

    @property
    def state(self) -> dict[str, Any]:
        """For checkpoints, between two steps; JSON."""
        guards = {
            name: {"values": {m: list(v) for m, v in guard.values.items()}, "on": sorted(guard.on)}
            for name, guard in self.guards.items()
        }
        return {"guards": guards, "in_a_row": self.in_a_row, "restored": self.restored}

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        self.in_a_row, self.restored = state.get("in_a_row", 0), state.get("restored", 0)
        for name, told in state.get("guards", {}).items():
            if name in self.guards:
                self.guards[name].values = {m: list(v) for m, v in told["values"].items()}
                self.guards[name].on = set(told["on"])


def _mean_of(window: int) -> str:
    return "it is" if window == 1 else f"the mean of {window} is"
