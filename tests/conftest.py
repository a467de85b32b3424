"""What every test leaves behind is undone here."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def log_handlers() -> Iterator[None]:
    """A verb run in the process configures logging on that test's own streams, which are closed after it."""
    yield
    root = logging.getLogger()
    for handler in list(root.handlers):
        if type(handler) in (logging.StreamHandler, logging.FileHandler):
            root.removeHandler(handler)
