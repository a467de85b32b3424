"""All measurements of docs/performance.md, one after the other, each as a Markdown table: `make bench`.

    python scripts/bench [quick] [only=floor,peer] [overrides of rlvr train, such as hardware=gpu1 ...]

Everything takes some hours on two cores, so nothing else should run; `quick` leaves out the larger model and does
fewer rounds, to see that all works.  Overrides go to the scripts that take them: on a GPU machine
`python scripts/bench hardware=gpu1 model=qwen2_5_1_5b data=gsm8k` prints the same tables for that model there.
"""

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from _runs import names_a_model, settings_and_overrides

HERE = Path(__file__).parent
# name: arguments in full, arguments of `quick` (None leaves it out), whether it takes overrides of `rlvr train`
SCRIPTS: list[tuple[str, list[str], list[str] | None, bool]] = [
    ("head", [], ["tokens=512", "timed=128", "rounds=2", "width=256"], True),
    ("optimizer", [], ["parameters=2000000"], False),
    ("floor", [], ["steps=3", "parts=1", "rounds=1"], True),
    ("floor", ["work=smollm2", "steps=6"], None, True),
    ("peer", [], ["steps=3", "runs=1", "micro=8"], True),
    ("peer", ["work=smollm2"], None, True),
    ("seconds", [], ["work=tiny", "steps=3", "runs=1", "picture=runs/step_profile.svg"], True),
    ("astar", [], ["runs=1", "steps=4"], True),
    ("astar", ["work=smollm2", "prompts=8", "steps=6"], None, True),
    ("anchors", [], ["steps=6"], False),
    ("start", [], ["runs=1"], True),
    ("flat", [], ["steps=60", "blocks=6", "picture=runs/flat.png"], False),
    ("async_rollouts", [], ["steps=8", "seeds=1"], False),
    ("layouts", [], ["rounds=2"], False),
    ("micro_batches", [], ["work=tiny", "rounds=1"], True),
    ("plan", [], None, False),
    ("checkpoint", [], None, False),
    ("verifiers", [], ["repeats=1"], False),
    ("sandbox", [], ["count=20"], False),
    ("overlap", [], ["rows=2000", "held=200"], False),
]


def main() -> int:
    """Run what is asked for.

    Returns:
        The number of scripts that failed, which does not stop the others.
    """
    given, others = settings_and_overrides(only="")
    quick, others = "quick" in others, [argument for argument in others if argument != "quick"]
    only, failed = [name for name in given["only"].split(",") if name], 0
    for name, full, short, takes in SCRIPTS:
        arguments = short if quick else full
        if arguments is None or (only and name not in only) or (others and not takes):
            continue
        if names_a_model(others) and "work=smollm2" in arguments:  # that model is measured in place of the smaller one
            continue
        if name == "peer" and find_spec("trl") is None:
            print("\n## peer.py\n\nleft out: pip install 'rlvr[bench]'", flush=True)
            continue
        print(f"\n## {name}.py {' '.join([*arguments, *others])}\n", flush=True)
        start = time.perf_counter()
        command = [sys.executable, str(HERE / f"{name}.py"), *arguments, *(others if takes else [])]
        code = subprocess.run(command, env=os.environ | {"PYTHONUNBUFFERED": "1"}).returncode
        failed += code != 0
        took = time.perf_counter() - start
        print(f"\n({'failed, ' if code else ''}{took:.0f} s, load {os.getloadavg()[0]:.1f})", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
