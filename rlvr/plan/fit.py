"""Whether a run fits, and the smallest change of `hardware.*` with which it does, found by trying."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlvr.keys import ConfigError
from rlvr.plan.memory import GIB, PHASES, TIGHT, Memory, cache_bytes, memory, token_cache
from rlvr.plan.shapes import Shape
from rlvr.plan.work import Lengths, Work, expected, longest
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.stages import staged
from rlvr.schema.train import TrainConfig

Change = dict[str, Any]  # keys of `hardware.*` and their new values
MOST_KEYS = 4  # that a proposal may change
SMALL_CHUNK = 256  # tokens of the head below which products get slow
SHARES = (0.7, 0.6, 0.5, 0.4, 0.3, 0.2)  # of a GPU's memory that the sampler may have


@dataclass(frozen=True)
class Room:
    """Bytes that there are."""

    device: float
    host: float  # of one machine


@dataclass(frozen=True)
class Verdict:
    """What a plan comes to."""

    state: str  # "fits", "tight" or "does not fit"
    reasons: tuple[str, ...]
    change: Change | None  # the smallest with which it fits; None if none was needed or found


def room_of(hardware: HardwareConfig) -> Room:
    """What the configuration says that there is; on a CPU, this host's memory shared by the ranks.

    Raises:
        ConfigError: if the memory of a GPU is not given.
    """
    machine = hardware.machine
    if hardware.device == "cuda" and machine.memory is None:
        raise ConfigError("hardware.machine.memory is null: give the GiB of one device, or choose a machine=...")
    host = machine.host_memory * GIB if machine.host_memory else host_memory()
    return Room(machine.memory * GIB if machine.memory else host / hardware.ranks, host)


def host_memory() -> float:
    """Bytes of this host's memory, by /proc/meminfo."""
    line = next(x for x in Path("/proc/meminfo").read_text().splitlines() if x.startswith("MemTotal:"))
    return float(line.split()[1]) * 1024


def judge(config: TrainConfig, world: int, shape: Shape, room: Room) -> Verdict:
    """Does it fit at the expected lengths, and where every completion is as long as may be; and if not, what would.

    Raises:
        ConfigError: if the batch does not divide among the ranks.
    """
    work = Work.of(config, world)
    hard, soft = problems(work, shape, room), problems(work, shape, room, full=True, most=TIGHT)
    if not soft:
        return Verdict("fits", (), None)
    return Verdict("does not fit" if hard else "tight", tuple(hard or soft), proposal(work, shape, room))


def problems(work: Work, shape: Shape, room: Room, full: bool = False, most: float = 1.0) -> list[str]:
    """Why a run does not fit, in words.

    Args:
        full: with every completion as long as may be, not as is expected.
        most: share of a device that may be used.
    """
    lengths = longest(work.config) if full else expected(work.config)
    found = _sampler_problems(work, shape, room)
    planned = memory(work, shape, lengths, room.device)
    found += [
        _too_much(phase, planned, room, lengths, most) for phase in PHASES if planned.at(phase) > most * room.device
    ]
    if work.config.hardware.device == "cuda" and planned.host_peak > most * room.host:
        found.append(f"the host takes {planned.host_peak / GIB:.1f} of {room.host / GIB:.1f} GiB")
    return found


def _too_much(phase: str, planned: Memory, room: Room, lengths: Lengths, most: float) -> str:
    largest = max(planned.device, key=lambda part: part.bytes[PHASES.index(phase)])
    share = "" if most == 1 else f", more than {most:.0%}"
    return (
        f"{phase} takes {planned.at(phase) / GIB:.1f} of {room.device / GIB:.1f} GiB{share} with completions of "
        f"{lengths.completion:.0f} tokens, most of it {largest.name}"
    )


def _sampler_problems(work: Work, shape: Shape, room: Room) -> list[str]:
    config, ways = work.config, work.config.hardware.tensor_parallel
    if shape.heads % ways:
        return [f"hardware.tensor_parallel={ways} does not divide the {shape.heads} attention heads"]
    tokens = config.data.max_prompt_tokens
    tokens += max(config.validation.max_tokens or 0, *(stage.rollout.max_tokens for stage in staged(config)))
    wanted, held = tokens * token_cache(work, shape), cache_bytes(work, shape, room.device)
    if held >= wanted:
        return []
    return [
        f"the sampler has {max(0.0, held) / GIB:.1f} GiB for its KV cache, and one sequence of {tokens} tokens takes "
        f"{wanted / GIB:.1f} GiB"
    ]


# -- what would fit ------------------------------------------------------------------------------


def proposal(work: Work, shape: Shape, room: Room) -> Change | None:
    """The smallest change with which a run fits: fewest keys first, then those that cost least time."""
    for full in (True, False):
        for change in changes(work):
            changed = with_change(work, change)
            if not problems(changed, shape, room, full, TIGHT):
                return change
    return None


def changes(work: Work) -> Iterator[Change]:
    """Changes in the order in which they are tried."""
    ladder = _ladder(work)
    for count in range(1, MOST_KEYS + 1):
        for keys in itertools.combinations(ladder, count):
            for values in itertools.product(*(ladder[key] for key in keys)):
                change = dict(zip(keys, values, strict=True))
                if _allowed(replace(work.config.hardware, **change)):
                    yield change


def with_change(work: Work, change: Change) -> Work:
    """The same work on other `hardware.*`."""
    return Work(replace(work.config, hardware=replace(work.config.hardware, **change)), work.world)


def _ladder(work: Work) -> dict[str, list[Any]]:
    """Values to try for each key, those that cost least time first."""
    hardware, config = work.config.hardware, work.config
    on_gpu, shortest = hardware.device == "cuda", config.data.max_prompt_tokens + config.rollout.max_tokens
    ladder: dict[str, list[Any]] = {
        "sampler_sleep": [True] if on_gpu and not hardware.sampler_sleep else [],
        "head_chunk": _halves(hardware.head_chunk, SMALL_CHUNK),
        "tokens_per_micro_batch": _halves(hardware.tokens_per_micro_batch, shortest),
        "gradient_checkpointing": [] if hardware.gradient_checkpointing else [True],
        "sampler_memory": [s for s in SHARES if s != hardware.sampler_memory] if on_gpu else [],
        "zero": [stage for stage in (1, 2, 3) if stage > hardware.zero] if work.world > 1 else [],
        "tensor_parallel": [ways for ways in (2, 4, 8) if hardware.tensor_parallel < ways and not work.world % ways],
        "offload_optimizer": [True] if on_gpu and not hardware.offload_optimizer else [],
        "offload_parameters": [True] if on_gpu and not hardware.offload_parameters else [],
    }
    return {key: values for key, values in ladder.items() if values}


def _halves(value: int, least: int) -> list[int]:
    """`value` halved again and again, and at last `least`."""
    halved = [value >> k for k in range(1, max(1, math.ceil(math.log2(value / least)))) if value >> k > least]
    return [*halved, least] if value > least else []


def _allowed(hardware: HardwareConfig) -> bool:
    """Whether the keys go together."""
    return not (
        (hardware.offload_optimizer and hardware.zero < 1) or (hardware.offload_parameters and hardware.zero < 3)
    )
