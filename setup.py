"""`conf/` lives beside the package and is installed as `rlvr.conf`; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

setup(packages=find_packages(include=["rlvr", "rlvr.*"]) + ["rlvr.conf"], package_dir={"rlvr.conf": "conf"})
