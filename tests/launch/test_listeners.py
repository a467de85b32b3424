"""Who listens where, while ranks of one host run: loopback and nothing else."""

import sys
from pathlib import Path

from rlvr.launch.local import run
from tests.launch.ranks import RANK

ROOT = Path(__file__).parents[2]
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")  # as /proc writes them
LOOK = """
world.barrier()
pids = {str(os.getpid()), str(os.getppid())}
mine = {os.readlink(link) for pid in pids for link in Path("/proc", pid, "fd").glob("*") if os.path.lexists(link)}
for line in [*open("/proc/net/tcp"), *open("/proc/net/tcp6")]:
    words = line.split()
    if words[3] == "0A" and f"socket:[{words[9]}]" in mine:
        (run_dir / f"listens{world.rank}").open("a").write(words[1].partition(":")[0] + "\\\\n")
world.barrier()
"""


def test_ranks_of_one_host_listen_on_loopback_only(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    body = "\n".join(f"    {line}" for line in LOOK.strip().splitlines()).replace("\\\\n", "\\n")
    (tmp_path / "config.yaml").write_text("")
    (tmp_path / "rank.py").write_text(RANK.replace("{trainer}", body))
    assert run([sys.executable, str(tmp_path / "rank.py"), str(tmp_path)], 2, {"PYTHONPATH": str(ROOT)}) == 0
    found = {address for rank in range(2) for address in (tmp_path / f"listens{rank}").read_text().split()}
    assert found and found <= set(LOOPBACK)
