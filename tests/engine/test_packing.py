"""Packing by hand, and cuts of a batch into micro-batches."""

from dataclasses import replace

import torch

from rlvr.batch import Batch
from rlvr.engine.packing import Packed, micro_batch_rows, piece
from rlvr.records import Completion, Prompt, Verdict
from rlvr.world import World

WORLD = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"), backend="gloo")


def batch_of(*rows: tuple[list[int], list[int]]) -> Batch:
    prompts = [
        Prompt(id=str(i), source="s", text="", tokens=tuple(p), answer="", verifier="exact")
        for i, (p, _) in enumerate(rows)
    ]
    completions = [
        Completion(tokens=tuple(c), logprobs=(0.0,) * len(c), text="", truncated=False, source="policy")
        for _, c in rows
    ]
    return Batch.of(prompts, completions, [Verdict(score=1.0)] * len(rows), group=1, limit=8)


def test_the_example_of_the_docstring():
    packed = Packed.of(batch_of(([5, 6], [7]), ([5], [8, 9])), torch.device("cpu"))
    assert packed.ids_N.tolist() == [5, 6, 7, 5, 8, 9]
    assert packed.position_N.tolist() == [0, 1, 2, 0, 1, 2]
    assert packed.predict_M.tolist() == [1, 3, 4]
    assert packed.target_M.tolist() == [7, 8, 9]
    assert packed.unpacked(torch.tensor([10.0, 20.0, 30.0])).tolist() == [[10.0, 0.0], [20.0, 30.0]]


def test_a_shared_prompt_is_laid_once():
    batch = batch_of(([5, 6], [7]), ([5, 6], [8, 9]), ([5], [6, 7]), ([5, 6], [4]))
    packed = Packed.of(batch, torch.device("cpu"), share=True)
    assert packed.ids_N.tolist() == [5, 6, 7, 8, 9, 5, 6, 7, 5, 6, 4]  # the last one is no neighbour of the first
    assert packed.position_N.tolist() == [0, 1, 2, 2, 3, 0, 1, 2, 0, 1, 2]
    assert packed.predict_M.tolist() == [1, 1, 3, 5, 6, 9]
    assert packed.target_M.tolist() == [7, 8, 9, 6, 7, 4]
    assert packed.place_M.tolist() == [0, 2, 3, 4, 5, 6]
    assert packed.ids_N[packed.pad_nL][1].tolist() == [5, 6, 8, 9]
    tokens_nL = packed.ids_N[packed.pad_nL]
    assert tokens_nL.flatten()[packed.unpad_N].tolist() == packed.ids_N.tolist()


def test_padding_and_unpadding_are_inverse():
    packed = Packed.of(batch_of(([1], [2]), ([3, 4, 5], [6, 7]), ([8, 9], [10])), torch.device("cpu"))
    tokens_nL = packed.ids_N[packed.pad_nL]
    assert tokens_nL.flatten()[packed.unpad_N].tolist() == packed.ids_N.tolist()


def test_every_row_is_in_exactly_one_piece_below_the_limit():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 30, (50,), generator=generator).tolist()
    batch = batch_of(*[([1], [2] * n) for n in lengths])
    cuts = micro_batch_rows(batch, 1, 64, WORLD)
    assert sorted(torch.cat(cuts).tolist()) == list(range(50))
    totals = [sum(lengths[r] + 1 for r in rows) for rows in cuts]
    assert max(totals) <= 64
    assert len(cuts) <= -(-(sum(lengths) + 50) // 64) + 2
    assert max(totals) - min(totals) <= 31


def test_a_shared_prompt_is_paid_once_per_piece():
    batch = batch_of(*[([1] * 20, [2] * n) for n in (3, 5, 4, 6, 9, 8, 7, 2)])
    batch = replace(batch, group=4)
    plain, shared = (micro_batch_rows(batch, 1, 46, WORLD, share) for share in (False, True))
    assert len(shared) == 2 and len(plain) > 2
    assert [sorted(rows.tolist()) for rows in shared] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    split = micro_batch_rows(batch, 1, 30, WORLD, share=True)
    assert sorted(torch.cat(split).tolist()) == list(range(8))
    for rows in split:
        assert batch.length_B[rows].sum() + 20 * len(set((rows // 4).tolist())) <= 30


def test_units_stay_together():
    batch = batch_of(*[([1], [2] * n) for n in (1, 9, 2, 8, 3, 7, 4, 6)])
    for rows in micro_batch_rows(batch, 2, 24, WORLD):
        pairs = rows.view(-1, 2)
        assert (pairs[:, 0] % 2 == 0).all()
        assert (pairs[:, 1] == pairs[:, 0] + 1).all()


def test_an_empty_piece_weighs_nothing():
    batch = batch_of(([1], [2, 3]), ([1], [4])).weighted("token")
    idle = piece(batch, torch.empty(0, dtype=torch.int64))
    assert len(idle) == 1
    assert idle.token_mean(torch.ones(1, 2)) == 0
    assert idle.sequence_mean(torch.ones(1)) == 0
