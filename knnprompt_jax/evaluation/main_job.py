"""The main job: kNN Prompting beside in-context learning with the same demonstrations, over seeds."""

import dataclasses
import pathlib
import time
from collections.abc import Sequence

import numpy as np

from knnprompt_jax import lm, parallel, progress
from knnprompt_jax.classifiers import in_context, knn_prompting
from knnprompt_jax.evaluation import preparation, records, tables
from knnprompt_jax.evaluation import settings as settings_lib
from knnprompt_jax.tasks import splits

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
    mesh = parallel.make_mesh(settings.mesh_data, settings.mesh_model)
    prepared = preparation.prepare(settings)
    parallel.check(prepared.model_config, mesh)
    prepared_at = time.monotonic()
    model = lm.LanguageModel.from_pretrained(
        str(prepared.folder), settings.dtype, step_tokens=settings.batch or None, mesh=mesh
    )
    seconds = {"prepare": prepared_at - started, "load": time.monotonic() - prepared_at}
    shapes = preparation.common_shapes(prepared, model.step_tokens, mesh.shape[parallel.DATA])
    done = []
    with progress.bar(sum(one.prompts.num_prompts for one in prepared.runs)) as report:
        for one in prepared.runs:
            before = model.statistics.seconds
            states = model.states(one.prompts, lambda group: shapes[bool(len(group.prefix_P))], report)
            done += _classify(
                prepared, one, model, states, seconds | {"language_model": model.statistics.seconds - before}
            )
    if parallel.is_main():
        for record in done:
            records.write(pathlib.Path(settings.output), record)
    parallel.wait_for_all("records")
    return done


def _classify(
    prepared: preparation.Prepared,
    run: preparation.Run,
    model: lm.LanguageModel,
    states: lm.States,
    seconds: dict[str, float],
) -> list[records.Record]:
    settings, task = prepared.settings, prepared.task
    num_anchors = len(run.split.anchors)
    y = np.array([task.class_index(example.label) for example in run.split.anchors])
    methods = {
        ICL: in_context.InContextLearning(model.head_VE, prepared.label_ids),
        KNN: knn_prompting.KNNPrompting(
            model.head_VE,
            prepared.label_ids,
            k=knn_prompting.published_k(settings.k, settings.shots - prepared.demo_shots),
            direction=settings.direction,
            representation=settings.representation,
            tie_break=settings.tie_break,
            centroid=settings.centroid,
        ),
    }
    done = []
    for name, method in methods.items():
        started = time.monotonic()
        predicted = method.fit(states[:num_anchors], y).predict(states[num_anchors:])
        own_seconds = seconds | {"method": time.monotonic() - started}
        done.append(_record(prepared, run, model, name, predicted, own_seconds))
    return done


def _record(
    prepared: preparation.Prepared,
    run: preparation.Run,
    model: lm.LanguageModel,
    method: str,
    predicted: np.ndarray,
    seconds: dict[str, float],
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
        class_counts={label: counts._asdict() for label, counts in run.split.class_counts.items()},
        prompts=run.prompts.num_prompts,
        truncated_prompts=run.prompts.num_truncated,
        dropped_demonstrations=run.prompts.dropped_demonstrations,
        seconds={stage: round(value, 3) for stage, value in seconds.items()},
        anchors_per_second=round(run.prompts.num_prompts / seconds["language_model"], 2),
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
            f"prompts {prompts}, truncated {truncated} ({100 * truncated / prompts:.1f} %)",
            f"seconds: prepare {first.seconds['prepare']:.1f}, load {first.seconds['load']:.1f}, language model {lm_seconds:.1f}"
            f" ({prompts / lm_seconds:.1f} prompts/s, compilation included)",
        ]
    )
