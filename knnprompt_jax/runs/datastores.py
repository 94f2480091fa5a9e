"""Datastores of a job: opened before weights load, described for records and tables."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from knnprompt_jax import errors, lm
from knnprompt_jax.models import checkpoints, tokenizers
from knnprompt_jax.runs import preparation
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import manifest, searching, storage, stores


def check_placement(settings: settings_lib.DatastoreSettings) -> None:
    """Raises UserError where anchors in host memory would have to be searched by several processes."""
    if settings.datastore_placement == "host" and jax.process_count() > 1:
        raise errors.UserError(
            "datastore.placement='host' is for one process: with several, anchors are split over all their devices"
        )


def provenance(prepared: preparation.Prepared) -> manifest.Provenance:
    """What makes the anchors and queries of the job's only seed; no weights are loaded."""
    [run] = prepared.runs
    return manifest.describe(
        prepared.model,
        checkpoints.fingerprint(prepared.folder, prepared.model_config),
        tokenizers.load(prepared.folder),
        prepared.settings.dtype,
        prepared.task,
        prepared.label_ids,
        run.split.demonstrations[run.prompts.dropped_demonstrations :],
        prepared.settings.truncation,
    )


def open_saved(prepared: preparation.Prepared[settings_lib.DatastoreSettings]) -> storage.Saved:
    """The job's saved store, checked whole against what makes its queries; raises UserError as `storage.open_folder`."""
    return storage.open_folder(pathlib.Path(prepared.settings.store), provenance(prepared))


def load(saved: storage.Saved, model: lm.LanguageModel, settings: settings_lib.DatastoreSettings) -> stores.Store:
    """The store where the job wants it."""
    on_host, memory_mb = settings.datastore_placement == "host", settings.datastore_memory_mb
    return saved.load(model.head, mesh=mesh_of(model), on_host=on_host, memory_mb=memory_mb)


def mesh_of(model: lm.LanguageModel) -> Mesh | None:
    """The model's mesh if it has several devices."""
    return model.mesh if model.mesh.size > 1 else None


def describe(store: stores.Store, question: searching.Question, num_queries: int) -> dict[str, Any]:
    """What the anchors take, where they lie and how so many queries are searched for; sizes in bytes."""
    plan = store.plan(num_queries, question)
    return {
        "kind": store.codec.kind,
        "key_dtype": store.codec.key_dtype,
        "placement": "host" if store.anchors.on_host else "device",
        "anchors": len(store),
        "bytes_per_anchor": store.bytes_per_anchor,
        "bytes": store.nbytes,
        "queries_a_block": plan.queries,
        "anchors_a_transfer": plan.transfer,
        "anchors_a_tile": plan.tile,
        "search_bytes": plan.nbytes,
        "search_memory_mb": store.memory_mb,
    }


def render(described: Mapping[str, Any]) -> str:
    """Two lines: the anchors, and their search."""
    transfers = f", {described['anchors_a_transfer']} anchors a transfer" if described["anchors_a_transfer"] else ""
    return (
        f"datastore: {described['kind']} {described['key_dtype']} on the {described['placement']}, "
        f"{described['anchors']} anchors of {described['bytes_per_anchor']:,} bytes, {_size(described['bytes'])}\n"
        f"search: {described['queries_a_block']} queries a block{transfers}, {described['anchors_a_tile']} anchors a tile, "
        f"{_size(described['search_bytes'])} of at most {described['search_memory_mb']:g} MB"
    )


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 2**20:,.1f} MB"
