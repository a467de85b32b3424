"""The root of `rlvr train`: plain sections, and the checks that span sections."""

from dataclasses import dataclass

from rlvr.keys import ConfigError, UsedIf, key
from rlvr.schema.algorithm import AlgorithmConfig, AStarPOConfig, MovingReferenceConfig
from rlvr.schema.data import DataConfig, VerifyConfig, check_retire
from rlvr.schema.hardware import HardwareConfig
from rlvr.schema.health import HealthConfig, check_health
from rlvr.schema.machine import PlanConfig
from rlvr.schema.model import ModelConfig
from rlvr.schema.slurm import SlurmConfig
from rlvr.schema.stages import check_stages
from rlvr.schema.triggers import StageConfig, TriggerConfig, check_triggers


@dataclass(kw_only=True)
class RunConfig:
    """Identity of the run."""

    name: str = key("name of the run; its directory is runs/<name> unless hydra.run.dir says otherwise")
    resume: str = key(
        "auto: go on from the newest complete checkpoint of the run directory; never; or the path of a checkpoint"
    )
    allow_change: list[str] = key(
        "keys and sections that may have changed since the checkpoint, though they say which experiment it is, such as "
        "[data]; [reference] accepts another reference policy",
        empty=list,
    )
    max_hours: float | None = key(
        "hours after which a start of the run saves and leaves, to be started again; a time limit of SLURM counts too",
        unit="hours",
        above=0,
    )
    margin: float = key(
        "kept free at the end of the job, beside the measured time of a step and of a checkpoint", unit="seconds", low=0
    )


@dataclass(kw_only=True)
class RolloutConfig:
    """How completions are sampled for training."""

    prompts: int = key("prompts per step, over all ranks", unit="prompts", low=1)
    max_tokens: int = key("length limit of a completion", unit="tokens", low=1)
    temperature: float = key("sampling temperature; log-probs are taken at it on both sides", above=0)
    top_p: float = key(
        "nucleus sampling; training refuses anything but 1, since importance ratios would be wrong", low=1, high=1
    )
    top_k: int = key("top-k sampling; training refuses anything but 0 (off)", low=0, high=0)
    max_rounds: int = key("rounds of sampling per step, where the algorithm rejects prompts and asks for others", low=1)
    oversample: float = key("prompts drawn per prompt that is still missing, from the second round on", low=1)
    async_steps: int = key(
        "steps that rollouts are drawn ahead: 0 draws a step's from the newest policy; 1 draws the next step's while "
        "this one is learned from, from the policy of one step before",
        unit="steps",
        choices=(0, 1),
    )
    exhausted: str = key(
        "after max_rounds with prompts still missing: train on the prompts there are (smaller), or stop (error)",
        choices=("smaller", "error"),
    )
    reference_seed: int = key("seed of the reference's completions; runs with the same one share them", low=0)
    reference_store: bool = key(
        "keep completions of the reference that the run starts with in the user's cache, and reuse those found there"
    )
    reference_prefetch: int = key(
        "steps whose prompts the reference completes at once, so that the sampler changes weights less often; 1 for "
        "the current step alone",
        unit="steps",
        low=1,
        used_if=UsedIf("rollout.reference_store=true", lambda c: c.reference_store),
    )


@dataclass(kw_only=True)
class SurveyConfig:
    """What the reference makes of every training prompt, before training."""

    count: int | None = key(
        "completions of the reference per training prompt; null for none, or for as many as the algorithm asks for",
        unit="sequences",
        low=1,
    )
    extra: int = key("more completions of the prompts that none of these solved; 0 for none", unit="sequences", low=0)
    only: bool = key("end after the survey, without training; `rlvr survey` sets it")


@dataclass(kw_only=True)
class OptimConfig:
    """AdamW and its learning rate."""

    lr: float = key("peak learning rate", above=0)
    critic_lr: float = key("peak learning rate of a critic, where the algorithm has one", above=0)
    warmup: int = key("updates of linear warm-up", unit="updates", low=0)
    schedule: str = key("learning rate after the warm-up", choices=("constant", "linear", "cosine"))
    beta1: float = key("AdamW's first decay", low=0, high=1)
    beta2: float = key("AdamW's second decay", low=0, high=1)
    eps: float = key("AdamW's epsilon", above=0)
    weight_decay: float = key("decoupled weight decay", low=0)
    clip_grad: float = key("largest norm of the gradient; 0 for no clipping", low=0)


@dataclass(kw_only=True)
class ValidationConfig:
    """Held-out accuracy while training; the only numbers that may choose a checkpoint."""

    every: int = key(
        "steps between validations; 0 for none; step 0 and the last step are always validated", unit="steps", low=0
    )
    rows: int = key("most rows of the validation role; 0 for all", unit="rows", low=0)
    samples: int = key("completions per problem (avg@k)", unit="sequences", low=1)
    temperature: float = key("sampling temperature; 0 is greedy", low=0)
    top_p: float = key("nucleus sampling", above=0, high=1)
    max_tokens: int | None = key("length limit; null is that of the rollouts", unit="tokens", low=1)
    test: bool = key("report the test role once, at the end")


@dataclass(kw_only=True)
class CheckpointConfig:
    """What is kept on disk."""

    every: int = key("steps between checkpoints; 0 for one at the end only", unit="steps", low=0)
    keep: int = key("newest checkpoints that are kept", low=1)
    best: bool = key("also keep the checkpoint of the highest validation accuracy")
    milestones: int = key("steps between checkpoints that are kept for ever; 0 for none", unit="steps", low=0)
    background: bool = key("train on while a checkpoint is being written, as soon as it is copied to host memory")
    allow_missing: list[str] = key(
        "parts that a checkpoint to resume from may lack; they begin anew",
        choices=("optimizer", "critic"),
        empty=list,
    )
    model: bool = key("write the final policy as a Hugging Face model")


@dataclass(kw_only=True)
class LogConfig:
    """What is recorded, beside metrics.jsonl, which always is."""

    wandb: str = key("auto: online if logged in, else offline", choices=("auto", "online", "offline", "off"))
    project: str = key("Weights & Biases project")
    samples: int = key("rows of the sample table per validation", unit="rows", low=0)
    rollouts: bool = key("write all rollouts to rollouts/*.jsonl")
    kl_every: int = key(
        "steps between measurements of the KL to the reference, where the algorithm does not need it anyway; 0 for "
        "never, which spares the memory of a reference model",
        unit="steps",
        low=0,
    )


@dataclass(kw_only=True)
class SweepConfig:
    """What compares the members of a sweep (`-m`)."""

    objective: str = key(
        "what a member is worth, and what an optimising sweeper maximises: its best or its last validation accuracy "
        "after a step; never a result on the test role",
        choices=("best", "last"),
    )
    fail_fast: bool = key(
        "run the members one after the other and none after one that failed; start none if one of them is refused"
    )


@dataclass(kw_only=True)
class TrainConfig:
    """All of `rlvr train`."""

    steps: int = key("rollout steps of the run", unit="steps", low=1)
    seed: int = key("seed of prompt order, sampling and initialisation", low=0)
    run: RunConfig = key("identity of the run")
    algorithm: AlgorithmConfig = key("what is computed")
    model: ModelConfig = key("which language model")
    data: DataConfig = key("what is learned from")
    hardware: HardwareConfig = key("what it runs on")
    slurm: SlurmConfig = key("how it is queued")
    rollout: RolloutConfig = key("sampling for training")
    survey: SurveyConfig = key("what is learnable")
    verify: VerifyConfig = key("judging of answers")
    optim: OptimConfig = key("optimizer")
    validation: ValidationConfig = key("held-out accuracy")
    checkpoint: CheckpointConfig = key("what is kept")
    log: LogConfig = key("what is recorded")
    health: HealthConfig = key("what a run may not become")
    sweep: SweepConfig = key("comparing runs")
    plan: PlanConfig = key("what `rlvr plan` takes for granted")
    triggers: dict[str, TriggerConfig] = key("named conditions on metrics, and the events they ask for", empty=dict)
    stages: dict[str, StageConfig] = key("named parts of the run, in this order, each with its changes", empty=dict)


@dataclass(frozen=True)
class Arithmetic:
    """The batch numbers that follow from a config and a world size, all per step unless said otherwise."""

    prompts: int
    sequences: int
    updates: int
    prompts_per_update: int
    sequences_per_update: int
    prompts_per_rank: int
    sequences_per_rank_update: int
    total_updates: int


def arithmetic(config: TrainConfig, world_size: int) -> Arithmetic:
    """Derive the batch numbers.

    Raises:
        ConfigError: if prompts do not divide among ranks and mini-batches.
    """
    algorithm, prompts = config.algorithm, config.rollout.prompts
    if prompts % (world_size * algorithm.minibatches):
        step = world_size * algorithm.minibatches
        near = max(step, round(prompts / step) * step)
        raise ConfigError(
            f"rollout.prompts={prompts} does not divide among {world_size} rank(s) x "
            f"algorithm.minibatches={algorithm.minibatches}; use a multiple of {step}, for example "
            f"rollout.prompts={near}"
        )
    updates = algorithm.minibatches * algorithm.epochs
    return Arithmetic(
        prompts=prompts,
        sequences=prompts * algorithm.group,
        updates=updates,
        prompts_per_update=prompts // algorithm.minibatches,
        sequences_per_update=prompts * algorithm.group // algorithm.minibatches,
        prompts_per_rank=prompts // world_size,
        sequences_per_rank_update=prompts * algorithm.group // algorithm.minibatches // world_size,
        total_updates=updates * config.steps,
    )


def check_across(config: TrainConfig, world_size: int) -> None:
    """Contradictions between sections, in the run as a whole and in each of its stages.

    Raises:
        ConfigError: naming both keys and a way out.
    """
    _check_sections(config, world_size)
    check_retire(config.data)
    check_triggers(config)
    check_health(config)
    check_stages(config, lambda stage: _check_sections(stage, world_size))


def _check_sections(config: TrainConfig, world_size: int) -> None:
    arithmetic(config, world_size)
    hardware, longest = config.hardware, config.data.max_prompt_tokens + config.rollout.max_tokens
    if hardware.tokens_per_micro_batch < longest:
        raise ConfigError(
            f"hardware.tokens_per_micro_batch={hardware.tokens_per_micro_batch} cannot hold one sequence of "
            f"data.max_prompt_tokens + rollout.max_tokens = {longest} tokens"
        )
    if world_size % hardware.tensor_parallel:
        raise ConfigError(
            f"hardware.tensor_parallel={hardware.tensor_parallel} does not divide the {world_size} rank(s)"
        )
    if hardware.device == "cpu" and hardware.dtype == "bf16":
        raise ConfigError(
            "hardware.dtype=bf16 with hardware.device=cpu: bf16 matmuls are over 10 x slower there; use fp32"
        )
    if hardware.attention == "flash_attention_2" and (hardware.device != "cuda" or hardware.dtype != "bf16"):
        raise ConfigError(
            "hardware.attention=flash_attention_2 needs hardware.device=cuda and hardware.dtype=bf16; use packed"
        )
    if not config.data.sources:
        raise ConfigError("data.sources is empty: name at least one source")
    weights = [source.weight for source in config.data.sources.values() if source.train is not None]
    if weights and not any(weights):
        raise ConfigError("data.sources: every source with rows to train on has weight 0")
    if config.validation.temperature == 0 and config.validation.samples > 1:
        raise ConfigError(
            "validation.samples > 1 with validation.temperature=0 draws the same greedy answer again and again"
        )
    _check_survey(config)
    _check_async(config, world_size)
    config.algorithm.check_across(config)


def _check_async(config: TrainConfig, world_size: int) -> None:
    """Whether a thread may sample beside the update; the algorithm has more to say."""
    if not config.rollout.async_steps:
        return
    if world_size > 1:
        raise ConfigError(
            f"rollout.async_steps=1 on {world_size} ranks: sampling and learning would make their collectives in no "
            "common order, and ranks wait for each other for ever; use hardware.ranks=1, or rollout.async_steps=0"
        )
    if config.hardware.device == "cuda" and config.hardware.sampler_sleep:
        raise ConfigError(
            "rollout.async_steps=1 with hardware.sampler_sleep=true: a sampler that sleeps while the learner trains "
            "cannot sample then; use hardware.sampler_sleep=false, or rollout.async_steps=0"
        )


def _check_survey(config: TrainConfig) -> None:
    algorithm, survey, ahead = config.algorithm, config.survey, config.rollout.reference_prefetch
    own = isinstance(algorithm, AStarPOConfig)
    if own and survey.count is not None:
        raise ConfigError(f"survey.count is set, but algorithm={algorithm.name} has its own algorithm.survey_count")
    if not own and survey.count is None and (survey.only or survey.extra):
        raise ConfigError(f"algorithm={algorithm.name} asks for no survey: give survey.count, such as survey.count=8")
    if isinstance(algorithm, MovingReferenceConfig) and 0 < algorithm.reset_every < ahead:
        raise ConfigError(
            f"rollout.reference_prefetch={ahead} is more than algorithm.reset_every={algorithm.reset_every}: what is "
            "drawn ahead of a reset would be thrown away"
        )
