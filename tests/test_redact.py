"""Secrets are refused where they would be recorded, and struck out where they could be told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.keys import ConfigError
from rlvr.redact import redact, refuse_secrets

ENVIRON = {"HF_TOKEN": "hf_abcdefgh", "AWS_SECRET_ACCESS_KEY": "0123456789", "MODE_KEY": "off", "PATH": "/usr/bin"}


def test_values_of_secret_variables_and_passwords_in_addresses_are_struck_out():
    told = redact("401 for hf_abcdefgh at https://me:pass@host/x?y=1, mode off, 0123456789", ENVIRON)
    assert told == "401 for <HF_TOKEN> at https://<password>@host/x?y=1, mode off, <AWS_SECRET_ACCESS_KEY>"
    harmless = "file://a/b@c, me@host, s3://bucket/key, 12:30@x"
    assert redact(harmless, ENVIRON) == harmless


@pytest.mark.parametrize(
    "name",
    ["api_key", "verifier_options.API-KEY", "judge.hf_token", "a.token", "secret", "db.password", "x.passwd", "apikey"],
)
def test_a_key_that_is_called_a_secret_is_refused_without_its_value(name):
    with pytest.raises(ConfigError, match="a secret does not belong") as refused:
        refuse_secrets({"data": {name: "s3cr3t"}}, environ={})
    assert name in str(refused.value) and "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize("name", ["max_tokens", "eos_token", "pad_token", "answer_key", "key", "keyboard", "tokenizer"])
def test_other_keys_are_not(name):
    refuse_secrets({"data": {name: "x"}}, environ=ENVIRON)


def test_a_secret_is_known_by_its_value_too():
    for value in ("Bearer hf_abcdefgh", ["x", "hf_abcdefgh"], "https://me:pass@host"):
        with pytest.raises(ConfigError, match=r"^model\.path: it holds") as refused:
            refuse_secrets({"model": {"path": value}}, environ=ENVIRON)
        assert "hf_abcdefgh" not in str(refused.value) and "me:pass" not in str(refused.value)
    refuse_secrets({"secret": "", "token": None, "token_": 3, "mode": "off"}, environ=ENVIRON)


def test_a_refused_secret_is_written_nowhere(tmp_path):
    source = "data.sources.arithmetic"
    for override in (f"+{source}.verifier_options.api_key=S3CR3T99", "model.path=https://me:S3CR3T99@host/x"):
        command = [sys.executable, "-m", "rlvr.cli", "train", override, f"hydra.run.dir={tmp_path}/run"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        assert done.returncode == 2 and "S3CR3T99" not in done.stdout + done.stderr
    assert not any("S3CR3T99" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())


def test_the_store_of_a_single_rank_is_heard_on_this_machine_only():
    code = """
import os, subprocess
from rlvr.world import World
world = World.from_env("cpu", 30)
files = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
inodes = {os.readlink(file) for file in files if os.path.islink(file)}
for table in ("tcp", "tcp6"):
    for line in open(f"/proc/net/{table}").read().splitlines()[1:]:
        told = line.split()
        if told[3] == "0A" and f"socket:[{told[9]}]" in inodes:
            print(told[1].split(":")[0])
world.close()
"""
    env = {name: value for name, value in os.environ.items() if name not in ("RANK", "MASTER_ADDR")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert set(done.stdout.split()) == {"0100007F"}  # 127.0.0.1
