"""The command line: `rlvr VERB ...`."""

import argparse
import difflib
import logging
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rlvr import __version__, launch, manual
from rlvr.arms import arms
from rlvr.config import Job, application, discard, given_keys, load, write
from rlvr.data_cli import data
from rlvr.eval_cli import evaluate
from rlvr.export import export
from rlvr.grade import grade
from rlvr.keys import ConfigError
from rlvr.plan_cli import plan
from rlvr.redact import refuse_secrets
from rlvr.report.command import report
from rlvr.rerun import rerun
from rlvr.schema.train import TrainConfig, arithmetic
from rlvr.submit import run, submit
from rlvr.survey import survey
from rlvr.sweep import Sweep, run_member, sweep

LOG = logging.getLogger(__name__)
MISTAKE = 2  # exit code of a wrong command line
COMPLETION = ("-sc", "--shell-completion", "--shell_completion")


def main() -> int:
    """Run one verb.

    Returns:
        The exit code; 2 for a wrong command line.
    """
    arguments = sys.argv[1:]
    if arguments and arguments[0] in COMPLETION:
        return _complete(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0
    if arguments[0] == "--version":
        print(f"rlvr {__version__}")
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        return _refuse(f"rlvr: {_unknown_verb(verb, arguments)}")
    try:
        return VERBS[verb](rest)
    except ConfigError as error:
        return _refuse(f"rlvr {verb}: {error}")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return MISTAKE


def _usage() -> str:
    verbs = [f"  {name:<10}{(verb.__doc__ or '').splitlines()[0]}" for name, verb in VERBS.items()]
    return "\n".join(["usage: rlvr VERB ...  (rlvr VERB --help)", "", *verbs, "", "  --version"])


def _unknown_verb(verb: str, arguments: list[str]) -> str:
    if "=" in verb:
        return f"{verb}: a verb comes first; did you mean rlvr train {' '.join(arguments)}?"
    near = difflib.get_close_matches(verb, VERBS, n=1)
    return f"{verb}: no such verb" + (f"; did you mean {near[0]}?" if near else f" ({', '.join(VERBS)})")


# -- train -----------------------------------------------------------------------------------


def train(arguments: list[str]) -> int:
    """Train a model (a Hydra application: overrides, sweeps, --config-dir, ...)."""
    if "-h" in arguments or "--help" in arguments:
        print(manual.train_help())
        return 0
    for argument in arguments:  # before Hydra writes them down
        name, _, value = argument.lstrip("+").partition("=")
        refuse_secrets(value, name)
    codes: list[int] = []
    swept = Sweep()

    def task(job: Job) -> None:
        if job.number is None:
            codes.append(_run(job))
        else:
            run_member(job, _run)

    try:
        with swept.open():
            application(task, arguments)
    finally:
        print(swept.table(), end="")
    return max(codes, default=swept.code)


def _run(job: Job) -> int:
    """One run from its configuration to its exit code; the reason of a failure goes to stderr and the run's own log."""
    try:
        given = given_keys(job.overrides)
        if job.number is None and (idle := sorted(name for name in given if name.startswith("sweep."))):
            raise ConfigError(f"{idle[0]} is set but has no effect: it is used only in a sweep, with -m")
        config = load(job.cfg, given, launch.world_size(job.cfg.hardware.ranks))
        if launch.is_leader():
            print(_announcement(config, job.directory), flush=True)
            write(config, job.directory / "config.yaml")
        return launch.start(config, job.directory)
    except ConfigError as error:
        LOG.error("rlvr train: %s", error)
        if job.number is None and not launch.inside():
            discard(job.directory)
        return MISTAKE
    except Exception:
        LOG.exception("rlvr train: %s failed", job.directory)
        return 1


def _announcement(config: TrainConfig, directory: Path) -> str:
    """The batch numbers that follow from the configuration, and where the run goes."""
    world = launch.world_size(config.hardware.ranks)
    numbers, hardware = arithmetic(config, world), config.hardware
    return "\n".join([
        f"run     {os.path.relpath(directory)}",
        f"what    {config.algorithm.name} on {config.data.name}, {config.model.name}, {config.steps} steps",
        f"where   {world} x {hardware.device}, {hardware.dtype}, ZeRO {hardware.zero}",
        f"a step  {numbers.prompts} prompts x {config.algorithm.group} = {numbers.sequences} sequences, "
        f"{numbers.updates} update(s) of {numbers.sequences_per_update}",
        f"a rank  {numbers.prompts_per_rank} prompts a step, {numbers.sequences_per_rank_update} sequences an update",
    ])  # fmt: skip


# -- config ------------------------------------------------------------------------------------


def config(arguments: list[str]) -> int:
    """Explain the configuration keys."""
    parser = argparse.ArgumentParser(prog="rlvr config", description="Explain the configuration keys.")
    ways = parser.add_subparsers(dest="way", required=True)
    explain = ways.add_parser("explain", help="one key, section or config group")
    explain.add_argument("key")
    reference = ways.add_parser("reference", help="all keys, as Markdown")
    reference.add_argument("--write", type=Path, metavar="FILE", help="into a file instead of stdout")
    parsed = parser.parse_args(arguments)
    if parsed.way == "explain":
        print(manual.explain(parsed.key))
    elif parsed.write:
        parsed.write.write_text(manual.reference(), encoding="utf-8")
    else:
        print(manual.reference(), end="")
    return 0


# -- tab completion ----------------------------------------------------------------------------


def _complete(arguments: list[str]) -> int:
    """Answer the shell: it asks `rlvr -sc query=bash` with the whole line in COMP_LINE."""
    line = os.environ.get("COMP_LINE", "")
    if line and not re.match(r"\S+\s+train\s", line):
        print(" ".join(VERBS) if len(line.split()) < 2 or not line.endswith(" ") else "")
        return 0
    shorter = re.sub(r"^(\S+)\s+train\s+", r"\1 ", line)
    if line:
        point = int(os.environ.get("COMP_POINT", len(line)))
        os.environ.update(COMP_LINE=shorter, COMP_POINT=str(point - len(line) + len(shorter)))
    application(lambda job: None, arguments)
    return 0


VERBS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "sweep": sweep,
    "submit": submit,
    "run": run,
    "plan": plan,
    "arms": arms,
    "report": report,
    "rerun": rerun,
    "survey": survey,
    "eval": evaluate,
    "grade": grade,
    "export": export,
    "data": data,
    "config": config,
}

if __name__ == "__main__":
    sys.exit(main())
