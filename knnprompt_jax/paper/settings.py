"""The options of a grid, frozen and checked once at the border; see base.py for each one's meaning."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.methods import knn_prompting, registry
from knnprompt_jax.models import shipped
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.tasks import catalogue

EXPERIMENTS = (
    *("max_shots", "few_shot", "low_resource", "data_scaling", "prompt_compose", "upper_bound", "robustness"),
    *("split_strategy", "distance", "prior_reliance", "choice_of_k", "imbalance", "whole_vs_partial", "fine_tuning"),
    *("case_study", "sst2"),
)
FULL, FEW_SHOT = REGIMES = ("full", "few-shot")
PRIOR_SETTINGS = ("A", "B", "C")


@dataclasses.dataclass(frozen=True)
class GridSettings:
    """Which runs a table or figure is made of, and how they are made.

    Beside base.py's options: `prior_settings`, `shares` of the rarer class, `anchor_shots` and `demo_shots`, `contexts` and
    `tokenizer`, each for the experiments whose configs have them.
    """

    experiment: str
    tasks: str
    models: str
    methods: str
    seeds: tuple[int, ...]
    shots: tuple[int, ...]
    few_shots: tuple[int, ...] = ()
    regime: str = FULL
    direction: str = "released"
    rows: int = 0
    shard: str = "1/1"
    output: str = "results"
    prior_settings: str = ""
    shares: tuple[float, ...] = ()
    anchor_shots: tuple[int, ...] = ()
    demo_shots: tuple[int, ...] = ()
    contexts: tuple[int, ...] = ()
    tokenizer: str = ""
    data_dir: str = ""
    hub: bool = False
    split: str = "dev_subsample"
    restore_dropped: bool = True
    drop_duplicates: bool = False
    label_token: str = "last"
    revision: str = ""
    dtype: str = "float32"
    batch: int = 0
    mesh_data: int = 0
    mesh_model: int = 1
    distributed_auto: bool = False
    distributed_address: str = ""
    distributed_num_processes: int = 0
    distributed_process_id: int = 0
    options: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, choices in (
            ("experiment", EXPERIMENTS),
            ("regime", REGIMES),
            ("direction", knn_prompting.DIRECTIONS),
        ):
            if getattr(self, name) not in choices:
                raise errors.UserError(f"{name}={getattr(self, name)!r}: choose from {', '.join(choices)}")
        for name in ("shots", "few_shots", "anchor_shots", "demo_shots", "contexts"):
            if any(number < 1 for number in getattr(self, name)):
                raise errors.UserError(f"{name}={getattr(self, name)}: each must be at least 1")
        if any(not 0 < share <= 0.5 for share in self.shares):
            raise errors.UserError(f"shares={self.shares}: each must be above 0 and at most 0.5")
        if self.rows < 0:
            raise errors.UserError(f"rows={self.rows}: choose 1 or more, or 0 for all rows")
        for name in self.prior_setting_names:
            if name not in PRIOR_SETTINGS:
                raise errors.UserError(
                    f"prior_settings={self.prior_settings!r}: choose from {', '.join(PRIOR_SETTINGS)}"
                )
        for name in self.task_names:
            catalogue.get(name)
        for name in self.method_names:
            registry.get(name)
        self.shard_numbers  # noqa: B018 (raises)
        self.job(catalogue.DEMO)

    @property
    def task_names(self) -> list[str]:
        return _names(self.tasks)

    @property
    def model_names(self) -> list[str]:
        """What `hub.resolve` takes."""
        return _names(self.models)

    @property
    def method_names(self) -> list[str]:
        return _names(self.methods)

    @property
    def prior_setting_names(self) -> list[str]:
        return _names(self.prior_settings)

    @property
    def shard_numbers(self) -> tuple[int, int]:
        """Which shard this is, from 0, and how many there are."""
        found = re.fullmatch(r"(\d+)/(\d+)", self.shard)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise errors.UserError(f"shard={self.shard!r}: write it as i/n with i from 1 to n, as in 3/8")
        return int(found[1]) - 1, int(found[2])

    def job(self, task: str, model: str = shipped.DEFAULT) -> settings_lib.JobSettings:
        """The settings of one task and model that rows and weights are loaded by."""
        own = {field.name for field in dataclasses.fields(self)} - {"seeds", "shots", "demo_shots"}
        shared = [field.name for field in dataclasses.fields(settings_lib.JobSettings) if field.name in own]
        return settings_lib.JobSettings(task=task, model=model, **{name: getattr(self, name) for name in shared})


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
