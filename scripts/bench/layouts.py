"""Packed against padded, and shared against copied prompts: forward and backward of one micro-batch.

    python scripts/bench/layouts.py [rounds=7]

Both sides run in turn in one process; medians and the spread of their ratio are printed.
"""

import tempfile
from collections.abc import Callable

import torch
from _measure import race, ratios, spread
from _runs import settings, table
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlvr.batch import Batch
from rlvr.config import compose
from rlvr.engine.models import LanguageModel
from rlvr.engine.packing import Packed
from rlvr.records import Completion, Prompt, Verdict


def ragged(count: int, longest: int, vocabulary: int, group: int = 1) -> Batch:
    """Sequences of 1/8 to 1 of `longest` tokens, half prompt and half completion; `group` neighbours share a prompt."""
    generator = torch.Generator().manual_seed(0)
    rows: list[list[list[int]]] = []
    for row in range(count):
        half = int(torch.randint(longest // 8, longest, (1,), generator=generator)) // 2 + 1
        rows.append(torch.randint(3, vocabulary, (2, half), generator=generator).tolist())
        rows[-1][0] = rows[row - row % group][0]
    prompts = [
        Prompt(id=str(i), source="s", text="", tokens=tuple(p), answer="", verifier="exact")
        for i, (p, _) in enumerate(rows)
    ]
    completions = [
        Completion(tokens=tuple(c), logprobs=(0.0,) * len(c), text="", truncated=False, source="policy")
        for _, c in rows
    ]
    return Batch.of(prompts, completions, [Verdict(score=1.0)] * count, group=group, limit=longest)


def line(name: str, ways: tuple[Callable[[], None], Callable[[], None]], rounds: int) -> list[str]:
    """A row of the table: two ways in turn."""
    one, other = race(dict(zip("ab", ways, strict=True)), rounds).values()
    return [name, spread(one), spread(other), ratios(one, other)]


def layouts(rounds: int) -> list[list[str]]:
    """Rows of the table."""
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

    ragged_ = line("packed / padded, 32 ragged sequences", (step("packed"), step("padded")), rounds)
    groups = ragged(32, 256, 512, group=8)
    once, copied = (Packed.of(groups, torch.device("cpu"), share) for share in (True, False))

    def grouped(tokens: Packed) -> Callable[[], None]:
        def run() -> None:
            models["packed"](tokens, 1.0)["logprobs_BT"].sum().backward()

        return run

    kept = len(once.ids_N) / len(copied.ids_N)
    name = f"shared / copied prompts, 4 x 8, {kept:.0%} of the tokens"
    return [ragged_, line(name, (grouped(once), grouped(copied)), rounds)]


if __name__ == "__main__":
    given = settings(rounds="7")
    print(table(["one / other", "one, s", "other, s", "ratio, round by round"], layouts(int(given["rounds"]))))
