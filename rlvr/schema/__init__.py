"""All configuration keys, torch-free: type, unit, range and documentation; values live in `conf/`."""

from rlvr.schema.algorithm import (
    AlgorithmConfig,
    ARMORConfig,
    ARMORWithQAEConfig,
    AStarPOConfig,
    CISPOConfig,
    DAPOConfig,
    GRPOConfig,
    GSPOConfig,
    PPOConfig,
    ProRLConfig,
    QAEConfig,
    REBELConfig,
    ReinforcePPConfig,
    RLOOConfig,
)
from rlvr.schema.model import ModelConfig, TinyConfig

# Which class types `algorithm.*` and `model.*`, by the `schema/<name>` that the YAML asks for.
ALGORITHM_SCHEMAS: dict[str, type[AlgorithmConfig]] = {
    "grpo": GRPOConfig,
    "dapo": DAPOConfig,
    "armor": ARMORConfig,
    "armor_qae": ARMORWithQAEConfig,
    "astar_po": AStarPOConfig,
    "cispo": CISPOConfig,
    "gspo": GSPOConfig,
    "ppo": PPOConfig,
    "prorl": ProRLConfig,
    "qae": QAEConfig,
    "rebel": REBELConfig,
    "reinforce_pp": ReinforcePPConfig,
    "rloo": RLOOConfig,
}
MODEL_SCHEMAS: dict[str, type[ModelConfig]] = {"hub": ModelConfig, "tiny": TinyConfig}
