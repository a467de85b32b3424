"""Keys of `slurm.*`: what `rlvr submit` asks the cluster for, beside what follows from `hardware`."""

from dataclasses import dataclass

from rlvr.keys import key


@dataclass(kw_only=True)
class SlurmConfig:
    """The job of `rlvr submit`; nodes, tasks and GPUs are `hardware.nodes` and `hardware.ranks`."""

    partition: str | None = key("where it is queued; null for the cluster's default")
    account: str | None = key("who pays; null for the user's default")
    qos: str | None = key("quality of service; null for the user's default")
    time: str = key("limit of one start, in SLURM's form, such as 4:00:00 or 2-00:00:00")
    cpus_per_rank: int | None = key("CPU cores per rank; null for the cluster's default", low=1)
    memory: str | None = key("host memory per node, such as 200G; 0 for all of it; null for the cluster's default")
    exclusive: bool = key("share the nodes with no other job")
    signal: int = key(
        "how long before the time limit SLURM itself tells the run to leave; 0 for never. The run looks at its time "
        "limit as well",
        unit="seconds",
        low=0,
    )
    requeues: int = key("most times that a run which has left is queued again", low=0)
    wait: int = key("how long the other ranks may live once one has ended", unit="seconds", low=1)
    setup: str | None = key("a shell script that the job sources first, for modules and the like; null for none")
    options: list[str] = key("more options of sbatch, such as [--constraint=h100]")
