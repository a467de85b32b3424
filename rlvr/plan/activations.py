"""What one micro-batch takes beside weights and their states: saved activations, and what comes and goes.

Letters: N tokens   n L padded places of attention   M predicted tokens   b bytes of a number (bf16 2, fp32 4)
         D width   F width of the MLP   A, K numbers of a token's queries and keys   H heads   V words
"""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.plan.shapes import Shape
from rlvr.plan.work import Micro

INDEX = 8  # bytes of an int64
TILE_WORDS = 4096  # `WORDS` of rlvr.engine.head


@dataclass(frozen=True, kw_only=True)
class Pass:
    """How the learner runs."""

    bytes: int  # b
    attention: str  # as hardware.attention
    checkpointing: bool
    chunk: int  # as hardware.head_chunk
    entropy_learns: bool


def norm_bytes(width: float, rows: float, b: int) -> float:
    """Saved by an RMS norm of `rows` vectors: its input in fp32, the inverse root, the normalized vector."""
    return rows * (4 * width + 4 + b * width)


def layer_bytes(shape: Shape, micro: Micro, way: Pass) -> float:
    """Saved by one decoder layer for its backward.

    Two norms of D; their outputs, the inputs of q, k, v and of gate, up (N D b each); where queries and keys have
    norms, those too; attention: q, out (A) and k, v (K) of each place, and a sum of exponentials per head in fp32; the
    input of o (N A b); in the MLP the outputs of gate, of the activation, of up, and the input of down (N F b each).
    """
    tokens, b, d = micro.tokens, way.bytes, shape.head_dim
    places = tokens if way.attention == "flash_attention_2" else micro.padded
    norms = 2 * norm_bytes(shape.width, tokens, b)
    if shape.qk_norm:
        norms += norm_bytes(d, tokens * (shape.heads + shape.kv_heads), b)
    attention = places * (2 * (shape.queries + shape.keys) * b + 4 * shape.heads)
    return norms + attention + tokens * b * (2 * shape.width + shape.queries + 4 * shape.mlp)


def saved_bytes(shape: Shape, micro: Micro, way: Pass) -> float:
    """Saved by the whole forward: all layers, or their inputs alone under checkpointing; last norm, input of the head.

    Besides, of each prediction one fp32 number, or two where the entropy learns; and once: cosines and sines (2 N d b),
    indices of tokens, places, predictions and targets.
    """
    tokens, b = micro.tokens, way.bytes
    layers = tokens * shape.width * b if way.checkpointing else layer_bytes(shape, micro, way)
    once = 2 * tokens * shape.head_dim * b + INDEX * (2 * tokens + micro.padded + 2 * micro.predicted)
    head = micro.predicted * (shape.width * b + (8 if way.entropy_learns else 4))
    return shape.layers * layers + norm_bytes(shape.width, tokens, b) + head + once


def forward_bytes(shape: Shape, micro: Micro, way: Pass) -> float:
    """Most that a layer without gradients holds: three widths of the MLP; embedding, residual, sum and normed input."""
    return micro.tokens * way.bytes * (3 * shape.mlp + 4 * shape.width)


def backward_bytes(shape: Shape, micro: Micro, way: Pass) -> float:
    """Most that the backward of one layer adds: one width of the MLP and two of the residual, since most gradients take
    the place of what they are made from; the gradient of one matrix before it is reduced; and under checkpointing the
    layer's own activations, made again."""
    again = layer_bytes(shape, micro, way) if way.checkpointing else 0.0
    gradients = micro.tokens * way.bytes * (shape.mlp + 2 * shape.width)
    return gradients + shape.width * shape.mlp * way.bytes + again


def tile(shape: Shape, micro: Micro, way: Pass) -> float:
    """Logits that exist at the same time: tokens x words of a tile, see `rlvr.engine.head`."""
    return min(way.chunk, micro.predicted) * min(TILE_WORDS, shape.words)


def head_forward_bytes(shape: Shape, micro: Micro, way: Pass) -> float:
    """Most that the head holds in its forward: a tile in fp32 and its exponentials; eleven fp32 numbers per token.

    Those are four that run along, their copy for the next tile and what is made on the way.
    """
    return 8 * tile(shape, micro, way) + 44 * micro.predicted


def head_backward_bytes(shape: Shape, micro: Micro, way: Pass) -> float:
    """Most that it holds in its backward.

    A tile in fp32 that turns into the gradient of its logits, and beside it what it is made from or cast to (b; with a
    gradient of the entropy the probabilities in fp32); the gradient of the hidden states in fp32 and at the end in b;
    the gradient of the weights in b.  In bf16 also the gradient of a tile's weights, added up in fp32, and each product
    that goes into a sum.
    """
    b, logits, words, rows = way.bytes, tile(shape, micro, way), min(TILE_WORDS, shape.words), way.chunk
    work: float = (8 if way.entropy_learns else 4 + b % 4) * logits
    if b == 2:
        work = max(work, b * (logits + max(words, min(rows, micro.predicted)) * shape.width))
        work += 4 * words * shape.width
    return work + b * shape.head + micro.predicted * shape.width * (4 + b % 4)
