"""The wheel holds everything that the commands need."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

from rlvr.manual import GROUPS

ROOT = Path(__file__).parent.parent
INSIDE = """
import sys
from pathlib import Path
import rlvr, rlvr.conf

site = sys.argv[1]
assert rlvr.__file__.startswith(site), rlvr.__file__
assert all(path.startswith(site) for path in rlvr.conf.__path__), rlvr.conf.__path__
"""
COMPOSE = """
from rlvr import manual
from rlvr.config import compose

for group in manual.GROUPS:
    for option in manual.choices(group):
        needed = ("train", "validation") if (group, option) == ("data", "file") else ()
        more = [f"data.sources.file.{role}=x" for role in needed]
        compose([f"{group}={option}", "hardware.tokens_per_micro_batch=32768", *more])
        print(group, option)
"""
SAMPLES = """
from rlvr.config import compose
from rlvr.data import files

for name, source in compose(["data=five_domains"]).data.sources.items():
    if source.kind == "file":
        print(name, *(len(files.read(source, name, role, Path("/"))) for role in ("train", "validation", "test")))
"""


class Built(NamedTuple):
    wheel: Path
    site: Path  # where it is installed

    def python(self, code: str) -> list[str]:
        """The lines that a program prints which has nothing but the installed wheel."""
        command = [sys.executable, "-c", INSIDE + code, str(self.site)]
        alone = {"PYTHONPATH": str(self.site)}
        done = subprocess.run(command, cwd="/", env=alone, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    root = tmp_path_factory.mktemp("wheel")
    source, site = root / "source", root / "site"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    for name in ("rlvr", "conf"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet"]
    wheel = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(root / "dist"), str(source)]
    subprocess.run([*pip, *wheel], check=True, timeout=120)
    [made] = (root / "dist").glob("rlvr-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(site), str(made)], check=True, timeout=120)
    return Built(made, site)


def test_every_file_of_the_package_is_in_the_wheel(built: Built) -> None:
    files = [path for path in (ROOT / "rlvr").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    missing = {str(path.relative_to(ROOT)) for path in files} - set(ZipFile(built.wheel).namelist())
    assert not missing


def test_every_configuration_composes_from_the_wheel(built: Built) -> None:
    assert len(built.python(COMPOSE)) == len(
        [path for group in GROUPS for path in (ROOT / "conf" / group).glob("*.yaml")]
    )


def test_the_samples_are_read_from_the_wheel(built: Built) -> None:
    lines = {path.stem: path.read_text().count("\n") for path in (ROOT / "rlvr" / "data" / "samples").glob("*.jsonl")}
    told = {name: sum(map(int, counts)) for name, *counts in map(str.split, built.python(SAMPLES))}
    assert told == lines
