"""What scripts of this folder measure with: clocks, memory, the speed of matrix products, and how to tell them."""

import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import torch

GIB = 2**30
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
Work = Callable[[], object]


def seconds(work: Work, device: str = "cpu") -> float:
    """Wall clock of one call, with what it has queued on a GPU."""
    settle(device)
    start = time.perf_counter()
    work()
    settle(device)
    return time.perf_counter() - start


def settle(device: str) -> None:
    """Wait for a GPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def race(ways: Mapping[str, Work], rounds: int, device: str = "cpu") -> dict[str, list[float]]:
    """Seconds of every round of each way; they take turns, after one round that is not measured."""
    for work in ways.values():
        seconds(work, device)
    told: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            told[name].append(seconds(work, device))
    return told


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Median (least to most)."""
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def ratios(ones: Sequence[float], others: Sequence[float], digits: int = 2) -> str:
    """Median (least to most) of one over other, round by round."""
    return spread([a / b for a, b in zip(ones, others, strict=True)], digits)


def matmul_tflops(device: str, dtype: str, duration: float = 1.0) -> list[float]:
    """TFLOP/s of a product of square matrices, call by call: what this machine can do with the threads it has now."""
    size = 8192 if device == "cuda" else 1536
    a, b = (torch.randn(size, size, device=device, dtype=DTYPES[dtype]) for _ in range(2))
    torch.mm(a, b)
    told: list[float] = []
    end = time.perf_counter() + duration
    while len(told) < 5 or time.perf_counter() < end:
        told.append(2 * size**3 / seconds(lambda: torch.mm(a, b), device) / 1e12)
    return told


def resident(name: str = "VmRSS") -> int:
    """Bytes of this process in memory, now, or at most so far (VmHWM)."""
    told = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert told is not None
    return int(told[1]) * 1024


class Peak:
    """Most bytes at one time inside a `with` over those at its begin: of tensors on a GPU, of the process on a CPU."""

    def __init__(self, device: str = "cpu") -> None:
        self.device, self.bytes = device, 0

    def __enter__(self) -> Self:
        settle(self.device)
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
        else:
            Path("/proc/self/clear_refs").write_text("5")  # the kernel forgets the peak so far
            self._before = resident()
        return self

    def __exit__(self, *_: object) -> None:
        settle(self.device)
        most = torch.cuda.max_memory_allocated() if self.device == "cuda" else resident("VmHWM")
        self.bytes = most - self._before
