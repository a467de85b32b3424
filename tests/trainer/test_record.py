import json
import math
import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from threading import Event

import pytest

from rlvr.keys import ConfigError
from rlvr.schema.train import LogConfig, RunConfig, TrainConfig
from rlvr.trainer import record as record_module
from rlvr.trainer.jsonl import JsonLines, cut, overview, read_rows
from rlvr.trainer.record import Record, wandb_id, wandb_mode
from tests.trainer.read_wandb import read_wandb


def config(wandb: str = "off", samples: int = 2) -> TrainConfig:
    log = LogConfig(wandb=wandb, project="tests", samples=samples, rollouts=True)
    return TrainConfig(steps=10, run=RunConfig(name="a/run with spaces", resume="auto"), log=log)


def sample(number: int, width: int = 0) -> dict:
    return {
        "prompt": f"{number}+1?" + "." * width,
        "response": str(number),
        "answer": {"value": number + 1},
        "score": 0.0,
        "source": "policy",
        "truncated": False,
    }


def steps(path: Path) -> list[int]:
    return [row["step"] for row in read_rows(path)]


def run_steps(record: Record, first: int, last: int, attempt: float) -> None:
    for step in range(first, last + 1):
        record.rollouts(step, ({"text": f"{step}.{number}"} for number in range(3)))
        record.step(step, {"train/reward": step / 3, "attempt": attempt}, [sample(step), sample(-step)])


@pytest.fixture(autouse=True)
def no_account(monkeypatch, tmp_path):
    """No test may reach a server or read the key of whoever runs it."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb_config"))


# -- files ---------------------------------------------------------------------------


def test_floats_read_back_exactly_and_null_stands_for_what_is_not_finite(tmp_path):
    values = {"a": 0.1 + 0.2, "b": 1e-308, "c": 1 / 3, "d": -0.0}
    with Record(config(), tmp_path, world_rank=0, start_step=0) as record:
        record.step(0, values | {"nan": math.nan, "inf": -math.inf})
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    row = json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert row.pop("nan") is None and row.pop("inf") is None
    assert row == {"step": 0} | values and math.copysign(1, row["d"]) == -1


def test_nulls_are_found_inside_rows(tmp_path):
    file = JsonLines(tmp_path / "x.jsonl")
    file.write([{"step": 0, "parts": {"a": [1.0, math.nan]}, "logprobs": (math.inf,)}])
    assert read_rows(tmp_path / "x.jsonl") == [{"step": 0, "parts": {"a": [1.0, None]}, "logprobs": [None]}]


def test_problems_are_kept_per_validation_and_the_test_role_is_asked_anew(tmp_path):
    problem = {"id": "a/validation/0", "source": "a", "scores": [1.0, None], "lengths": [3, 8], "truncated": 1}
    with Record(config(), tmp_path, 0, 0) as record:
        for step in range(3):
            record.problems("validation", step, [problem])
        record.problems("test", 2, [problem])
    with Record(config(), tmp_path, 1, 0) as other:
        other.problems("validation", 3, [problem])  # the leading rank writes
    assert read_rows(tmp_path / "validation.jsonl") == [{"step": step} | problem for step in range(3)]
    Record(config(), tmp_path, 0, 1).open()
    assert steps(tmp_path / "validation.jsonl") == [0, 1] and steps(tmp_path / "test.jsonl") == []


def test_uncommitted_changes_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(record_module, "changes", lambda: "a patch\n")
    Record(config(), tmp_path, 0, 0).open()
    assert (tmp_path / "changes.patch").read_text() == "a patch\n"


def test_rows_are_on_disk_before_the_next_step(tmp_path):
    with Record(config(), tmp_path, 0, 0) as record:
        for step in range(3):
            record.step(step, {"a": 1.0})
            assert steps(tmp_path / "metrics.jsonl") == list(range(step + 1))


def test_steps_must_increase(tmp_path):
    with Record(config(), tmp_path, 0, 0) as record:
        record.step(3, {"a": 1.0})
        with pytest.raises(ValueError, match="step 3 come after those of step 3"):
            record.step(3, {"a": 2.0})


def test_resume_redoes_exactly_the_steps_after_the_checkpoint(tmp_path):
    killed = Record(config(), tmp_path, 0, 0)
    killed.open()
    run_steps(killed, 0, 7, attempt=1)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "train/rew')  # killed half way through a line
    with Record(config(), tmp_path, 0, start_step=5) as record:
        assert steps(tmp_path / "metrics.jsonl") == [0, 1, 2, 3, 4, 5]
        run_steps(record, 6, 10, attempt=2)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(11))
    assert [row["attempt"] for row in rows] == [1.0] * 6 + [2.0] * 5
    assert steps(tmp_path / "samples.jsonl") == [step for step in range(11) for _ in range(2)]
    assert steps(tmp_path / "rollouts/rank0.jsonl") == [step for step in range(11) for _ in range(3)]


def test_a_run_that_starts_over_keeps_nothing(tmp_path):
    with Record(config(), tmp_path, 0, 0) as record:
        run_steps(record, 0, 2, attempt=1)
    with Record(config(), tmp_path, 0, 0) as record:
        record.step(0, {"attempt": 2.0})
    assert read_rows(tmp_path / "metrics.jsonl") == [{"step": 0, "attempt": 2.0}]
    assert steps(tmp_path / "samples.jsonl") == steps(tmp_path / "rollouts/rank0.jsonl") == []


def test_every_rank_writes_rollouts_and_nothing_else_and_rank_0_cuts_those_of_all(tmp_path):
    other = Record(config(), tmp_path, world_rank=3, start_step=0)
    with other:
        run_steps(other, 1, 4, attempt=1)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["rank3.jsonl"]
    with Record(config(), tmp_path, world_rank=0, start_step=2):
        assert steps(tmp_path / "rollouts/rank3.jsonl") == [1, 1, 1, 2, 2, 2]


def test_rollouts_can_be_left_out(tmp_path):
    quiet = config()
    quiet.log.rollouts = False
    with Record(quiet, tmp_path, 0, 0) as record:
        record.rollouts(1, [{"text": "x"}])
    assert not (tmp_path / "rollouts").exists()


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\nnoise\n{"step": 1}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: not a JSON object with a step"):
        cut(path, 1)
    assert path.read_text().count("\n") == 3


def test_samples_are_bounded_and_complete(tmp_path):
    with Record(config(samples=2), tmp_path, 0, 0) as record:
        record.step(0, {}, [sample(number) for number in range(5)])
        assert [row["response"] for row in read_rows(tmp_path / "samples.jsonl")] == ["0", "1"]
        with pytest.raises(ValueError, match="sample rows of step 1 lack answer"):
            record.samples(1, [{name: value for name, value in sample(1).items() if name != "answer"}])


def test_overview_sums_phases_and_finds_the_ends():
    rows = [
        {"step": 0, "validation/accuracy": 0.25, "time/step": 4.0},
        {"step": 1, "train/reward": 0.5, "time/step": 4.0, "time/collect": 3.0, "time/collect/verify": 1.0},
        {"step": 2, "train/reward": None, "time/step": 8.0, "time/collect": 5.0, "validation/accuracy": 0.75},
        {"step": 3, "validation/accuracy": 0.5},
    ]
    rows[1]["speed/tokens_per_second"], rows[2]["speed/tokens_per_second"] = 100.0, 50.0
    first, last = overview(rows)
    assert first == rows[0]
    assert last["total/seconds"] == 16.0 and last["total/tokens"] == 800.0
    assert {name: last[name] for name in last if name.startswith("total/time")} == {"total/time/collect": 8.0}
    assert (last["best/accuracy"], last["best/step"], last["validation/accuracy"]) == (0.75, 2, 0.5)
    assert last["train/reward"] == 0.5


def test_environment_tells_versions_and_commit_but_not_the_host(tmp_path):
    with Record(config(), tmp_path, 0, 0):
        pass
    with Record(config(), tmp_path, 0, start_step=4):
        pass
    text = (tmp_path / "environment.json").read_text()
    told = json.loads(text)
    assert told["versions"]["torch"] and told["command"] == sys.argv
    assert told["git"] is None or len(told["git"]["commit"]) == 40
    assert os.uname().nodename not in text
    assert (tmp_path / "environment_4.json").exists()


# -- W&B -----------------------------------------------------------------------------


KILLED_AT_7 = """
import os, pathlib, signal, sys, time
from tests.trainer.test_record import Record, config, run_steps
record = Record(config("offline"), pathlib.Path(sys.argv[1]), 0, 0)
record.open()
run_steps(record, 0, 7, attempt=1)
while not record._wandb._jobs.empty():
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_wandb_holds_every_step_once_after_a_kill_and_a_resume(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED_AT_7, str(tmp_path)], cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL
    with Record(config("offline"), tmp_path, 0, start_step=5) as record:
        run_steps(record, 6, 10, attempt=2)
        where = record.finish({"best/accuracy": 0.5})

    (offline,) = (tmp_path / "wandb").glob("offline-run-*")
    assert where == str(offline)
    told = read_wandb(offline)
    assert [row["step"] for row in told.history] == list(range(11))
    assert [row["_step"] for row in told.history] == list(range(11))
    assert [row["train/reward"] for row in told.history] == [step / 3 for step in range(11)]
    assert [row["attempt"] for row in told.history] == [1] * 6 + [2] * 5
    assert not any("log/redone" in row for row in told.history)
    assert told.summary["best/accuracy"] == 0.5
    assert told.config["log"]["project"] == "tests"

    assert told.run_id == wandb_id(tmp_path, "a/run with spaces")
    (former,) = (tmp_path / "wandb/superseded").iterdir()
    assert former.name.endswith(told.run_id)


UNDER_A_RUN_THAT_IS_GONE = """
import pathlib, sys
from tests.trainer.test_record import Record, config, run_steps
with Record(config("offline"), pathlib.Path(sys.argv[1]), 0, 0) as record:
    run_steps(record, 0, 2, attempt=1)
    record.finish({})
"""


def test_wandb_does_not_depend_on_the_process_of_a_parent(tmp_path):
    env = os.environ | {"WANDB_SERVICE": f"3-{os.getpid()}-unix-{tmp_path}/gone"}
    command = [sys.executable, "-c", UNDER_A_RUN_THAT_IS_GONE, str(tmp_path)]
    subprocess.run(command, cwd=Path(__file__).parents[2], env=env, check=True)
    (offline,) = (tmp_path / "wandb").glob("offline-run-*")
    assert [row["step"] for row in read_wandb(offline).history] == [0, 1, 2]


def test_sample_tables_grow_linearly(tmp_path):
    with Record(config("offline", samples=4), tmp_path, 0, 0) as record:
        for step in range(50):
            record.step(step, {"a": 1.0}, [sample(number, width=500) for number in range(4)])
        where = record.finish({})
    tables = list(Path(where, "files/media/table").glob("*.json"))
    written = [json.loads(path.read_text())["data"] for path in tables]
    assert sorted(rows[0][0] for rows in written) == list(range(50))
    assert all(len(rows) == 4 and {row[0] for row in rows} == {rows[0][0]} for rows in written)
    assert sum(path.stat().st_size for path in tables) < 1.1 * 50 * min(path.stat().st_size for path in tables)


class FakeRun:
    """Stands for a run on the server: `known` is the step behind its last row."""

    dir, url = "wandb/run/files", "https://server/run"

    def __init__(self, known: int = 0, broken: bool = False) -> None:
        self.step, self.broken = known, broken
        self.rows: list[dict] = []
        self.summary: dict = {}

    def define_metric(self, *names, **settings):
        pass

    def log(self, row, step, commit):
        if self.broken:
            raise OSError("quota")
        assert step >= self.step, "W&B would drop this row"
        self.rows.append(row)
        self.step = step + 1

    def finish(self, exit_code):
        self.exit_code = exit_code


def fake_wandb(monkeypatch, init) -> None:
    fake = types.SimpleNamespace(
        init=init,
        Settings=dict,
        Table=lambda **kind: types.SimpleNamespace(add_data=lambda *row: None),
        setup=lambda **kind: None,
        teardown=lambda: None,
        login=lambda **kind: True,
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)


def test_a_failing_wandb_is_counted_and_does_not_stop_training(tmp_path, monkeypatch, capsys):
    fake_wandb(monkeypatch, lambda **settings: FakeRun(broken=True))
    with Record(config("offline"), tmp_path, 0, 0) as record:
        record.step(0, {"a": 1.0})
        record.step(1, {"a": 1.0})
        wandb_run = record._wandb
        assert record.finish({}) is not None
    assert wandb_run.failures == 2
    assert steps(tmp_path / "metrics.jsonl") == [0, 1]
    assert capsys.readouterr().err.count("W&B failed (OSError: quota)") == 1


def test_failures_of_wandb_are_a_metric(tmp_path, monkeypatch):
    fake_wandb(monkeypatch, lambda **settings: FakeRun())
    with Record(config("offline"), tmp_path, 0, 0) as record:
        record.step(0, {"a": 1.0})
        record._wandb.failures = 3
        record.step(1, {"a": 1.0})
    first, second = read_rows(tmp_path / "metrics.jsonl")
    assert "log/wandb_failures" not in first and second["log/wandb_failures"] == 3.0


def test_an_unreachable_server_leads_to_an_offline_run(tmp_path, monkeypatch, capsys):
    run, modes = FakeRun(), []

    def init(mode, **settings):
        modes.append(mode)
        if mode == "online":
            raise ConnectionError("no route to host")
        return run

    fake_wandb(monkeypatch, init)
    with Record(config("online"), tmp_path, 0, 0) as record:
        record.step(0, {"a": 1.0})
    assert modes == ["online", "offline"]
    assert [row["step"] for row in run.rows] == [0]
    assert "recording W&B offline instead" in capsys.readouterr().err


def test_an_online_run_goes_on_behind_its_last_row_and_marks_what_is_redone(tmp_path, monkeypatch):
    run = FakeRun()
    fake_wandb(monkeypatch, lambda **settings: run)
    with Record(config("online"), tmp_path, 0, 0) as record:
        run_steps(record, 0, 7, attempt=1)
    with Record(config("online"), tmp_path, 0, start_step=5) as record:
        run_steps(record, 6, 10, attempt=2)
        assert record.finish({}) == "https://server/run"
    assert [row["step"] for row in run.rows] == [*range(8), *range(6, 11)]
    assert [row["step"] for row in run.rows if "log/redone" in row] == [6, 7]


def test_rows_that_never_reached_the_server_are_sent_when_resumed(tmp_path, monkeypatch):
    fake_wandb(monkeypatch, lambda **settings: FakeRun(broken=True))
    with Record(config("online"), tmp_path, 0, 0) as record:
        run_steps(record, 0, 5, attempt=1)
    server = FakeRun(known=4)
    fake_wandb(monkeypatch, lambda **settings: server)
    with Record(config("online"), tmp_path, 0, start_step=5) as record:
        record.step(6, {"a": 1.0})
    assert [row["step"] for row in server.rows] == [4, 5, 6]


def test_a_failed_run_says_so(tmp_path, monkeypatch):
    run = FakeRun()
    fake_wandb(monkeypatch, lambda **settings: run)
    with pytest.raises(ZeroDivisionError), Record(config("offline"), tmp_path, 0, 0):
        1 / 0  # noqa: B018
    assert run.exit_code == 1


def test_a_hanging_server_delays_the_end_only_so_long(tmp_path, monkeypatch, capsys):
    release = Event()
    fake_wandb(monkeypatch, lambda **settings: release.wait(20))
    monkeypatch.setattr(record_module, "JOIN_SECONDS", 0.05)
    with Record(config("offline"), tmp_path, 0, 0) as record:
        record.step(0, {"a": 1.0})
        record.finish({})
    release.set()
    assert steps(tmp_path / "metrics.jsonl") == [0]
    assert "did not finish within" in capsys.readouterr().err


WITHOUT_A_SERVER = """
import os, pathlib, signal, sys, time
from tests.trainer.test_record import config, record_module, run_steps
record_module.INIT_SECONDS = record_module.FINISH_SECONDS = 1.0
folder = pathlib.Path(sys.argv[1])
with record_module.Record(config("online"), folder, 0, 0) as record:
    start = time.monotonic()
    run_steps(record, 0, 3, attempt=1)
    print("seconds", time.monotonic() - start)
    while not (offline := list(folder.glob("wandb/offline-run-*/*.wandb"))) or not record._wandb._jobs.empty():
        time.sleep(0.05)
    children = pathlib.Path(f"/proc/{os.getpid()}/task").glob("*/children")
    cores = [pid for file in children for pid in file.read_text().split()]
    for pid in cores:
        if b"wandb-core" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(int(pid), signal.SIGKILL)
            print("killed")
    run_steps(record, 4, 9, attempt=1)
    record.finish({})
print("trained to the end")
"""


def test_neither_an_unreachable_server_nor_the_death_of_its_process_stops_training(tmp_path):
    """The real W&B, with a key, which it writes nowhere, as it does no other secret of the environment."""
    secrets = {"WANDB_API_KEY": "a1b2c3d4" * 5, "HF_TOKEN": "hf_supersecret", "HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", WITHOUT_A_SERVER, str(tmp_path / "run")]
    there = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=there, env=os.environ | secrets, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seconds, killed, ended = done.stdout.splitlines()
    assert float(seconds.split()[1]) < 1 and killed == "killed" and ended == "trained to the end"
    assert "recording W&B offline instead" in done.stderr and "training goes on" in done.stderr
    assert steps(tmp_path / "run" / "metrics.jsonl") == list(range(10))
    written = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert not any(secret.encode() in content for content in written for secret in list(secrets.values())[:2])


def test_a_directory_that_wandb_cannot_write_to_does_not_stop_training(tmp_path, capsys):
    (tmp_path / "wandb").write_text("in the way")
    with Record(config("offline"), tmp_path, 0, 0) as record:
        run_steps(record, 0, 2, attempt=1)
    assert steps(tmp_path / "metrics.jsonl") == [0, 1, 2]
    assert "W&B failed" in capsys.readouterr().err


def test_the_id_can_be_fixed_when_the_job_is_submitted(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "job-17")
    assert wandb_id(tmp_path, "mine") == "job-17"
    monkeypatch.setenv("WANDB_RUN_ID", "another")
    assert wandb_id(tmp_path, "mine") == "job-17"  # the directory's, once it has one


@pytest.mark.parametrize(
    ("asked", "variable", "mode"),
    [
        ("off", "online", None),
        ("offline", "disabled", "offline"),
        ("auto", "disabled", None),
        ("auto", "dryrun", "offline"),
        ("auto", None, "offline"),
    ],
)
def test_wandb_mode_without_an_account(monkeypatch, asked, variable, mode):
    if variable:
        monkeypatch.setenv("WANDB_MODE", variable)
    assert wandb_mode(asked) == mode


def test_wandb_mode_with_an_account(monkeypatch):
    fake_wandb(monkeypatch, None)
    assert wandb_mode("auto") == wandb_mode("online") == "online"


def test_online_without_an_account_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="log.wandb=online, but no API key is configured"):
        wandb_mode("online")
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(ConfigError, match="WANDB_MODE=online, but no API key"):
        wandb_mode("auto")
    monkeypatch.setenv("WANDB_MODE", "sideways")
    with pytest.raises(ConfigError, match="WANDB_MODE=sideways: must be one of online"):
        wandb_mode("auto")


def test_without_the_wandb_package(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="log.wandb=online, but wandb cannot be imported"):
        wandb_mode("online")
    assert wandb_mode("auto") is None
    assert "metrics go to metrics.jsonl alone" in capsys.readouterr().err
