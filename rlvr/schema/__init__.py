"""All configuration keys, torch-free: type, unit, range and documentation; values live in `conf/`."""

from rlvr.schema.algorithm import AlgorithmConfig, DAPOConfig, GRPOConfig
from rlvr.schema.model import ModelConfig, TinyConfig

# Which class types `algorithm.*` and `model.*`, by the `schema/<name>` that the YAML asks for.
ALGORITHM_SCHEMAS: dict[str, type[AlgorithmConfig]] = {"grpo": GRPOConfig, "dapo": DAPOConfig}
MODEL_SCHEMAS: dict[str, type[ModelConfig]] = {"hub": ModelConfig, "tiny": TinyConfig}
