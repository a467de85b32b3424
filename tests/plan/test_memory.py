"""Sizes against numbers worked out by hand, and what turning a key does to them."""

import pytest

from rlvr.config import compose
from rlvr.engine import learner
from rlvr.plan.memory import AVERAGED, GIB, LIVE, PHASES, cache_bytes, memory, token_cache
from rlvr.plan.shapes import shape_of
from rlvr.plan.work import Work, longest

SEVEN = ["model=qwen2_5_7b", "data=math", "hardware=gpu8", "rollout.prompts=64", "log.kl_every=0"]
P, V_D = 7_615_616_512, 152_064 * 3584
DEVICE = 80e9


def parts(*overrides: str, world: int = 8) -> dict[str, tuple[float, ...]]:
    config = compose([*SEVEN, *overrides])
    told = memory(Work.of(config, world), shape_of(config.model), longest(config), DEVICE)
    return {part.name: part.bytes for part in told.device}


def always(size: float) -> tuple[float, ...]:
    return (size,) * 4


def test_zero_3_of_a_7b_model_on_eight_gpus() -> None:
    told = parts()
    assert told["policy, weights"] == always(2 * P / 8)
    assert told["policy, fp32 master"] == always(4 * P / 8)
    assert told["policy, moments"] == always(8 * P / 8)
    assert told["policy, gradients"] == always(2 * P / 8)
    assert told["policy, reduce bucket"] == always(1e9)
    assert told["policy, optimizer at work"] == (0, 0, 0, 4 * P / 8)  # fp32 gradients
    assert told["gathered weights"] == (2 * V_D, 2 * (LIVE + V_D), 2 * (LIVE + V_D), 0)
    assert told["sampler, weights and KV cache"] == (40e9, GIB, GIB, GIB)
    assert "reference, weights" not in told


@pytest.mark.parametrize(
    ("zero", "weights", "states", "gradients"), [(0, 1, 1, 1), (1, 1, 8, 1), (2, 1, 8, 8), (3, 8, 8, 8)]
)
def test_what_each_stage_shards(zero: int, weights: int, states: int, gradients: int) -> None:
    told = parts(f"hardware.zero={zero}")
    assert told["policy, weights"][0] == 2 * P / weights
    assert told["policy, moments"][0] == 8 * P / states
    assert told["policy, gradients"][PHASES.index("update")] == 2 * P / gradients


def test_without_zero_several_ranks_average_in_parts() -> None:
    assert AVERAGED == learner.AVERAGED
    assert parts("hardware.zero=0")["policy, reduce bucket"] == (0, 0, 0, 2 * AVERAGED)
    alone = compose(["log.kl_every=0"])
    told = memory(Work.of(alone, 1), shape_of(alone.model), longest(alone), DEVICE)
    assert {part.name: part.bytes for part in told.device}["policy, reduce bucket"] == always(0)


def test_a_reference_and_a_critic_are_models_too() -> None:
    told = parts("algorithm=ppo", "algorithm.kl_coef=0.1")
    assert told["reference, weights"] == always(2 * P / 8)
    assert told["critic, moments"] == always(8 * (P - V_D + 3584 + 1) / 8)


def test_offloading_moves_states_to_the_host() -> None:
    config = compose([*SEVEN, "hardware.offload_optimizer=true", "hardware.offload_parameters=true"])
    told = memory(Work.of(config, 8), shape_of(config.model), longest(config), DEVICE)
    device = {part.name: part.bytes for part in told.device}
    assert not any(device["policy, weights"] + device["policy, moments"] + device["policy, optimizer at work"])
    assert told.host_peak == 16 * P + 2 * P


def test_the_key_value_cache_is_what_the_sampler_has_left() -> None:
    config = compose([*SEVEN])
    work, shape = Work.of(config, 8), shape_of(config.model)
    assert token_cache(work, shape) == 2 * 28 * 4 * 128 * 2  # 57,344 bytes
    aside = 8192 * 2 * 18_944 * 2 + 12 * 512 * 152_064 + 2 * GIB
    assert cache_bytes(work, shape, DEVICE) == 0.5 * DEVICE - 2 * P - aside
    on_cpu = Work.of(compose(["hardware=cpu", "hardware.sampler_memory=0.25"]), 1)
    assert cache_bytes(on_cpu, shape, DEVICE) == 2**28
    two = Work.of(compose([*SEVEN, "hardware.tensor_parallel=2"]), 8)
    assert token_cache(two, shape) == 2 * 28 * 4 * 128 * 2 / 2


def test_a_cpu_keeps_everything_and_no_master_in_fp32() -> None:
    config = compose(["log.kl_every=0"])
    work, shape = Work.of(config, 1), shape_of(config.model)
    told = memory(work, shape, longest(config), 16e9)
    device = {part.name: part.bytes for part in told.device}
    assert device["sampler, KV cache"] == always(GIB / 2)
    assert device["policy, fp32 master"] == always(0) and device["policy, moments"] == always(8 * shape.parameters)
    assert device["policy, optimizer at work"] == always(0)
    assert told.peak == told.at("update")
