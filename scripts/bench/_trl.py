"""TRL's side of `peer.py`, in a process of its own: `python _trl.py ASKED.json ANSWER.json`."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _measure import GIB, resident
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from rlvr.config import read
from rlvr.engine.models import load_tokenizer, model_folder


class Stopwatch(TrainerCallback):
    """Seconds of each step, sampling included."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self.start)


class Timed(GRPOTrainer):
    """Says how long sampling took, and how much was sampled."""

    generating: list[float] = []
    sampled: list[int] = []

    def _generate_single_turn(self, *arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        out = super()._generate_single_turn(*arguments, **named)
        self.generating.append(time.perf_counter() - start)
        self.sampled.append(sum(len(ids) for ids in out[0]))
        return out


def main(asked: str, answer: str) -> None:
    given = json.loads(Path(asked).read_text())
    config = read(Path(given["folder"]) / "config.yaml")
    hardware = config.hardware
    on_cpu = hardware.device == "cpu"
    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    tokenizer = load_tokenizer(config.model)
    folder = model_folder(config.model, [], lambda share: None)
    sequences, micro = config.rollout.prompts * config.algorithm.group, int(given["micro"])
    settings = GRPOConfig(
        output_dir=given["folder"] + "-trl",
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=sequences // micro,
        num_generations=config.algorithm.group,
        max_completion_length=config.rollout.max_tokens,
        max_steps=config.steps,
        learning_rate=config.optim.lr,
        loss_type="grpo",
        beta=0.0,
        temperature=1.0,
        use_cpu=on_cpu,
        bf16=hardware.dtype == "bf16",
        fp16=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        gradient_checkpointing=hardware.gradient_checkpointing,
        model_init_kwargs={"dtype": "float32"},
    )
    watch = Stopwatch()
    trainer = Timed(
        model=folder,
        reward_funcs=lambda completions, **_: [float(len(text) % 2) for text in completions],
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": given["prompts"]}),
        processing_class=tokenizer,
        callbacks=[watch],
    )
    trainer.train()
    skip = min(given["skip"], len(watch.seconds) - 1)
    told = {
        "seconds": watch.seconds[skip:],
        "generate": sorted(trainer.generating[skip:])[len(trainer.generating[skip:]) // 2],
        "tokens": sum(trainer.sampled[skip:]) / len(trainer.sampled[skip:]),
        "gib": (resident("VmHWM") if on_cpu else torch.cuda.max_memory_reserved()) / GIB,
    }
    Path(answer).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
