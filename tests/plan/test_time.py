"""Seconds against numbers worked out by hand, and how they move with the machine."""

import pytest

from rlvr.config import compose
from rlvr.keys import ConfigError
from rlvr.plan.shapes import shape_of
from rlvr.plan.time import Rates, Time, time
from rlvr.plan.work import Work

PLAIN = [
    *("hardware.machine.matmul_efficiency=1", "hardware.machine.bandwidth_efficiency=1"),
    *("hardware.machine.layer_overhead=0", "hardware.machine.decode_overhead=0"),
    *("hardware.machine.sequence_overhead=0", "hardware.machine.tensor_overhead=0", "log.kl_every=0"),
    *("plan.prompt_tokens=100", "plan.completion_tokens=500", "rollout.max_tokens=500", "model=qwen2_5_1_5b"),
    *("data=math", "rollout.prompts=64", "algorithm.group=8"),
]


def planned(*overrides: str, world: int = 1) -> Time:
    config = compose([*PLAIN, "hardware=gpu1", *overrides])
    return time(Work.of(config, world), shape_of(config.model), 80e9)


def test_an_update_costs_six_flops_per_weight_and_token() -> None:
    shape = shape_of(compose([*PLAIN]).model)
    told = planned("hardware.gradient_checkpointing=false", "hardware.share_prompts=false")
    tokens, predicted = 64 * 8 * 600, 64 * 8 * 500
    layers = 2 * shape.body * tokens + 28 * 2 * 1536 * 600**2 * 64 * 8
    head = 2 * 151_936 * 1536 * predicted
    assert told.seconds("forward") == pytest.approx((layers + head) / 989e12)
    assert told.seconds("backward") == pytest.approx((2 * layers + 3 * head) / 989e12, rel=1e-6)
    again = planned("hardware.share_prompts=false")
    assert again.seconds("backward") - told.seconds("backward") == pytest.approx(layers / 989e12)


def test_decoding_reads_weights_and_cache() -> None:
    shape = shape_of(compose([*PLAIN]).model)
    told = planned("rollout.prompts=1", "algorithm.group=1")
    per_step = 2 * shape.parameters / 3.35e12 + (100 + 250) * 2 * 28 * 256 * 2 / 3.35e12
    prefill = 2 * shape.body * 100 / 989e12
    assert told.seconds("generate") == pytest.approx(500 * per_step + prefill)
    assert told.seconds("transfer") == pytest.approx(2 * 2 * shape.parameters / 3.35e12)


def test_a_cpu_first_reads_weights_and_then_multiplies() -> None:
    given = [*PLAIN, "rollout.prompts=1", "algorithm.group=2", "hardware.sampler_memory=8"]
    config = compose([*given, "hardware=cpu", "hardware.peak_tflops=989", "hardware.machine.bandwidth=3350"])
    shape = shape_of(config.model)
    told = time(Work.of(config, 1), shape, 80e9).seconds("generate")
    weights = 4 * (shape.parameters + shape.head) / 3.35e12  # the head lies there a second time, packed
    products = 2 * 2 * (shape.body + shape.head) / 989e12
    cache = 2 * (100 + 250) * 2 * 28 * 256 * 4 / 3.35e12
    prefill = 2 * shape.body * 100 / 989e12
    assert told == pytest.approx(500 * (weights + products + cache) + prefill)


def test_layers_are_launched_one_by_one_without_cuda_graphs() -> None:
    graphs, eager = (
        planned(f"hardware.sampler_eager={way}", "hardware.machine.layer_overhead=100").seconds("generate")
        for way in ("false", "true")
    )
    assert eager - graphs == pytest.approx(500 * 28 * 100e-6)


def test_the_optimizer_moves_40_bytes_per_parameter() -> None:
    shape = shape_of(compose([*PLAIN]).model)
    assert planned().seconds("optimizer") == pytest.approx(40 * shape.parameters / 3.35e12)
    assert planned("algorithm.minibatches=4").seconds("optimizer") == pytest.approx(4 * 40 * shape.parameters / 3.35e12)


def test_scoring_is_a_forward_per_model() -> None:
    one = planned("algorithm.kl_coef=0.1")
    assert planned().seconds("score") == 0
    assert one.seconds("score") == pytest.approx(one.seconds("forward"))


def test_a_slow_network_is_felt_under_zero_3_alone_beyond_one_machine() -> None:
    def backward(network: float, nodes: int) -> float:
        given = [f"hardware.machine.network={network}", f"hardware.machine.nodes={nodes}", "hardware.zero=3"]
        return planned("hardware.ranks=8", *given, world=8 * nodes).seconds("backward")

    assert backward(1, 1) == backward(400, 1)
    assert backward(1, 2) > 5 * backward(400, 2)


def test_more_machines_shorten_a_step_less_and_less() -> None:
    def step(nodes: int) -> float:
        given = ["hardware=gpu8", "rollout.prompts=512", f"hardware.machine.nodes={nodes}"]
        return planned(*given, world=8 * nodes).step

    one, eight, sixty_four = step(1), step(8), step(64)
    assert one > eight
    assert one / eight < 8 and eight / sixty_four < one / eight


def test_a_machine_without_numbers_has_no_times() -> None:
    with pytest.raises(ConfigError, match="hardware.peak_tflops"):
        Rates.of(compose([]).hardware, 1)
