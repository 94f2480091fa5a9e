"""The main job: kNN Prompting beside in-context learning with the same demonstrations, over seeds."""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import lm, parallel, progress, tables
from knnprompt_jax.methods import in_context, knn_prompting
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.models import sharding
from knnprompt_jax.runs import datastores, preparation, records
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import storage, stores
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks import task as task_lib

Prepared = preparation.Prepared[settings_lib.RunSettings]

ICL, KNN = "icl", "knn"
TITLES = {ICL: "In-context learning", KNN: "kNN Prompting"}


def run(settings: settings_lib.RunSettings) -> list[records.Record]:
    """Runs both methods for every seed and writes a record of each; of several processes, the first writes.

    Raises:
        UserError: on anything in the settings, the rows or the model that cannot work; nothing is written then.
    """
    started = time.monotonic()
    parallel.start(
        settings.distributed_auto,
        settings.distributed_address,
        settings.distributed_num_processes,
        settings.distributed_process_id,
    )
    datastores.check_placement(settings)
    mesh = parallel.make_mesh(settings.mesh_data, settings.mesh_model)
    prepared = preparation.prepare(settings, _evaluation if settings.store else preparation.anchors_and_evaluation)
    sharding.check(prepared.model_config, mesh)
    saved = datastores.open_saved(prepared) if settings.store else None
    _check(prepared, saved)
    prepared_at = time.monotonic()
    model = lm.LanguageModel.from_pretrained(
        str(prepared.folder), settings.dtype, step_tokens=settings.batch or None, mesh=mesh
    )
    store = datastores.load(saved, model, settings) if saved else None
    seconds = {"prepare": prepared_at - started, "load": time.monotonic() - prepared_at}
    shapes = preparation.common_shapes(prepared, model.step_tokens, mesh.shape[parallel.DATA])
    done = []
    with progress.bar(sum(one.prompts.num_prompts for one in prepared.runs)) as report:
        for one in prepared.runs:
            before = model.statistics.seconds
            states = model.states(one.prompts, lambda group: shapes[bool(len(group.prefix_P))], report)
            done += _classify(
                prepared, one, model, states, store, seconds | {"language_model": model.statistics.seconds - before}
            )
    if parallel.is_main():
        for record in done:
            records.write(pathlib.Path(settings.output), record)
    parallel.wait_for_all("records")
    return done


def _evaluation(given: preparation.Material, split: splits.FewShotSplit) -> Sequence[task_lib.Example]:
    """The evaluation rows alone: a saved store has the anchors."""
    del split
    return given.evaluation


def _check(prepared: Prepared, saved: storage.Saved | None) -> None:
    """Raises UserError where options do not go together, or the saved store has no answer to them."""
    anchor_shots = max(saved.manifest.class_counts.values()) if saved else prepared.settings.shots
    question = _make_knn(prepared, method_lib.UNLOADED, anchor_shots).question
    if saved and prepared.settings.centroid == "none":
        saved.check(question)


def _make_knn(prepared: Prepared, head: head_lib.Head, anchor_shots: int) -> knn_prompting.KNNPrompting:
    settings = prepared.settings
    return knn_prompting.KNNPrompting(
        head,
        prepared.label_ids,
        k=knn_prompting.published_k(settings.k, anchor_shots),
        direction=settings.direction,
        representation=settings.representation,
        tie_break=settings.tie_break,
        centroid=settings.centroid,
        kind=settings.datastore_kind,
        key_dtype=settings.datastore_key_dtype,
        memory_mb=settings.datastore_memory_mb,
        on_host=settings.datastore_placement == "host",
        approximate_recall=settings.datastore_approximate_recall or None,
    )


def _classify(
    prepared: Prepared,
    run: preparation.Run,
    model: lm.LanguageModel,
    states: lm.States,
    store: stores.Store | None,
    seconds: dict[str, float],
) -> list[records.Record]:
    """Both methods' records; without a store, the first states are those of the anchors."""
    settings, anchors, counts = prepared.settings, run.split.anchors, run.split.class_counts
    anchor_shots = settings.shots - prepared.demo_shots
    if store:
        numbers = np.bincount(store.labels_N, minlength=len(counts)).tolist()
        counts = {label: counts[label]._replace(anchors=number) for label, number in zip(counts, numbers, strict=True)}
        anchors, anchor_shots = (), max(numbers)
    y = np.array([prepared.task.class_index(example.label) for example in anchors])
    icl = in_context.InContextLearning(model.head, prepared.label_ids)
    knn = _make_knn(prepared, model.head, anchor_shots)
    fits: dict[str, Callable[[], Any]] = {
        ICL: icl.fit,
        KNN: lambda: knn.use(store) if store else knn.fit(states[: len(anchors)], y),
    }
    done = []
    for name, fit in fits.items():
        started = time.monotonic()
        predicted = fit().predict(states[len(anchors) :])
        own_seconds = seconds | {"method": time.monotonic() - started}
        described = datastores.describe(knn.datastore, knn.question, len(predicted)) if name == KNN else {}
        done.append(_record(prepared, run, model, name, predicted, counts, own_seconds, described))
    return done


def _record(
    prepared: Prepared,
    run: preparation.Run,
    model: lm.LanguageModel,
    method: str,
    predicted: np.ndarray,
    counts: Mapping[str, splits.ClassCounts],
    seconds: dict[str, float],
    datastore: Mapping[str, Any],
) -> records.Record:
    labels = tuple(prepared.task.labels[index] for index in predicted)
    true = tuple(example.label for example in prepared.evaluation)
    return records.Record(
        task=prepared.task.name,
        model=prepared.model,
        method=method,
        seed=run.seed,
        shots=run.split.shots,
        demo_shots=run.split.demo_shots,
        accuracy=float(np.mean([ours == theirs for ours, theirs in zip(labels, true, strict=True)])),
        predicted=labels,
        true=true,
        settings=dataclasses.asdict(prepared.settings),
        fingerprint=model.fingerprint,
        class_counts={label: numbers._asdict() for label, numbers in counts.items()},
        prompts=run.prompts.num_prompts,
        truncated_prompts=run.prompts.num_truncated,
        dropped_demonstrations=run.prompts.dropped_demonstrations,
        seconds={stage: round(value, 3) for stage, value in seconds.items()},
        anchors_per_second=round(run.prompts.num_prompts / seconds["language_model"], 2),
        datastore=datastore,
    )


def summarize(done: Sequence[records.Record]) -> str:
    """The table that the binary prints, and the lines above and below it."""
    first = done[0]
    counts = {label: splits.ClassCounts(**numbers) for label, numbers in first.class_counts.items()}
    sizes = ", ".join(f"{label}: {numbers.demonstrations}+{numbers.anchors}" for label, numbers in counts.items())
    rows = []
    for method, title in TITLES.items():
        own = [record for record in done if record.method == method]
        rows.append(
            [
                title,
                tables.spread([record.accuracy for record in own]),
                tables.spread([record.seconds["method"] for record in own], 1.0, 2),
            ]
        )
    icl = [record for record in done if record.method == ICL]
    prompts = sum(record.prompts for record in icl)
    truncated = sum(record.truncated_prompts for record in icl)
    lm_seconds = sum(record.seconds["language_model"] for record in icl)
    return "\n".join(
        [
            f"task {first.task}, model {first.model}, {len(first.true)} test rows, {len(icl)} seeds",
            f"{first.shots} shots a class: {first.demo_shots} demonstrations, the rest anchors (class: demonstrations+anchors {sizes})",
            "",
            tables.render(["method", "accuracy %", "seconds"], rows),
            "",
            datastores.render(done[-1].datastore),
            f"prompts {prompts}, truncated {truncated} ({100 * truncated / prompts:.1f} %)",
            f"seconds: prepare {first.seconds['prepare']:.1f}, load {first.seconds['load']:.1f}, language model {lm_seconds:.1f}"
            f" ({prompts / lm_seconds:.1f} prompts/s, compilation included)",
        ]
    )
