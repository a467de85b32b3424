"""`rlvr survey`: what the reference makes of every training prompt, before any training."""

import logging

from rlvr import launch
from rlvr.config import Job, application, given_keys, load, write
from rlvr.keys import ConfigError

LOG = logging.getLogger(__name__)
MISTAKE = 2  # exit code of a wrong command line
USAGE = """usage: rlvr survey [KEY=VALUE ...]

The reference answers every training prompt several times; a report says what can be learned from them, and whether it
is worth to start.  A Hydra application with the configuration of `rlvr train`: give it the overrides of the training
run, in whose place it stands before the first step.  Nothing is drawn twice: a survey that was stopped goes on, and
training with the same reference finds its completions.

  survey.count=N   completions per prompt, where the algorithm does not say (algorithm.survey_count of A*-PO)
  survey.extra=N   more completions of the prompts that none of these solved
  run.name=NAME    the directory: runs/NAME gets survey.txt, survey.json and survey.jsonl

data.survey=runs/NAME/survey.jsonl data.pass_rate=[0.1,0.9] then trains on a part of the prompts."""


def survey(arguments: list[str]) -> int:
    """Ask the reference what is learnable before training (a Hydra application, as train)."""
    if "-h" in arguments or "--help" in arguments:
        print(USAGE)
        return 0
    codes: list[int] = []
    application(lambda job: codes.append(_run(job)), [*arguments, "survey.only=true"])
    return max(codes, default=0)


def _run(job: Job) -> int:
    try:
        config = load(job.cfg, given_keys(job.overrides), launch.world_size(job.cfg.hardware.ranks))
        if launch.is_leader():
            write(config, job.directory / "config.yaml")
        return launch.start(config, job.directory)
    except ConfigError as error:
        LOG.error("rlvr survey: %s", error)
        return MISTAKE
