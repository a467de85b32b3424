"""On PYTHONPATH before the package, this puts a trainer of a few lines in the place of the real one.

Everything around it is real: the job, srun, the rendezvous, the ranks, signals and the time limit.  A step takes `STEP`
seconds; RLVR_TEST says what goes wrong.
"""

import os
import sys
import time
import types

STEP = 0.5


def train(config, world, run_dir, watchdog):
    from rlvr.leave import REQUEUE, Leave, job_end

    state = run_dir / "state.txt"
    done = int(state.read_text()) if state.exists() else 0
    with Leave(world.broadcast(job_end(os.environ)), config.run.margin) as leave:
        while done < config.steps:
            watchdog.enter("step")
            time.sleep(STEP)
            done += 1
            world.barrier()
            fault(os.environ.get("RLVR_TEST"), done, world)
            leave.measured(seconds(os.environ, done), {})
            if world.any(leave.no_more_steps()) and done < config.steps:
                why = [reason for reason in world.gather(leave.why()) if reason]
                if world.leader:
                    print(f"leaving ({why[0]}) after step {done}", flush=True)
                    state.write_text(str(done))
                sys.exit(REQUEUE)
    if world.leader:
        state.write_text(str(done))
        print(f"all {done} steps, seed {config.seed}, {world.size} rank(s)", flush=True)


def seconds(env, done):
    """Of a step; in the test of the time limit, the third one seems to take longer than any job may."""
    endless = env.get("RLVR_TEST") == "endless" and done == 3 and "SLURM_RESTART_COUNT" not in env
    return 1e6 if endless else STEP


def fault(what, done, world):
    if what == "fails" and done == 2 and world.rank == 1:
        raise ZeroDivisionError("the loss of rank 1")
    if what == "killed" and done == 2 and world.rank == 1:
        os.kill(os.getpid(), 9)


loop = types.ModuleType("rlvr.trainer.loop")
loop.train = train
sys.modules["rlvr.trainer.loop"] = loop
