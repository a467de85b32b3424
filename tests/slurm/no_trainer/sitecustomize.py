"""On PYTHONPATH before the package, this makes `rlvr run` a task of a job that wants to be queued again, once."""

import os
import sys
import time
from pathlib import Path

words = Path("/proc/self/cmdline").read_text().split("\0")
if "run" in words and os.environ.get("SLURM_STEP_ID", "batch").isdecimal():
    directory, start = Path(words[words.index("run") + 1]), int(os.environ.get("SLURM_RESTART_COUNT", 0))
    there = (directory / "config.yaml").exists()
    print(f"start {start} at {time.time():.1f}, configuration {there}, in {directory.name}", flush=True)
    time.sleep(0.5)
    sys.stdout.flush()
    os._exit(0 if start else 85)
