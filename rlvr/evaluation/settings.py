"""Compose, write and read the configuration of an evaluation; the counterpart of `rlvr.config`."""

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import hydra
import yaml
from omegaconf import DictConfig, OmegaConf

from rlvr.config import find as find_key
from rlvr.config import given_keys, refusals, unknown, write
from rlvr.keys import ConfigError, check
from rlvr.redact import refuse_secrets
from rlvr.schema import MODEL_SCHEMAS
from rlvr.schema.eval import EvalConfig, check_eval

ROOT = "eval"  # conf/eval.yaml
__all__ = ["ROOT", "compose_eval", "is_evaluation", "load_eval", "read_eval", "write"]


def compose_eval(overrides: Collection[str] = ()) -> EvalConfig:
    """What `rlvr eval OVERRIDES` would run, before its checkpoint is looked for; for tests and tools.

    Raises:
        ConfigError: if the command would refuse.
    """
    with refusals(), hydra.initialize_config_module("rlvr.conf", version_base="1.3"):
        cfg = hydra.compose(ROOT, overrides=list(overrides))
    return load_eval(cfg, given_keys(overrides))


def load_eval(cfg: DictConfig, given: Collection[str] = ()) -> EvalConfig:
    """Turn a composed config into checked dataclasses.

    Args:
        cfg: as Hydra composed it; the schema of a data set leaves an empty `data` at the root, which is dropped.
        given: keys that the user set.

    Raises:
        ConfigError: naming the key.
    """
    for name in sorted(given):
        if "." in name and "@" not in name and find_key(name) is None:
            raise unknown(name)
    with refusals():
        plain = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True))
        model = next(name for name, schema in MODEL_SCHEMAS.items() if OmegaConf.get_type(cfg.model) is schema)
    plain.pop("data", None)
    config = _typed(plain, model)
    check(config, given)
    refuse_secrets(asdict(config))
    check_eval(config)
    return config


def is_evaluation(path: Path) -> bool:
    """Whether a resolved config.yaml is that of an evaluation; a training run has an algorithm."""
    plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    return isinstance(plain, dict) and "schema" in plain and "algorithm" not in plain["schema"]


def read_eval(path: Path) -> EvalConfig:
    """Read what `write` wrote of an evaluation.

    Raises:
        ConfigError: if the file is not a whole configuration of one.
    """
    if not is_evaluation(path):
        raise ConfigError(f"{path} is not the configuration of an evaluation")
    plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    model = plain.pop("schema")["model"]
    config = _typed(plain, model, f" (in {path})")
    check(config)
    return config


def _typed(plain: dict[str, Any], model: str, where: str = "") -> EvalConfig:
    with refusals(where):
        typed = OmegaConf.structured(EvalConfig)
        typed["model"] = OmegaConf.structured(MODEL_SCHEMAS[model])
        merged = OmegaConf.merge(typed, plain)
        if missing := sorted(OmegaConf.missing_keys(merged)):
            raise ConfigError(f"{missing[0]}: no value; give {missing[0]}=... or set it in the YAML{where}")
        return cast(EvalConfig, OmegaConf.to_object(merged))
