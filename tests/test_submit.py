"""What `rlvr submit` would send, without a SLURM: the script, its quoting, and what is refused."""

import shlex
import subprocess
from pathlib import Path

import pytest

from rlvr import config, submit
from rlvr.keys import ConfigError
from rlvr.launch import job_end, slurm


@pytest.fixture
def dry(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        assert submit.submit(["--dry-run", *arguments]) == 0
        assert not list(Path("runs").iterdir())  # nothing is left
        return capsys.readouterr().out

    return run


def test_the_job_follows_from_the_hardware(dry, tmp_path):
    script = dry("run.name=mine", "hardware=slurm_h100x8x2", "slurm.partition=gpu", "slurm.cpus_per_rank=12")
    options = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]
    for option in (
        "--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8", "--partition=gpu", "--cpus-per-task=12", "--requeue",
        "--job-name=mine", f"--output={tmp_path}/runs/mine/slurm/%j.out", "--signal=USR2@300",
    ):  # fmt: skip
        assert option in options
    assert f"-m rlvr.cli run {tmp_path}/runs/mine\n" in script and "--cpus-per-task=12 \\" in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_hostile_values_reach_no_shell(dry, tmp_path):
    name = "$(touch x) it's `touch y` %j; touch z"
    script = dry(f'run.name="{name}"', "slurm.options=['--comment=$(touch w)']", "slurm.setup='$(touch v)'")
    line = next(line for line in script.splitlines() if "rlvr.cli run" in line)
    assert shlex.split(line)[-1] == str(tmp_path / "runs" / name)
    assert "#SBATCH '--comment=$(touch w)'" in script and f"source '{tmp_path}/$(touch v)'" in script
    srun = script.replace("srun ", "true ").replace("source ", "true ")
    subprocess.run(["bash"], input=srun, text=True, check=True, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_an_array_takes_its_seed_and_requeues_its_own_element(dry, tmp_path):
    script = dry("--seeds", "0-2%2", "run.name=few")
    assert f'run {tmp_path}/runs/few-seed"$SLURM_ARRAY_TASK_ID"\n' in script and "--array=0-2%2" in script
    assert 'scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"' in script


def test_a_chain_is_not_queued_again(dry):
    assert "-lt 0 ]" in dry("--chain", "2", "run.name=long") and "-lt 50 ]" in dry("run.name=long")


def test_the_seed_reaches_what_follows_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sent: list[str] = []
    monkeypatch.setattr(submit, "_sbatch", lambda script, options: sent.append(script) or "17")
    assert submit.submit(["--seeds", "3,5", "run.name=few", "slurm.time=1:00"]) == 0
    for seed in (3, 5):
        written = config.read(tmp_path / "runs" / f"few-seed{seed}" / "config.yaml")
        assert (written.seed, written.rollout.reference_seed, written.run.name) == (seed, seed, f"few-seed{seed}")
    assert len(sent) == 1 and sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["few-seed3", "few-seed5"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["steps=0"], "steps=0: must be at least 1"),
        (["hardware.nodes=3", "rollout.prompts=16"], "does not divide among 3 rank"),
        (["--seeds", "4-x"], "--seeds 4-x: write 0-4"),
        (["--seeds", "0-1", "--chain", "2"], "goes with one run"),
        (["-m", "seed=1,2"], "queues one run; for a sweep"),
        (['run.name="a\nb"'], "printable"),
        (["run.name='a\\b'"], "no backslash"),
    ],
)
def test_what_is_wrong_is_refused_before_it_is_queued(dry, arguments, words):
    with pytest.raises(ConfigError, match=words):
        dry(*arguments)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1:00", 60), ("59", 59), ("1:02:03", 3723), ("2-01:00:00", 176400), ("UNLIMITED", None), ("INVALID", None)],
)
def test_durations_as_squeue_writes_them(text, expected):
    assert slurm.seconds(text) == expected


def test_the_earliest_end_counts(monkeypatch, capsys):
    assert job_end(None, {}, 100.0) == {}
    assert job_end(2.0, {"RLVR_JOB_END": "5000"}, 100.0) == {"RLVR_JOB_END": "5000.0"}
    assert job_end(1.0, {"SLURM_JOB_END_TIME": "9000"}, 100.0) == {"RLVR_JOB_END": "3700.0"}
    monkeypatch.setenv("PATH", "")
    assert job_end(None, {"SLURM_JOB_ID": "1"}, 100.0) == {}
    assert "SLURM does not say when the job ends" in capsys.readouterr().err
