"""Building a saved classifier from a task's train rows, so that it may die at any moment; or changing a saved one."""

import dataclasses
import pathlib

import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import errors, files, lm, parallel, progress, tables
from knnprompt_jax.classifier import options, saving
from knnprompt_jax.classifier.estimator import KNNPrompting
from knnprompt_jax.lm import chunks
from knnprompt_jax.models import sharding
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import changing, engine, material, overview
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import defects, sources, splits

QUERIES = 256  # Of the search that is reported.


@dataclasses.dataclass(frozen=True)
class Result:
    """The classifier that lies in the folder now, what the model read for it, and lines on what was there already."""

    classifier: KNNPrompting
    statistics: lm.PassStatistics
    notes: tuple[str, ...] = ()


def run(settings: settings_lib.BuildSettings) -> Result:
    """Builds the classifier, going on where an earlier start died; with rows to append or ids to remove, changes the saved one.

    An anchor's id is its row in the train file, from 0; ids of appended ones go on from the highest.

    Raises UserError on anything that cannot work, another process that writes to the folder among it; the folder then stays
    as it is.
    """
    changes = bool(settings.append or settings.remove_ids)
    if changes:
        settings = material.with_saved_model(settings)
    mesh = engine.start(settings, [settings.model])
    model = material.load_model(settings.model, settings.revision)
    sharding.check(model.config, mesh)
    if changes:
        return _change(settings, model, mesh)
    split, content = _content(settings, model)
    folder = saving.absolute(pathlib.Path(settings.store))
    with saving.lock(folder):
        return _build(settings, model, mesh, folder, split, content)


def _build(
    settings: settings_lib.BuildSettings,
    model: material.Model,
    mesh: Mesh,
    folder: pathlib.Path,
    split: splits.FewShotSplit,
    content: saving.Content,
) -> Result:
    """The classifier of the content: the one in the folder, or from the split's anchors, which the model reads chunk by chunk."""
    saved, unfinished = _finished(settings, folder, content), folder.with_name(f".{folder.name}.building")
    shown, anchors = split.demonstrations, split.anchors
    prompts = layout.lay_out(
        content.task, shown, anchors, model.tokenize, model.config.num_positions, settings.truncation
    )
    if not saved:
        _check_room(settings, model, folder, content)
    language_model = engine.load(settings, model, mesh)
    if saved:
        classifier = KNNPrompting.of_saved(saved, language_model, settings.datastore)
    else:
        classifier = KNNPrompting(language_model, content.task, **content.parameters)
        plan = {"fingerprint": model.fingerprint, "dtype": settings.dtype}
        with progress.bar(prompts.num_prompts) as report:
            states = chunks.read(unfinished, language_model, prompts, plan, settings.chunk, report)
        saving.save(classifier.fit_states(states, shown, anchors), folder, settings.overwrite)
    chunks.clear(unfinished)
    return Result(classifier, language_model.statistics)


def _check_room(
    settings: settings_lib.BuildSettings, model: material.Model, folder: pathlib.Path, content: saving.Content
) -> None:
    """Raises UserError where the folder cannot be written, or the disk has no room for the anchors and their states."""
    config = model.config
    sizes = (config.logit_cap, config.vocab_size, config.state_width, content.task.num_classes)
    anchor_bytes = store_lib.anchor_bytes(settings.datastore, settings.knn.distance, *sizes)
    num_bytes = len(content.anchors) * (anchor_bytes + 4 * (config.state_width + 1))
    parallel.call_in_main(lambda: files.check_writable(folder, folder=True, num_bytes=num_bytes))


def _content(settings: settings_lib.BuildSettings, model: material.Model) -> tuple[splits.FewShotSplit, saving.Content]:
    """The rows drawn, and the classifier that they are to make."""
    task, train = material.load_train(settings, settings.task, settings.train_file)
    rows = material.Rows(task, defects.remove(train, ()) if settings.drop_duplicates else train, ())
    shown = material.demo_shots(settings, rows, model)
    split = splits.draw(rows.train, task, shots=settings.shots or None, demo_shots=shown, seed=settings.seed)
    if settings.knn.k > len(split.anchors):
        raise errors.UserError(f"knn.k={settings.knn.k}: there are {len(split.anchors)} anchors")
    chosen = options.ClassifierOptions(
        **settings.knn.to_dict(),
        truncation=settings.truncation,
        label_token=settings.label_token,
        random_state=settings.seed,
    )
    parameters = {**chosen.to_dict(), "demo_shots": shown, "store_options": settings.datastore}
    num_rows = max(row.row for row in (*split.demonstrations, *split.anchors)) + 1
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


def _change(settings: settings_lib.BuildSettings, model: material.Model, mesh: Mesh) -> Result:
    """Saves the classifier in the folder without the anchors to remove and with those to append, unless this was done before."""
    folder = saving.absolute(pathlib.Path(settings.store))
    if not folder.parent.is_dir():
        raise errors.UserError(f"{folder}: not a saved classifier: there is no folder {folder.parent}")
    with saving.lock(folder):
        saving.recovered(folder)
        saved = saving.read(folder)
        task, append = saved.content.task, settings.append
        of_file = {"path": append, "encoding": settings.encoding, "label_column": settings.label_column}
        rows = sources.load_rows(task, "train", **of_file) if append else []  # type: ignore[arg-type]
        num_bytes = sum(size for size, _ in saved.manifest.files.values())
        parallel.call_in_main(lambda: files.check_writable(folder, folder=True, num_bytes=num_bytes))
        language_model = engine.load(settings, model, mesh)
        classifier = KNNPrompting.of_saved(saved, language_model, settings.datastore)
        before = classifier.store_
        notes = (*changing.remove(classifier, settings.remove_ids), *changing.append(classifier, rows))
        if classifier.store_ is not before:
            saving.save(classifier, folder, overwrite=True)
    return Result(classifier, language_model.statistics, notes)


def summarize(result: Result) -> str:
    """What the binary prints."""
    classifier, statistics = result.classifier, result.statistics
    task, store = classifier.task, classifier.store_
    described = store.describe(QUERIES, classifier.search_options(min(classifier.k, len(store))))
    counts = np.bincount(store.labels_N, minlength=task.num_classes).tolist()
    classes = [
        [label if word == label else f"{label} ({word})", f"{count:,}"]
        for label, word, count in zip(task.labels, task.label_words, counts, strict=True)
    ]
    work = "nothing to compute"
    if statistics.prompts:
        rate, compiling = statistics.prompts / max(1e-9, statistics.seconds), statistics.compile_seconds
        work = (
            f"{statistics.prompts} anchors computed, {rate:.1f} anchors/s ({compiling:.1f} s of compilation included)"
        )
    return "\n".join(
        [
            f"task {task.name}, model {classifier.lm.name}, seed {classifier.random_state}, "
            f"{len(classifier.demonstrations_)} demonstrations in every prompt",
            "",
            tables.render(["class", "anchors"], [*classes, ["all", f"{len(store):,}"]]),
            "",
            work,
            *result.notes,
            overview.of_datastore(described),
        ]
    )
