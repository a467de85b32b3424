"""`rlvr plan`: memory and time of a run, and whether it fits, before it starts."""

from rlvr.config import Job, application, given_keys, load
from rlvr.keys import ConfigError
from rlvr.plan.fit import judge, room_of
from rlvr.plan.memory import memory
from rlvr.plan.report import Plan, text
from rlvr.plan.shapes import shape_of
from rlvr.plan.time import Time, time
from rlvr.plan.work import Work, expected, longest
from rlvr.schema.train import TrainConfig

MISFIT = 1  # exit code of a run that does not fit
NO_FILES = ("hydra.output_subdir=null", "hydra.run.dir=.", "hydra/job_logging=none")
USAGE = """usage: rlvr plan [KEY=VALUE ...]

Memory of one device and seconds of one step, by part and phase, from the configuration of `rlvr train` alone: the same
overrides, the same checks, and no model is loaded.  Ends with 1 if the run does not fit, and says what would.

  machine=a100_80            other cards than hardware=... describes; hardware.machine.* are its numbers
  hardware.machine.nodes=4   machines of the job, with hardware.ranks devices each
  plan.completion_tokens=N   mean length of completions, and plan.prompt_tokens of prompts

docs/scaling.md tells how it counts, how well it was checked, and where models of up to 70B stop scaling."""


def plan(arguments: list[str]) -> int:
    """Memory and time of a run before it starts (a Hydra application, as train)."""
    if "-h" in arguments or "--help" in arguments:
        print(USAGE)
        return 0
    if "-m" in arguments or "--multirun" in arguments:
        raise ConfigError("one configuration at a time; a plan is of a run, not of a sweep")
    codes: list[int] = []
    application(lambda job: codes.append(_run(job)), [*arguments, *NO_FILES])
    return codes[0] if codes else 0


def _run(job: Job) -> int:
    hardware = job.cfg.hardware
    world = hardware.ranks * hardware.machine.nodes
    made = make(load(job.cfg, given_keys(job.overrides), world), world)
    print(text(made))
    return MISFIT if made.verdict.state == "does not fit" else 0


def make(config: TrainConfig, world: int) -> Plan:
    """The plan of a run.

    Raises:
        ConfigError: if the model's shape or the device's memory is not known.
    """
    work, shape, room = Work.of(config, world), shape_of(config.model), room_of(config.hardware)
    told: Time | None = None
    untimed = ""
    try:
        told = time(work, shape, room.device)
    except ConfigError as error:
        untimed = str(error)
    return Plan(
        work=work,
        shape=shape,
        room=room,
        memory=memory(work, shape, longest(work.config), room.device),
        expected=memory(work, shape, expected(work.config), room.device),
        time=told,
        untimed=untimed,
        verdict=judge(config, world, shape, room),
    )
