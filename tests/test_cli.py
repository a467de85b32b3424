"""`rlvr train` as a Hydra application, with ranks that only pretend."""

import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.config import read
from tests.test_cli_errors import clean_environment

# Ranks that find the file of the run; a group of 5 ends with exit code 7, one of 6 breaks.
CHILD = """
import sys
import rlvr.launch
from rlvr.config import read

def start(config, run_dir):
    assert read(run_dir / "config.yaml") == config
    print("STARTED", run_dir, config.run.name, config.algorithm.group, flush=True)
    if config.algorithm.group == 6:
        raise RuntimeError("the ranks broke")
    return 7 if config.algorithm.group == 5 else 0

rlvr.launch.start = start
from rlvr.cli import main
sys.exit(main())
"""


def rlvr(cwd: Path, *arguments: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CHILD, *arguments]
    done = subprocess.run(command, cwd=cwd, env=clean_environment() | env, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def started(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    """Directory, name and group of each run."""
    return [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("STARTED")]


def test_a_run_announces_its_arithmetic_and_leaves_its_configuration(tmp_path: Path) -> None:
    keys = ["algorithm=dapo", "algorithm.minibatches=4", "rollout.prompts=32", "run.name=mine", "hardware.ranks=2"]
    done = rlvr(tmp_path, "train", *keys)
    run = tmp_path / "runs" / "mine"
    assert started(done) == [[str(run), "mine", "16"]]
    assert "32 prompts x 16 = 512 sequences, 4 update(s) of 128" in done.stdout
    assert "16 prompts a step, 64 sequences an update" in done.stdout
    assert "runs/mine" in done.stdout
    assert done.stderr == ""
    config = read(run / "config.yaml")
    assert (config.algorithm.name, config.algorithm.minibatches) == ("dapo", 4)
    assert (run / ".hydra" / "overrides.yaml").exists()


def test_a_named_run_comes_back_to_its_directory_and_an_unnamed_one_is_new(tmp_path: Path) -> None:
    for _ in range(2):
        rlvr(tmp_path, "train", "run.name=mine")
    rlvr(tmp_path, "train")
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(names) == 2 and names[1] == "mine" and names[0].endswith("-grpo-tiny")


def test_the_directory_can_be_any(tmp_path: Path) -> None:
    done = rlvr(tmp_path, "train", "hydra.run.dir=elsewhere/x")
    assert started(done)[0][0] == str(tmp_path / "elsewhere" / "x")


def test_the_exit_code_is_that_of_the_ranks(tmp_path: Path) -> None:
    rlvr(tmp_path, "train", "algorithm.group=5", code=7)


def test_a_failure_is_in_the_log_of_the_run(tmp_path: Path) -> None:
    done = rlvr(tmp_path, "train", "algorithm.group=6", "run.name=broken", code=1)
    log = (tmp_path / "runs" / "broken" / "train.log").read_text()
    assert "RuntimeError: the ranks broke" in log and "RuntimeError: the ranks broke" in done.stderr


def test_a_repeated_sweep_never_meets_the_directory_of_another_configuration(tmp_path: Path) -> None:
    first = started(rlvr(tmp_path, "train", "-m", "run.name=s", "seed=1,2"))
    second = started(rlvr(tmp_path, "train", "-m", "run.name=s", "seed=1,3"))
    assert len(first) == 2 and len(second) == 1  # seed 1 is finished
    assert second[0][0] not in {directory for directory, *_ in first}
    assert len({name for _, name, _ in first + second}) == 3


def test_inside_a_launcher_its_size_counts_and_only_the_leader_writes(tmp_path: Path) -> None:
    ranks = {"WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "a1"}
    done = rlvr(tmp_path, "train", "rollout.prompts=32", RANK="0", **ranks)
    assert "8 prompts a step" in done.stdout
    config = Path(started(done)[0][0]) / "config.yaml"
    before = config.stat().st_mtime_ns
    done = rlvr(tmp_path, "train", "rollout.prompts=32", RANK="3", **ranks)
    assert started(done)[0][0] == str(config.parent)
    assert config.stat().st_mtime_ns == before
    assert "prompts" not in done.stdout


def test_groups_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "my_conf" / "algorithm").mkdir(parents=True)
    mine = "defaults:\n  - dapo\n  - _self_\nclip_high: 0.5\n"
    (tmp_path / "my_conf" / "algorithm" / "mine.yaml").write_text(mine)
    done = rlvr(tmp_path, "train", "--config-dir", "my_conf", "algorithm=mine")
    algorithm = read(Path(started(done)[0][0]) / "config.yaml").algorithm
    assert (algorithm.name, algorithm.clip_high) == ("dapo", 0.5)


def test_printing_the_configuration_starts_nothing(tmp_path: Path) -> None:
    done = rlvr(tmp_path, "train", "--cfg", "job", "--resolve", "steps=9")
    assert "steps: 9" in done.stdout and started(done) == []
    assert list((tmp_path / "runs").rglob("*")) == [] if (tmp_path / "runs").exists() else True


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rlvr tr", ["train"]),
        ("rlvr train algorithm=d", ["algorithm=dapo", "algorithm=dr_grpo"]),
        ("rlvr train algorithm.clip_h", ["algorithm.clip_high="]),
        ("rlvr train steps=3 hardware=g", ["hardware=gpu1", "hardware=gpu8"]),
    ],
)
def test_tab_completion(line: str, expected: list[str], tmp_path: Path) -> None:
    done = rlvr(tmp_path, "-sc", "query=bash", COMP_LINE=line, COMP_POINT=str(len(line)))
    assert set(expected) <= set(done.stdout.split())


def test_help_and_version(tmp_path: Path) -> None:
    assert "train" in rlvr(tmp_path).stdout
    assert "*grpo" in rlvr(tmp_path, "train", "--help").stdout
    assert rlvr(tmp_path, "--version").stdout.startswith("rlvr ")
    assert "weight of the KL penalty" in rlvr(tmp_path, "config", "explain", "algorithm.kl_coef").stdout
