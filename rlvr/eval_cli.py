"""`rlvr eval`: answer benchmarks with a checkpoint, and compare two such evaluations."""

import argparse
import json
import logging
import os
from pathlib import Path

from rlvr import launch
from rlvr.config import Job, application, given_keys, write
from rlvr.evaluation.settings import ROOT, load_eval
from rlvr.keys import ConfigError
from rlvr.manual import choices, describe

LOG = logging.getLogger(__name__)
MISTAKE = 2  # exit code of a wrong command line
USAGE = """usage: rlvr eval [checkpoint=RUN_FOLDER_OR_NAME] [eval=SUITE] [KEY=VALUE ...] [Hydra's options]
       rlvr eval compare A B [--benchmarks NAME ...] [--write FILE]

Answers benchmarks with a checkpoint, on all ranks, and reports unbiased pass@k, avg@n and majority@n with intervals.
Nothing is drawn twice: an evaluation that was stopped goes on, and one that is asked for again is read.

  checkpoint   a run directory (its model/), one of its checkpoints, a Hugging Face folder or name; without it, what
               model=NAME names
  eval         one of the suites below; * is the default
  hardware     as in training: cpu, gpu1, gpu8; of its keys, those of the sampler count
  eval.benchmarks.NAME.samples=N    completions per problem; also temperature, top_p, max_tokens, k, rows
  eval.everywhere.samples=N         the same for all benchmarks of the suite
  origin=RUN   the run that made the checkpoint, where its folder does not tell
  run.name     the directory: evaluations/NAME gets report.md, evaluation.json and samples/

{suites}

examples:
  rlvr eval model=smollm2_135m                               a first look on a CPU, nothing is downloaded
  rlvr eval checkpoint=runs/first eval=math_suite hardware=gpu8
  rlvr eval checkpoint=Qwen/Qwen2.5-7B eval=aime24 eval.everywhere.samples=64 hardware=gpu1
  rlvr eval --config-dir my_conf checkpoint=runs/first eval=mine   a benchmark of your own, my_conf/eval/mine.yaml
  rlvr eval compare evaluations/base evaluations/first

`rlvr config explain eval` lists the keys; docs/evaluation.md says how each number is made."""


def evaluate(arguments: list[str]) -> int:
    """Answer benchmarks with a checkpoint (a Hydra application); `eval compare A B` compares two results."""
    if arguments[:1] == ["compare"]:
        return _compare(arguments[1:])
    if "-h" in arguments or "--help" in arguments:
        print(_usage())
        return 0
    codes: list[int] = []
    application(lambda job: codes.append(_run(job)), arguments, ROOT)
    return max(codes, default=0)


def _usage() -> str:
    suites = [f"  {'*' if name == 'smoke' else ' '} {name:<15}{describe('eval', name)}" for name in choices("eval")]
    return USAGE.format(suites="\n".join(suites))


def _run(job: Job) -> int:
    from rlvr.evaluation.origin import resolve

    try:
        given = given_keys(job.overrides)
        config = resolve(load_eval(job.cfg, given), given)
        world = launch.world_size(config.hardware.ranks)
        if world % config.hardware.tensor_parallel:
            raise ConfigError(
                f"hardware.tensor_parallel={config.hardware.tensor_parallel} does not divide the {world} rank(s)"
            )
        if launch.is_leader():
            print(f"evaluation  {os.path.relpath(job.directory)}", flush=True)
            write(config, job.directory / "config.yaml")
        return launch.start(config, job.directory)
    except ConfigError as error:
        LOG.error("rlvr eval: %s", error)
        return MISTAKE


def _compare(arguments: list[str]) -> int:
    from rlvr.evaluation.compare import compare, comparison

    about = "Compare two evaluations, paired by problem."
    parser = argparse.ArgumentParser(prog="rlvr eval compare", description=about)
    parser.add_argument("a", type=Path, metavar="A", help="directory of an evaluation")
    parser.add_argument("b", type=Path, metavar="B", help="directory of another one, of the same problems and settings")
    parser.add_argument("--benchmarks", nargs="+", default=[], metavar="NAME", help="only these")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also as JSON into a file")
    given = parser.parse_args(arguments)
    told = compare(given.a, given.b, given.benchmarks)
    if given.write:
        given.write.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(comparison(told), end="")
    return 0
