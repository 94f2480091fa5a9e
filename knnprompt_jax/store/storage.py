"""A store's arrays in a folder, written by orbax and restored to any devices.

Several processes need a file system that all of them see.
"""

import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax import parallel
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.settings import stores
from knnprompt_jax.store import placement
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.store.manifest import Manifest

ARRAYS = "arrays"


def arrays_of(store: store_lib.Store) -> dict[str, Any]:
    """Return all arrays of a store; keys stay where they lie and include padding."""
    keys = {name: array for name, array in vars(store.anchors.keys).items() if array is not None}
    return {"keys": keys, "constants": store.codec.constants, "labels": store.labels_N, "ids": store.ids_N}


def write(folder: pathlib.Path, arrays: Mapping[str, Any]) -> None:
    """Write the arrays into the folder; every process of a run calls this."""
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(folder / ARRAYS, dict(arrays))


def load(
    folder: pathlib.Path, manifest: Manifest, head: head_lib.Head, mesh: Mesh | None, options: stores.StoreOptions
) -> store_lib.Store:
    """Return the saved store on the default device, split by row over a mesh, or in host memory.

    Args:
        head: the head of the model that made the anchors.
        options: the placement and memory of the store; the rest is as saved.
    """
    arrays = _restore(folder / ARRAYS, manifest.arrays, mesh, options.on_host)
    place = functools.partial(parallel.put, mesh=mesh, spec=P()) if mesh else jnp.asarray
    constants = {name: place(array) for name, array in arrays["constants"].items()}
    codec = store_lib.KINDS[manifest.kind].make(
        parallel.replicate(head),
        manifest.provenance.label_ids,
        constants,
        **manifest.options,
        deterministic=manifest.provenance.deterministic,
    )
    anchors = placement.Anchors(codec.keys_type(**arrays["keys"]), arrays["labels"])
    return store_lib.Store.placed(codec, anchors, arrays["ids"], mesh, options)


def _restore(folder: pathlib.Path, arrays: Mapping[str, Any], mesh: Mesh | None, on_host: bool) -> dict[str, Any]:
    """Return the saved arrays; keys go straight to their devices, padded to the number of rows needed there."""
    num_anchors = arrays["ids"].shape[0]
    restore_args = jax.tree.map(lambda array: ocp.RestoreArgs(restore_type=np.ndarray, dtype=array.dtype), dict(arrays))
    if not on_host:
        sharding = NamedSharding(mesh, P(parallel.AXES)) if mesh else SingleDeviceSharding(jax.local_devices()[0])
        num_rows = placement.filled_up(num_anchors, mesh)
        restore_args["keys"] = jax.tree.map(
            lambda array: ocp.ArrayRestoreArgs(
                sharding=sharding, global_shape=(num_rows, *array.shape[1:]), dtype=array.dtype, strict=False
            ),
            arrays["keys"],
        )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        restored = checkpointer.restore(folder, item=dict(arrays), restore_args=restore_args)
    if on_host:
        restored["keys"] = placement.take(restored["keys"], slice(0, num_anchors))
    return restored
