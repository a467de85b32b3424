"""What the evaluators of `rlvr.ops.check` share: a case, ragged rows, names that carry numbers."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Numbers = dict[str, Any]

# `1e_6`, `0p28`, `0.5`, `1e-6`, `-3`: numbers as they stand in names
NUMBER = r"-?\d+(?:[.p]\d+)?(?:e[-_+]?\d+)?"


@dataclass(frozen=True)
class Case:
    """One worked example."""

    inputs: Numbers
    expected: Numbers

    def matched(self, pattern: str) -> Iterator[tuple[Any, ...]]:
        """(name, *numbers) of the expected fields whose whole name matches; `#` stands for a number."""
        whole = re.compile(pattern.replace("#", f"({NUMBER})"))
        for name in self.expected:
            if found := whole.fullmatch(name):
                yield name, *map(number, found.groups())

    def bounds(self) -> tuple[float, float]:
        """The clip range, (eps_low, eps_high) or eps on both sides."""
        if "eps" in self.inputs:
            return self.inputs["eps"], self.inputs["eps"]
        return self.inputs["eps_low"], self.inputs["eps_high"]


@dataclass(frozen=True)
class Kind:
    """How cases of one kind are evaluated."""

    evaluate: Callable[[Case], Numbers]  # may return more than a case expects
    given: frozenset[str] = frozenset()  # names inside `expected` that are inputs of its entries
    # Numbers smaller than this are compared as if they were this large: differences of numbers
    # around 1 leave noise of 1e-16 where the truth is 0.
    floor: float = 1e-5


def number(text: str) -> float:
    """The number that a name carries; whole ones as int."""
    value = float(text.replace("e_", "e-").replace("p", "."))
    return int(value) if re.fullmatch(r"-?\d+", text) else value


def tensor(x: Any) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def gradient(of: Tensor, wrt: Tensor) -> Tensor:
    return torch.autograd.grad(of, wrt, retain_graph=True)[0]


@dataclass(frozen=True)
class Rows:
    """The shape of ragged rows, or of one flat row."""

    lengths: tuple[int, ...]
    flat: bool

    @classmethod
    def of(cls, x: list[Any]) -> "Rows":
        flat = not (x and isinstance(x[0], list))
        return cls((len(x),) if flat else tuple(map(len, x)), flat)

    @property
    def mask_BT(self) -> Tensor:
        return (torch.arange(max(self.lengths))[None] < torch.tensor(self.lengths)[:, None]).double()

    def lay(self, x: list[Any]) -> Tensor:
        """Numbers of this shape as a padded (B, T).

        Raises:
            ValueError: if they have another shape.
        """
        if Rows.of(x) != self:
            raise ValueError(f"rows of {Rows.of(x).lengths} numbers where others have {self.lengths}")
        rows = [x] if self.flat else x
        return torch.nn.utils.rnn.pad_sequence([tensor(row) for row in rows], batch_first=True)

    def lift(self, x_BT: Tensor) -> Any:
        """The inverse of `lay`."""
        rows = [row[:length].tolist() for row, length in zip(x_BT, self.lengths, strict=True)]
        return rows[0] if self.flat else rows

    def lift_B(self, x_B: Tensor) -> Any:
        """One number per row; a bare number if there is one flat row."""
        return x_B[0].item() if self.flat else x_B.tolist()
