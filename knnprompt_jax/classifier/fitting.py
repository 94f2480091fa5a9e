"""Fit a classifier: draw demonstrations, read the rows, and weigh the experts."""

import dataclasses
import difflib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import lm, parallel, states
from knnprompt_jax.classifier import content as content_lib
from knnprompt_jax.classifier import draws, inputs
from knnprompt_jax.classifier import fitted as fitted_lib
from knnprompt_jax.classifier.classifier_options import AutoOptions, PublishedOptions
from knnprompt_jax.classifier.content import AnyOptions, Content, ViewDemonstrations
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.experts import expert, views
from knnprompt_jax.experts import fitting as pool_fitting
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import encoders
from knnprompt_jax.store import rowwise
from knnprompt_jax.tasks.task import Example, Task


def fit(
    model: lm.LanguageModel,
    task: Task,
    rows: Sequence[Example],
    options: AnyOptions,
    *,
    given_task: Task | None,
    labels: Sequence[Any],
    num_rows: int,
    checked: Collection[int] = (),
    file_options: Mapping[str, str | bool] | None = None,
    cache: states.Cache,
    repeated: bool = False,
) -> Fitted:
    """Draw demonstrations, read the rows, and weigh the experts.

    Args:
        given_task: the task that the next fit takes; None if it infers one.
        labels: the task's labels, in class order, as values of y's type.
        num_rows: the number of rows given, including rows that are left out.
        checked: the numbers of rows whose label a person found right.
        file_options: how the rows' file was read, if there is one.
        cache: where states are looked up and kept.
        repeated: whether fits with the same demonstrations follow, as in `states.read`.

    Raises:
        UserError: an invalid option or label word, or too few anchors for k.
    """
    inputs.prior(options.class_prior, np.array(labels))
    encoder = encoder_fingerprint(options)
    content = Content(
        options=options,
        task=task,
        given_task=given_task,
        labels=tuple(labels),
        rows=tuple(rows),
        views=(),
        layer=block_of(options, model.config),
        num_rows=num_rows,
        checked=tuple(sorted(checked)),
        choice=None,
        encoder=encoder,
        model=model.identity,
        file_options=file_options or {},
        origin=content_lib.origin_of(options, task, rows, file_options or {}, model.identity, encoder, checked),
    )
    reader = views.PromptReader(model, task, cache, repeated)
    if isinstance(options, PublishedOptions):
        return _fit_published(content, options, reader)
    return _fit_pool(content, options, reader)


def _fit_published(content: Content, options: PublishedOptions, reader: views.PromptReader) -> Fitted:
    model = reader.model
    fitted_lib.check_label_words(content.task, model, options)
    drawn = draws.draw_published(content.task, content.rows, model, options.demo_shots, options.random_state, options.k)
    view = ViewDemonstrations(drawn.shots, tuple(row.row for row in drawn.demonstrations))
    anchors = reader.read_after(drawn.demonstrations, drawn.anchors, (), "anchors")
    return fitted_lib.complete(dataclasses.replace(content, views=(view,)), model, {view.demo_shots: anchors})


def _fit_pool(content: Content, options: AutoOptions, reader: views.PromptReader) -> Fitted:
    model = reader.model
    rows = content.rows
    seed = options.random_state
    shots = draws.view_shots(content.task, rows, model, options.demo_shots, seed)
    dealt = {number: views.deal(rows, number, seed) for number in shots}
    resources = fitted_lib.resources_of(content, model)
    choice, readings = pool_fitting.choose(reader, rows, dealt, options.names, resources, seed)
    demonstrations = tuple(
        ViewDemonstrations(number, tuple(rows[index].row for index in dealt[number].demonstrations))
        for number in readings.states
    )
    content = dataclasses.replace(content, choice=choice, views=demonstrations)
    return fitted_lib.complete(content, model, readings.states)


def partial_fit(fitted: Fitted, examples: Sequence[Example], num_rows: int, cache: states.Cache) -> Fitted:
    """Return a classifier with more anchors; the demonstrations, the experts and their weights stay.

    A new label becomes a new class, the last one. A line on standard error names it, because a misspelt label becomes
    one.

    Args:
        num_rows: the number of rows given so far, including rows that are left out.
    """
    content = dataclasses.replace(fitted.content, num_rows=num_rows, origin="")
    if not examples:
        return dataclasses.replace(fitted, content=content)
    task = fitted.task.with_labels(example.label for example in examples)
    labels = inputs.labels_like(task, content.labels)
    options = content.options
    inputs.prior(options.class_prior, np.array(labels))
    choice = content.choice and dataclasses.replace(content.choice, is_earlier=True)
    grown = dataclasses.replace(content, task=task, labels=labels, rows=(*content.rows, *examples), choice=choice)
    fitted_lib.check_label_words(task, fitted.model, options, choice)
    reader = views.PromptReader(fitted.model, task, cache, repeated=True)
    joined = {}
    for view in content.views:
        added = reader.read_after(content.demonstrations_of(view), examples, content.blocks, "anchors")
        joined[view.demo_shots] = rowwise.concatenate(fitted.readings.states[view.demo_shots], added)
    _announce(fitted.task, task)
    return fitted_lib.complete(grown, fitted.model, joined)


def _announce(earlier: Task, task: Task) -> None:
    """Print a line for each new class."""
    for label, word in zip(task.labels, task.label_words, strict=True):
        if label not in earlier.labels and parallel.is_main():
            near = difflib.get_close_matches(label, earlier.labels, 1, 0.8)
            similar = f"; the class {near[0]!r} is similar" if near else ""
            print(f"new class {label!r}, whose label word is {word!r}{similar}", file=sys.stderr, flush=True)


def block_of(options: AnyOptions, config: config_lib.DecoderConfig) -> int:
    """Return the block whose output experts read beside the state; 0 if none of them does."""
    reads_block = any(expert.KINDS[name].reads_block for name in options.names)
    return expert.block_of(config) if reads_block else 0


def encoder_fingerprint(options: AnyOptions) -> str:
    """Return the fingerprint of the sentence encoder's files, or "" without one; raise UserError if it cannot load."""
    if not options.encoder:
        return ""
    encoders.describe(options.encoder)
    return lm.find_fingerprint(options.encoder, needs_weights=True)
