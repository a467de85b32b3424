"""The chunked head against plain logits: values, gradients, and memory."""

import os
import subprocess
import sys

import pytest
import torch

from rlvr.engine import head as module
from rlvr.engine.head import ChunkedHead

TOKENS, WIDTH, VOCAB, TEMPERATURE = 23, 12, 41, 0.7


def inputs(bias: bool):
    torch.manual_seed(0)
    linear = torch.nn.Linear(WIDTH, VOCAB, bias=bias)
    hidden = torch.randn(TOKENS, WIDTH, requires_grad=True)
    target = torch.randint(VOCAB, (TOKENS,))
    push_logprob, push_entropy = torch.randn(TOKENS), torch.randn(TOKENS)
    return linear, hidden, target, push_logprob, push_entropy


def gradients(linear, hidden):
    return [p.grad.clone() for p in (hidden, *linear.parameters())]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 23, 100])
@pytest.mark.parametrize("words", [1, 16, 41])
@pytest.mark.parametrize("entropy_learns", [False, True])
def test_head_equals_log_softmax_of_all_logits(bias, chunk, words, entropy_learns, monkeypatch):
    monkeypatch.setattr(module, "WORDS", words)
    linear, hidden, target, push_logprob, push_entropy = inputs(bias)
    logp = torch.log_softmax(linear(hidden) / TEMPERATURE, -1)
    plain = logp.gather(1, target[:, None])[:, 0], -(logp.exp() * logp).sum(-1)
    ((plain[0] * push_logprob).sum() + entropy_learns * (plain[1] * push_entropy).sum()).backward()
    wanted = gradients(linear, hidden)
    hidden.grad = None
    linear.zero_grad()

    logprobs, entropy = ChunkedHead(linear, chunk)(hidden, target, TEMPERATURE, entropy_learns)
    torch.testing.assert_close((logprobs, entropy), plain, rtol=1e-5, atol=1e-6)
    assert entropy.requires_grad == entropy_learns
    loss = (logprobs * push_logprob).sum() + ((entropy * push_entropy).sum() if entropy_learns else 0)
    loss.backward()
    torch.testing.assert_close(gradients(linear, hidden), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("words", [1, 3])
def test_a_masked_logit_gives_finite_numbers(words, monkeypatch):
    """A word of probability zero has a logit of -inf, which must not become NaN, as a tile of its own either."""
    monkeypatch.setattr(module, "WORDS", words)
    linear = torch.nn.Linear(2, 3, bias=True)
    with torch.no_grad():
        linear.bias[2] = -torch.inf
    hidden = torch.randn(4, 2, requires_grad=True)
    logprobs, entropy = ChunkedHead(linear, 2)(hidden, torch.zeros(4, dtype=torch.int64), 1.0, True)
    (logprobs.sum() + entropy.sum()).backward()
    assert torch.isfinite(entropy).all()
    assert torch.isfinite(hidden.grad).all()


SCRIPT = """
import resource, torch
from rlvr.engine.head import ChunkedHead
vocabulary, width, tokens = 151_936, 32, 512
head = ChunkedHead(torch.nn.Linear(width, vocabulary, bias=False), 256)
hidden = torch.randn(tokens, width, requires_grad=True)
target = torch.randint(vocabulary, (tokens,))
head(hidden[:8], target[:8], 1.0, False)[0].sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
logprobs, entropy = head(hidden, target, 1.0, True)
(logprobs.sum() + entropy.sum()).backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (4 * vocabulary * tokens))
"""


def test_memory_stays_far_below_the_logits():
    """151,936 words x 512 tokens: the whole logits would take 311 MB, and their gradient as much again."""
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # else it measures what glibc keeps, not what the head needs
    told = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=env)
    assert float(told.stdout) < 0.10
