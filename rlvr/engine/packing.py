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
    """The sequences of a micro-batch laid end to end, without padding.

    Example: prompts [5, 6] and [5], completions [7] and [8, 9] pack to ids [5 6 7 5 8 9] with positions
    [0 1 2 0 1 2]; tokens 1, 3 and 4 predict the targets 7, 8 and 9.
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
    def of(cls, batch: Batch, device: torch.device) -> Packed:
        """Pack all rows of `batch`; index arithmetic only, O(B*S)."""
        length_B = batch.prompt_length_B + batch.length_B
        count, width = batch.tokens_BS.shape
        column_S = torch.arange(width)
        real_BS = column_S[None] < length_B[:, None]
        rows_N, position_N = real_BS.nonzero(as_tuple=True)
        start_B = length_B.cumsum(0) - length_B
        longest = int(length_B.max())
        pad_nL = torch.where(real_BS, start_B[:, None] + column_S[None], 0)[:, :longest]
        predicts_N = (position_N >= batch.prompt_length_B[rows_N] - 1) & (position_N < length_B[rows_N] - 1)
        predict_M = predicts_N.nonzero()[:, 0]
        ids_N = batch.tokens_BS[real_BS]
        width_T = batch.mask_BT.shape[1]
        column_M = position_N[predict_M] - batch.prompt_length_B[rows_N[predict_M]] + 1
        made = cls(
            ids_N=ids_N,
            position_N=position_N,
            length_n=length_B,
            pad_nL=pad_nL,
            unpad_N=rows_N * longest + position_N,
            predict_M=predict_M,
            target_M=ids_N[predict_M + 1],
            place_M=rows_N[predict_M] * width_T + column_M,
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


def micro_batch_rows(batch: Batch, unit: int, most_tokens: int, world: World) -> list[Tensor]:
    """Cut one update's share of this rank into micro-batches of similar lengths and near-equal token counts.

    Neighbours are sorted by length, so that little attention is spent on padding.  Every rank gets
    the same number of pieces, since each forward is a collective under ZeRO-3; a rank with fewer
    rows gets empty ones.

    Args:
        batch: on the host.
        unit: neighbouring rows that stay together.
        most_tokens: limit of a piece's tokens on this rank.

    Returns:
        int64 row numbers of each piece; all rows exactly once.
    """
    length_U = (batch.prompt_length_B + batch.length_B).view(-1, unit).sum(-1)
    order_U = length_U.argsort(stable=True)
    lengths = length_U[order_U].tolist()
    wanted = world.max(len(_runs(lengths, most_tokens)))
    rows = torch.arange(len(batch)).view(-1, unit)[order_U]
    cut = [rows[start:stop].flatten() for start, stop in _even_runs(lengths, wanted, most_tokens)]
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


def _runs(lengths: list[int], most: int) -> list[tuple[int, int]]:
    """Contiguous runs whose lengths add up to at most `most`; a longer one stands alone."""
    runs, start, total = [], 0, 0
    for i, length in enumerate(lengths):
        if i > start and total + length > most:
            runs.append((start, i))
            start, total = i, 0
        total += length
    return [*runs, (start, len(lengths))]


def _even_runs(lengths: list[int], count: int, most: int) -> list[tuple[int, int]]:
    """At most `count` runs, the fullest as empty as possible (bisection on its total)."""
    low, high = sum(lengths) // count, most
    while low < high:
        middle = (low + high) // 2
        if len(_runs(lengths, middle)) <= count:
            high = middle
        else:
            low = middle + 1
    return _runs(lengths, high)
