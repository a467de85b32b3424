"""The ranks of a run: who am I, and the few collective operations.  The sole user of torch.distributed.

Every verb must be called by all ranks, in the same order.  A peer that has died is an error within
seconds on the CPU backend, and after the timeout at the latest on every backend.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from rlvr.rendezvous import LOOPBACK, VARIABLES, join, serve

T = TypeVar("T")
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


@dataclass(frozen=True)
class World:
    """One rank's view of all ranks; built directly, `World(rank=0, size=1, ...)` needs no process group."""

    rank: int
    size: int
    local_rank: int  # among the ranks of this host
    local_size: int
    device: torch.device
    backend: str
    timeout: float = 1800.0  # seconds a collective waits for the others
    alone: bool = False  # no launcher: the variables in the environment are of our own making
    _groups: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def from_env(cls, device: str, timeout: float, store: dist.Store | None = None) -> "World":
        """Join the other ranks named by torchrun's variables, or form a world of one if RANK is not set.

        A world of one has a process group too, and sets the variables, because DeepSpeed and vLLM ask for both.

        Args:
            device: "cpu" or "cuda".
            timeout: seconds that every collective waits for the others, and joining where no `store` is given.
            store: what `rendezvous.join` returned.

        Raises:
            RendezvousError: if the ranks do not meet.
            RuntimeError: if there is no device for this rank.
        """
        alone = "RANK" not in os.environ
        store = _alone() if alone else store or join(timeout)
        size, local_rank = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
        rank, own = int(os.environ["RANK"]), _device(device, local_rank)
        dist.init_process_group(
            BACKENDS[device],
            store=store,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout),
            device_id=own if own.type == "cuda" else None,
        )
        world = cls(rank, size, local_rank, 1, own, BACKENDS[device], timeout, alone=alone)
        here, found = socket.gethostname(), world.gather((socket.gethostname(), local_rank))
        local_size = 1 + max(local for host, local in found if host == here)  # counted: not every launcher tells
        return replace(world, local_size=local_size)

    @property
    def leader(self) -> bool:
        """Whether this is the one rank that writes what belongs to the whole run."""
        return self.rank == 0

    def sum(self, x: Tensor) -> Tensor:
        """The element-wise sum over ranks, as a new tensor of the same shape, dtype and device, without a gradient."""
        total = x.detach().clone(memory_format=torch.contiguous_format)
        if self.size > 1:
            dist.all_reduce(total)
        return total

    def any(self, flag: bool) -> bool:
        """Whether `flag` holds on at least one rank."""
        return bool(self.max(int(flag)))

    def max(self, value: T) -> T:
        """The largest of the ranks' numbers."""
        return max(self.gather(value))  # type: ignore[type-var]

    def gather(self, obj: T) -> list[T]:
        """Every rank's (picklable) object, in the order of ranks, on every rank."""
        return self._gather(obj, self.size, None)

    def broadcast(self, obj: T, source: int = 0) -> T:
        """The (picklable) object of rank `source`, on every rank."""
        if self.size == 1:
            return obj
        box = [obj]
        dist.broadcast_object_list(box, src=source)
        return box[0]

    def barrier(self) -> None:
        """Return when every rank has come here; says nothing about work still queued on a GPU."""
        self.any(False)

    def subgroup_gather(self, obj: T, k: int) -> list[T]:
        """As `gather`, among this rank's group of `k` consecutive ranks: 0 to k-1, k to 2k-1, and so on.

        Raises:
            ValueError: if `k` does not divide the number of ranks.
        """
        if self.size % k:
            raise ValueError(f"groups of {k} ranks do not divide the {self.size} rank(s)")
        if k in (1, self.size):
            return self._gather(obj, k, None)
        if k not in self._groups:  # all ranks must make all groups, in the same order
            limit = timedelta(seconds=self.timeout)
            made = [dist.new_group(range(i, i + k), timeout=limit, backend="gloo") for i in range(0, self.size, k)]
            self._groups[k] = made[self.rank // k]
        return self._gather(obj, k, self._groups[k])

    def first_per_host(self, make: Callable[[], T]) -> T:
        """Let one rank per host make what the others then find there; every rank calls it."""
        made = [make()] if self.local_rank == 0 else []
        self.barrier()
        return made[0] if made else make()

    def close(self) -> None:
        """Wait for the others, then leave the process group: none may leave while another still needs it."""
        if dist.is_initialized():  # vLLM, when it ends, takes the group of its rank with it
            self.barrier()
            dist.destroy_process_group()
        if self.alone:
            for name in VARIABLES:
                os.environ.pop(name, None)

    def _gather(self, obj: T, count: int, group: Any) -> list[T]:
        if count == 1:
            return [obj]
        found: list[Any] = [None] * count
        dist.all_gather_object(found, obj, group=group)
        return found


def _alone() -> dist.Store:
    """A store of our own on a free port, and the variables that torchrun would have set."""
    store = serve(0, everywhere=False)
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR=LOOPBACK, MASTER_PORT=str(store.port))
    return store


def _device(kind: str, local_rank: int) -> torch.device:
    """This rank's device; a launcher that shows each rank one GPU only is obeyed."""
    if kind == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count()
    index = local_rank if count > 1 else 0
    if index >= count:
        raise RuntimeError(f"local rank {local_rank} has no GPU: torch sees {count} on {socket.gethostname()}")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)
