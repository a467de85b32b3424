"""Ranks on two hosts: two network namespaces with a cable between them; and what is said when they do not meet."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOSTS = {"A": "10.77.3.1", "B": "10.77.3.2"}
OTHER = "10.88.3.2"  # an address of B in a network that A is not in
ELSEWHERE = "10.77.99.9"  # no route leads there


def reason() -> str | None:
    if os.geteuid() != 0 or not shutil.which("ip"):
        return "needs root and iproute2"
    made = subprocess.run(["ip", "netns", "add", f"rlvr{os.getpid()}"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", f"rlvr{os.getpid()}"], capture_output=True)
    return f"no network namespaces: {made.stderr.strip()}" if made.returncode else None


NO_HOSTS = reason()
pytestmark = pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def hosts():
    """Two hosts; each calls its end of the cable `cable`, and B has a network of its own as well."""
    names = {host: f"rlvr{os.getpid()}{host}" for host in HOSTS}
    try:
        for name in names.values():
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", names["A"], "type", "veth", "peer", "name", "cable", "netns", names["B"])
        for host, name in names.items():
            ip("-n", name, "addr", "add", f"{HOSTS[host]}/24", "dev", "cable")
            for device in ("lo", "cable"):
                ip("-n", name, "link", "set", device, "up")
        ip("-n", names["B"], "link", "add", "spare", "type", "veth", "peer", "name", "end")
        ip("-n", names["B"], "addr", "add", f"{OTHER}/24", "dev", "spare")
        for device in ("spare", "end"):
            ip("-n", names["B"], "link", "set", device, "up")
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


# joins once per case, with the variables of the case; the processes wait for each other in between
JOINS = """
import json, os, sys, time
from pathlib import Path
from rlvr.rendezvous import RendezvousError, join

folder, host, cases = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
told, stores, plain = [], [], dict(os.environ)
for number, case in enumerate(cases):
    (folder / f"{number}{host}").touch()
    while len(list(folder.glob(f"{number}?"))) < 2:
        time.sleep(0.02)
    os.environ.clear()
    os.environ.update(plain | {"MASTER_PORT": str(29600 + number)} | case)
    begun = time.monotonic()
    try:
        stores.append(join(2.0))
        said = "joined through " + os.environ["GLOO_SOCKET_IFNAME"]
    except RendezvousError as error:
        said = str(error)
    told.append([time.monotonic() - begun, said])
print(json.dumps(told))
"""
CASES = {  # what is wrong: variables of rank 0 on A, of rank 1 on B, and what one of them says
    "nothing": ({}, {}, "^joined through cable$"),
    "loopback": ({"GLOO_SOCKET_IFNAME": "lo"},) * 2 + ("GLOO_SOCKET_IFNAME=lo is loopback.*one of cable",),
    "no such interface": ({}, {"GLOO_SOCKET_IFNAME": "ib7"}, r"no such interface.*cable \(10.77.3.2\), spare"),
    "interface of another network": ({}, {"GLOO_SOCKET_IFNAME": "spare"}, f"cannot reach rank 1 on .* at {OTHER}"),
    "unreachable": ({}, {"MASTER_ADDR": ELSEWHERE}, f"rank 1 .* cannot reach rank 0 at {ELSEWHERE}:.*unreachable"),
    "nobody there": ({}, {"MASTER_PORT": "1"}, "rank 1 .* cannot reach rank 0 at .*:1 after 2 s .*refused"),
    "no such name": ({}, {"MASTER_ADDR": "nowhere.invalid"}, "nowhere.invalid does not resolve here"),
    "master is loopback": ({}, {"MASTER_ADDR": "127.0.0.1"}, "loopback: seen from any host, that is the host itself"),
    "too many": ({"WORLD_SIZE": "3"},) * 2 + ("2 of WORLD_SIZE=3 ranks have come in time.*missing: 2",),
    "disagreement": ({}, {"WORLD_SIZE": "3"}, "rank 0 on .* was told WORLD_SIZE=2, rank 1 on .* WORLD_SIZE=3"),
    "rank 0 twice": ({}, {"RANK": "0"}, "1 of WORLD_SIZE=2 ranks .*missing: 1"),
    "out of range": ({}, {"RANK": "2"}, "RANK=2 with WORLD_SIZE=2"),
}


def test_what_is_wrong_is_named_within_seconds(hosts, tmp_path):
    shared = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
    shared |= {"MASTER_ADDR": HOSTS["A"], "WORLD_SIZE": "2", "LOCAL_RANK": "0", "PYTHONPATH": str(ROOT)}
    processes = []
    for rank, (host, name) in enumerate(hosts.items()):
        cases = json.dumps([case[rank] for case in CASES.values()])
        command = ["ip", "netns", "exec", name, sys.executable, "-c", JOINS, str(tmp_path), host, cases]
        env = shared | {"RANK": str(rank)}
        processes.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    told = [json.loads(process.communicate(timeout=150)[0]) for process in processes]
    for (what, (_, _, words)), *said in zip(CASES.items(), *told, strict=True):
        assert any(re.search(words, text, re.S) for _, text in said), (what, said)
        assert max(seconds for seconds, _ in said) < 10, (what, said)


def test_a_run_on_two_hosts_under_torchrun(hosts, tmp_path):
    """The real run; the hosts share the file system, and find the interface by themselves."""
    overrides = (
        "run.name=hosts", "steps=2", "hardware.nodes=2", "hardware.ranks=1", "hardware.threads=1", "algorithm.group=4",
        "rollout.prompts=4", "rollout.max_tokens=4", "validation.every=0", "validation.test=false", "log.wandb=off",
        "log.kl_every=0", "model.warm_accuracy=0.5", "data.sources.arithmetic.options.digits=1",
        "data.sources.arithmetic.train=30", "data.sources.arithmetic.validation=4", "data.sources.arithmetic.test=4",
    )  # fmt: skip
    processes = []
    for number, name in enumerate(hosts.values()):
        torchrun = ["-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={number}", "--nproc-per-node=1"]
        torchrun += [f"--master-addr={HOSTS['A']}", "--master-port=29611", "-m", "rlvr.cli", "train", *overrides]
        env = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / f"cache{number}")}
        processes.append(
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, *torchrun],
                env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
        )  # fmt: skip
    try:
        told = [process.communicate(timeout=400)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], told
    rows = [json.loads(line) for line in (tmp_path / "runs/hosts/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert {path.name for path in (tmp_path / "runs/hosts/rollouts").iterdir()} == {"rank0.jsonl", "rank1.jsonl"}
