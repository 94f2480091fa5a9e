"""The options of a run, frozen and checked once at the border; inside the package there are no loose configs."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from knnprompt_jax import errors, lm
from knnprompt_jax.classifiers import knn_prompting
from knnprompt_jax.datastore import dense, representations
from knnprompt_jax.prompts import layout


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """What to classify with what; see configs/knn_prompting.py for each option's meaning."""

    model: str = ""
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
    train_csv: str = ""
    eval_csv: str = ""
    hub: bool = False
    split: str = "dev_subsample"
    restore_dropped: bool = False
    drop_duplicates: bool = False
    shots: int = 32
    demo_shots: int = -1
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    truncation: str = "left"
    label_token: str = "last"
    k: int = knn_prompting.K
    direction: str = "forward"
    representation: str = "distribution"
    tie_break: str = "lowest"
    centroid: str = "none"
    output: str = "results"

    def __post_init__(self) -> None:
        choices = {
            "dtype": lm.DTYPES,
            "truncation": layout.TRUNCATIONS,
            "label_token": layout.LABEL_TOKENS,
            "direction": knn_prompting.DIRECTIONS,
            "representation": representations.REPRESENTATIONS,
            "tie_break": knn_prompting.TIE_BREAKS,
            "centroid": dense.CENTROIDS,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise errors.UserError(f"{name}={getattr(self, name)!r}: choose from {', '.join(allowed)}")
        for name, least in (("shots", 1), ("k", 1), ("demo_shots", -1), ("batch", 0)):
            if getattr(self, name) < least:
                raise errors.UserError(f"{name}={getattr(self, name)}: at least {least} is needed")
        if bool(self.train_csv) != bool(self.eval_csv):
            raise errors.UserError("train_csv and eval_csv go together: give both files or neither")
        if not self.seeds:
            raise errors.UserError("seeds=(): at least one seed is needed")


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
