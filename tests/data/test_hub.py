from pathlib import Path

import datasets
import pytest

from rlvr.data import hub
from rlvr.keys import ConfigError
from tests.data.helpers import source


def read(config):
    return hub.read(config, "gsm", "train", Path())


def gsm(**keys):
    return source(kind="hub", path="openai/gsm8k", subset="main", train="train[1:]", **keys)


@pytest.fixture
def asked(monkeypatch):
    """The library's loader replaced by a table in memory; gives the calls made."""
    table = datasets.Dataset.from_list([{"question": f"q{i}", "answer": f"so\n#### {i}", "level": 1} for i in range(3)])
    calls = []

    def load_dataset(path, subset, split):
        calls.append((path, subset, split))
        return table

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls


def test_the_split_is_asked_for_and_the_slice_taken(asked):
    rows = read(gsm())
    assert asked == [("openai/gsm8k", "main", "train")]
    assert [(row.number, row.question) for row in rows] == [(1, "q1"), (2, "q2")]
    assert [row.answer for row in rows] == ["so\n#### 1", "so\n#### 2"]


def test_a_missing_column_lists_those_there_are(asked):
    with pytest.raises(ConfigError, match=r"gsm.train: train has no column gold .*there are: question, answer, level"):
        read(gsm(answer="gold"))


@pytest.mark.parametrize("error", [ConnectionError("offline"), FileNotFoundError("nowhere")])
def test_offline_and_not_cached(monkeypatch, error):
    def load_dataset(path, subset, split):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(ConfigError, match=r"sources.gsm.path=openai/gsm8k: not in the local cache and not reachable"):
        read(gsm())


def test_an_unknown_split(monkeypatch):
    def load_dataset(path, subset, split):
        raise ValueError('Unknown split "trian". Should be one of ["train", "test"].')

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(ConfigError, match=r"gsm.train=train .*Should be one of"):
        read(gsm())


def test_no_path(asked):
    with pytest.raises(ConfigError, match="data.sources.gsm.path is null"):
        read(source(kind="hub", train="train"))
