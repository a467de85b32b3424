"""What is evaluated: from a run directory, a folder or a name to a model, how it is spoken to, and its origin."""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from rlvr.config import read
from rlvr.evaluation.checkpoint import NOT_NEEDED, check, is_checkpoint
from rlvr.keys import ConfigError
from rlvr.schema.eval import EvalConfig
from rlvr.schema.model import ModelConfig
from rlvr.schema.train import TrainConfig
from rlvr.trainer.jsonl import Row, read_rows
from rlvr.trainer.sealed import incomplete

WEIGHTS = ("*.safetensors", "*.bin")
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+|[\w-]+")


@dataclass(frozen=True)
class Origin:
    """The run that made a checkpoint."""

    directory: Path
    config: TrainConfig
    chosen: str  # how the checkpoint was chosen, in words


def resolve(config: EvalConfig, given: Collection[str]) -> EvalConfig:
    """The configuration with the model and the origin that `checkpoint` means.

    Args:
        given: keys that the user set; those of `model.*` come before what a run says.

    Raises:
        ConfigError: if `checkpoint` is nothing that can be evaluated.
    """
    if config.checkpoint is None:
        return replace(config, origin=_absolute(config.origin), model=_named(config.model))
    folder, run = _found(config.checkpoint)
    origin = config.origin or (str(run) if run else None)
    if origin is None and is_checkpoint(Path(folder)):
        raise ConfigError(f"checkpoint={config.checkpoint} does not lie in its run's directory: give origin=RUN")
    model = config.model
    if origin is not None:
        if "model" in given:
            raise ConfigError(f"model={model.name} is set but has no effect: {origin} says how its model is spoken to")
        own = {name: getattr(model, name) for name in vars(model) if f"model.{name}" in given}
        model = replace(_as_hub(_config_of(Path(origin)).model), **own)
    if "model.path" in given:
        raise ConfigError("model.path and checkpoint are both set: they say the same; give one of them")
    return replace(config, origin=_absolute(origin), model=replace(_as_hub(model), path=folder))


def origin_of(config: EvalConfig) -> Origin | None:
    """The run that a resolved configuration names; None if none is known.

    Raises:
        ConfigError: if it is no run directory.
    """
    if config.origin is None:
        return None
    directory = Path(config.origin)
    return Origin(directory, _config_of(directory), _chosen(directory, config))


def _named(model: ModelConfig) -> ModelConfig:
    """The model of `model=`, where there is no checkpoint."""
    if model.kind == "tiny":
        raise ConfigError("model=tiny is made on the training rows of a run: give checkpoint=runs/NAME")
    if model.kind == "hub" and not model.path:
        raise ConfigError("checkpoint is not set: give a run directory, a Hugging Face folder or name, or model=NAME")
    return model


def _as_hub(model: ModelConfig) -> ModelConfig:
    """A model of any kind as one that is loaded from a folder or by name."""
    values = {name: value for name, value in vars(model).items() if name in ModelConfig.__dataclass_fields__}
    return ModelConfig(**values | {"kind": "hub"})


def _found(checkpoint: str) -> tuple[str, Path | None]:
    """The folder or hub name of the weights, and the run that they lie in; the folder may be a training checkpoint."""
    path = Path(checkpoint).expanduser()
    if not path.exists():
        if HUB_NAME.fullmatch(checkpoint) and not checkpoint.startswith(("runs/", ".")):
            return checkpoint, None
        raise ConfigError(f"checkpoint={checkpoint}: there is no such folder")
    path = path.resolve()
    run = next((p for p in (path, *path.parents[:2]) if is_run(p)), None)
    for folder in (path, path / "model"):
        if (folder / "config.json").is_file() and any(any(folder.glob(pattern)) for pattern in WEIGHTS):
            return str(folder), run
    if run == path:
        raise ConfigError(
            f"checkpoint={checkpoint} has no model/: it has not ended, or had checkpoint.model=false; name one of its "
            f"checkpoints: {_checkpoints(path)}"
        )
    if is_checkpoint(path) or (run is not None and path.parent == run / "checkpoints"):
        check(path)
        return str(path), run
    raise ConfigError(
        f"checkpoint={checkpoint}: neither a run directory, nor a checkpoint of one, nor a Hugging Face folder with "
        "weights"
    )


def _checkpoints(run: Path) -> str:
    """The complete checkpoints of a run, as they may be given."""
    found = [path for path in sorted((run / "checkpoints").glob("step_*")) if not incomplete(path, NOT_NEEDED)]
    return ", ".join(f"checkpoint={path}" for path in found) or "it has none that is complete"


def is_run(directory: Path) -> bool:
    """Whether a directory is that of a training run."""
    path = directory / "config.yaml"
    if not path.is_file():
        return False
    plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    return isinstance(plain, dict) and isinstance(plain.get("schema"), dict) and "algorithm" in plain["schema"]


def _config_of(directory: Path) -> TrainConfig:
    if not is_run(directory):
        raise ConfigError(f"origin={directory} is no run directory: it has no config.yaml of a training run")
    return read(directory / "config.yaml")


def _absolute(path: str | None) -> str | None:
    return str(Path(path).expanduser().resolve()) if path else None


def _chosen(directory: Path, config: EvalConfig) -> str:
    """How the checkpoint was chosen, in words.  A run's own model/ is known to be that of its last step; who names one
    of its checkpoints has chosen."""
    rows, given = read_rows(directory / "metrics.jsonl"), Path(str(config.model.path))
    if config.model.path is not None and is_checkpoint(given):
        step, best = _step_of(given), _best_step(rows)
        told = f"step {step} of the run, named on the command line"
        told += "; the step of its best validation accuracy" if step == best else ""
    elif given == directory / "model":
        step = rows[-1]["step"] if rows else 0
        told = f"the last step of the run, {step}" if rows else "the last step of the run"
    else:
        return "not known: it is no model/ or checkpoint of a run"
    if any(row.get("event/restore_best") for row in rows if row["step"] <= step):
        return f"{told}; on the way the run went back to its best validation"
    return told if is_checkpoint(given) else f"{told}; no score chose it"


def _step_of(checkpoint: Path) -> int:
    return int(json.loads((checkpoint / "progress.json").read_text(encoding="utf-8"))["step"])


def _best_step(rows: Sequence[Row]) -> int | None:
    validated = [row for row in rows if row["step"] and row.get("validation/accuracy") is not None]
    return max(validated, key=lambda row: row["validation/accuracy"])["step"] if validated else None
