"""The options of a run, frozen and checked once at the border; inside the package there are no loose configs."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.methods import knn_prompting
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import shipped
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import building, codec, dense, representations, stores

PLACEMENTS = ("device", "host")


@dataclasses.dataclass(frozen=True)
class JobSettings:
    """What to classify with which model, and on what; see configs/knn_prompting.py for each option's meaning."""

    model: str = shipped.DEFAULT
    revision: str = ""
    dtype: str = "float32"
    batch: int = 0
    mesh_data: int = 0
    mesh_model: int = 1
    distributed_auto: bool = False
    distributed_address: str = ""
    distributed_num_processes: int = 0
    distributed_process_id: int = 0
    task: str = "demo"
    data_dir: str = ""
    train_file: str = ""
    eval_file: str = ""
    encoding: str = "utf-8"
    hub: bool = False
    split: str = "dev_subsample"
    restore_dropped: bool = False
    drop_duplicates: bool = False
    shots: int = 32
    demo_shots: int = -1
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    truncation: str = "left"
    label_token: str = "last"
    output: str = "results"

    def __post_init__(self) -> None:
        self._check_choices(dtype=config_lib.DTYPES, truncation=layout.TRUNCATIONS, label_token=layout.LABEL_TOKENS)
        self._check_least(shots=1, demo_shots=-1, batch=0)
        if bool(self.train_file) != bool(self.eval_file):
            raise errors.UserError("train_file and eval_file go together: give both files or neither")
        if not self.model:
            raise errors.UserError(f"model='': choose {', '.join(shipped.SHIPPED)}, a folder, a file or a Hub name")
        if not self.seeds:
            raise errors.UserError("seeds=(): at least one seed is needed")

    def _check_choices(self, **choices: Collection[str]) -> None:
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise errors.UserError(f"{name}={getattr(self, name)!r}: choose from {', '.join(allowed)}")

    def _check_least(self, **numbers: float) -> None:
        for name, least in numbers.items():
            if getattr(self, name) < least:
                raise errors.UserError(f"{name}={getattr(self, name)}: at least {least} is needed")


@dataclasses.dataclass(frozen=True)
class DatastoreSettings(JobSettings):
    """Those of a job with a datastore: how a new one is made, where it lies, and the folder of a saved one."""

    datastore_kind: str = "dense"
    datastore_key_dtype: str = "float32"
    datastore_placement: str = "device"
    datastore_memory_mb: float = stores.MEMORY_MB
    direction: str = "forward"
    store: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_choices(
            datastore_kind=stores.KINDS,
            datastore_key_dtype=codec.KEY_DTYPES,
            datastore_placement=PLACEMENTS,
            direction=codec.DIRECTIONS,
        )
        self._check_least(datastore_memory_mb=1)
        if self.store and len(self.seeds) > 1:
            raise errors.UserError(
                f"seeds={self.seeds}: a saved store has the demonstrations of one seed: give that one"
            )


@dataclasses.dataclass(frozen=True)
class RunSettings(DatastoreSettings):
    """The main job's: kNN Prompting in one of its variants."""

    k: int = knn_prompting.K
    representation: str = "distribution"
    tie_break: str = "lowest"
    centroid: str = "none"
    datastore_approximate_recall: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_choices(
            representation=representations.REPRESENTATIONS,
            tie_break=knn_prompting.TIE_BREAKS,
            centroid=dense.CENTROIDS,
        )
        self._check_least(k=1)
        if not 0 <= self.datastore_approximate_recall <= 1:
            raise errors.UserError(
                f"datastore_approximate_recall={self.datastore_approximate_recall}: choose from 0 (exact search) to 1"
            )


@dataclasses.dataclass(frozen=True)
class BuildSettings(DatastoreSettings):
    """Those of building, or changing, a saved datastore; see configs/build_datastore.py for each option's meaning."""

    seeds: tuple[int, ...] = (1,)
    chunk: int = building.CHUNK
    overwrite: bool = False
    append: str = ""
    remove_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_least(chunk=1)
        if not self.store:
            raise errors.UserError("store='': give the folder of the datastore, --config.store=FOLDER")


def from_config(kind: type, config: Mapping[str, Any]) -> Any:
    """The frozen settings of `kind` from a loose config, whose options `group.name` are the fields `group_name`.

    Raises:
        UserError: an option that `kind` does not have (with its choices), or a value it refuses.
    """
    fields = {field.name for field in dataclasses.fields(kind)}
    config = dict(_flatten(config))
    for name in config:
        if name not in fields:
            raise errors.UserError(f"unknown option {name!r}: choose from {', '.join(sorted(fields))}")
    return kind(**{name: tuple(value) if isinstance(value, list | tuple) else value for name, value in config.items()})


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if hasattr(value, "items"):  # A ConfigDict is no Mapping.
            yield from _flatten(value, f"{prefix}{name}_")
        else:
            yield prefix + name, value
