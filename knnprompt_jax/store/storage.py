"""Datastores in folders: written by orbax, whole or not at all, with a manifest against which everything is checked.

Nothing in such a folder is code, and none is run. Several processes need a file system that all of them see.
"""

import dataclasses
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

from knnprompt_jax import errors, files, parallel
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import manifest as manifest_lib
from knnprompt_jax.store import placement, searching, stores

ARRAYS = "arrays"


def save(
    folder: pathlib.Path,
    store: stores.Store,
    provenance: manifest_lib.Provenance,
    overwrite: bool = False,
    anchors: str = "",
) -> None:
    """Writes the store into a folder. Where a run has several processes all of them call this.

    `anchors` may be a hash of what the anchors were made from.

    Raises:
        UserError: the folder exists already and is not to be overwritten.
    """
    folder = folder.absolute()
    if recovered(folder) and not overwrite:
        raise errors.UserError(f"{folder}: exists already; choose another folder, or overwrite it")
    arrays = _arrays(store)
    if parallel.is_main():
        files.begin_folder(folder)
    parallel.wait_for_all("datastore begun")
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(files.draft(folder) / ARRAYS, arrays)
    counts = np.bincount(store.labels_N, minlength=len(provenance.labels)).tolist()
    if parallel.is_main():
        manifest = manifest_lib.Manifest(
            provenance=provenance,
            kind=store.codec.kind,
            options=store.codec.options,
            class_counts=dict(zip(provenance.labels, counts, strict=True)),
            arrays=arrays,
            anchors=anchors,
            files=manifest_lib.checksums(files.draft(folder)),
        )
        manifest_lib.write(files.draft(folder), manifest)
        files.finish_folder(folder)
    parallel.wait_for_all("datastore finished")


def open_folder(folder: pathlib.Path, expected: manifest_lib.Provenance) -> "Saved":
    """The store in a folder, checked whole; no model is needed yet.

    Args:
        expected: what makes the queries; see `manifest.describe`.

    Raises:
        UserError: there is no store; another model, tokenizer, task, template, truncation or other demonstrations made it;
            a file is missing, truncated or altered; its format is newer.
    """
    folder = folder.absolute()
    recovered(folder)
    manifest = manifest_lib.read(folder)
    manifest.provenance.check(expected, folder)
    manifest_lib.check_files(folder, manifest)
    return Saved(folder, manifest)


def recovered(folder: pathlib.Path) -> bool:
    """Whether there is something at `folder`, once what a dying process left there is put right."""
    if parallel.is_main():
        files.recover(folder)
    parallel.wait_for_all("datastore recovered")
    return folder.exists()


@dataclasses.dataclass(frozen=True)
class Saved:
    """A checked store in a folder."""

    folder: pathlib.Path
    manifest: manifest_lib.Manifest

    def check(self, question: searching.Question) -> None:
        """Raises UserError, with the choices, where the store has no answer."""
        manifest = self.manifest
        codec = stores.blank(manifest.kind, manifest.provenance.label_ids, **manifest.options)
        searching.check(codec, sum(manifest.class_counts.values()), question)

    def load(
        self,
        head: head_lib.Head,
        *,
        mesh: Mesh | None = None,
        on_host: bool = False,
        memory_mb: float = stores.MEMORY_MB,
    ) -> stores.Store:
        """The store on the default device, split by row over a mesh, or in host memory; wherever it was saved from.

        `head` is the head of the model that made the anchors.
        """
        manifest = self.manifest
        arrays = _restore(self.folder / ARRAYS, manifest.arrays, mesh, on_host)
        place = functools.partial(parallel.put, mesh=mesh, spec=P()) if mesh else jnp.asarray
        codec = stores.KINDS[manifest.kind].restore(
            parallel.replicate(head),
            {name: place(array) for name, array in arrays["constants"].items()},
            manifest.provenance.label_ids,
            **manifest.options,
        )
        anchors = placement.Anchors(codec.keys_type(**arrays["keys"]), arrays["labels"])
        if on_host:
            mesh = None
        elif mesh:
            anchors = placement.split_anchors(anchors, mesh)
        else:
            anchors = jax.tree.map(jnp.asarray, anchors)
        return stores.Store(codec, anchors, arrays["ids"], mesh, memory_mb)


def _arrays(store: stores.Store) -> dict[str, Any]:
    """Everything that a store keeps; keys as they lie, rows that fill up a split store included."""
    keys = {name: array for name, array in vars(store.anchors.keys).items() if array is not None}
    return {"keys": keys, "constants": store.codec.constants, "labels": store.labels_N, "ids": store.ids_N}


def _restore(folder: pathlib.Path, arrays: Mapping[str, Any], mesh: Mesh | None, on_host: bool) -> dict[str, Any]:
    """The saved arrays; keys go straight to the devices that they belong to, with as many rows as are needed there."""
    num_anchors = arrays["ids"].shape[0]
    if mesh:
        sharding: jax.sharding.Sharding = NamedSharding(mesh, P(parallel.AXES))
        num_rows = placement.filled_up(num_anchors, mesh)
    else:
        sharding, num_rows = SingleDeviceSharding(jax.local_devices()[0]), num_anchors

    def how(array: jax.ShapeDtypeStruct) -> ocp.RestoreArgs:
        return ocp.RestoreArgs(restore_type=np.ndarray, dtype=array.dtype)

    def how_keys(array: jax.ShapeDtypeStruct) -> ocp.RestoreArgs:
        shape = (num_rows, *array.shape[1:])
        return ocp.ArrayRestoreArgs(sharding=sharding, global_shape=shape, dtype=array.dtype, strict=False)

    restore_args = jax.tree.map(how, dict(arrays))
    if not on_host:
        restore_args["keys"] = jax.tree.map(how_keys, arrays["keys"])
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        restored = checkpointer.restore(folder, item=dict(arrays), restore_args=restore_args)
    if on_host:
        restored["keys"] = placement.take(restored["keys"], slice(0, num_anchors))
    return restored
