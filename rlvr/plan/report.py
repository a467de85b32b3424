"""A plan as text."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.plan.fit import Change, Room, Verdict
from rlvr.plan.memory import GIB, PHASES, Memory
from rlvr.plan.shapes import Shape
from rlvr.plan.time import Time
from rlvr.plan.work import Work, expected

DAY = 86_400


@dataclass(frozen=True)
class Plan:
    """All that is told of a run."""

    work: Work
    shape: Shape
    room: Room
    memory: Memory  # with every completion as long as may be
    expected: Memory
    time: Time | None
    untimed: str  # why there is no time
    verdict: Verdict


def text(plan: Plan) -> str:
    """The page that `rlvr plan` prints."""
    blocks = [_header(plan), _memory(plan), _time(plan), _verdict(plan.verdict)]
    return "\n\n".join("\n".join(block) for block in blocks)


def _header(plan: Plan) -> list[str]:
    config, numbers, world = plan.work.config, plan.work.numbers, plan.work.world
    hardware, lengths = config.hardware, expected(config)
    told = "plan.*" if config.plan.completion_tokens and config.plan.prompt_tokens else "assumed, see plan.*"
    return [
        f"what    {config.algorithm.name} on {config.data.name}, {config.model.name} "
        f"({plan.shape.parameters / 1e6:,.1f} M parameters), {config.steps} steps",
        f"where   {world} x {hardware.device} on {hardware.machine.nodes} machine(s), {hardware.dtype}, "
        f"ZeRO {hardware.zero}, {plan.room.device / GIB:.1f} GiB each",
        f"a step  {numbers.prompts} prompts x {config.algorithm.group} = {numbers.sequences} sequences, "
        f"{numbers.updates} update(s) of {numbers.sequences_per_update}",
        f"a rank  {numbers.sequences_per_rank_update} sequences an update, in "
        f"{plan.work.micro_batches(lengths)} micro-batch(es)",
        f"tokens  prompts of {lengths.prompt:.0f}, completions of {lengths.completion:.0f} on average ({told}), "
        f"{lengths.longest} at most",
    ]


def _memory(plan: Plan) -> list[str]:
    parts = [part for part in plan.memory.device if max(part.bytes) >= 0.005 * GIB]
    head = f"{'GiB of one device':<34}{'sharded over':>14}" + "".join(f"{phase:>10}" for phase in PHASES)
    lines = [head]
    for part in parts:
        lines.append(f"{part.name:<34}{part.over or '-':>14}" + "".join(f"{_gib(b):>10}" for b in part.bytes))
    for name, memory in (
        ("sum, completions at the limit", plan.memory),
        ("sum, completions as expected", plan.expected),
    ):
        lines.append(f"{name:<48}" + "".join(f"{_gib(memory.at(phase)):>10}" for phase in PHASES))
    return lines + [f"host: {name:<28}{'':>14}{_gib(size):>10}" for name, size in plan.memory.host]


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}" if size else "-"


def _time(plan: Plan) -> list[str]:
    if plan.time is None:
        return [f"no times: {plan.untimed}"]
    time, config, world = plan.time, plan.work.config, plan.work.world
    lines = [f"{'seconds of a step':<24}{'':>10}{'share':>8}"]
    for phase in time.phases:
        lines.append(f"{phase.name:<24}{phase.seconds:>10.2f}{phase.seconds / time.step:>8.0%}  {phase.why}")
    days = config.steps * time.step / DAY
    speed = time.completion_tokens / time.step / world
    lines += [
        f"{'sum':<24}{time.step:>10.2f}",
        f"speed   {speed:,.0f} trained completion tokens/s per device, MFU {time.mfu:.1%}; "
        f"{config.steps} steps in {days:.2f} days without validations and start",
    ]
    return lines


def _verdict(verdict: Verdict) -> list[str]:
    lines = [f"verdict {verdict.state}", *(f"        {reason}" for reason in verdict.reasons)]
    if verdict.change:
        lines.append(f"        it fits with {spelled(verdict.change)}")
    elif verdict.reasons:
        lines.append("        no change of hardware.* fits: take more or larger devices, or a smaller model or batch")
    return lines


def spelled(change: Change) -> str:
    """A change as one would type it."""
    return " ".join(f"hardware.{key}={str(value).lower()}" for key, value in change.items())
