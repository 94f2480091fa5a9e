"""Fit a classifier: draw demonstrations, read the rows, and weigh the experts."""

import collections
import dataclasses
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax.classifier import fitted
from knnprompt_jax.classifier.arguments import AUTO, AutoOptions, PublishedOptions
from knnprompt_jax.classifier.experts import near_copies, pool_fitting, views
from knnprompt_jax.classifier.fitted import AnyOptions, Content, Fitted, ViewDemonstrations
from knnprompt_jax.common import errors, progress
from knnprompt_jax.inference import lm, states
from knnprompt_jax.inference.prompts import shot_limits
from knnprompt_jax.models import encoders
from knnprompt_jax.tasks import splits, table_file
from knnprompt_jax.tasks.task import Example, Task

_MAX_UNLABELLED = 1024  # Texts without labels; more would hardly change means and shares.
_EXPERTS_ON_DESCRIPTIONS = ("labels", "means")
_MAX_COUNTED_ROWS = 2 * max(shot_limits.DEMO_SHOTS)  # Rows of a class that suffice to count how many fit the context.


def fit(
    model: lm.LanguageModel,
    task: Task,
    rows: Sequence[Example],
    options: AnyOptions,
    *,
    labels: Sequence[Any],
    table: Sequence[tuple[str, ...]] = (),
    label_column: str = table_file.LABEL,
    cache: states.Cache,
    repeated: bool = False,
    unlabelled: Sequence[Example] = (),
) -> Fitted:
    """Draw demonstrations, read the rows, and weigh the experts.

    Args:
        rows: the rows; without any, a pool reads the descriptions of the classes in their place.
        labels: the task's labels, in class order, as values of y's type.
        table: the train file as texts, as in `Content`.
        label_column: the column of the labels in the train file.
        cache: where states are looked up and kept.
        repeated: whether fits with the same demonstrations follow, as in `states.read`.
        unlabelled: texts without labels, drawn like the texts to come; the published method does not read them.

    Raises:
        UserError: an invalid option or label word, too few anchors for k, or neither rows nor descriptions.
    """
    if not rows:
        rows, options = _rows_from_descriptions(task, options)
    if len({row.label for row in rows}) < 2:
        raise errors.UserError(f"every row has the label {rows[0].label!r}: give rows of two classes or more")
    content = Content(
        task=task,
        labels=tuple(labels),
        options=options,
        rows=tuple(dataclasses.replace(row, place=f"row {row.row}", extra=row.ids) for row in rows),
        text_numbers=tuple(near_copies.number_texts(rows).tolist()),
        table=tuple(table),
        encoder=encoder_fingerprint(options),
        model=model.identity,
        label_column=label_column,
    )
    reader = views.PromptReader(model, task, cache, repeated)
    if isinstance(options, PublishedOptions):
        return _fit_published(content, options, reader)
    return _fit_pool(content, options, reader, unlabelled)


def _rows_from_descriptions(task: Task, options: AnyOptions) -> tuple[list[Example], AnyOptions]:
    """Return the descriptions of classes as rows, and the options of a pool for them."""
    if isinstance(options, PublishedOptions) or not task.descriptions:
        raise errors.UserError("no rows: give some or, to AutoClassifier, a task with `descriptions` of its classes")
    progress.note("no rows: each class has its description instead; label a few texts to know how good this is")
    encoders_used = ("encoder",) if options.encoder else ()
    experts = options.experts or (*_EXPERTS_ON_DESCRIPTIONS, *encoders_used)
    return task.described(), dataclasses.replace(options, experts=experts)


def _fit_published(content: Content, options: PublishedOptions, reader: views.PromptReader) -> Fitted:
    model = reader.model
    fitted.check_label_words(content, model)
    shots = options.demo_shots
    if shots is None:
        shots = shots_that_fit(content.task, content.rows, model)
    demonstrations = draw(content.rows, check_shots(shots), options.random_state)
    counts = collections.Counter(row.label for row in demonstrations)
    view = ViewDemonstrations(max(counts.values(), default=0), tuple(row.row for row in demonstrations))
    content = dataclasses.replace(content, views=(view,))
    fitted.check_options(content)
    anchors = reader.read_after(demonstrations, content.anchors, (), "anchors")
    return fitted.complete(content, model, {view.demo_shots: anchors})


def _fit_pool(
    content: Content, options: AutoOptions, reader: views.PromptReader, unlabelled: Sequence[Example]
) -> Fitted:
    model = reader.model
    rows = content.rows
    # The estimate replaces these shares, of which only the number is checked.
    any_shares = tuple(1 / content.task.num_classes for _ in content.labels if unlabelled)
    fitted.check_options(dataclasses.replace(content, estimated_prior=any_shares))
    shots = view_shots(content.task, rows, model, options.demo_shots, options.random_state)
    distinct = list({row.text_key: row for row in unlabelled}.values())
    order = views.hash_order(distinct, options.random_state)[:_MAX_UNLABELLED]
    texts = [distinct[index] for index in order]
    resources = fitted.resources_of(content, model)
    text_N = np.array(content.text_numbers)
    found = pool_fitting.fit(reader, rows, text_N, shots, options.names, resources, options.random_state, texts)
    drawn = tuple(
        ViewDemonstrations(number, tuple(row.row for row in found.demonstrations[number]), tuple(read.activations))
        for number, read in found.readings.states.items()
    )
    content = dataclasses.replace(
        content,
        choice=found.pool.choice,
        views=drawn,
        num_unlabelled=len(texts),
        estimated_prior=tuple(found.shares_C.tolist()),
    )
    return Fitted(content, model, found.readings, found.pool)


def encoder_fingerprint(options: AnyOptions) -> str:
    """Return the fingerprint of the sentence encoder's files, or "" without one; raise UserError if it cannot load."""
    if isinstance(options, PublishedOptions) or not options.encoder:
        return ""
    encoders.describe(options.encoder)
    return lm.find_fingerprint(options.encoder, needs_weights=True)


def draw(rows: Sequence[Example], demo_shots: int, seed: int) -> tuple[Example, ...]:
    """Draw `demo_shots` demonstrations per class, at most half of a class, in the order of the prompt."""
    sizes = collections.Counter(row.label for row in rows)
    shots = {label: min(demo_shots, size // 2) for label, size in sizes.items()}
    return tuple(rows[index] for index in views.first_per_class(rows, views.hash_order(rows, seed), shots))


def first_rows(rows: Sequence[Example], shots: int, seed: int) -> list[Example]:
    """Draw `shots` rows per class, or all rows of a smaller class; return them in their own order."""
    return [rows[index] for index in sorted(views.first_per_class(rows, views.hash_order(rows, seed), shots))]


def view_shots(
    task: Task, rows: Sequence[Example], model: lm.LanguageModel, demo_shots: Any, seed: int
) -> tuple[int, ...]:
    """Return the numbers of demonstrations per class of the views, in descending order.

    Args:
        demo_shots: a number, several, or "auto".

    Raises:
        UserError: an invalid number.
    """
    if demo_shots == AUTO:
        return views.default_numbers(task, rows, model.count_tokens, model.context, seed)
    given = demo_shots if isinstance(demo_shots, list | tuple) and demo_shots else [demo_shots]
    largest = max(collections.Counter(row.label for row in rows).values()) if len(rows) > 1 else 0
    return tuple(sorted({min(check_shots(number), largest) for number in given}, reverse=True))


def check_shots(demo_shots: Any) -> int:
    """Return a number of demonstrations per class; raise UserError if it is none."""
    if isinstance(demo_shots, bool) or not isinstance(demo_shots, numbers.Integral) or demo_shots < 0:
        raise errors.UserError(f"demo_shots={demo_shots!r}: choose a whole number from 0 (no demonstrations)")
    return int(demo_shots)


def shots_that_fit(task: Task, rows: Sequence[Example], model: lm.LanguageModel) -> int:
    """Return M_T, or 0 if even one demonstration per class makes too many prompts too long.

    Only the first rows of a class count, so that appended rows do not change it.
    """
    counted = [row for members in splits.group_by("label", rows).values() for row in members[:_MAX_COUNTED_ROWS]]
    limit = shot_limits.shot_limit(task, counted, model.tokenize, model.context)
    return limit.m_t if round(100 * limit.truncated) <= shot_limits.MAX_TRUNCATION_PERCENT else 0
