"""The wheel holds everything that the commands need."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHILD = """
import sys
import rlvr, rlvr.conf
from rlvr import manual
from rlvr.config import compose

site = sys.argv[1]
assert rlvr.__file__.startswith(site), rlvr.__file__
assert all(path.startswith(site) for path in rlvr.conf.__path__), rlvr.conf.__path__
for group in manual.GROUPS:
    for option in manual.choices(group):
        needed = {"file", "jsonl"} & {option} if group == "data" else ()
        more = [f"data.sources.{name}.{role}=x" for name in needed for role in ("train", "validation")]
        compose([f"{group}={option}", "hardware.tokens_per_micro_batch=16384", *more])
        print(group, option)
"""


def test_every_configuration_composes_from_the_wheel(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    for name in ("rlvr", "conf"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet"]
    wheel = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path / "dist"), str(source)]
    subprocess.run([*pip, *wheel], check=True, timeout=120)
    [built] = (tmp_path / "dist").glob("rlvr-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(site), str(built)], check=True, timeout=120)
    command = [sys.executable, "-c", CHILD, str(site)]
    done = subprocess.run(command, cwd="/", env={"PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len([p for p in (ROOT / "conf").glob("*/*.yaml")])
