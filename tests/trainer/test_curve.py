import json
import struct

import pytest

from rlvr.trainer import curve
from rlvr.trainer.curve import draw, series, smooth, spans


def metrics(path, names, steps=12):
    lines = [json.dumps({"step": step} | {name: 0.1 * step for name in names}) for step in range(steps)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def titles(monkeypatch):
    """Titles of the panels that are drawn."""
    seen, dress = [], curve._dress
    monkeypatch.setattr(curve, "_dress", lambda axes, steps: (seen.append(axes.get_title()), dress(axes, steps)))
    return seen


def test_the_picture_has_the_promised_size(tmp_path):
    names = ["train/reward", "train/kl_ref_k1", "train/entropy", "rollout/length", "validation/accuracy"]
    names += ["validation/accuracy_low", "validation/accuracy_high"]
    draw(metrics(tmp_path / "metrics.jsonl", names, steps=50), tmp_path / "curve.png")
    head = (tmp_path / "curve.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", head[16:]) == (1200, 800)


@pytest.mark.parametrize(
    ("names", "panels"),
    [
        (["validation/accuracy"], ["Reward and validation accuracy"]),
        (["train/kl_step"], ["KL of the step"]),
        (["train/kl_step", "train/kl_ref_k3"], ["KL to the reference"]),
        (["train/reward", "train/entropy", "validation/length"], ["Reward", "Entropy", "Length"]),
    ],
)
def test_panels_without_measurements_are_left_out(tmp_path, titles, names, panels):
    draw(metrics(tmp_path / "metrics.jsonl", names), tmp_path / "curve.png")
    assert len(titles) == len(panels)
    assert all(title.startswith(panel) for title, panel in zip(titles, panels, strict=True))


def test_nothing_to_draw_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="metrics.jsonl: no reward"):
        draw(metrics(tmp_path / "metrics.jsonl", ["time/step"]), tmp_path / "curve.png")


def test_series_skips_what_was_not_measured():
    rows = [{"step": 0}, {"step": 1, "a": None}, {"step": 2, "a": 0.5}]
    assert series(rows, "a") == ([2], [0.5])


def test_smooth_is_a_mean_over_the_neighbours_that_exist():
    assert smooth([1.0, 2.0, 6.0, 4.0], 3) == [1.5, 3.0, 4.0, 5.0]
    assert smooth([1.0, 2.0, 6.0, 4.0], 1) == [1.0, 2.0, 6.0, 4.0]


def test_events_become_spans_by_what_was_done_together():
    reset, stage = {"event/reset_reference": 1.0}, {"event/reset_reference": 1.0, "event/next_stage": 1.0}
    rows = [{"step": step} for step in range(9)]
    for step in (1, 5, 6, 7):
        rows[step] |= reset
    rows[3] |= stage
    assert spans(rows) == {"reset reference": [(1, 1), (5, 7)], "reset reference + next stage": [(3, 3)]}


def test_events_are_marked_in_every_panel_and_named_in_the_first(tmp_path, monkeypatch):
    seen, dress = [], curve._dress
    monkeypatch.setattr(curve, "_dress", lambda axes, steps: (dress(axes, steps), seen.append(axes)))
    path = metrics(tmp_path / "metrics.jsonl", ["train/reward", "train/entropy"])
    lines = path.read_text().splitlines()
    lines[4] = json.dumps(json.loads(lines[4]) | {"event/reset_reference": 1.0})
    path.write_text("\n".join(lines) + "\n")
    draw(path, tmp_path / "curve.png")
    at_four = [[line for line in axes.get_lines() if list(line.get_xdata()) == [4, 4]] for axes in seen]
    assert [len(lines) for lines in at_four] == [1, 1]
    named = [[text.get_text() for text in axes.get_legend().get_texts()] if axes.get_legend() else [] for axes in seen]
    assert ["reset reference" in names for names in named] == [True, False]
