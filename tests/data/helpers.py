"""Configs and a verifier stand-in for the tests of this room."""

from typing import Any

from rlvr.schema.data import DataConfig, SourceConfig
from rlvr.schema.model import ModelConfig


def source(**keys: Any) -> SourceConfig:
    given = dict(
        kind="file", train=None, validation=None, test=None, verifier="number", path=None, subset=None,
        question="question", answer="answer", weight=1.0, options={}, verifier_options={},
    )  # fmt: skip
    return SourceConfig(**{**given, **keys})


def data(*, sources: dict[str, SourceConfig] | None = None, **keys: Any) -> DataConfig:
    given = dict(
        name="made", template="{question}", system=None, max_prompt_tokens=64, too_long="drop", ungradable="drop",
        sources=sources or {}, overlap="error", benchmarks=[], survey=None, pass_rate=[],
    )  # fmt: skip
    return DataConfig(**{**given, **keys})


def model(**keys: Any) -> ModelConfig:
    given = dict(name="made", kind="hub", path=None, chat="auto", chat_kwargs={}, stop=[], trust_remote_code=False)
    return ModelConfig(**{**given, **keys})


def number_only(verifier: str, options: dict[str, Any], answer: Any) -> None:
    """As a number verifier would check a gold."""
    if not isinstance(answer, str):
        raise ValueError(f"gold is a {type(answer).__name__}, not a number")
    float(answer)
