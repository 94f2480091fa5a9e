"""A fitted classifier as one immutable object, the functions that make one, and its predictions."""

import dataclasses
import difflib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from knnprompt_jax import characters, distances, errors, parallel, rounding, rules
from knnprompt_jax import lm as lm_lib
from knnprompt_jax import states as states_lib
from knnprompt_jax.classifier import content as content_lib
from knnprompt_jax.classifier import draws, inputs
from knnprompt_jax.classifier.content import AnyOptions, Content
from knnprompt_jax.classifier.draws import Draw
from knnprompt_jax.classifier.inputs import Predictions
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.prompts import layout
from knnprompt_jax.rules import Choice, Rule, evidence
from knnprompt_jax.settings.classifiers import AUTO, AutoOptions, PublishedOptions
from knnprompt_jax.store import kernel, rowwise
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks.task import Example, Task

LAYER = 0.75  # A probe reads the output of the block at this share of the depth by default.
CHANGEABLE = {PublishedOptions: ("k", "distance", "weights", "tie_break"), AutoOptions: ("class_prior",)}
"""The options that may change after a fit, by the class of the options."""


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted classifier.

    Attributes:
        content: the task, the options, the rows and the chosen rule.
        model: the language model.
        states: the states of the anchors' prompts, in the order of the anchors, in host memory.
        store: the store of the anchors, whose ids are row numbers, or of the class means.
        rule: the chosen rule, fitted to the anchors; None for the published vote.
    """

    content: Content
    model: lm_lib.LanguageModel
    states: lm_lib.States
    store: store_lib.Store
    rule: rules.FittedRule | None

    @property
    def task(self) -> Task:
        return self.content.task

    @property
    def anchors(self) -> tuple[Example, ...]:
        return self.content.anchors

    @property
    def demonstrations(self) -> tuple[Example, ...]:
        return self.content.demonstrations

    @property
    def options(self) -> AnyOptions:
        return self.content.options

    @property
    def classes(self) -> np.ndarray:
        """The labels [C] as in y, sorted: the columns of probabilities."""
        labels_C = self.content.labels_C
        return labels_C[inputs.label_order(labels_C)]

    @property
    def settings(self) -> Rule:
        """The rule's settings: the chosen ones, with the options that may change after a fit."""
        return self.content.rule

    @property
    def layers(self) -> tuple[int, ...]:
        """The blocks whose outputs the rule reads."""
        return self.content.choice.rule.layers

    @property
    def has_centroids(self) -> bool:
        """Whether class means replace the anchors."""
        return _centroid(self.options) != "none"

    def with_options(self, options: AnyOptions) -> Self:
        """Return the classifier with the given values of the options that may change after a fit."""
        names = CHANGEABLE[type(options)]
        changed = dataclasses.replace(self.options, **{name: getattr(options, name) for name in names})
        fitted = dataclasses.replace(self, content=dataclasses.replace(self.content, options=changed))
        distance = fitted.settings.distance
        if distance == self.store.distance.name:
            return fitted
        return dataclasses.replace(fitted, store=_build_store(fitted.content, self.model, self.states, distance))

    def build_prompts(self, examples: Sequence[Example]) -> layout.Prompts:
        """Return the examples' prompts; raise UserError as `layout.build_prompts`."""
        model = self.model
        return layout.build_prompts(
            self.task, self.demonstrations, examples, model.tokenize, model.context, self.options.truncation
        )

    def read(self, examples: Sequence[Example], cache: states_lib.AnyCache | None = None) -> lm_lib.States:
        """Return the states of the examples' prompts."""
        prompts = self.build_prompts(examples)
        return states_lib.read(self.model, prompts, cache, title="reading", repeated=True, layers=self.layers)

    def device_states(self) -> lm_lib.States:
        """Return the anchors' states with rows split over every device of the model."""
        return parallel.put_rows(self.states, self.model.mesh)

    def search(self, states: lm_lib.States, k: int) -> kernel.Neighbours:
        """Return the k nearest anchors of each state, or its nearest class mean."""
        # Padding to a power of two lets calls of about the same size share a compiled program.
        padded = rowwise.pad(states.with_layers(()), rounding.next_power_of_two(max(1, len(states))))
        nearest = self.store.search(padded, 1 if self.has_centroids else k)
        return rowwise.take(nearest, slice(0, len(states)))

    def others(self, k: int) -> kernel.Neighbours:
        """Return the k nearest other anchors of each anchor; raise UserError if there are fewer."""
        self.check_neighbours()
        return evidence.neighbours(self.store, k, self.device_states())

    def answer_states(self, states: lm_lib.States) -> Predictions:
        """Return predictions for texts whose prompts have these states."""
        states = parallel.replicate(states)
        near = self.search(states, self.settings.k)
        classes_Q, p_QC = self._decide(near, states)
        k = 0 if self.has_centroids else None  # Class means are no anchors.
        return Predictions(
            labels=self.content.labels_C[classes_Q],
            probabilities=p_QC[:, inputs.label_order(self.content.labels_C)],
            distances=np.asarray(near.distances_Qk)[:, :k],
            ids=self.store.ids_N[np.asarray(near.indices_Qk)][:, :k],
        )

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each anchor's leave-one-out class [N] and class probabilities [N, C], in class order.

        Raises:
            UserError: there is a single anchor, or the classifier predicts by class means.
        """
        self.check_neighbours()
        if len(self.anchors) < 2:
            raise errors.UserError("leave-one-out needs at least two anchors: add rows")
        return self._decide(self.others(min(self.settings.k, len(self.anchors) - 1)), None)

    def _decide(self, near: kernel.Neighbours, states: lm_lib.States | None) -> tuple[np.ndarray, np.ndarray]:
        """Return classes [Q] and probabilities [Q, C], in class order, of texts with these neighbours and states.

        Without states, the texts are the anchors, each with its neighbours among the others.
        """
        options = self.options
        if isinstance(options, PublishedOptions):
            return kernel.vote(near, self.task.num_classes, options.tie_break, options.weights)
        assert self.rule is not None
        near_Qk = np.asarray(near.classes_Qk), np.asarray(near.distances_Qk)
        layer = self.settings.layer
        if states is None:
            p_QC = self.rule.probabilities(*near_Qk, rules.probe_inputs(self.states, layer), self.content.y_N)
        else:
            prior_C = inputs.prior(options.class_prior, self.content.labels_C)
            p_QC = self.rule.probabilities(*near_Qk, rules.probe_inputs(states, layer), prior_C=prior_C)
        return p_QC.argmax(-1), p_QC

    def check_neighbours(self) -> None:
        """Raise UserError if class means replace the anchors."""
        if self.has_centroids:
            raise errors.UserError(
                f"fitted with centroid={_centroid(self.options)!r}: class means have no neighbours; fit with centroid='none'"
            )


def fit(
    model: lm_lib.LanguageModel,
    task: Task,
    rows: Sequence[Example],
    options: AnyOptions,
    *,
    given_task: Task | None,
    labels: Sequence[Any],
    num_rows: int,
    source: Mapping[str, str | bool] | None = None,
    cache: states_lib.AnyCache,
    repeated: bool = False,
) -> Fitted:
    """Draw demonstrations, choose what is not given, and read all other rows as anchors.

    Args:
        given_task: the task that the next fit takes; None if it infers one.
        labels: the task's labels, in class order, as values of y's type.
        num_rows: the number of rows given, including rows that are left out.
        source: how the rows' file was read, if there is one.
        cache: where states are looked up and kept.
        repeated: whether fits with the same demonstrations follow, as in `states.read`.

    Raises:
        UserError: an invalid option or label word, or too few anchors for k.
    """
    check_options(options, model.config, labels)
    by_shots = draws.candidates(task, rows, model, options, options.k if isinstance(options.k, int) else None)
    label_ids = label_ids_of(task, model, options, options.distance)
    reader = _Reader(model, task, options, cache, repeated)
    samples: Mapping[int, rules.Sample] = {}
    if isinstance(options, PublishedOptions):
        rule = Rule("votes", next(iter(by_shots)), options.k, options.distance, options.weights)
        choice = Choice(rule)
    else:
        grid = rules.Grid.of(options)
        samples = _sample(reader, by_shots, candidate_layers(options, model.config))
        choice = rules.choose([*samples.values()], model.head, label_ids, grid, options.metric)
    shots = choice.rule.demo_shots
    demonstrations, anchors = by_shots[shots]
    if shots in samples and len(samples[shots].states) == len(anchors):
        states = samples[shots].states.with_layers(choice.rule.layers)
    else:
        states = reader.read(demonstrations, anchors, choice.rule.layers, "anchors")
    content = Content(
        options=options,
        task=task,
        given_task=given_task,
        labels=tuple(labels),
        demonstrations=demonstrations,
        anchors=anchors,
        num_rows=num_rows,
        choice=choice,
        model=model.identity,
        source=source or {},
        origin=content_lib.origin_of(options, task, rows, source or {}, model.identity),
    )
    return complete(content, model, states)


def partial_fit(fitted: Fitted, examples: Sequence[Example], num_rows: int, cache: states_lib.AnyCache) -> Fitted:
    """Return a classifier with more anchors; the demonstrations and the rule stay.

    A new label becomes a new class, the last one. A line on standard error names it, because a misspelt label becomes
    one.

    Args:
        num_rows: the number of rows given so far, including rows that are left out.
    """
    content = dataclasses.replace(fitted.content, num_rows=num_rows)
    if not examples:
        return dataclasses.replace(fitted, content=content)
    task = fitted.task.with_labels(example.label for example in examples)
    labels = content_lib.labels_like(task, content.labels)
    check_options(content.options, fitted.model.config, labels)
    label_ids_of(task, fitted.model, content.options, content.rule.distance)
    reader = _Reader(fitted.model, task, content.options, cache, repeated=True)
    states = reader.read(content.demonstrations, examples, fitted.layers, "anchors")
    _announce(fitted.task, task)
    content = dataclasses.replace(
        content,
        task=task,
        labels=labels,
        anchors=(*content.anchors, *examples),
        choice=dataclasses.replace(content.choice, is_earlier=True),
    )
    joined = rowwise.concatenate(fitted.states, parallel.replicate(states))
    return complete(content, fitted.model, joined)


def complete(content: Content, model: lm_lib.LanguageModel, states: lm_lib.States) -> Fitted:
    """Build the store of the anchors and fit the rule to them."""
    host_states = jax.tree.map(np.asarray, parallel.replicate(states))
    rule = content.rule
    store = _build_store(content, model, host_states, rule.distance)
    fitted_rule = None
    if not content.is_published:
        inputs_NF = rules.probe_inputs(host_states, rule.layer)
        fitted_rule = rules.FittedRule.fit(rule, inputs_NF, content.y_N, content.task.num_classes)
    return Fitted(content, model, host_states, store, fitted_rule)


def _build_store(
    content: Content, model: lm_lib.LanguageModel, states: lm_lib.States, distance: str
) -> store_lib.Store:
    """Build the store of the anchors, or of their class means, for a distance."""
    options = content.options
    return store_lib.build(
        options.store_options,
        distance,
        model.head,
        parallel.put_rows(states.with_layers(()), model.mesh),
        content.y_N,
        label_ids_of(content.task, model, options, distance),
        ids=content.ids_N,
        centroid=_centroid(options),
    )


def check_options(options: AnyOptions, config: config_lib.DecoderConfig, labels: Sequence[Any]) -> None:
    """Raise UserError on a block that the model lacks, or a prior that does not match the labels."""
    layer = getattr(options, "layer", AUTO)
    if layer != AUTO and layer > config.num_layers:
        raise errors.UserError(
            f"layer={layer}: the model has {config.num_layers} blocks; choose from 0 to {config.num_layers}"
        )
    inputs.prior(getattr(options, "class_prior", None), np.array(labels))


def candidate_layers(options: AnyOptions, config: config_lib.DecoderConfig) -> tuple[int, ...]:
    """Return the blocks whose outputs a rule may read."""
    if isinstance(options, PublishedOptions):
        return ()
    if options.layer == AUTO:
        return (max(1, round(LAYER * config.num_layers)),)
    return (options.layer,) if options.layer else ()


def label_ids_of(task: Task, model: lm_lib.LanguageModel, options: AnyOptions, distance: str) -> Sequence[int]:
    """Return the token of each class; none if classes share a token and this distance, or "auto", can do without.

    Raises:
        UserError: classes share a token, and the distance compares label words.
    """
    try:
        return layout.label_ids(task, model.tokenize, options.label_token)
    except errors.UserError:
        if distance != AUTO and distances.get(distance).reads_label_words:
            raise
        return ()


@dataclasses.dataclass(frozen=True, eq=False)
class _Reader:
    """Reads prompts of a task with a model."""

    model: lm_lib.LanguageModel
    task: Task
    options: AnyOptions
    cache: states_lib.AnyCache
    repeated: bool

    def read(
        self, demonstrations: Sequence[Example], examples: Sequence[Example], layers: tuple[int, ...], title: str
    ) -> lm_lib.States:
        """Return the states of the examples' prompts; log how many prompts are too long."""
        model = self.model
        prompts = layout.build_prompts(
            self.task, demonstrations, examples, model.tokenize, model.context, self.options.truncation
        )
        layout.warn_truncated(prompts.num_truncated, prompts.num_prompts, model.context)
        return states_lib.read(model, prompts, self.cache, title=title, repeated=self.repeated, layers=layers)


def _sample(reader: _Reader, by_shots: Mapping[int, Draw], layers: tuple[int, ...]) -> dict[int, rules.Sample]:
    """Read at most `evidence.LIMIT` anchors of each draw, by which rules are compared."""
    samples = {}
    for shots, (demonstrations, anchors) in by_shots.items():
        compared = [anchors[index] for index in rules.sample(anchors, reader.options.random_state)]
        states = reader.read(demonstrations, compared, layers, f"demonstrations per class: {shots}")
        ids_N = np.array([example.row for example in compared])
        y_N = inputs.classes_of(reader.task, compared)
        samples[shots] = rules.Sample(shots, ids_N, y_N, parallel.replicate(states))
    return samples


def _centroid(options: AnyOptions) -> str:
    return options.centroid if isinstance(options, PublishedOptions) else "none"


def _announce(earlier: Task, task: Task) -> None:
    """Print a line for each new class."""
    for label, word in zip(task.labels, task.label_words, strict=True):
        if label not in earlier.labels and parallel.is_main():
            near = difflib.get_close_matches(label, earlier.labels, 1, 0.8)
            similar = f"; the class {near[0]!r} is similar" if near else ""
            similar = characters.difference(label, earlier.labels) or similar
            print(f"new class {label!r}, whose label word is {word!r}{similar}", file=sys.stderr, flush=True)
