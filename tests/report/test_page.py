"""The page and its Markdown: self-contained, escaped, honest about seeds and selection."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from rlvr.keys import ConfigError
from rlvr.ops.resample import Band
from rlvr.report.build import build
from rlvr.report.command import report
from rlvr.report.coverage import difficulty
from rlvr.report.document import interval
from rlvr.report.families import families
from rlvr.report.figures import LEGEND, draw, draw_key, panels, styles
from rlvr.report.render import markdown
from rlvr.report.runs import find_runs
from tests.report.made_up import make_run, two_families

EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(1)> ```\n# not a heading"


class Page(HTMLParser):
    """Collects elements, attributes and text, and checks that elements are closed in order."""

    VOID = ("meta", "br", "img", "link")

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.attributes, self.words = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def quick(monkeypatch):
    """Without pictures, which take most of the time."""
    monkeypatch.setattr("rlvr.report.build.panels", lambda found: [])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = two_families(tmp_path_factory.mktemp("runs"))
    out = root / "report"
    build([root], out, baseline="grpo")
    return out


def test_the_page_asks_for_nothing_and_runs_nothing(made):
    page = Page((made / "report.html").read_text())
    assert "script" not in page.elements and "link" not in page.elements and "img" not in page.elements
    for name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href", "action", "data"):
            assert value.startswith("#"), (name, value)
    ids = [value for name, value in page.attributes if name == "id"]
    assert not [value for value in ids if " " in value]
    assert len(ids) == len(set(ids)) and page.elements.count("svg") >= 8
    links = {value[1:] for name, value in page.attributes if name in ("href", "xlink:href")}
    assert links <= set(ids)


def test_everything_that_was_asked_for_stands_on_it(made):
    text = Page((made / "report.html").read_text()).text
    for part in ("Results", "Differences", "Coverage", "Cost", "Configuration", "Code and machine", "Samples"):
        assert part in text
    assert re.search(r"test accuracy, last step .* 0\.\d{3} \[0\.\d{3}, [01]\.\d{3}\]", text)
    assert "NOT matched in sampled sequences" in text and "One section changed (algorithm)" in text
    assert "the policy after the last step (20), chosen by no score" in text
    assert "Configurations tried: 2" in text and "Seeds per family: 3" in text
    assert "HEADLINE ON SELECTION DATA" not in text
    assert "reset_reference" in text and "not mixed" in text and "0123456789ab" in text


def test_pictures_are_files_too_and_the_markdown_shows_them(made):
    names = re.findall(r"!\[.*\]\(pictures/(\w+)\.png\)", (made / "report.md").read_text())
    assert {"reward", "accuracy_by_sequences", "accuracy_by_seconds", "kl", "entropy", "length", "kept"} <= set(names)
    for name in names:
        assert (made / "pictures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (made / "pictures" / f"{name}.svg").read_text()


def test_numbers_on_selection_data_are_marked(made):
    html, text = (made / "report.html").read_text(), (made / "report.md").read_text()
    assert re.search(r'<td data-head="validation, last step" class="selection">0\.', html)
    assert re.search(r'<td data-head="test accuracy, last step">0\.', html)
    assert re.search(r"\\\] \(selection data\) \|", text)


def test_without_the_test_role_the_headline_is_red(tmp_path, quick):
    make_run(tmp_path / "run", tested=False)
    build([tmp_path], tmp_path / "report")
    assert '<p class="warning">HEADLINE ON SELECTION DATA' in (tmp_path / "report" / "report.html").read_text()
    assert "**Warning:** HEADLINE ON SELECTION DATA" in (tmp_path / "report" / "report.md").read_text()


def test_two_seeds_have_no_interval_anywhere(tmp_path, monkeypatch):
    two_families(tmp_path, seeds=2)
    monkeypatch.setattr("rlvr.report.build.panels", lambda found: panels(found)[:1])
    build([tmp_path], tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text()
    assert not re.search(r"\\\[[+-]?\d", text)
    row = re.findall(r"^\| grpo \| 2 .*$", text, flags=re.M)[0]
    assert row.count("no interval (2 seeds)") == 4
    differences = re.findall(r"^\| grpo \| (?:validation|test) accuracy after.*$", text, flags=re.M)
    assert len(differences) == 4 and all("no interval (2 seeds)" in line for line in differences)
    assert "2 seeds, no interval" in (tmp_path / "report" / "report.html").read_text()


@pytest.mark.parametrize("arms", [5, LEGEND + 1])
def test_every_family_is_named_beside_the_pictures(tmp_path, arms):
    rates = [f"optim.lr={number}e-5" for number in range(1, arms + 1)]
    found = families([run for rate in rates for run in find_runs([make_run(tmp_path / rate, rate, "run.name=x")])])
    assert len(found) == arms
    look = styles(found)
    picture, key = draw(panels(found)[0], found, look, tmp_path), draw_key(found, look, tmp_path)
    assert (key is None) == (arms <= LEGEND)
    assert all(family.name in (key or picture).svg for family in found)


def test_responses_of_the_model_are_text(tmp_path, quick):
    make_run(tmp_path / "run", response=EVIL)
    build([tmp_path], tmp_path / "report")
    page = Page((tmp_path / "report" / "report.html").read_text())
    assert "script" not in page.elements and "<script>alert(1)</script>" in "".join(page.words)
    text = (tmp_path / "report" / "report.md").read_text()
    assert "````text\n</pre><script>" in text  # the fence is longer than that of the response


def test_choices_by_validation_are_told(tmp_path, quick):
    causes = (
        (5, "restore_best", "trigger a: validation_drop, 0.3"),
        (10, "stop", "trigger b: validation_plateau, 0.4"),
    )
    make_run(tmp_path / "run", events=causes, steps=10)
    build([tmp_path], tmp_path / "report")
    text = Page((tmp_path / "report" / "report.html").read_text()).text
    assert "restored on the way to the best on validation data" in text
    assert "stopped by a trigger that reads validation data" in text


def test_watching_ends_with_the_runs(tmp_path, quick, monkeypatch, capsys):
    run = make_run(tmp_path / "run", finished=False, steps=10)
    page = tmp_path / "report" / "report.html"
    waits = []

    def finish(seconds):
        waits.append(seconds)
        assert f'http-equiv="refresh" content="{seconds}"' in page.read_text() and "unfinished" in page.read_text()
        (run / "summary.json").write_text('{"last": {}}')

    monkeypatch.setattr("rlvr.report.command.time.sleep", finish)
    assert report([str(run), "--watch", "--every", "7", "--out", str(tmp_path / "report")]) == 0
    assert waits == [7] and "refresh" not in page.read_text().split("<style>")[0]
    assert "1 run(s) go on" in capsys.readouterr().out


def test_sources_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("rlvr.report.build.panels", lambda found: [])
    for seed in range(3):
        for name, algorithm, gain in (("a", "grpo", 0.2), ("b", "dapo", 0.4)):
            make_run(
                tmp_path / name / str(seed),
                f"algorithm={algorithm}",
                seed=seed,
                gain=gain,
                sources=("arithmetic", "far"),
            )
    build([tmp_path], tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text().partition("## By source")[2].partition("\n## ")[0]
    assert "minus grpo, test" in text
    assert re.search(r"^\| dapo \| far \| 15 or 20 \| 0\.\d{3} .* \| 0\.\d{3} .*\(selection data\)", text, flags=re.M)
    assert all(f"pictures/accuracy_{name}.png" in text for name in ("arithmetic", "far"))


def test_an_unknown_baseline_is_refused(tmp_path):
    make_run(tmp_path / "run")
    with pytest.raises(ConfigError, match="no such family; there are: grpo"):
        build([tmp_path], tmp_path / "report", baseline="dapo")


def test_without_a_spread_there_is_no_interval():
    zero, one = np.zeros(1), np.ones(1)
    assert interval(Band(zero, zero, zero, 3)) == "0.000, no interval (the same in all seeds)"
    assert interval(Band(zero, -one, one, 3), signed=True) == "+0.000 [-1.000, +1.000]"


def test_bins_of_difficulty():
    rates = (0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 0.875, 1.0)
    words = ["never solved", *2 * ["up to 1/4"], *2 * ["up to 1/2"], "up to 3/4", "less than all", "always solved"]
    assert [difficulty(rate) for rate in rates] == words


def test_markdown_has_no_markup_but_its_own():
    from rlvr.report.document import Document, Section, Table

    table = Table(["a|b"], [["<b>*x*</b> $y$\n|z"]])
    text = markdown(Document("t", "m", [Section("s", [table])]), "pictures")
    assert r"| a\|b |" in text and r"| \<b\>\*x\*\</b\> \$y\$ \|z |" in text
