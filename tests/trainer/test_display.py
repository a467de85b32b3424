import io

import pytest
from rich.console import Console

from rlvr.trainer.display import Display, count, duration, summary_table

TRAINED = {
    "train/reward": 0.512,
    "train/kl_ref_k1": 0.0031,
    "train/entropy": 0.8,
    "speed/tokens_per_second": 7012.4,
}
VALIDATED = {"validation/accuracy": 0.55, "validation/accuracy_low": 0.491, "validation/accuracy_high": 0.609}


class Screen:
    """A console with a clock of its own."""

    def __init__(self, terminal: bool = False) -> None:
        self.file, self.time = io.StringIO(), 100.0
        self.console = Console(file=self.file, width=100, force_terminal=terminal, color_system=None)

    def display(self, total: int = 200, **settings) -> Display:
        return Display(total, console=self.console, now=lambda: self.time, **settings)

    @property
    def lines(self) -> list[str]:
        return self.file.getvalue().splitlines()


def test_a_plain_line_tells_what_was_promised():
    screen = Screen()
    with screen.display() as display:
        for step in range(1, 21):
            screen.time += 4 / 9
            display.update(step, TRAINED | (VALIDATED if step == 20 else {}))
    assert screen.lines[-1] == (
        "step 20/200  reward 0.51  validation 0.55 [0.49, 0.61]  kl 0.003  entropy 0.80  7,012 tok/s  1m20s left"
    )


def test_plain_lines_come_at_validations_at_the_end_and_every_so_often():
    screen = Screen()
    with screen.display(total=10, every=30) as display:
        for step in range(11):
            display.update(step, VALIDATED if step in (0, 6) else TRAINED)
            screen.time += 10
    assert [line.split()[1] for line in screen.lines] == ["0/10", "3/10", "6/10", "9/10", "10/10"]
    assert "reward" not in screen.lines[0] and "validation" not in screen.lines[1]


def test_time_left_follows_the_pace_of_the_last_steps():
    screen = Screen()
    with screen.display(total=100, every=0) as display:
        for step in range(61):
            display.update(step, TRAINED)
            screen.time += 100 if step < 40 else 2
    assert screen.lines[60].endswith("1m20s left")


def test_what_is_not_finite_is_shown():
    screen = Screen()
    with screen.display() as display:
        display.update(1, {"train/reward": float("nan")})
    assert screen.lines == ["step 1/200  reward nan"]


def test_stages_and_notes_are_plain_lines_without_a_terminal_and_phases_are_silent():
    screen = Screen()
    with screen.display() as display:
        display.stage("loading [bold]the model")
        display.phase("collect")
        display.note("reset the reference")
    assert screen.lines == ["loading [bold]the model ...", "reset the reference"]


def test_a_disabled_display_is_silent():
    screen = Screen()
    with screen.display(enabled=False) as display:
        display.stage("loading")
        display.update(1, VALIDATED)
        display.note(summary_table({}, {}))
    assert screen.lines == []


def test_a_terminal_shows_the_panel_with_the_last_validation_and_the_phase():
    screen = Screen(terminal=True)
    with screen.display() as display:
        display.update(20, TRAINED | VALIDATED)
        display.update(21, TRAINED)
        display.phase("collect")
        screen.time += 12
    shown = "\n".join(screen.lines)
    with screen.console.capture() as captured:
        display.phase("update")
        screen.console.print(display._panel())
    assert "step 21/200" in shown and "validation 0.55 [0.49, 0.61] at step 20" in shown
    assert "update 0s" in captured.get()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59.6, "1m00s"), (80, "1m20s"), (7500, "2h05m"), (3 * 86400 + 4 * 3600, "3d04h")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(950, "950"), (999.9, "1.00 k"), (12345, "12.3 k"), (456e3, "456 k"), (4.56e6, "4.56 M")]
)
def test_count(number, text):
    assert count(number) == text


def test_the_table_tells_accuracies_and_costs():
    first = {"step": 0, "validation/accuracy": 0.25, "validation/accuracy_low": 0.2, "validation/accuracy_high": 0.3}
    last = {"step": 8, "total/seconds": 80.0, "total/tokens": 40000.0, "total/time/update": 20.0}
    last |= {"total/time/collect": 50.0, "validation/accuracy": 0.5, "best/accuracy": 0.625, "best/step": 6}
    last |= {"test/accuracy": 0.4, "test/accuracy_low": 0.3, "test/accuracy_high": 0.5}
    screen = Screen()
    screen.console.print(summary_table(first, last))
    told = [line.split("  ") for line in screen.lines if line.strip()]
    assert [(row[0].strip(), "  ".join(row[1:]).strip()) for row in told] == [
        ("validation, step 0", "0.250 [0.200, 0.300]"),
        ("validation, step 8", "0.500"),
        ("best, step 6", "0.625"),
        ("test", "0.400 [0.300, 0.500]"),
        ("time", "1m20s"),
        ("sampled", "40.0 k tokens, 500 per second"),
        ("share of time", "collect 62%, update 25%"),
    ]


def test_places_are_told_unbroken():
    screen = Screen()
    with screen.display() as display:
        display.places({"curve": "x" * 200, "W&B run": "y"})
    assert screen.lines == [f" curve    {'x' * 200}", " W&B run  y"]
