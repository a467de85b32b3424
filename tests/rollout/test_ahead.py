"""The thread that draws ahead: what it may see, when it is waited for, and whose its errors are; on fakes."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from rlvr.clock import Clock
from rlvr.data.stream import PromptStream
from rlvr.engine.engines import Engines
from rlvr.rollout.ahead import Rollouts
from rlvr.rollout.collect import Collector
from rlvr.rollout.draw import Abandoned, Drawer
from rlvr.rollout.reference import ReferenceSampler
from tests.algorithms.builders import make
from tests.rollout.fakes import FakeEngines, FakeJudge, FakeWorld, config, prompt


class Pinned(FakeEngines):
    """Draws nothing before `go` is set."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()
        self.go.set()

    def pinned(self):
        return nullcontext()

    def _draw(self, orders, decoding, on_done, stop=None):
        while not self.go.wait(0.01):
            if stop():
                return []
        return super()._draw(orders, decoding, on_done)


class Easy(FakeJudge):
    """Everything is right, so that prompts retire."""

    error = None

    def _verdict(self, completion):
        return SimpleNamespace(score=1.0, error=None, parts={})


@pytest.fixture
def rollouts():
    grpo, told, engines = make("grpo", group=2), config(retire=[1, 2]), Pinned()
    told.algorithm = grpo.config
    clock = Clock()
    drawer = Drawer(engines, Easy(), told, clock)
    stream = PromptStream({"sums": [prompt(i) for i in range(24)]}, {"sums": 1.0}, told.seed)
    collector = Collector(grpo, drawer, ReferenceSampler(drawer, told, FakeWorld()), stream, told, FakeWorld())
    made = Rollouts(collector, engines, torch.device("cpu"), clock)
    yield made
    made.close()


def test_what_is_drawn_ahead_is_what_would_be_drawn_then_and_teaches_nothing_before_it_is_taken(rollouts):
    first = rollouts.take(0, 0)
    with rollouts.ahead(first.cursor, 1):
        pass
    dropped = rollouts._ahead.result()
    rollouts.drop()
    with rollouts.ahead(first.cursor, 1):
        pass
    assert len(rollouts.collector.retirement.state) == 4
    ahead = rollouts.take(first.cursor, 1)
    assert (first.staleness, ahead.staleness) == (0, 1) and ahead.retired == 8
    assert ahead.rows == dropped.rows
    assert rollouts.take(ahead.cursor, 2).staleness == 0


def test_the_thread_is_waited_for_and_its_seconds_are_its_own(rollouts):
    rollouts.engines.go.clear()
    with rollouts.ahead(0, 0), rollouts.clock("update"):
        assert not rollouts.engines.drawn
        rollouts.engines.go.set()
    assert len(rollouts.engines.drawn) == 8
    assert set(rollouts.clock.take()) == {
        *("update", "await", "ahead/collect", "ahead/collect/generate", "ahead/collect/verify")
    }


def test_an_error_beside_the_thread_ends_it_soon(rollouts):
    rollouts.engines.go.clear()
    with pytest.raises(ZeroDivisionError), rollouts.ahead(0, 0):
        raise ZeroDivisionError
    with pytest.raises(Abandoned):
        rollouts.take(0, 0)


def test_an_error_of_the_thread_is_that_of_the_step_it_draws_for(rollouts):
    rollouts.engines.dies_after = 3
    with rollouts.ahead(0, 0):
        pass
    with pytest.raises(KeyboardInterrupt):
        rollouts.take(0, 0)


def test_a_pinned_sampler_keeps_its_weights_while_the_policy_moves_on():
    """Of the engines, the sampler is a fake that notes what it is given, and there is one learner without tensors."""
    given = []
    sampler = SimpleNamespace(version=None, forget=lambda: None, sleep=lambda: None, generate=lambda *a: a[2])

    def load(weights, version):
        sampler.version = version
        given.append(version)

    sampler.load = load
    engines = Engines.__new__(Engines)
    engines.sampler, engines.clock, engines.policy_version = sampler, Clock(), 3
    engines._pinned, engines._sampler_lock = None, threading.RLock()
    engines.learners = {"policy": SimpleNamespace(weights=lambda: iter(()))}
    with engines.pinned():
        engines.updated()
        with engines.sampling("policy") as sample:
            assert sample([], None, None) == "policy@3"
    assert given == ["policy@3"]
    with engines.sampling("policy") as sample:
        assert sample([], None, None) == "policy@4"
    assert given == ["policy@3", "policy@4"]
