"""Which part of each parameter a rank's optimizer owns, under every ZeRO stage, as views of DeepSpeed's memory.

DeepSpeed's own checkpoints are pickles that only the same number of ranks can read.  Its memory is the same in all of
them: flat float32 tensors with AdamW's state beside them, in which parameters lie one behind the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rlvr.engine.parts import Part
from rlvr.world import World

MOMENTS = ("exp_avg", "exp_avg_sq")


def shape_of(parameter: nn.Parameter) -> tuple[int, ...]:
    """The shape of a whole parameter, which ZeRO-3 has flattened."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


class Owned(NamedTuple):
    """A part of a parameter, and where it lies in a flat tensor of the optimizer."""

    name: str
    shape: tuple[int, ...]
    start: int  # of the part in the flattened parameter
    flat: Tensor  # float32, what the optimizer steps; a whole parameter where nothing is sharded
    offset: int  # of the part in the flattened `flat`
    length: int

    def view(self, name: str, of: Tensor) -> Part:
        """The part of a tensor that lies like `flat`."""
        return Part(name, self.shape, self.start, of.detach().view(-1)[self.offset : self.offset + self.length])


class Partition:
    """The optimizer's state of one DeepSpeed engine."""

    def __init__(self, engine: Any, model: nn.Module, stage: int, world: World) -> None:
        self.engine, self.model, self.stage, self.world = engine, model, stage, world

    def owned(self) -> list[Owned]:
        """This rank's; a parameter that every rank has whole is given to all of them."""
        find = {0: self._whole, 1: self._flattened, 2: self._flattened, 3: self._sharded}[self.stage]
        return [owned for owned in find() if owned.length > 0]

    def weights(self, owned: list[Owned]) -> list[Part]:
        """Views of the float32 weights."""
        return [o.view(o.name, o.flat) for o in owned]

    def moments(self, owned: list[Owned]) -> list[Part]:
        """Views of AdamW's moments, which are made if there are none yet."""
        return [o.view(f"{moment}/{o.name}", self._state(o.flat)[moment]) for o in owned for moment in MOMENTS]

    def updates(self) -> int:
        """How often AdamW has stepped since its moments were last reset."""
        return max((int(state["step"]) for state in self.engine.basic_optimizer.state.values()), default=0)

    def set_updates(self, owned: list[Owned], updates: int) -> None:
        """The inverse of `updates`."""
        for o in owned:
            self._state(o.flat)["step"].fill_(updates)

    def _state(self, flat: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.engine.basic_optimizer.state[flat]
        if not state:
            state["step"] = torch.zeros((), device=flat.device)  # where fused AdamW keeps it
            state |= {moment: torch.zeros_like(flat) for moment in MOMENTS}
        return state

    def named(self) -> Iterator[tuple[str, Any]]:
        """All parameters, under Hugging Face's names."""
        for name, parameter in self.model.named_parameters():
            yield name.removeprefix("hf."), parameter

    def _whole(self) -> Iterator[Owned]:
        masters = dict(self._masters())
        for name, parameter in self.named():
            flat = masters.get(parameter, parameter)
            yield Owned(name, shape_of(parameter), 0, flat, 0, parameter.numel())

    def _masters(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """(bfloat16 parameter, its float32 twin), without ZeRO."""
        optimizer = self.engine.optimizer
        for low, high in zip(getattr(optimizer, "fp16_groups", []), getattr(optimizer, "fp32_groups", []), strict=True):
            yield from zip(low, high, strict=True)

    def _flattened(self) -> Iterator[Owned]:
        flats = self.engine.optimizer.single_partition_of_fp32_groups
        for name, parameter in self.named():
            at = parameter._hp_mapping
            if at is not None:
                start, offset = at.lp_fragment_address.start, at.hp_fragment_address.start
                flat, length = flats[at.param_group_index], at.hp_fragment_address.numel
                yield Owned(name, shape_of(parameter), start, flat, offset, length)

    def _sharded(self) -> Iterator[Owned]:
        optimizer = self.engine.optimizer
        for name, parameter in self.named():
            group, offset, padded = optimizer.grad_position[optimizer.get_param_id(parameter)]
            start = padded * self.world.rank
            length = min(padded, parameter.ds_numel - start)
            yield Owned(name, shape_of(parameter), start, optimizer.fp32_partitioned_groups_flat[group], offset, length)

    @torch.no_grad()
    def spread(self) -> None:
        """Give the model the weights that the optimizer holds; every rank calls it."""
        optimizer = self.engine.optimizer
        if self.stage == 0:
            for low, high in self._masters():
                low.copy_(high)
        elif self.stage < 3:
            optimizer.update_lp_params()
        else:
            optimizer.checkpoint_event_prologue()  # parameters that stay whole on all ranks are sharded
            flats = zip(optimizer.fp16_partitioned_groups_flat, optimizer.fp32_partitioned_groups_flat, strict=True)
            for low, high in flats:  # the shards are views of these
                low.copy_(high)
            optimizer.checkpoint_event_epilogue()  # and gathered again
