"""Small made-up run directories: the files of real runs, with numbers that follow from a few parameters."""

import copy
import json
from functools import cache
from pathlib import Path

import numpy as np
import yaml

from rlvr.config import compose, write

PROBLEMS, TESTS, STEPS, EVERY = 40, 30, 20, 5
ENVIRONMENT = {
    "command": ["rlvr", "train"],
    "python": "3.11.9",
    "system": "Linux",
    "versions": {"torch": "2.13.0", "vllm": "0.32.0"},
    "git": {"commit": "0123456789abcdef", "dirty": False},
    "cpu": "a processor",
    "cpus": 2,
    "gpus": [],
}


@cache
def _config(overrides: tuple[str, ...]) -> str:
    path = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/tmp")
    path = path / f"made_up_{abs(hash(overrides))}.yaml"
    write(compose(["run.name=made-up", f"steps={STEPS}", *overrides]), path)
    text = path.read_text()
    path.unlink()
    return text


def _lines(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _answers(draw, rate_X, step, role, sources=("arithmetic",)):
    """Problems are dealt to the sources in turn."""
    return [
        {
            "step": step,
            "id": f"{sources[i % len(sources)]}/{role}/{i}",
            "source": sources[i % len(sources)],
            "scores": [float(draw.random() < rate)],
            "lengths": [3],
            "truncated": 0,
        }
        for i, rate in enumerate(rate_X)
    ]


def make_run(
    folder: Path,
    *overrides: str,
    seed: int = 0,
    gain: float = 0.3,
    steps: int = STEPS,
    finished: bool = True,
    sequences: int = 64,
    tested: bool = True,
    events: tuple[tuple[int, str, str], ...] = (),
    response: str = "47",
    config: dict | None = None,
    sources: tuple[str, ...] = ("arithmetic",),
) -> Path:
    """A run whose validation accuracy rises by `gain` from 0.4 on problems of different difficulty.

    Args:
        config: values by dotted key, of those that the configuration has.
        sources: of its held-out problems; those after the first are copies of it in the configuration.
    """
    folder.mkdir(parents=True)
    plain = yaml.safe_load(_config(overrides))
    plain["seed"] = plain["rollout"]["reference_seed"] = seed
    plain["run"]["name"] = folder.name
    for name in sources[1:]:
        plain["data"]["sources"][name] = copy.deepcopy(plain["data"]["sources"][sources[0]])
    for key, value in (config or {}).items():
        *above, last = key.split(".")
        inner = plain
        for name in above:
            inner = inner[name]
        inner[last] = value
    (folder / "config.yaml").write_text(yaml.safe_dump(plain, sort_keys=False))
    choices = dict(override.split("=") for override in overrides if "." not in override)
    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "hydra.yaml").write_text(yaml.safe_dump({"hydra": {"runtime": {"choices": choices}}}))
    (folder / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump([f"seed={seed}", *overrides]))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    draw = np.random.default_rng([seed, len(overrides)])
    hard_X = np.random.default_rng(7).normal(0, 0.15, PROBLEMS)
    luck = draw.normal(0, 0.02)
    rows, validation, prompts = [], [], []
    for step in range(steps + 1):
        row = {"step": step}
        rate = 0.4 + gain * step / STEPS + luck * (step > 0)
        if step:
            row |= {
                "train/reward": rate + float(draw.normal(0, 0.05)),
                "train/entropy": 1.0 - 0.02 * step,
                "train/kl_ref_k3": 0.002 * step,
                "train/grad_norm": 1.0,
                "rollout/length": 3.0 + 0.01 * step,
                "rollout/truncated": 0.0,
                "rollout/kept": 0.8,
                "rollout/gate/not mixed": 0.2,
                "rollout/sequences/policy": float(sequences),
                "time/step": 2.0 + 0.1 * seed,
                "time/generate": 1.0,
                "time/update": 0.8,
                "speed/tokens_per_second": 100.0,
                "speed/outside_share": 0.1,
                "memory/peak_gib": 0.5,
            }
            for k in range(4):
                solved = int(draw.integers(0, 9))
                rejected = ["not mixed"] if solved in (0, 8) else []
                number = int(draw.integers(0, 50))
                prompts.append({
                    "step": step, "id": f"arithmetic/train/{number}", "source": "arithmetic",
                    "position": 4 * (step - 1) + k, "kept": not rejected, "rejected": rejected,
                    "policy_judged": 8, "policy_solved": solved, "reference_judged": 0, "reference_solved": 0,
                })  # fmt: skip
        if step % EVERY == 0 or step == steps:
            told = _answers(draw, np.clip(rate + hard_X, 0, 1), step, "validation", sources)
            validation += told
            row |= {"validation/accuracy": float(np.mean([t["scores"][0] for t in told])), "validation/length": 3.0}
            for name in sources if len(sources) > 1 else ():
                own = [t["scores"][0] for t in told if t["source"] == name]
                row[f"validation/accuracy/{name}"] = float(np.mean(own))
        row |= {f"event/{event}": 1.0 for at, event, _ in events if at == step}
        rows.append(row)
    _lines(folder / "metrics.jsonl", rows)
    _lines(folder / "validation.jsonl", validation)
    _lines(folder / "prompts" / "rank0.jsonl", prompts)
    _lines(folder / "events.jsonl", [{"step": s, "event": e, "cause": c} for s, e, c in events])
    samples = [
        {"step": steps, "prompt": f"{k}+{k}=", "response": response, "answer": str(2 * k), "score": float(k % 2),
         "source": "arithmetic", "truncated": False}
        for k in range(4)
    ]  # fmt: skip
    _lines(folder / "samples.jsonl", samples)
    last = {"total/tokens": 1.0}
    if finished and tested:
        test = _answers(draw, np.full(TESTS, rate), steps, "test", sources)
        _lines(folder / "test.jsonl", test)
        last["test/accuracy"] = float(np.mean([t["scores"][0] for t in test]))
    if finished:
        (folder / "summary.json").write_text(json.dumps({"first": rows[0], "last": last}))
    return folder


def two_families(root: Path, seeds: int = 3) -> Path:
    """GRPO, and DAPO with its gate, which learns more from more sequences."""
    for seed in range(seeds):
        make_run(root / "grpo" / f"seed_{seed}", "algorithm=grpo", seed=seed, gain=0.2)
        make_run(
            root / "dapo_gate" / f"seed_{seed}",
            "algorithm=dapo_gate",
            seed=seed,
            gain=0.4,
            sequences=96,
            events=((10, "reset_reference", "the algorithm's schedule"),),
        )
    return root
