"""Fit a classifier to a table or to a task's train rows and save it, or change a saved one."""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from knnprompt_jax import errors, files, lm, parallel, progress, rules, states
from knnprompt_jax.classifier import estimator, saving, trials
from knnprompt_jax.classifier.content import Content
from knnprompt_jax.prompts import layout
from knnprompt_jax.rules import choosing
from knnprompt_jax.runs import changing, inputs
from knnprompt_jax.settings import classifiers, commands, shared
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import defects, splits
from knnprompt_jax.tasks.task import Example, Task


def run(settings: commands.FitSettings) -> changing.Result:
    """Fit and save a classifier, or change the saved one. An interrupted run is resumed from the cache of states.

    An anchor's id is its row in the train file, from 0. Ids of appended rows follow the last row's.

    Raises:
      UserError: anything that cannot work, including another process that writes to the folder, which stays as it is.
    """
    inputs.join_processes(settings.distributed)
    folder = saving.absolute(pathlib.Path(settings.store))
    if settings.is_change:
        return changing.change(settings, folder)
    files.check_outside(folder, replaces=True)
    store_lib.check_processes(settings.datastore)
    task, train = inputs.load_train(settings, settings.task or shared.OWN, settings.train_file)
    rows = defects.drop(train, ()) if settings.drop_duplicates else train
    _warn(train, rows)
    if settings.task in (None, shared.OWN):
        progress.note(_describe_columns(task, train))
    model = inputs.read_model(settings.model, settings)
    seed, is_published = commands.SEED if settings.seed is None else settings.seed, settings.rule == commands.KNN
    demo_shots = -1 if is_published and settings.demo_shots is None else settings.demo_shots
    draws = _draw(inputs.Rows(task, rows, ()), model, settings.shots or None, demo_shots, seed)
    kind: Any = estimator.KNNPrompting if is_published else estimator.AutoClassifier
    shots: Any = classifiers.AUTO if demo_shots is None else next(iter(draws))
    classifier = kind(model, task, demo_shots=shots, **settings.classifier_options())
    classifier.source_ = settings.source()
    draws, num_rows = trials.possible(classifier, draws), max(row.row for row in train) + 1
    contents = [Content.of(classifier, *draw, num_rows) for draw in draws.values()]
    with saving.lock(folder):
        saved = _finished(folder, contents, model.identity, settings.overwrite)
        if saved:
            classifier = estimator.restore(saved, model)
        else:
            cache = states.user_cache(settings.cache_gb) or classifier.states_cache
            _fit(classifier, draws, num_rows, folder, cache)
            saving.save(classifier, folder, settings.overwrite)
    return changing.Result(classifier, classifier.model.statistics)


def _draw(
    rows: inputs.Rows, model: lm.LanguageModel, shots: int | None, demo_shots: int | None, seed: int
) -> dict[int, trials.Draw]:
    """Return a draw of `shots` rows per class (None: all) for each candidate number of demonstrations per class.

    Args:
      demo_shots: the only candidate; -1: M_T; None: several candidates, which use the same rows.
    """
    if demo_shots is not None:
        candidates = [inputs.demo_shots(demo_shots, shots, rows, model)]
    else:
        if shots:
            # Draw the rows once and use all of them: the published draw takes other anchors for each number of demonstrations.
            drawn = splits.draw(rows.train, rows.task, shots=shots, demo_shots=0, seed=seed)
            inputs.log_warnings(drawn.warnings)
            rows, shots = dataclasses.replace(rows, train=drawn.anchors), None
        largest = max(collections.Counter(row.label for row in rows.train).values())
        most = 0 if largest < 2 else inputs.demo_shots(-1, None, rows, model)
        candidates = trials.candidate_shots(most, rows.train)
    draws: dict[int, trials.Draw] = {}
    for number in candidates:
        split = splits.draw(rows.train, rows.task, shots=shots, demo_shots=number, seed=seed)
        inputs.log_warnings(split.warnings)
        draws[number] = split.demonstrations, split.anchors
        count = len(split.demonstrations)
        if not shots and demo_shots and demo_shots > 0 and count < number * rows.task.num_classes:
            logging.warning(
                "--demo_shots=%d: only %d demonstrations were drawn in all, because at most half of a class becomes "
                "demonstrations",
                demo_shots,
                count,
            )
    return draws


def _fit(
    classifier: Any,
    draws: Mapping[int, trials.Draw],
    num_rows: int,
    folder: pathlib.Path,
    cache: states.AnyCache,
) -> None:
    """Choose between the draws and fit the classifier. Prompts are built, and the disk is checked, before weights load."""
    samples = {
        shots: (demonstrations, [anchors[index] for index in rules.sample(anchors, classifier.random_state)])
        for shots, (demonstrations, anchors) in draws.items()
    }
    prompts = [classifier.build_prompts(anchors, demonstrations) for demonstrations, anchors in samples.values()]
    _check_room(folder, classifier, max(len(anchors) for _, anchors in draws.values()))
    classifier.states_cache = cache
    layers, choice, shots = classifier.candidate_layers, None, next(iter(draws))
    if len(draws) > 1:
        titles = [f"demonstrations per class: {number}" for number in draws]
        read = states.read_sets(classifier.model, prompts, cache, titles, layers=layers)
        choice = classifier.choose(samples, {shots: reading.states for shots, reading in zip(draws, read, strict=True)})
        shots = choice.rule.demo_shots
    demonstrations, anchors = draws[shots]
    anchor_prompts = classifier.build_prompts(anchors, demonstrations)
    layout.warn_truncated(anchor_prompts.num_truncated, anchor_prompts.num_prompts, classifier.model.context)
    anchor_states = states.read(classifier.model, anchor_prompts, cache, title="anchors", layers=layers)
    classifier.fit_states(anchor_states, demonstrations, anchors, choice, num_rows)


def _describe_columns(task: Task, rows: Sequence[Example]) -> str:
    """Return which columns of a table are in the prompt and which are left out."""
    left_out = errors.join_names(dict.fromkeys(column for row in rows for column in row.other))
    return f"columns in the prompt: {', '.join(task.fields)}; left out: {left_out}; to change them: --text_columns="


def _warn(train: Sequence[Example], rows: Sequence[Example]) -> None:
    """Log defects of the train rows, of which `rows` are used."""
    if left_out := len(train) - len(rows):
        logging.warning("--drop_duplicates: %d of %d train rows are left out", left_out, len(train))
    elif found := defects.describe(train, ()):
        logging.warning("%s (see --drop_duplicates)", found)
    inputs.log_warnings(defects.label_warnings(rows))


def _finished(
    folder: pathlib.Path, contents: Sequence[Content], model: lm.Identity, overwrite: bool
) -> saving.Saved | None:
    """Return the classifier in the folder if it has one of the contents and is of the model.

    Raises:
      UserError: the folder holds something else, and `overwrite` is False or it is no classifier.
    """
    if not saving.recover(folder):
        return None
    try:
        saved = saving.read(folder)
        is_tuned = saved.content.choice and saved.content.choice.is_tuned
        if not is_tuned and any(saved.content.is_same(content) for content in contents):
            saved.check(model)
            return saved
        raise errors.UserError(
            f"{folder}: holds a classifier that `tune` changed, or one with other rows or options; choose another folder, or add "
            "--overwrite"
        )
    except errors.UserError:
        if not overwrite:
            raise
        return None


def _check_room(folder: pathlib.Path, classifier: Any, num_anchors: int) -> None:
    """Raise UserError if there is no such store, the folder cannot be written, or the disk has no room for the anchors' states."""
    config = classifier.model.config
    store_lib.kind_of(classifier.store_options, classifier.distance_)
    num_bytes = 4 * num_anchors * (config.state_width + 1 + config.width * len(classifier.candidate_layers))
    parallel.call_in_main(
        functools.partial(files.check_writable, folder, folder=True, num_bytes=num_bytes, replaces=True)
    )


def summarize(result: changing.Result) -> str:
    """Return what the binary prints: the rows that are used, remarks, and the rule with its estimated accuracy."""
    classifier, task = result.classifier, result.classifier.task
    num_anchors, num_demonstrations = len(classifier.anchors_), len(classifier.demonstrations_)
    counts = np.bincount(classifier.store_.labels_N, minlength=task.num_classes)
    demonstrations = (
        f"{num_demonstrations} demonstration{'s' * (num_demonstrations > 1)} in every prompt"
        if num_demonstrations
        else "no demonstrations"
    )
    per_class = " to ".join(f"{count:,}" for count in sorted({counts.min(), counts.max()}))
    rows = (
        f"{num_anchors + num_demonstrations:,} row{'s' * (num_anchors + num_demonstrations > 1)} of {task.num_classes} "
        f"class{'es' * (task.num_classes > 1)}, "
        f"read by {classifier.model.name}: "
        f"{num_anchors:,} anchor{'s' * (num_anchors > 1)} ({per_class} per class), {demonstrations}"
    )
    rule = f"{type(classifier).__name__}: {classifier.rule_.words}"
    if classifier.choice_.candidates:
        rule = classifier.choice_.line
    elif isinstance(classifier, estimator.AutoClassifier):
        rule += f"; nothing was chosen: that takes at least {choosing.FEWEST} anchors and two classes"
    return "\n".join([rows, *result.notes, rule])
