"""A reference that is not the one that it was; on real weights: test_state.py."""

import json

import pytest

from rlvr.engine.reference import CARD, Reference
from rlvr.keys import ConfigError


def test_an_exchanged_base_model_is_refused_unless_it_is_accepted(tmp_path):
    (tmp_path / CARD).write_text(json.dumps({"version": 0, "identity": "then"}))
    reference = object.__new__(Reference)  # of the base model; nothing of it is read but its hash
    reference.version, reference._identity = 0, "now"
    with pytest.raises(ConfigError, match=r"was then and would now be now: the base model.*allow_change=\[reference\]"):
        reference.load(tmp_path)
    reference.load(tmp_path, allow_change=True)
    reference._identity = "then"
    reference.load(tmp_path)
