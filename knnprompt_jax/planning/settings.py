"""The options of a plan."""

import dataclasses

from knnprompt_jax import options
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import distances
from knnprompt_jax.store import store as store_lib


@dataclasses.dataclass(frozen=True)
class PlannedMesh(settings_lib.MeshOptions):
    """The meshes that are planned for."""

    model: int = options.option(
        0, "Devices over which each copy of the weights is split; 0: every number that divides, each a row.", least=0
    )


@dataclasses.dataclass(frozen=True)
class PlanSettings(settings_lib.DrawOptions, settings_lib.RowOptions, settings_lib.ModelOptions):
    """Reading a task's anchors and searching them, on devices that need not be there."""

    topology: str = options.option(
        "v5e:2x4",
        "The devices: v4:2x2x1, v5e:4x4, v5p:2x2x4, v6e:2x4 …, h100:8 (one host's), cpu:8 (to try this without a "
        "compiler for others); another name lists them all.",
        needed=True,
    )
    compile: bool = options.option(True, "False: memory by arithmetic alone, in a second; no time is estimated.")
    tokenizer: str = options.option(
        "", "A folder with the tokenizer that counts tokens; empty: the model's own, or GPT-2's where it cannot be had."
    )
    anchors: int = options.option(0, "As many anchors, of the task's lengths; 0: those that are drawn.", least=0)
    queries: int = options.option(256, "Texts to classify, of the same lengths.", least=1)
    k: int = options.option(3, "Neighbours per query.", least=1)
    distance: str = options.option("forward", "By which anchors are searched.", choices=distances.DISTANCES)
    seed: int = options.option(1, "Of the draw of train rows.", least=0)
    output: str = options.option("results", "Folder of the JSON file.", needed=True)
    mesh: settings_lib.MeshOptions = options.group(PlannedMesh)
    datastore: store_lib.StoreOptions = options.group(store_lib.StoreOptions)
