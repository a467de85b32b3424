"""From padded rows to unpadded tokens and back, and the cutting of a batch into micro-batches.

Letters in names:  n sequences of a micro-batch   L its longest   N its tokens in all   M predicted tokens
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rlvr.batch import Batch
from rlvr.world import World


@dataclass(frozen=True, kw_only=True)
class Packed:
    """The sequences of a micro-batch laid end to end, without padding and with a shared prompt only once.

    Example: prompts [5, 6] and [5], completions [7] and [8, 9] pack to ids [5 6 7 5 8 9] with positions
    [0 1 2 0 1 2]; tokens 1, 3 and 4 predict the targets 7, 8 and 9.  Were both prompts [5, 6], ids would be
    [5 6 7 8 9] with positions [0 1 2 2 3], and tokens 1, 1 and 3 would predict the targets.

    What a token of a prompt computes depends on the prompt alone, so that one copy serves all rows: each row's
    attention finds it through `pad_nL`, and its gradient is the sum over the rows.
    """

    ids_N: Tensor  # int64
    position_N: Tensor  # int64, place within its own sequence
    length_n: Tensor  # int64
    pad_nL: Tensor  # int64, index into N of each place of the padded layout (0 where there is none)
    unpad_N: Tensor  # int64, index into n*L of each token
    predict_M: Tensor  # int64, index into N of the tokens that predict
    target_M: Tensor  # int64, the tokens that they predict
    place_M: Tensor  # int64, index into B*T of each prediction
    shape: tuple[int, int]  # (B, T)

    @classmethod
    def of(cls, batch: Batch, device: torch.device, share: bool = False) -> Packed:
        """Pack all rows of `batch`; index arithmetic only, O(B*S).

        Args:
            share: lay the prompt of neighbours that have the same one only once.
        """
        length_B = batch.prompt_length_B + batch.length_B
        count, width = batch.tokens_BS.shape
        column_S = torch.arange(width)
        real_BS = column_S[None] < length_B[:, None]
        owner_B = _owners(batch) if share else torch.arange(count)
        copied_B = owner_B != torch.arange(count)
        own_BS = real_BS & ~(copied_B[:, None] & (column_S[None] < batch.prompt_length_B[:, None]))
        rows_N, position_N = own_BS.nonzero(as_tuple=True)
        index_BS = own_BS.flatten().cumsum(0).view(count, width) - 1
        index_BS = torch.where(own_BS, index_BS, index_BS[owner_B])
        longest = int(length_B.max())
        last_B1, width_T = batch.prompt_length_B[:, None] - 1, batch.mask_BT.shape[1]
        rows_M, column_M = ((column_S >= last_B1) & (column_S < length_B[:, None] - 1)).nonzero(as_tuple=True)
        made = cls(
            ids_N=batch.tokens_BS[own_BS],
            position_N=position_N,
            length_n=length_B,
            pad_nL=torch.where(real_BS, index_BS, 0)[:, :longest],
            unpad_N=rows_N * longest + position_N,
            predict_M=index_BS[rows_M, column_M],
            target_M=batch.tokens_BS[rows_M, column_M + 1],
            place_M=rows_M * width_T + column_M - last_B1[rows_M, 0],
            shape=(count, width_T),
        )
        return made.to(device)

    def to(self, device: torch.device) -> Packed:
        """The same tokens with their indices on `device`."""
        moved: dict[str, Any] = {
            name: x.to(device, non_blocking=True) for name, x in vars(self).items() if isinstance(x, Tensor)
        }
        return replace(self, **moved)

    def unpacked(self, x_M: Tensor) -> Tensor:
        """Numbers of predicted tokens laid out as (B, T), zeros elsewhere; differentiable."""
        rows, columns = self.shape
        return x_M.new_zeros(rows * columns).index_put((self.place_M,), x_M).view(rows, columns)


def _owners(batch: Batch) -> Tensor:
    """(B,) for each row the first of the neighbours before it that have the same prompt, or itself."""
    row_B, column_S = torch.arange(len(batch)), torch.arange(batch.tokens_BS.shape[1])
    inside_BS = column_S[None] < batch.prompt_length_B[:, None]
    equal_BS = ~inside_BS | (batch.tokens_BS == batch.tokens_BS.roll(1, 0))
    same_B = equal_BS.all(1) & (batch.prompt_length_B == batch.prompt_length_B.roll(1)) & (row_B > 0)
    return torch.where(same_B, 0, row_B).cummax(0).values


def micro_batch_rows(batch: Batch, unit: int, most_tokens: int, world: World, share: bool = False) -> list[Tensor]:
    """Cut one update's share of this rank into micro-batches of similar lengths and near-equal token counts.

    Neighbours are sorted by length, so that little attention is spent on padding.  Every rank gets
    the same number of pieces, since each forward is a collective under ZeRO-3; a rank with fewer
    rows gets empty ones.

    Args:
        batch: on the host.
        unit: neighbouring rows that stay together.
        most_tokens: limit of a piece's tokens on this rank.
        share: rows of a group stay neighbours, and their prompt counts once in each piece.

    Returns:
        int64 row numbers of each piece; all rows exactly once.
    """
    group = batch.group if share else unit
    length_U = (batch.prompt_length_B + batch.length_B).view(-1, unit).sum(-1)
    longest_P = length_U.view(-1, group // unit).amax(-1)
    order_U = torch.arange(len(length_U)).view(-1, group // unit)[longest_P.argsort(stable=True)].flatten()
    rows = torch.arange(len(batch)).view(-1, unit)[order_U]
    prompt_U = batch.prompt_length_B[rows[:, 0]] if share else 0 * length_U
    shared = [(r // group, p) for r, p in zip(rows[:, 0].tolist(), prompt_U.tolist(), strict=True)]
    costs = _Costs((length_U[order_U] - unit * prompt_U).tolist(), shared)
    wanted = world.max(len(costs.runs(most_tokens)))
    cut = [rows[start:stop].flatten() for start, stop in costs.even_runs(wanted, most_tokens)]
    return cut + [rows.new_empty(0)] * (wanted - len(cut))


def piece(batch: Batch, rows: Tensor, unit: int = 1) -> Batch:
    """The micro-batch of `rows`; of none, one unit of weight zero that keeps this rank in step with the others."""
    if len(rows):
        return batch.take(rows)
    row = batch.take(torch.arange(unit))
    zeroed = {
        name: getattr(row, name) * 0
        for name in ("mask_BT", "token_weight_BT", "sequence_weight_B")
        if getattr(row, name) is not None
    }
    return row.having(**zeroed)


@dataclass(frozen=True)
class _Costs:
    """Tokens of units in order: those of their own, and those of the prompt of their group, paid once per run."""

    own: list[int]
    shared: list[tuple[int, int]]  # (group, tokens)

    def runs(self, most: int) -> list[tuple[int, int]]:
        """Contiguous runs that cost at most `most`; a unit that costs more stands alone."""
        runs, start, total, paid = [], 0, 0, -1
        for i, (own, (group, prompt)) in enumerate(zip(self.own, self.shared, strict=True)):
            cost = own + (prompt if group != paid else 0)
            if i > start and total + cost > most:
                runs.append((start, i))
                start, total, cost = i, 0, own + prompt
            total, paid = total + cost, group
        return [*runs, (start, len(self.own))]

    def even_runs(self, count: int, most: int) -> list[tuple[int, int]]:
        """At most `count` runs, the fullest as empty as possible (bisection on its total)."""
        low, high = sum(self.own) // count, most
        while low < high:
            middle = (low + high) // 2
            if len(self.runs(middle)) <= count:
                high = middle
            else:
                low = middle + 1
        return self.runs(high)
