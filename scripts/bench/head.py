"""The output head in tiles against all logits at once: memory at its peak and seconds, forward and backward.

    python scripts/bench/head.py [tokens=4096] [timed=1024] [words=151936] [width=896] [rounds=5] [hardware=gpu1 ...]

Both sides make the log-prob of every target and the entropy of its distribution; the loss is in the log-probs.  Memory
is what comes on top of inputs and gradients, as a share of the logits of all tokens.  Times are of `timed` tokens, in
turn; the chunk, the device and the dtype are those of `hardware.*`.
"""

from collections.abc import Callable
from typing import Any

import torch
from _measure import DTYPES, GIB, Peak, race, ratios, spread
from _runs import settings_and_overrides, table
from torch import Tensor

from rlvr.config import compose
from rlvr.engine.head import WORDS, ChunkedHead
from rlvr.schema.hardware import HardwareConfig

Ways = dict[str, Callable[[], tuple[Tensor, Tensor]]]
PLAIN, TILES, ALONE = "all logits", "in tiles", "all logits, log-prob alone"


class Case:
    """One head and some tokens."""

    def __init__(self, tokens: int, words: int, width: int, hardware: HardwareConfig) -> None:
        self.device = hardware.device
        kind: dict[str, Any] = dict(device=self.device, dtype=DTYPES[hardware.dtype])
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(width, words, bias=False, **kind)
        self.head = ChunkedHead(self.linear, hardware.head_chunk)
        self.hidden_MD = torch.randn(tokens, width, requires_grad=True, **kind)
        self.target_M = torch.randint(words, (tokens,), device=self.device)

    @property
    def ways(self) -> Ways:
        return {PLAIN: self.plain, TILES: self.tiles}

    def tiles(self) -> tuple[Tensor, Tensor]:
        return self.head(self.hidden_MD, self.target_M, 1.0, False)

    def plain(self) -> tuple[Tensor, Tensor]:
        logp_MV = torch.log_softmax(self.linear(self.hidden_MD).float(), -1)
        told_MV = logp_MV.detach()
        return logp_MV.gather(1, self.target_M[:, None])[:, 0], -(told_MV.exp() * told_MV).sum(-1)

    def alone(self) -> Tensor:
        return torch.log_softmax(self.linear(self.hidden_MD).float(), -1).gather(1, self.target_M[:, None])

    def trained(self, name: str) -> None:
        """Forward and backward."""
        self.ways[name]()[0].sum().backward()
        self.forget()

    @torch.no_grad()
    def scored(self, name: str) -> None:
        """Forward alone."""
        self.alone() if name == ALONE else self.ways[name]()

    def forget(self) -> None:
        self.hidden_MD.grad = self.linear.weight.grad = None

    def extra(self, name: str, work: Callable[[str], None], gradients: bool) -> int:
        """Bytes at the peak beyond inputs and gradients."""
        kept = self.hidden_MD.nbytes + self.linear.weight.nbytes if gradients else 0
        with Peak(self.device) as peak:
            work(name)
        return peak.bytes - kept


def memory(case: Case) -> str:
    """The table of peaks."""
    all_logits = 4 * len(case.target_M) * len(case.linear.weight)
    lines = []
    for name in case.ways:
        cells = [name]
        for work, gradients in ((case.scored, False), (case.trained, True)):
            extra = case.extra(name, work, gradients)
            cells += [f"{extra / GIB:.3f}", f"{extra / all_logits:.1%}"]
        lines.append(cells)
    header = ["", "forward, GiB", "of the logits in fp32", "forward and backward, GiB", "of the logits in fp32"]
    return table(header, lines)


def times(case: Case, rounds: int) -> str:
    """The table of seconds."""
    forward = race({n: lambda n=n: case.scored(n) for n in (*case.ways, ALONE)}, rounds, case.device)  # type: ignore[misc]
    both = race({n: lambda n=n: case.trained(n) for n in case.ways}, rounds, case.device)  # type: ignore[misc]
    pairs = {
        "forward": (forward[TILES], forward[PLAIN]),
        "forward, against log-probs alone": (forward[TILES], forward[ALONE]),
        "forward and backward": (both[TILES], both[PLAIN]),
    }
    lines = [[name, spread(ours), spread(plain), ratios(ours, plain)] for name, (ours, plain) in pairs.items()]
    return table(["seconds", TILES, PLAIN, "ratio, round by round"], lines)


def main() -> None:
    """Measure and print."""
    given, overrides = settings_and_overrides(tokens="4096", timed="1024", words="151936", width="896", rounds="5")
    hardware = compose(overrides).hardware
    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    tokens, words, width = (int(given[name]) for name in ("tokens", "words", "width"))
    print(f"{words:,} words, width {width}, {hardware.dtype} on {hardware.device}, {torch.get_num_threads()} threads")
    print(f"tiles of {hardware.head_chunk} tokens x {WORDS} words\n\nmemory, {tokens:,} tokens:\n")
    print(memory(Case(tokens, words, width, hardware)), flush=True)
    print(f"\ntime, {given['timed']} tokens:\n")
    print(times(Case(int(given["timed"]), words, width, hardware), int(given["rounds"])))


if __name__ == "__main__":
    main()
