"""A fitted classifier as one immutable object, the functions that make one, and its predictions."""

import dataclasses
import difflib
import functools
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax import characters, distances, errors, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax import states as states_lib
from knnprompt_jax.classifier import content as content_lib
from knnprompt_jax.classifier import draws, inputs
from knnprompt_jax.classifier.content import AnyOptions, Content, ViewDemonstrations
from knnprompt_jax.classifier.inputs import Predictions
from knnprompt_jax.confidence import selective
from knnprompt_jax.confidence.novelty import Novelty
from knnprompt_jax.experts import expert, fitting, views, words
from knnprompt_jax.experts.expert import Readings
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import encoders
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings.classifiers import AutoOptions, PublishedOptions
from knnprompt_jax.store import rowwise
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks.task import Example, Task

CHANGEABLE = {PublishedOptions: ("k", "distance", "weights", "tie_break"), AutoOptions: ("class_prior",)}
"""The options that may change after a fit, by the class of the options."""


class Queries(NamedTuple):
    """Texts to classify, and their prompts by demonstrations per class."""

    texts: Sequence[str]
    prompts: Mapping[int, layout.Prompts]

    @property
    def num_truncated(self) -> int:
        """The number of texts with a prompt that lost its first tokens."""
        return len({index for prompts in self.prompts.values() for index in prompts.truncated_index})


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted classifier.

    Attributes:
        content: the task, the options, the rows, and the experts with their weights.
        model: the language model.
        readings: the anchors' texts and states, in the order of the anchors, in host memory.
        make_store: returns `store`, and builds it at the first call; copies of the classifier share it.
        pool: the experts, fitted to the anchors; None for the published vote.
    """

    content: Content
    model: lm_lib.LanguageModel
    readings: Readings
    make_store: Callable[[], store_lib.Store]
    pool: fitting.Pool | None

    @property
    def task(self) -> Task:
        return self.content.task

    @property
    def anchors(self) -> tuple[Example, ...]:
        return self.content.anchors

    @property
    def demonstrations(self) -> tuple[Example, ...]:
        """The examples that begin the prompts of the first view."""
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
    def states(self) -> lm_lib.States:
        """The states of the anchors in the first view."""
        return self.readings.states[self.content.views[0].demo_shots]

    @property
    def store(self) -> store_lib.Store:
        """The store of the anchors' states in the first view, whose ids are row numbers; or of the class means."""
        return self.make_store()

    @property
    def has_centroids(self) -> bool:
        """Whether class means replace the anchors."""
        return _centroid(self.options) != "none"

    def with_options(self, options: AnyOptions) -> Self:
        """Return the classifier with the given values of the options that may change after a fit."""
        names = CHANGEABLE[type(options)]
        if all(getattr(options, name) is getattr(self.options, name) for name in names):
            return self
        changed = dataclasses.replace(self.options, **{name: getattr(options, name) for name in names})
        content = dataclasses.replace(self.content, options=changed)
        if content.distance == self.content.distance:
            return dataclasses.replace(self, content=content)
        make_store = functools.cache(functools.partial(_build_store, content, self.model, self.states))
        make_store()  # It refuses label words that share a token.
        return dataclasses.replace(self, content=content, make_store=make_store)

    def build_prompts(self, examples: Sequence[Example]) -> Queries:
        """Return the examples' prompts; raise UserError as `layout.build_prompts`."""
        reader = views.PromptReader(self.model, self.task, self.options.truncation)
        content = self.content
        prompts = {view.demo_shots: reader.build(examples, content.demonstrations_of(view)) for view in content.views}
        return Queries(fitting.joined_texts(self.task, examples), prompts)

    def read_prompts(self, queries: Queries, cache: states_lib.Cache | None = None, title: str = "reading") -> Readings:
        """Return the readings of texts whose prompts are built."""
        blocks = self.content.blocks
        states = {
            shots: parallel.replicate(
                states_lib.read(self.model, prompts, cache, title=title, repeated=True, blocks=blocks)
            )
            for shots, prompts in queries.prompts.items()
        }
        return Readings(queries.texts, states)

    def read(self, examples: Sequence[Example], cache: states_lib.Cache | None = None) -> Readings:
        """Return the readings of examples."""
        return self.read_prompts(self.build_prompts(examples), cache)

    def search(self, readings: Readings, k: int) -> search_lib.Neighbours:
        """Return the k nearest anchors of each text in the first view, or its nearest class mean."""
        states = readings.states[self.content.views[0].demo_shots]
        return expert.search(self.store, states, 1 if self.has_centroids else k)

    def search_among_anchors(self, k: int) -> search_lib.Neighbours:
        """Return the k nearest other anchors of each anchor; raise UserError if there are fewer.

        k + 1 are searched for. Where an anchor is not among its own nearest, because many others equal it, the first k
        are kept.
        """
        self.check_neighbours()
        if not 1 <= k < len(self.store):
            raise errors.UserError(f"k={k}: choose from 1 to {len(self.store) - 1}, the number of other anchors")
        nearest = self.store.search(parallel.put_rows(self.states.with_blocks(()), self.model.mesh), k + 1)
        itself_Nk = nearest.indices_Qk == jnp.arange(len(self.store))[:, None]
        # Sort the other anchors first, in their order, and the anchor itself last.
        order_Nk = jnp.argsort(itself_Nk, -1, stable=True)[:, :k]
        return jax.tree.map(lambda array: jnp.take_along_axis(array, order_Nk, -1), nearest)

    def answer(self, readings: Readings, with_neighbours: bool = True) -> Predictions:
        """Return predictions for texts.

        Args:
            with_neighbours: whether predictions have neighbours; a pool searches for them only then.
        """
        distances_Qk = np.zeros((len(readings.texts), 0), np.float32)
        ids_Qk = np.zeros(distances_Qk.shape, int)
        if self.pool is None or with_neighbours:
            near = self.search(readings, self.content.k)
        if with_neighbours and not self.has_centroids:  # Class means are no anchors.
            distances_Qk = np.asarray(near.distances_Qk)
            ids_Qk = self.store.ids_N[np.asarray(near.indices_Qk)]
        if self.pool is None:
            classes_Q, p_QC = self._vote(near)
        else:
            p_QC = self.pool.probabilities(readings, self.prior_C)
            classes_Q = p_QC.argmax(-1)
        return Predictions(
            labels=self.content.labels_C[classes_Q],
            probabilities=p_QC[:, inputs.label_order(self.content.labels_C)],
            distances=distances_Qk,
            ids=ids_Qk,
        )

    def novelty(self, readings: Readings) -> np.ndarray:
        """Return the p-value of each text [Q] as one of the anchors' kind; a small one means that it is unlike them."""
        return self.scope.p_values(self.novelty_scores(readings))

    def novelty_scores(self, readings: Readings) -> np.ndarray:
        """Return how unlike the anchors each text is [Q]; larger is more unlike."""
        arrays = _novelty_inputs(readings)
        if not self.scope.doubt_weight:
            return self.scope.scores(arrays)
        assert self.pool
        return self.scope.scores(arrays, self.pool.probabilities(readings).max(-1))

    @functools.cached_property
    def scope(self) -> Novelty:
        """The novelty of texts, fitted to the anchors."""
        return Novelty.fit(_novelty_inputs(self.readings), self.content.y_N, self.content.predicted)

    @property
    def prior_C(self) -> np.ndarray | None:
        """The given share of each class among the texts; None if it is that of the rows."""
        return inputs.prior(getattr(self.options, "class_prior", None), self.content.labels_C)

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each anchor's class [N] and class probabilities [N, C] by other anchors, in class order.

        `KNNPrompting` leaves out only the anchor itself, `AutoClassifier` a fold of anchors.

        Raises:
            UserError: there is a single anchor, or the classifier predicts by class means.
        """
        self.check_neighbours()
        count = len(self.anchors)
        if count < 2:
            raise errors.UserError("leave-one-out needs at least two anchors: add rows")
        if self.content.choice is None:
            return self._vote(self.search_among_anchors(min(self.content.k, count - 1)))
        resources = _resources(self.content, self.model)
        arguments = (self.readings, self.content.y_N, self.task.num_classes, resources)
        p_NC = fitting.held_out_probabilities(self.content.choice, *arguments)
        return p_NC.argmax(-1), p_NC

    def threshold(self, max_error: Any) -> float:
        """Return the smallest probability from which on labels keep a promised error rate, as in `selective.certify`.

        Raises:
            UserError: not a share, or it cannot be promised with these rows.
        """
        return selective.certify(*self.held_out(), max_error)

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability [N] of each held-out row's prediction, and whether it is right [N].

        `KNNPrompting` leaves out each anchor in turn. The pool has kept what its weights were fitted to.

        Raises:
            UserError: as `left_out` and `Content.held_out`.
        """
        if self.content.choice:
            return self.content.held_out()
        classes_N, p_NC = self.left_out()
        return p_NC.max(-1), classes_N == self.content.y_N

    def _vote(self, near: search_lib.Neighbours) -> tuple[np.ndarray, np.ndarray]:
        options = self.options
        assert isinstance(options, PublishedOptions)
        return search_lib.vote(near, self.task.num_classes, options.tie_break, options.weights)

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
    checked: Collection[int] = (),
    file_options: Mapping[str, str | bool] | None = None,
    cache: states_lib.Cache,
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
    inputs.prior(getattr(options, "class_prior", None), np.array(labels))
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
    if isinstance(options, PublishedOptions):
        return _fit_published(content, options, model, cache, repeated)
    return _fit_pool(content, options, model, cache, repeated)


def _fit_published(
    content: Content,
    options: PublishedOptions,
    model: lm_lib.LanguageModel,
    cache: states_lib.Cache,
    repeated: bool,
) -> Fitted:
    task = content.task
    check_label_words(task, model, options)
    drawn = draws.draw_published(task, content.rows, model, options.demo_shots, options.random_state, options.k)
    view = ViewDemonstrations(drawn.shots, tuple(row.row for row in drawn.demonstrations))
    content = dataclasses.replace(content, views=(view,))
    reader = views.PromptReader(model, task, options.truncation, cache, repeated)
    states = reader.read_after(drawn.demonstrations, drawn.anchors, (), "anchors")
    return complete(content, model, {view.demo_shots: states})


def _fit_pool(
    content: Content, options: AutoOptions, model: lm_lib.LanguageModel, cache: states_lib.Cache, repeated: bool
) -> Fitted:
    task = content.task
    rows = content.rows
    seed = options.random_state
    shots = draws.view_shots(task, rows, model, options.demo_shots, seed)
    dealt = {number: views.deal(rows, number, seed) for number in shots}
    reader = views.PromptReader(model, task, options.truncation, cache, repeated)
    choice, readings = fitting.choose(reader, rows, dealt, options.names, _resources(content, model), seed)
    demonstrations = tuple(
        ViewDemonstrations(number, tuple(rows[index].row for index in dealt[number].demonstrations))
        for number in readings.states
    )
    content = dataclasses.replace(content, choice=choice, views=demonstrations)
    return complete(content, model, readings.states)


def partial_fit(fitted: Fitted, examples: Sequence[Example], num_rows: int, cache: states_lib.Cache) -> Fitted:
    """Return a classifier with more anchors; the demonstrations, the experts and their weights stay.

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
    options = content.options
    inputs.prior(getattr(options, "class_prior", None), np.array(labels))
    choice = content.choice and dataclasses.replace(content.choice, is_earlier=True)
    grown = dataclasses.replace(content, task=task, labels=labels, rows=(*content.rows, *examples), choice=choice)
    check_label_words(task, fitted.model, options, choice)
    reader = views.PromptReader(fitted.model, task, options.truncation, cache, repeated=True)
    joined = {}
    for view in content.views:
        added = reader.read_after(content.demonstrations_of(view), examples, content.blocks, "anchors")
        joined[view.demo_shots] = rowwise.concatenate(fitted.readings.states[view.demo_shots], added)
    _announce(fitted.task, task)
    return complete(grown, fitted.model, joined)


def complete(
    content: Content,
    model: lm_lib.LanguageModel,
    states: Mapping[int, lm_lib.States],
    terms: words.Terms | None = None,
) -> Fitted:
    """Fit the experts to the anchors, or build the store of the anchors that vote.

    Args:
        states: the states of the anchors, in host memory, of each view.
        terms: the expert on words, if it is fitted already.
    """
    readings = Readings(fitting.joined_texts(content.task, content.anchors), states)
    first_states = states[content.views[0].demo_shots]
    make_store = functools.cache(functools.partial(_build_store, content, model, first_states))
    pool = None
    if content.choice:
        check_label_words(content.task, model, content.options, content.choice)
        resources = _resources(content, model)
        pool = fitting.Pool.fit(content.choice, readings, content.y_N, content.task.num_classes, resources, terms)
    else:
        make_store()
    return Fitted(content, model, readings, make_store, pool)


def _build_store(content: Content, model: lm_lib.LanguageModel, states: lm_lib.States) -> store_lib.Store:
    """Build the store of the anchors, or of their class means."""
    options = content.options
    reads_label_words = distances.get(content.distance).reads_label_words
    return store_lib.build(
        options.store_options,
        content.distance,
        model.head,
        parallel.put_rows(states.with_blocks(()), model.mesh),
        content.y_N,
        layout.label_tokens(content.task, model.tokenize, options.label_token) if reads_label_words else (),
        ids=content.ids_N,
        centroid=_centroid(options),
    )


def _resources(content: Content, model: lm_lib.LanguageModel) -> expert.Resources:
    options = content.options
    assert isinstance(options, AutoOptions)
    return fitting.resources_of(
        content.task, model, options.label_token, content.layer, options.encoder, options.store_options
    )


def block_of(options: AnyOptions, config: config_lib.DecoderConfig) -> int:
    """Return the block whose output experts read beside the state; 0 if none of them does."""
    if isinstance(options, PublishedOptions):
        return 0
    reads_block = any(expert.KINDS[name].reads_block for name in options.names)
    return expert.block_of(config) if reads_block else 0


def encoder_fingerprint(options: AnyOptions) -> str:
    """Return the fingerprint of the sentence encoder's files, or "" without one; raise UserError if it cannot load."""
    if isinstance(options, PublishedOptions) or not options.encoder:
        return ""
    encoders.describe(options.encoder)
    return lm_lib.find_fingerprint(options.encoder, needs_weights=True)


def check_label_words(
    task: Task, model: lm_lib.LanguageModel, options: AnyOptions, choice: content_lib.Choice | None = None
) -> None:
    """Raise UserError if classes share a token, and the distance or an expert of the choice compares label words."""
    by_distance = isinstance(options, PublishedOptions) and distances.get(options.distance).reads_label_words
    by_expert = choice and any(member.expert == expert.LabelWords.name for member in choice.used)
    if by_distance or by_expert:
        layout.label_tokens(task, model.tokenize, options.label_token)


def _novelty_inputs(readings: Readings) -> list[np.ndarray]:
    """Return the state and, if it is read, the output of a block, in the view with the fewest demonstrations [Q, F].

    Without demonstrations, anchors and new texts are read alike.
    """
    states = readings.states[min(readings.states)]
    return [np.asarray(states.hidden_NE), *map(np.asarray, states.blocks.values())]


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
