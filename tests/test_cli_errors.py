"""A wrong command line is refused at once, in one short line that names the key, before anything heavy is imported."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

MEAN = "did you mean "
WRONG = {  # command line -> what must be in the message
    "train algoritm=grpo": ("algoritm: no such key", MEAN + "algorithm?"),
    "train algorithm=grop": ("algorithm=grop", MEAN + "algorithm=grpo?"),
    "train algorithm.kl_ceof=0.1": ("algorithm.kl_ceof", MEAN + "algorithm.kl_coef?"),
    "train +algorithm.klcoef=0.1": ("algorithm.klcoef", MEAN + "algorithm.kl_coef?"),
    "train algorithm=grpo kl_coef=0.1": ("kl_coef: no such key", MEAN + "algorithm.kl_coef?"),
    "train +kl_coef=0.1": ("kl_coef: no such key", MEAN + "algorithm.kl_coef?"),
    "train step=3": ("step: no such key", MEAN + "steps?"),
    "train optim/lr=1": ("optim/lr", MEAN + "optim.lr?"),
    "train algorithm.group=0": ("algorithm.group=0", "at least 1"),
    "train algorithm.group=abc": ("algorithm.group=abc: must be an integer",),
    "train steps=null": ("steps=null: must be an integer",),
    "train optim.lr=fast": ("optim.lr=fast: must be a number",),
    "train algorithm.clip_low=???": ("algorithm.clip_low: no value",),
    "train data=file": ("data.sources.file.train: no value",),
    "train algorithm.overlong_buffer=8": ("algorithm.overlong_buffer", "algorithm=dapo or armor"),
    "train algorithm.average=tokens": ("algorithm.average=tokens", "token, sequence, budget", MEAN + "token?"),
    "train algorithm.kl_estimator=k1": ("algorithm.kl_estimator is set but has no effect", "algorithm.kl_coef > 0"),
    "train rollout.prompts=30 hardware.ranks=4": ("rollout.prompts=30", "multiple of 4"),
    "train rollout.top_p=0.8": ("rollout.top_p=0.8",),
    "train experiment=nope": ("experiment=nope", "`rlvr config explain experiment`"),
    "train hardware=rack": ("hardware=rack", "(cpu, gpu1, gpu8, slurm_h100x8x2)"),
    "train foo": ("foo", "key=value"),
    "train -m sweep.fail_fast=true algorithm.group=4,abc": ("refused: algorithm.group=abc: must be an integer",),
    "train sweep.fail_fast=true": ("sweep.fail_fast", "-m"),
    "train ~algorithm.kl_coef": ("algorithm.kl_coef: a key cannot be deleted",),
    "train data.sources.mine.weight=2": ("data.sources.mine: no such source",),
    "train +triggers.mine.when=kl_spike": ("triggers.mine: no such trigger", "+triggers={NAME:"),
    "train stages.mine.until=3": ("stages.mine: no such stage", "+stages={NAME:"),
    "train +algorithm=dapo": ("algorithm: there is a choice already", "algorithm=..."),
    "trian steps=3": ("trian: no such verb", MEAN + "train?"),
    "steps=3": (MEAN + "rlvr train steps=3?",),
    "config explain algorithm.kl_ceof": ("algorithm.kl_ceof: no such key", MEAN + "algorithm.kl_coef?"),
    "config explain data.sources.gsm8k.wieght": ("no such key", MEAN + "data.sources.gsm8k.weight?"),
}
LIMIT = 3.0  # seconds of the child's own CPU time; about one on an idle machine
HEAVY = ("torch", "transformers", "vllm", "deepspeed", "datasets", "wandb", "numpy")
CHILD = f"""
import resource, sys
from rlvr.cli import main
code = main()
usage = resource.getrusage(resource.RUSAGE_SELF)
print("SECONDS", usage.ru_utime + usage.ru_stime)
print("HEAVY", *[name for name in {HEAVY} if name in sys.modules])
sys.exit(code)
"""


class Refusal(NamedTuple):
    code: int
    stdout: str
    stderr: str
    left: list[str]  # files that stayed behind


def clean_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "TORCHELASTIC_", "HYDRA_", "COMP_"))}


def refuse(line: str, directory: Path) -> Refusal:
    directory.mkdir()
    command = [sys.executable, "-c", CHILD, *line.split()]
    done = subprocess.run(command, cwd=directory, env=clean_environment(), capture_output=True, text=True, timeout=60)
    left = [str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()]
    return Refusal(done.returncode, done.stdout, done.stderr, left)


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Refusal]]:
    root = tmp_path_factory.mktemp("wrong")
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        done = pool.map(refuse, WRONG, [root / str(i) for i in range(len(WRONG))])
        yield dict(zip(WRONG, done, strict=True))


@pytest.mark.parametrize("line", WRONG)
def test_refused(line: str, refusals: dict[str, Refusal]) -> None:
    told = refusals[line]
    assert told.code == 2, told.stderr
    assert all(part in told.stderr for part in WRONG[line]), told.stderr
    assert told.stderr.count("\n") == 1 and len(told.stderr) < 300, told.stderr
    assert told.stderr.startswith("rlvr")
    assert "Traceback" not in told.stderr and "HYDRA_FULL_ERROR" not in told.stderr
    last = told.stdout.splitlines()[-2:]
    assert float(last[0].removeprefix("SECONDS ")) < LIMIT
    assert last[1].split() == ["HEAVY"]
    if " -m " not in line:
        assert told.left == []


def test_the_module_can_be_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlvr.cli", "train", "algorithm.kl_ceof=0.1"]
    begin = time.monotonic()
    done = subprocess.run(command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "rlvr train: algorithm.kl_ceof: no such key; did you mean algorithm.kl_coef?\n"
    assert time.monotonic() - begin < 10
