"""Building a saved classifier from a task's train rows, so that it may die at any moment; or changing a saved one."""

import dataclasses
import pathlib
from typing import Any

import numpy as np

from knnprompt_jax import errors, lm, progress, tables
from knnprompt_jax.classifier import saving
from knnprompt_jax.classifier.estimator import KNNPrompting
from knnprompt_jax.lm import chunks
from knnprompt_jax.models import sharding
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import engine, material, overview
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.tasks import defects, sources, splits

QUERIES = 256  # Of the search that is reported.


@dataclasses.dataclass(frozen=True)
class Result:
    """The classifier that lies in the folder now, and what the model read for it."""

    classifier: KNNPrompting
    statistics: lm.PassStatistics


def run(settings: settings_lib.BuildSettings) -> Result:
    """Builds the classifier, going on where an earlier start died; with rows to append or ids to remove, changes the saved one.

    An anchor's id is its row in the train file, from 0; ids of appended ones go on from the highest.

    Raises UserError on anything that cannot work; the folder then stays as it is.
    """
    mesh = engine.start(settings)
    model = material.load_model(settings.model, settings.revision)
    sharding.check(model.config, mesh)
    if settings.append or settings.remove_ids:
        return _change(settings, model, mesh)
    split, content = _content(settings, model)
    folder = saving.absolute(pathlib.Path(settings.store))
    saved = _finished(settings, folder, content)
    shown, anchors = split.demonstrations, split.anchors
    prompts = layout.lay_out(
        content.task, shown, anchors, model.tokenize, model.config.num_positions, settings.truncation
    )
    language_model = engine.load(settings, model, mesh)
    classifier = KNNPrompting(language_model, content.task, **content.parameters)
    classifier.check()
    if saved:
        saved.check(*language_model.identity, content.task, classifier.label_ids())
        classifier.use_saved(saved, saved.load(language_model, settings.datastore))
    else:
        unfinished = folder.with_name(f".{folder.name}.building")
        plan = {"fingerprint": model.fingerprint, "dtype": settings.dtype}
        with progress.bar(prompts.num_prompts) as report:
            states = chunks.read(unfinished, language_model, prompts, plan, settings.chunk, report)
        classifier.fit_states(states, shown, anchors).save(folder, settings.overwrite)
        chunks.clear(unfinished)
    return Result(classifier, language_model.statistics)


def _content(settings: settings_lib.BuildSettings, model: material.Model) -> tuple[splits.FewShotSplit, saving.Content]:
    """The rows drawn, and the classifier that they are to make."""
    task, train = material.load_train(settings, settings.task, settings.train_file)
    rows = material.Rows(task, defects.remove(train, ()) if settings.drop_duplicates else train, ())
    shown = material.demo_shots(settings, rows, model)
    split = splits.draw(rows.train, task, shots=settings.shots, demo_shots=shown, seed=settings.seed)
    if settings.knn.k > len(split.anchors):
        raise errors.UserError(f"knn.k={settings.knn.k}: there are {len(split.anchors)} anchors")
    parameters: dict[str, Any] = {
        **settings.knn.to_dict(),
        "demo_shots": shown,
        "truncation": settings.truncation,
        "label_token": settings.label_token,
        "random_state": settings.seed,
        "store_options": settings.datastore,
    }
    num_rows = max(row.row for row in split.anchors) + 1
    return split, saving.Content(task, parameters, task.labels, num_rows, split.demonstrations, split.anchors)


def _finished(
    settings: settings_lib.BuildSettings, folder: pathlib.Path, content: saving.Content
) -> saving.Saved | None:
    """The classifier in the folder, if it is the one to be built; raises UserError where there is another that may not go."""
    if not saving.recovered(folder):
        return None
    try:
        saved = saving.read(folder)
        if saving.same(saved.content, content):
            return saved
        raise errors.UserError(
            f"{folder}: holds a classifier of other anchors or options; choose another folder, or overwrite it"
        )
    except errors.UserError:
        if not settings.overwrite:
            raise
        return None


def _change(settings: settings_lib.BuildSettings, model: material.Model, mesh: Any) -> Result:
    saved = saving.read(pathlib.Path(settings.store))
    task = saved.content.task
    new = sources.load_rows(task, "train", path=settings.append, encoding=settings.encoding) if settings.append else []
    language_model = engine.load(settings, model, mesh)
    classifier = KNNPrompting(language_model, task, **saved.parameters(KNNPrompting))
    saved.check(*language_model.identity, task, classifier.label_ids())
    classifier.use_saved(saved, saved.load(language_model, settings.datastore))
    if settings.remove_ids:
        classifier.remove(settings.remove_ids)
    if new:
        classifier.partial_fit([row.fields for row in new], [row.label for row in new])
    classifier.save(saved.folder, overwrite=True)
    return Result(classifier, language_model.statistics)


def summarize(result: Result) -> str:
    """What the binary prints."""
    classifier, statistics = result.classifier, result.statistics
    task, store = classifier.task, classifier.store_
    described = store.describe(QUERIES, classifier.search_options(min(classifier.k, len(store))))
    counts = np.bincount(store.labels_N, minlength=task.num_classes).tolist()
    classes = [
        [f"{label} ({word})", f"{count:,}"]
        for label, word, count in zip(task.labels, task.label_words, counts, strict=True)
    ]
    work = "nothing to compute"
    if statistics.prompts:
        rate, compiling = f"{statistics.prompts_per_second:.1f}", f"{statistics.compile_seconds:.1f}"
        work = f"{statistics.prompts} anchors computed, {rate} anchors/s ({compiling} s of compilation included)"
    return "\n".join(
        [
            f"task {task.name}, model {classifier.lm.name}, seed {classifier.random_state}, "
            f"{len(classifier.demonstrations_)} demonstrations in every prompt",
            "",
            tables.render(["class", "anchors"], [*classes, ["all", f"{len(store):,}"]]),
            "",
            work,
            overview.of_datastore(described),
        ]
    )
