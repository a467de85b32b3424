"""A warning before the engines start, where a run is not going to fit on the devices that it has."""

from __future__ import annotations

import torch

from rlvr.keys import ConfigError
from rlvr.plan.fit import Room, host_memory, judge
from rlvr.plan.report import spelled
from rlvr.plan.shapes import shape_of
from rlvr.schema.train import TrainConfig
from rlvr.world import World


def misfit(config: TrainConfig, world: World) -> list[str]:
    """What `rlvr plan` has against the run on this device, in lines for the user; none if it fits.

    The memory is that of the device as torch reports it, or on a CPU this host's, shared by its ranks.
    """
    host = host_memory()
    on_gpu = config.hardware.device == "cuda"
    device = torch.cuda.get_device_properties(world.device).total_memory if on_gpu else host / world.local_size
    try:
        verdict = judge(config, world.size, shape_of(config.model), Room(device, host))
    except ConfigError as error:
        return [f"whether it fits was not planned: {error}"]
    if verdict.state != "does not fit":
        return []
    ways = f"it would with {spelled(verdict.change)}" if verdict.change else "no change of hardware.* would help"
    return ["by plan this run does NOT fit:", *(f"  {reason}" for reason in verdict.reasons), f"  {ways}"]
