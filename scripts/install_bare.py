"""Install, without their dependencies, the packages of which only files are used: [tool.rlvr.bare] in pyproject.toml.

python scripts/install_bare.py EXTRA[,EXTRA...]
"""

import subprocess
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def main() -> None:
    bare = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["rlvr"]["bare"]
    packages = [package for extra in sys.argv[1].split(",") for package in bare.get(extra, [])]
    if packages:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *packages], check=True)


if __name__ == "__main__":
    main()
