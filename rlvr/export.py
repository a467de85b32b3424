"""`rlvr export`: the policy of a checkpoint as a Hugging Face model."""

import argparse
import shutil
from pathlib import Path

from rlvr.keys import ConfigError

DTYPES = ("bfloat16", "float16", "float32")
DESCRIPTION = """Write the policy of a checkpoint as a folder that transformers and `vllm serve` load: safetensors,
configuration, generation configuration, tokenizer.  One process is enough, whatever number of ranks and whichever ZeRO
stage wrote the checkpoint; no GPU, and no model but what the checkpoint holds."""


def export(arguments: list[str]) -> int:
    """Write a checkpoint's policy as a Hugging Face model."""
    parser = argparse.ArgumentParser(prog="rlvr export", description=DESCRIPTION)
    parser.add_argument("source", type=Path, metavar="RUN_OR_CHECKPOINT", help="of a run: its newest checkpoint")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="a folder that does not exist yet")
    parser.add_argument("--dtype", choices=DTYPES, help="of the weights (default: that of the run)")
    parser.add_argument("--best", action="store_true", help="of a run: the checkpoint of the best validation accuracy")
    given = parser.parse_args(arguments)
    if given.to.exists():
        raise ConfigError(f"--to {given.to}: is there already")
    import torch  # takes seconds, as does the next: a wrong command line is refused before

    from rlvr.engine.export import export_checkpoint
    from rlvr.trainer.checkpoint import Checkpoints

    checkpoint = find(given.source, given.best)
    dtype = given.dtype or Checkpoints.dtype_of(checkpoint)
    work = given.to.with_name(f".{given.to.name}.making")
    shutil.rmtree(work, ignore_errors=True)
    work.parent.mkdir(parents=True, exist_ok=True)
    export_checkpoint(checkpoint, work, getattr(torch, dtype))
    work.rename(given.to)
    print(f"{checkpoint} -> {given.to} ({dtype})")
    return 0


def find(source: Path, best: bool) -> Path:
    """The checkpoint that is meant.

    Args:
        source: a run directory, or a checkpoint.
        best: of a run, the one of the best validation accuracy in place of the newest.

    Raises:
        ConfigError: if there is none that is complete.
    """
    from rlvr.trainer.checkpoint import Checkpoints, steps_in
    from rlvr.trainer.sealed import incomplete

    folder = source / "checkpoints"
    if not folder.is_dir():
        if reason := incomplete(source, ("optimizer", "critic", "reference")):
            raise ConfigError(f"{source}: {reason}")
        return source
    steps = steps_in(folder)
    reasons = {step: incomplete(steps[step], ("optimizer", "critic", "reference")) for step in sorted(steps)}
    whole = [step for step, reason in reasons.items() if not reason]
    if not whole:
        told = "".join(f"\n  {steps[step]}: {reason}" for step, reason in reasons.items())
        raise ConfigError(f"{folder} has no complete checkpoint{told}")
    if not best:
        return steps[whole[-1]]
    chosen = Checkpoints.progress_of(steps[whole[-1]]).best_step
    if chosen not in whole:
        raise ConfigError(f"{folder} has no checkpoint of a best validation accuracy (checkpoint.best keeps it)")
    return steps[chosen]
