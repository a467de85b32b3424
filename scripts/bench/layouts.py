"""Packed against padded, forward and backward of one micro-batch of ragged sequences; the chunked head against logits.

    python scripts/bench/layouts.py [--rounds 7]

Both sides run in turn in one process; medians and the spread of their ratio are printed.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlvr.batch import Batch
from rlvr.config import compose
from rlvr.engine.head import ChunkedHead
from rlvr.engine.models import LanguageModel
from rlvr.engine.packing import Packed
from rlvr.records import Completion, Prompt, Verdict


def ragged(count: int, longest: int, vocabulary: int) -> Batch:
    """Sequences of 1/8 to 1 of `longest` tokens, half prompt and half completion."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(count):
        half = int(torch.randint(longest // 8, longest, (1,), generator=generator)) // 2 + 1
        rows.append(torch.randint(3, vocabulary, (2, half), generator=generator).tolist())
    prompts = [
        Prompt(id=str(i), source="s", text="", tokens=tuple(p), answer="", verifier="exact")
        for i, (p, _) in enumerate(rows)
    ]
    completions = [
        Completion(tokens=tuple(c), logprobs=(0.0,) * len(c), text="", truncated=False, source="policy")
        for _, c in rows
    ]
    return Batch.of(prompts, completions, [Verdict(score=1.0)] * count, group=1, limit=longest)


def race(name: str, one: Callable[[], None], other: Callable[[], None], rounds: int) -> None:
    """Time two ways in turn."""
    one(), other()
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for run, told in zip((one, other), seconds, strict=True):
            start = time.perf_counter()
            run()
            told.append(time.perf_counter() - start)
    ratios = sorted(a / b for a, b in zip(*seconds, strict=True))
    mine, theirs = (statistics.median(told) for told in seconds)
    ratio, least, most = statistics.median(ratios), ratios[0], ratios[-1]
    print(f"{name:<44} {mine:7.3f} s / {theirs:7.3f} s = {ratio:.2f}  [{least:.2f}, {most:.2f}]")


def layouts(rounds: int) -> None:
    config = compose([])
    shape = Qwen2Config(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        Qwen2ForCausalLM(shape).save_pretrained(folder)
        models = {}
        for attention in ("packed", "padded"):
            config.hardware.attention = attention
            models[attention] = LanguageModel(folder, config.model, config.hardware)
    packed = Packed.of(ragged(32, 256, 512), torch.device("cpu"))

    def step(attention: str) -> Callable[[], None]:
        def run() -> None:
            models[attention](packed, 1.0)["logprobs_BT"].sum().backward()

        return run

    race("packed / padded, 32 ragged sequences", step("packed"), step("padded"), rounds)


def heads(rounds: int) -> None:
    vocabulary, width, tokens = 151_936, 64, 256
    linear = torch.nn.Linear(width, vocabulary, bias=False)
    head, target = ChunkedHead(linear, 64), torch.randint(vocabulary, (tokens,))
    hidden = torch.randn(tokens, width, requires_grad=True)

    def chunked() -> None:
        head(hidden, target, 1.0, False)[0].sum().backward()

    def plain() -> None:
        logp = torch.log_softmax(linear(hidden), -1)
        entropy = -(logp.detach().exp() * logp.detach()).sum(-1)
        (logp.gather(1, target[:, None]).sum() + 0 * entropy.sum()).backward()

    race("chunked head / all logits, 151,936 words", chunked, plain, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    layouts(rounds)
    heads(rounds)
