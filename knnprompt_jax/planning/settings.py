"""The options of `plan`."""

import dataclasses
import pathlib

from knnprompt_jax import options
from knnprompt_jax.classifier import saving
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import shipped
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import distances
from knnprompt_jax.store import store as store_lib


@dataclasses.dataclass(frozen=True)
class PlannedMesh(settings_lib.MeshOptions):
    """The meshes to plan for."""

    model: int = options.option(
        0, "Devices over which each copy of the weights is split; 0: a row for every possible number.", least=0
    )


@dataclasses.dataclass(frozen=True)
class WorkloadOptions(settings_lib.DrawOptions, settings_lib.RowOptions, settings_lib.ModelOptions):
    """A model, a task's anchors as its prompts, and a search of them."""

    tokenizer: str = options.option(
        "", "Folder of the tokenizer that counts tokens; empty: the model's own, or smollm2's if that is not available."
    )
    seed: int = options.option(1, "Seed of the draw of train rows.", least=0)
    distance: str = options.option("forward", "Distance of the search.", choices=distances.DISTANCES)
    output: str = options.option("plans", "Folder of the JSON file.", needed=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        saving.check_outside(pathlib.Path(self.output))


@dataclasses.dataclass(frozen=True)
class PlanSettings(WorkloadOptions):
    """Reading a task's anchors and searching them, on devices that need not exist."""

    model: str = options.option(shipped.DEFAULT, settings_lib.MODEL_HELP, needed=True)
    dtype: str = options.option("float32", "The dtype of weights and activations.", choices=config_lib.DTYPES)
    topology: str = options.option(
        "v5e:2x4",
        "Devices: v4:2x2x1, v5e:4x4, v5p:2x2x4, v6e:2x4, h100:8 (one host) or cpu:8; an unknown name lists them all.",
        needed=True,
    )
    compile: bool = options.option(
        True, "Compile the programs for a TPU to get the exact memory; False: arithmetic alone, in a second."
    )
    anchors: int = options.option(0, "Number of anchors, with the task's lengths; 0: the drawn anchors.", least=0)
    queries: int = options.option(256, "Number of texts to classify, with the same lengths.", least=1)
    mesh: settings_lib.MeshOptions = options.group(PlannedMesh)
    datastore: store_lib.StoreOptions = options.group(store_lib.StoreOptions)
