"""Progress on the screen: a live panel on a terminal, plain lines elsewhere, a table at the end."""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rlvr.trainer.curve import KL_NAMES

REFRESHES_PER_SECOND = 4
WINDOW = 20  # steps whose pace tells the time left

HEALTH = "health/"

Metrics = Mapping[str, float]


class Display:
    """What the user sees of a run; on a disabled display (all ranks but one) every method does nothing.

    Args:
        total_steps: rollout steps of the run.
        enabled: whether this process shows anything.
        console: where to; standard output by default.
        every: seconds between plain lines, where there is no terminal; validations are always told.
        now: the clock.
    """

    def __init__(
        self,
        total_steps: int,
        enabled: bool = True,
        *,
        console: Console | None = None,
        every: float = 30.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._step = total_steps, 0
        self._console, self._every, self._now = console or Console(), every, now
        self._console.quiet = not enabled
        self._latest: dict[str, float] = {}
        self._marks: deque[tuple[int, float]] = deque(maxlen=WINDOW + 1)
        self._printed = -math.inf
        self._phase, self._phase_began = "", now()
        self._spinner = Spinner("dots")
        self._live: Live | None = None
        if enabled and self._console.is_terminal:
            self._live = Live(
                console=self._console, get_renderable=self._panel, refresh_per_second=REFRESHES_PER_SECOND
            )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def stage(self, text: str) -> None:
        """Say what is being prepared before the first step, for example "loading the model"."""
        self.phase(text)
        if not self._live:
            self._plain(f"{text} ...")

    def phase(self, name: str) -> None:
        """Say what part of a step is running, on a terminal only; fits `Clock.on_enter`."""
        self._phase, self._phase_began = name, self._now()

    def update(self, step: int, metrics: Metrics) -> None:
        """Show the metrics of a step; `step` counts completed rollout steps."""
        self._step = step
        self._marks.append((step, self._now()))
        kept = {name: value for name, value in self._latest.items() if not name.startswith(HEALTH)}
        self._latest = kept | dict(metrics)
        validated = "validation/accuracy" in metrics
        if validated:
            self._latest["validation/step"] = step
        due = validated or step == self._total or self._now() - self._printed >= self._every
        if not self._live and due:
            self._printed = self._now()
            seldom = {
                name: value for name, value in self._latest.items() if name in KL_NAMES
            }  # not measured at every step
            told = [f"step {step}/{self._total}", *(" ".join(field) for field in fields(seldom | dict(metrics)))]
            left = self._left()
            self._plain("  ".join([*told, f"{duration(left)} left"] if left else told))

    def note(self, what: RenderableType) -> None:
        """Print a text or a table above the live panel."""
        if isinstance(what, str):
            self._plain(what)
        else:
            self._console.print(what)

    def places(self, paths: Mapping[str, Any]) -> None:
        """Say where things are, one per line, unbroken so that they can be copied."""
        width = max(map(len, paths))
        for name, path in paths.items():
            self._plain(f" {name:<{width}}  {path}")

    def close(self) -> None:
        """Leave the last state of the panel on the screen."""
        if self._live:
            self._phase = ""
            self._live.stop()
            self._live = None

    def _plain(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _left(self) -> float | None:
        """Seconds to the last step at the pace of the last steps; None before two of them are known."""
        if len(self._marks) < 2:
            return None
        (first_step, first_time), (step, at) = self._marks[0], self._marks[-1]
        return (at - first_time) / (step - first_step) * (self._total - step)

    def _panel(self) -> RenderableType:
        return Group(*self._panel_lines())

    def _panel_lines(self) -> list[RenderableType]:
        lines: list[RenderableType] = []
        if self._marks:
            left = self._left()
            bar = Table.grid(padding=(0, 1), expand=True)
            bar.add_column(no_wrap=True)
            bar.add_column(ratio=1)
            bar.add_column(no_wrap=True)
            bar.add_row(
                Text(f"step {self._step}/{self._total}", style="bold"),
                ProgressBar(total=self._total, completed=self._step),
                Text(f"{duration(left)} left" if left else ""),
            )
            shown = [Text.assemble((label, "dim"), " ", (value, "bold")) for label, value in fields(self._latest)]
            lines += [bar, Columns(shown, padding=(0, 2))]
        if self._phase:
            waited = duration(self._now() - self._phase_began)
            self._spinner.update(text=Text(f"{self._phase} {waited}", style="dim"))
            lines.append(self._spinner)
        return lines


# -- words for numbers -------------------------------------------------------------------


def fields(metrics: Metrics) -> list[tuple[str, str]]:
    """The metrics worth a place on one line, as pairs of a label and a text, as far as they are there."""
    told = []
    if "train/reward" in metrics:
        told.append(("reward", f"{metrics['train/reward']:.2f}"))
    if "validation/accuracy" in metrics:
        at = f" at step {metrics['validation/step']:.0f}" if "validation/step" in metrics else ""
        told.append(("validation", interval(metrics, "validation", digits=2) + at))
    kl = next((name for name in KL_NAMES if name in metrics), None)
    if kl:
        told.append(("kl", _small(metrics[kl])))
    if "train/entropy" in metrics:
        told.append(("entropy", f"{metrics['train/entropy']:.2f}"))
    if "speed/tokens_per_second" in metrics:
        told.append((f"{metrics['speed/tokens_per_second']:,.0f}", "tok/s"))
    findings = [name.removeprefix(HEALTH).replace("_", " ") for name in metrics if name.startswith(HEALTH)]
    if findings:
        told.append(("health", ", ".join(findings)))
    return told


def _small(value: float) -> str:
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.0005 else f"{value:.0e}"


def interval(metrics: Metrics, role: str, digits: int) -> str:
    """ "0.55 [0.49, 0.61]": an accuracy with its interval, if there is one."""
    text = f"{metrics[f'{role}/accuracy']:.{digits}f}"
    if f"{role}/accuracy_low" in metrics and f"{role}/accuracy_high" in metrics:
        low, high = metrics[f"{role}/accuracy_low"], metrics[f"{role}/accuracy_high"]
        text += f" [{low:.{digits}f}, {high:.{digits}f}]"
    return text


def duration(seconds: float) -> str:
    """Two units are enough: 45s, 1m20s, 2h05m, 3d04h."""
    whole = round(seconds)
    for name, size, part, part_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{name}{whole % size // part_size:02d}{part}"
    return f"{whole}s"


def count(number: float) -> str:
    """Three digits: 950, 12.3 k, 4.56 M."""
    for size, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= 0.9995 * size:
            return f"{number / size:#.3g}".rstrip(".") + name
    return f"{number:.0f}"


# -- the end -----------------------------------------------------------------------------


def summary_table(first: Metrics, last: Metrics) -> Table:
    """What came of a run.

    Args:
        first: metrics of step 0, as `overview` returns them.
        last: the latest metrics with `best/...` and `total/...`, as `overview` returns them; `test/...` if it was run.
    """
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for section in (_accuracies(first, last), _findings(last), _costs(last)):
        for label, text in section:
            table.add_row(label, Text(text))
        if section:
            table.add_section()
    return table


def _accuracies(first: Metrics, last: Metrics) -> list[tuple[str, str]]:
    told = []
    if "validation/accuracy" in first:
        told.append((f"validation, step {first['step']:.0f}", interval(first, "validation", digits=3)))
    if "validation/accuracy" in last:
        told.append((f"validation, step {last['step']:.0f}", interval(last, "validation", digits=3)))
    if "best/accuracy" in last:
        told.append((f"best, step {last['best/step']:.0f}", f"{last['best/accuracy']:.3f}"))
    if "test/accuracy" in last:
        told.append(("test", interval(last, "test", digits=3)))
    return told


def _findings(last: Metrics) -> list[tuple[str, str]]:
    """How often each guard found fault."""
    total = f"total/{HEALTH}"
    found = [
        f"{name.removeprefix(total).replace('_', ' ')} {times:.0f}"
        for name, times in last.items()
        if name.startswith(total)
    ]
    return [("health, updates or steps", ", ".join(found))] if found else []


def _costs(last: Metrics) -> list[tuple[str, str]]:
    seconds, tokens = last.get("total/seconds", 0.0), last.get("total/tokens", 0.0)
    if not seconds:
        return []
    told = [("time", duration(seconds))]
    if tokens:
        told.append(("sampled", f"{count(tokens)} tokens, {tokens / seconds:,.0f} per second"))
    phases = {name.removeprefix("total/time/"): spent for name, spent in last.items() if name.startswith("total/time/")}
    shares = sorted(phases.items(), key=lambda item: -item[1])
    told.append(("share of time", ", ".join(f"{name} {spent / seconds:.0%}" for name, spent in shares)))
    if "total/outside_share" in last:
        told.append(("outside the models", f"{last['total/outside_share']:.1%}"))
    return told
