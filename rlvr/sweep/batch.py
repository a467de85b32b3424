"""Between a sweeper of Hydra and its launcher: what the sweeper asks for passes through here, whichever the two are.

Hydra has no hook at this place, and its sweepers refuse a whole sweep for one member that cannot be composed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from rlvr.config import given_keys, load, refusals
from rlvr.keys import ConfigError
from rlvr.schema.train import TrainConfig

Overrides = Sequence[str]
OPTUNA = {  # `hydra/sweeper=optuna`, with our values: Hydra lets no YAML of ours bear a plugin's name
    "defaults": [{"sampler": "seeded_tpe"}],
    "_target_": "hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper",
    "direction": "maximize",
    "n_trials": 20,
    "n_jobs": 1,  # members that are chosen, and handed to the launcher, at once
    "max_failure_rate": 1.0,  # a member that failed says nothing of the others
    "storage": None,
    "study_name": None,
    "search_space": None,
    "custom_search_space": None,
    "params": None,
}
FIXED = ("launcher", "sweeper")  # sections of `hydra` that are read before there are members


class TooLate(ConfigError):
    """The configuration of a member chooses how the sweep is run."""


@dataclass(frozen=True)
class Batch:
    """Members that a sweeper wants to be run, at once as far as it is concerned."""

    members: Sequence[tuple[str, ...]]  # the overrides of each
    first: int  # Hydra's number of the first
    directory: Path  # of the sweep
    compose: Callable[[Overrides], DictConfig]
    launch: Callable[[Sequence[Overrides], int], Any]  # by the launcher that was asked for; blocks
    master: DictConfig  # the configuration in which nothing swept is set

    def config(self, overrides: Overrides) -> TrainConfig:
        """The checked configuration of a member.

        Raises:
            TooLate: if it is about the sweep itself.
            ConfigError: if `rlvr train OVERRIDES` would refuse.
        """
        with refusals():
            cfg = self.compose(overrides)
            for section in FIXED:
                if _plain(cfg, section) != _plain(self.master, section):
                    raise TooLate(
                        f"hydra.{section} is set by one of {' '.join(overrides)}, which is too late for a sweep: give "
                        f"hydra/{section}=... on the command line"
                    )
            with read_write(cfg), open_dict(cfg):
                del cfg["hydra"]
        return load(cfg, given_keys(overrides))


def _plain(cfg: DictConfig, section: str) -> Any:
    return OmegaConf.to_container(cfg.hydra[section], resolve=False)


class CheckedLauncher(Launcher):
    """Hands every batch to `run`, and its values back to the sweeper."""

    def __init__(self, inner: Launcher, run: Callable[[Batch], Sequence[float | None]]) -> None:
        self.inner, self.run = inner, run

    def setup(self, **kwargs: Any) -> None:
        """Keep what members are composed with; the arguments are those of Hydra's launchers."""
        self.config, self.context = kwargs["config"], kwargs["hydra_context"]
        direction = OmegaConf.select(self.config, "hydra.sweeper.direction")
        if direction is not None and getattr(direction, "name", direction) != "maximize":
            raise ConfigError(f"hydra.sweeper.direction={direction}: an accuracy is maximised")

    def launch(self, job_overrides: Sequence[Overrides], initial_job_idx: int) -> Sequence[JobReturn]:
        """Hydra's interface.  A member without a value counts as done: what it is to the sweeper is no error here."""
        batch = Batch(
            members=[tuple(overrides) for overrides in job_overrides],
            first=initial_job_idx,
            directory=Path(self.config.hydra.sweep.dir),
            compose=lambda overrides: self.context.config_loader.load_sweep_config(self.config, list(overrides)),
            launch=self.inner.launch,
            master=self.config,
        )
        told = zip(batch.members, self.run(batch), strict=True)
        return [JobReturn(overrides=o, status=JobStatus.COMPLETED, _return_value=value) for o, value in told]


@contextmanager
def intercepted(run: Callable[[Batch], Sequence[float | None]]) -> Iterator[None]:
    """While this is open, sweepers of Hydra get their batches run by `run`, which returns a value per member."""
    Plugins.instance()  # those that are installed store their configurations now, before ours
    ConfigStore.instance().store(group="hydra/sweeper", name="optuna", node=OPTUNA, provider="rlvr")
    instantiate, validate = Plugins.instantiate_launcher, Sweeper.validate_batch_is_legal

    def wrapped(self: Plugins, **kwargs: Any) -> Launcher:
        launcher = CheckedLauncher(instantiate(self, **kwargs), run)
        launcher.setup(**kwargs)
        return launcher

    Plugins.instantiate_launcher = wrapped  # type: ignore[method-assign, assignment]
    Sweeper.validate_batch_is_legal = lambda self, batch: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Plugins.instantiate_launcher = instantiate  # type: ignore[method-assign]
        Sweeper.validate_batch_is_legal = validate  # type: ignore[method-assign]
