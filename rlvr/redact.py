"""Secrets: refused in configurations, struck out of what is told."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlvr.keys import ConfigError

VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")  # names of environment variables
KEY = re.compile(
    r"(^|[._-])(((api|access|private|secret)[_-]?)key|secret|passw(or)?d|credentials?"
    r"|(api|auth|access|bearer|hf|hub|wandb)[_-]?token)$|(^|\.)token$",
    re.IGNORECASE,
)  # names of configuration keys; tokens of a tokenizer have longer ones
URL_PASSWORD = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
SHORTEST = 8  # characters: shorter values of such variables are words like "none"
PUT_IT = "put it into an environment variable, which is not recorded"


def redact(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """The text without the values of secret environment variables and without passwords in addresses."""
    for name, value in _secrets(environ):
        text = text.replace(value, f"<{name}>")
    return URL_PASSWORD.sub("<password>", text)


def refuse_secrets(value: Any, name: str = "", environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a configuration that holds a secret: it is written to the run directory and to W&B.

    Args:
        value: nested mappings and lists of plain values.
        name: the dotted key of `value`; "" for the root.

    Raises:
        ConfigError: naming the key, not the value.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            refuse_secrets(item, f"{name}.{key}" if name else str(key), environ)
    elif isinstance(value, list | tuple):
        for item in value:
            refuse_secrets(item, name, environ)
    elif isinstance(value, str) and value:
        if KEY.search(name):
            raise ConfigError(f"{name}: a secret does not belong into a configuration; {PUT_IT}")
        for variable, secret in _secrets(environ):
            if secret in value:
                raise ConfigError(f"{name}: it holds the value of ${variable}; let the program that needs it read that")
        if URL_PASSWORD.search(value):
            raise ConfigError(f"{name}: it holds an address with a password; {PUT_IT}")


def _secrets(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in environ.items() if VARIABLE.search(name) and len(value) >= SHORTEST)
