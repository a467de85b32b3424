"""A SLURM of two nodes that are both this machine, for tests; needs root, and the packages slurm-wlm and slurm-client.

`python tests/slurm/cluster.py DIRECTORY` brings one up, says how to talk to it, and ends it on Ctrl-C.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
NODES = ("left", "right")
UP = 20.0  # seconds until both nodes are idle, at most
CONF = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
# a job that is queued again may start after this many seconds, not after two minutes
AuthInfo=cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
KillWait=5
# more cores than the machine has
SlurmdParameters=config_overrides
SlurmdTimeout=15
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=4000 State=UNKNOWN"


def missing() -> str | None:
    """Why there can be no such cluster here; None if there can."""
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    if absent:
        return f"SLURM is not installed: no {', '.join(absent)}"
    return None if os.geteuid() == 0 else "only root can start slurmd"


class Cluster:
    """Up while it is entered; `environment` is what its commands need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> "Cluster":
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as held:  # all at the same time, so that they differ
            probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(1 + len(NODES))]
            controller, *ports = (probe.getsockname()[1] for probe in probes)
        nodes = "\n".join(NODE.format(name=name, port=port) for name, port in zip(NODES, ports, strict=True))
        conf = CONF.format(controller=controller, folder=self.folder, nodes=nodes)
        (self.folder / "slurm.conf").write_text(conf)
        self.call("slurmctld", "-c")
        for node in NODES:
            self.call("slurmd", "-N", node)
        end = time.monotonic() + UP
        while self.call("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split() != list(NODES):
            if time.monotonic() > end:
                self.__exit__()
                logs = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))
                raise RuntimeError(f"SLURM did not come up:\n{logs}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.call("scancel", "--full", "--signal=KILL", "--user=root")
        for path in self.folder.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text()), signal.SIGTERM)

    def call(self, *command: str, **env: str) -> str:
        """Run one of its commands; returns what it prints."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        told = subprocess.run(command, env=own | self.environment | env, capture_output=True, text=True, timeout=60)
        if told.returncode:
            raise RuntimeError(f"{' '.join(command)}: {told.stdout}{told.stderr}")
        return told.stdout

    def end_of(self, job: str, seconds: float) -> str:
        """Wait for the end of a job, requeues included; returns its last record."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            record = self.call("scontrol", "show", "-o", "job", job)
            if "JobState=COMPLETED" in record or "JobState=FAILED" in record or "JobState=CANCELLED" in record:
                return record
            time.sleep(0.2)
        raise TimeoutError(f"job {job} after {seconds:g} s: {record}")


if __name__ == "__main__":
    if reason := missing():
        sys.exit(reason)
    with Cluster(Path(sys.argv[1]).resolve()) as up:
        print(f"export SLURM_CONF={up.environment['SLURM_CONF']}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
