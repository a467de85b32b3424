"""When to leave: signals, echoes of signals, children that hear them too, and the end of the job."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlvr.leave import SIGNALS, Leave, job_end

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noted_and_the_old_handler_comes_back(number):
    before = signal.getsignal(number)
    with Leave() as leave:
        assert not leave.no_more_steps() and leave.why() is None
        os.kill(os.getpid(), number)
        assert leave.no_more_steps() and leave.sampling_is_over() and leave.signalled
        assert leave.why() == number.name
        os.kill(os.getpid(), number)  # an echo: a launcher hands on what SLURM has sent to all
    assert signal.getsignal(number) == before


def test_a_second_signal_ends_the_process_at_once():
    code = """
import os, signal, time
from rlvr import leave
leave.ECHO = 0.2
with leave.Leave() as told:
    os.kill(os.getpid(), signal.SIGUSR2)
    time.sleep(0.5)
    print("still here", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert done.returncode == -signal.SIGTERM and done.stdout == "still here\n"


def test_a_forked_child_dies_of_the_signal_and_its_parent_does_not_note_it():
    with Leave() as leave:
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
        time.sleep(0.1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM and not leave.signalled


def test_no_step_begins_that_the_job_would_cut():
    now = [1000.0]
    leave = Leave(end=2000.0, margin=100.0, now=lambda: now[0])
    assert not leave.no_more_steps()  # nothing is known of a step yet
    leave.measured(200.0, {"generate": 120.0, "verify": 10.0, "update": 60.0, "update/forward": 30.0})
    leave.measured(150.0, {"generate": 140.0, "update": 10.0})
    leave.saved(50.0)
    now[0] = 1649.0  # 1649 + 200 + 50 + 100 < 2000
    assert not leave.no_more_steps() and leave.why() is None
    now[0] = 1650.0
    assert leave.no_more_steps() and not leave.sampling_is_over()
    assert leave.why() == "250 s are left, a step takes 200 s and a checkpoint 50 s"
    now[0] = 1790.0  # what follows the sampling of a step takes 60 s
    assert leave.sampling_is_over()


def test_without_an_end_time_does_not_matter():
    leave = Leave(end=job_end({}), margin=1e9)
    leave.measured(1e9, {})
    assert not leave.no_more_steps() and not leave.sampling_is_over()
    assert job_end({"RLVR_JOB_END": "12.5"}) == 12.5
