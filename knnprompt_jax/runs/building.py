"""Building a saved classifier from a task's train rows, so that it may die at any moment; or changing a saved one."""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import logging
from jax.sharding import Mesh

from knnprompt_jax import errors, files, lm, parallel, progress, tables
from knnprompt_jax.classifier import choosing, contents, demonstrations, options, saving, trials
from knnprompt_jax.classifier.estimator import KNNPrompting
from knnprompt_jax.lm import chunks
from knnprompt_jax.models import sharding
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import changing, corrections, engine, material, overview
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import defects, splits
from knnprompt_jax.tasks.task import Example

QUERIES = 256  # Of the search that is reported.
_OF_CHANGES = (
    *("store", "append", "relabel", "remove_ids", "label_column", "encoding", "overwrite"),
    *("model", "revision", "dtype", "deterministic", "batch", "mesh", "distributed", "datastore"),
)
_Draft = tuple[splits.FewShotSplit, contents.Content]


@dataclasses.dataclass(frozen=True)
class Result:
    """The classifier that lies in the folder now, what the model read for it, and lines on what was there already."""

    classifier: KNNPrompting
    statistics: lm.PassStatistics
    notes: tuple[str, ...] = ()


def run(settings: settings_lib.BuildSettings) -> Result:
    """Builds the classifier, going on where an earlier start died; or changes the saved one, where changes are asked for.

    An anchor's id is its row in the train file, from 0; ids of appended ones go on from the last row's, drawn or not.

    Raises UserError on anything that cannot work, another process that writes to the folder among it; the folder then stays
    as it is.
    """
    if settings.changes:
        _tell_of_change(settings)
        settings = material.with_saved_model(settings, saving.read(pathlib.Path(settings.store)))
    mesh = engine.start(settings, [settings.model])
    model = material.load_model(settings.model, settings.revision)
    sharding.check(model.config, mesh)
    if settings.changes:
        return _change(settings, model, mesh)
    drafts = _drafts(settings, model)
    folder = saving.absolute(pathlib.Path(settings.store))
    with saving.lock(folder):
        return _build(settings, model, mesh, folder, drafts)


def _tell_of_change(settings: settings_lib.BuildSettings) -> None:
    """Logs which of the options that are given say how a classifier is built, and not how it is changed."""
    as_saved = type(settings)(**{name: getattr(settings, name) for name in _OF_CHANGES})
    names = [field.name for field in dataclasses.fields(settings)]
    if ignored := [name for name in names if getattr(settings, name) != getattr(as_saved, name)]:
        logging.warning("of no effect on a classifier that is changed, and not built: %s", ", ".join(ignored))


def _build(
    settings: settings_lib.BuildSettings,
    model: material.Model,
    mesh: Mesh,
    folder: pathlib.Path,
    drafts: Sequence[_Draft],
) -> Result:
    """The classifier of the best draft: the one in the folder, or from the split's anchors, which the model reads chunk by chunk."""
    saved = _finished(settings, folder, drafts)
    tried = tuple(split.demo_shots for split, _ in drafts)
    reading = _Reading(settings, model, folder.with_name(f".{folder.name}.building"), tried)
    prompts = [reading.lay_out(*draft) for draft in drafts]  # Mistakes show before the weights load.
    if not saved:
        _check_room(settings, model, folder, drafts[0][1])
    language_model = engine.load(settings, model, mesh)
    if saved:
        classifier = saved.classifier(KNNPrompting, language_model, settings.datastore)
    else:
        choice, states, taken = None, None, 0
        if len(drafts) > 1:
            choice, looked_at = _choose(language_model, reading, drafts)
            taken = tried.index(choice.rule.demo_shots)
            states = looked_at[choice.rule.demo_shots]
        split, content = drafts[taken]
        if states is None or len(states) < len(split.anchors):
            states = reading.read(language_model, prompts[taken], "")
        classifier = KNNPrompting(language_model, content.task, **content.parameters)
        classifier.fit_states(states, split.demonstrations, split.anchors, choice, content.num_rows)
        saving.save(classifier, folder, settings.overwrite)
    chunks.clear(reading.unfinished)
    return Result(classifier, language_model.statistics)


@dataclasses.dataclass(frozen=True)
class _Reading:
    """How prompts of the job are read: chunk by chunk, which wait in a folder until the classifier is saved. `tried` are the numbers of
    demonstrations per class."""

    settings: settings_lib.BuildSettings
    model: material.Model
    unfinished: pathlib.Path
    tried: tuple[int, ...]

    def lay_out(self, split: splits.FewShotSplit, content: contents.Content) -> layout.Prompts:
        told = self.model.tokenize, self.model.config.num_positions, self.settings.truncation
        return layout.lay_out(content.task, split.demonstrations, split.anchors, *told)

    def read(self, model: lm.LanguageModel, prompts: layout.Prompts, prefix: str) -> lm.States:
        """Their states; `prefix` names them in the folder."""
        settings = self.settings
        plan = {"fingerprint": self.model.fingerprint, "dtype": settings.dtype, "deterministic": settings.deterministic}
        plan |= {"demo_shots": self.tried}
        with progress.bar(prompts.num_prompts) as report:
            return chunks.read(self.unfinished, model, prompts, plan, settings.chunk, report, prefix)


def _choose(
    model: lm.LanguageModel, reading: _Reading, drafts: Sequence[_Draft]
) -> tuple[choosing.Choice, dict[int, lm.States]]:
    """The best number of demonstrations, with all else that is to be chosen, and the states of the anchors that were looked at, which
    is a pass for each number: of all anchors, or of some where there are many."""
    draws, states, first = {}, {}, drafts[0][1]
    for split, content in drafts:
        looked_at = dataclasses.replace(split, anchors=tuple(trials.sample(split.anchors, reading.settings.seed)))
        prompts = reading.lay_out(looked_at, content)
        states[split.demo_shots] = reading.read(model, prompts, f"{split.demo_shots}-demonstrations-")
        draws[split.demo_shots] = (split.demonstrations, looked_at.anchors)
    return trials.choose(KNNPrompting(model, first.task, **first.parameters), draws, states), states


def _check_room(
    settings: settings_lib.BuildSettings, model: material.Model, folder: pathlib.Path, content: contents.Content
) -> None:
    """Raises UserError where the folder cannot be written, or the disk has no room for the anchors and their states."""
    config = model.config
    sizes = (config.logit_cap, config.vocab_size, config.state_width, content.task.num_classes)
    anchor_bytes = store_lib.anchor_bytes(settings.datastore, settings.knn.distance.removeprefix(options.AUTO), *sizes)
    # The states twice: in chunks while they are computed, and in the classifier.
    num_bytes = len(content.anchors) * (anchor_bytes + 2 * 4 * (config.state_width + 1))
    parallel.call_in_main(lambda: files.check_writable(folder, folder=True, num_bytes=num_bytes))


def _drafts(settings: settings_lib.BuildSettings, model: material.Model) -> list[_Draft]:
    """The rows drawn, and the classifier that they are to make, for each number of demonstrations to choose from."""
    task, train = material.load_train(settings, settings.task, settings.train_file)
    rows = material.Rows(task, defects.remove(train, ()) if settings.drop_duplicates else train, ())
    in_file = max(row.row for row in train) + 1
    _tell(settings, train, rows.train)
    if settings.demo_shots != options.AUTO:
        tried = [material.demo_shots(settings, rows, model)]
    else:
        settings, rows = _drawn_once(settings, rows)
        largest = max(map(len, splits.group_by_class(rows.train).values()))
        most = 0 if largest < 2 else material.demo_shots(dataclasses.replace(settings, demo_shots=-1), rows, model)
        tried = demonstrations.up_to(most, rows.train)
    drafts = [_draft(settings, rows, shown, in_file) for shown in tried]
    k, anchors = settings.knn.k, max(len(split.anchors) for split, _ in drafts)
    if k != options.AUTO and k > anchors:
        raise errors.UserError(f"knn.k={k}: there are {anchors} anchors")
    return [(split, content) for split, content in drafts if k == options.AUTO or k <= len(split.anchors)]


def _drawn_once(
    settings: settings_lib.BuildSettings, rows: material.Rows
) -> tuple[settings_lib.BuildSettings, material.Rows]:
    """The rows that are asked for, all of which are then used. The published draw takes other anchors for each number of demonstrations;
    too few to compare by would be the same."""
    if not settings.shots:
        return settings, rows
    drawn = splits.draw(rows.train, rows.task, shots=settings.shots, demo_shots=0, seed=settings.seed)
    _warn(drawn)
    return dataclasses.replace(settings, shots=0), dataclasses.replace(rows, train=drawn.anchors)


def _tell(settings: settings_lib.BuildSettings, train: Sequence[Example], kept: Sequence[Example]) -> None:
    """Logs what of the rows a user may not know."""
    if left_out := len(train) - len(kept):
        logging.warning("drop_duplicates: %d of %d train rows are left out", left_out, len(train))
    elif found := defects.find(train, ()):
        told = found.repeated, found.conflicting
        logging.warning("%d train rows repeat a text, %d texts have conflicting labels (see drop_duplicates)", *told)
    if len({row.label for row in kept}) == 1:
        logging.warning("all train rows have the label %r: every answer will be", kept[0].label)


def _warn(split: splits.FewShotSplit) -> None:
    """Logs which classes have fewer rows than are asked for."""
    for warning in split.warnings:
        logging.warning(warning)


def _draft(settings: settings_lib.BuildSettings, rows: material.Rows, shown: int, in_file: int) -> _Draft:
    """With so many demonstrations per class, from a file of so many rows: ids of appended rows go on after all of them."""
    split = splits.draw(rows.train, rows.task, shots=settings.shots or None, demo_shots=shown, seed=settings.seed)
    _warn(split)
    chosen = options.ClassifierOptions(
        **{"calibrated": False, **settings.knn.to_dict()},  # Votes as published, unless the options say otherwise.
        truncation=settings.truncation,
        label_token=settings.label_token,
        random_state=settings.seed,
    )
    parameters = {**chosen.to_dict(), "demo_shots": shown, "class_prior": None, "store_options": settings.datastore}
    content = (rows.task, parameters, rows.task.labels, in_file, split.demonstrations, split.anchors)
    return split, contents.Content(*content)


def _finished(
    settings: settings_lib.BuildSettings, folder: pathlib.Path, drafts: Sequence[_Draft]
) -> saving.Saved | None:
    """The classifier in the folder, if it is one of those to be built; raises UserError where there is another that may not go."""
    if not saving.recovered(folder):
        return None
    try:
        saved = saving.read(folder)
        if any(contents.same(saved.content, content) for _, content in drafts):
            return saved
        raise errors.UserError(
            f"{folder}: holds a classifier of other anchors or options; choose another folder, or overwrite it"
        )
    except errors.UserError:
        if not settings.overwrite:
            raise
        return None


def _change(settings: settings_lib.BuildSettings, model: material.Model, mesh: Mesh) -> Result:
    """Saves the classifier in the folder with what is to be changed, unless this was done before."""
    folder = saving.absolute(pathlib.Path(settings.store))
    if not folder.parent.is_dir():
        raise errors.UserError(f"{folder}: not a saved classifier: there is no folder {folder.parent}")
    with saving.lock(folder):
        saving.recovered(folder)
        saved = saving.read(folder)
        rows = changing.new_rows(settings, saved.content.task)
        corrected = corrections.read(settings.relabel, settings.encoding, saved.content) if settings.relabel else None
        num_bytes = sum(size for size, _ in saved.manifest.files.values())
        parallel.call_in_main(lambda: files.check_writable(folder, folder=True, num_bytes=num_bytes))
        language_model = engine.load(settings, model, mesh)
        classifier = saved.classifier(KNNPrompting, language_model, settings.datastore)
        before, notes = classifier.store_, changing.remove(classifier, settings.remove_ids)
        notes += changing.relabel(classifier, corrected) if corrected else []
        notes += changing.append(classifier, rows)
        if classifier.store_ is not before:
            saving.save(classifier, folder, overwrite=True)
    return Result(classifier, language_model.statistics, tuple(notes))


def summarize(result: Result) -> str:
    """What the binary prints."""
    classifier, statistics = result.classifier, result.statistics
    task, store = classifier.task, classifier.store_
    described = store.describe(QUERIES, classifier.search_options(min(classifier.rule_.k, len(store))))
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
