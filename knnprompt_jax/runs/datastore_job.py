"""Building and saving a datastore for one seed of a task; or changing a saved one, none of whose anchors is computed again."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import lm, parallel, progress, tables
from knnprompt_jax import progress as progress_lib
from knnprompt_jax.methods import knn_prompting
from knnprompt_jax.models import sharding
from knnprompt_jax.runs import datastores, preparation
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import building, manifest, searching, storage, stores
from knnprompt_jax.tasks import sources, splits
from knnprompt_jax.tasks import task as task_lib

Prepared = preparation.Prepared[settings_lib.BuildSettings]

QUERIES = 256  # Of the search that is reported.


@dataclasses.dataclass(frozen=True)
class Result:
    """What lies in the folder now, and what the model read for it; `bytes_per_anchor` is by kind of datastore."""

    prepared: Prepared
    class_counts: Mapping[str, int]
    bytes_per_anchor: Mapping[str, int]
    datastore: Mapping[str, Any]
    statistics: lm.PassStatistics


def run(settings: settings_lib.BuildSettings) -> Result:
    """Builds the datastore, going on where an earlier start died; with rows to append or ids to remove, changes the saved one.

    An anchor's id is its row in the train file, from 0; ids of appended ones go on from the highest.

    Raises:
        UserError: on anything in the settings, the rows, the model or the folder that cannot work; the folder stays as it is.
    """
    parallel.start(
        settings.distributed_auto,
        settings.distributed_address,
        settings.distributed_num_processes,
        settings.distributed_process_id,
    )
    datastores.check_placement(settings)
    mesh = parallel.make_mesh(settings.mesh_data, settings.mesh_model)
    prepared = preparation.prepare(settings, lambda given, split: _examples(settings, given, split))
    sharding.check(prepared.model_config, mesh)
    saved = datastores.open_saved(prepared) if settings.append or settings.remove_ids else None
    provenance = saved.manifest.provenance if saved else datastores.provenance(prepared)
    model = lm.LanguageModel.from_pretrained(
        str(prepared.folder), settings.dtype, step_tokens=settings.batch or None, mesh=mesh
    )
    with progress.bar(prepared.runs[0].prompts.num_prompts) as report:
        if saved:
            store = _change(prepared, datastores.load(saved, model, settings), model, report)
            storage.save(saved.folder, store, provenance, overwrite=True)
        else:
            store = _build(prepared, provenance, model, report)
    question = searching.Question(min(knn_prompting.K, len(store)))
    counts = np.bincount(store.labels_N, minlength=prepared.task.num_classes).tolist()
    options: tuple[Any, ...] = (*model.head.rows_VE.shape, store.codec.key_dtype, settings.direction == "released")
    return Result(
        prepared=prepared,
        class_counts=dict(zip(prepared.task.labels, counts, strict=True)),
        bytes_per_anchor={kind: stores.bytes_per_anchor(kind, *options) for kind in stores.KINDS},
        datastore=datastores.describe(store, question, QUERIES),
        statistics=model.statistics,
    )


def summarize(result: Result) -> str:
    """What the binary prints."""
    task, found, statistics = result.prepared.task, result.datastore, result.statistics
    [seed] = result.prepared.runs
    words = dict(zip(task.labels, task.label_words, strict=True))
    classes = [[f"{label} ({words[label]})", f"{count:,}"] for label, count in result.class_counts.items()]
    dense = result.bytes_per_anchor["dense"]
    kinds = [
        [kind, f"{size:,}", f"{size * found['anchors'] / 2**20:,.2f}", f"{dense / size:.1f}"]
        for kind, size in result.bytes_per_anchor.items()
    ]
    work = "nothing to compute"
    if statistics.prompts:
        rate, compiling = f"{statistics.prompts_per_second:.1f}", f"{statistics.compile_seconds:.1f}"
        work = f"{statistics.prompts} anchors computed, {rate} anchors/s ({compiling} s of compilation included)"
    return "\n".join(
        [
            f"task {task.name}, model {result.prepared.model}, seed {seed.seed}, "
            f"{len(seed.split.demonstrations)} demonstrations in every prompt",
            "",
            tables.render(["class", "anchors"], [*classes, ["all", f"{found['anchors']:,}"]]),
            "",
            tables.render([f"{found['key_dtype']} keys", "bytes/anchor", "all, MB", "× smaller"], kinds),
            "",
            work,
            datastores.render(found),
        ]
    )


def _examples(
    settings: settings_lib.BuildSettings, given: preparation.Material, split: splits.FewShotSplit
) -> Sequence[task_lib.Example]:
    """The examples that become anchors."""
    if not settings.append:
        return split.anchors
    return sources.load_rows(given.task, "train", path=settings.append)


def _build(
    prepared: Prepared, provenance: manifest.Provenance, model: lm.LanguageModel, report: progress_lib.Progress
) -> stores.Store:
    settings, [run] = prepared.settings, prepared.runs
    options: dict[str, Any] = (
        {"released": settings.direction == "released"} if settings.datastore_kind == "factored" else {}
    )
    return building.build_resumable(
        pathlib.Path(settings.store),
        model,
        run.prompts,
        _classes(prepared),
        [example.row for example in run.examples],
        provenance,
        kind=settings.datastore_kind,
        chunk=settings.chunk,
        overwrite=settings.overwrite,
        on_host=settings.datastore_placement == "host",
        memory_mb=settings.datastore_memory_mb,
        progress=report,
        key_dtype=settings.datastore_key_dtype,
        **options,
    )


def _change(
    prepared: Prepared, store: stores.Store, model: lm.LanguageModel, report: progress_lib.Progress
) -> stores.Store:
    settings, [run] = prepared.settings, prepared.runs
    if settings.remove_ids:
        store = store.remove(settings.remove_ids)
    if settings.append:
        store = store.append(model.states(run.prompts, progress=report), _classes(prepared))
    return store


def _classes(prepared: Prepared) -> list[int]:
    return [prepared.task.class_index(example.label) for example in prepared.runs[0].examples]
