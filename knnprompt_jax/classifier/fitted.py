"""A fitted classifier as one immutable object, and its predictions."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax import distances, errors, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax import states as states_lib
from knnprompt_jax.classifier import draws, inputs
from knnprompt_jax.classifier.classifier_options import PublishedOptions
from knnprompt_jax.classifier.content import AnyOptions, Content
from knnprompt_jax.classifier.inputs import Predictions
from knnprompt_jax.confidence import selective
from knnprompt_jax.confidence.novelty import Novelty
from knnprompt_jax.experts import expert, views, words
from knnprompt_jax.experts import fitting as pool_fitting
from knnprompt_jax.experts.expert import Readings
from knnprompt_jax.experts.pool import Choice
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks.task import Example, Task


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
    pool: pool_fitting.Pool | None

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
        return self.first_view(self.readings)

    @property
    def store(self) -> store_lib.Store:
        """The store of the anchors' states in the first view, whose ids are row numbers; or of the class means."""
        return self.make_store()

    @property
    def has_centroids(self) -> bool:
        """Whether class means replace the anchors."""
        return self.options.centroid != "none"

    def with_options(self, options: AnyOptions) -> Self:
        """Return the classifier with the given values of the options that may change after a fit.

        Raises:
            UserError: a prior that does not match the labels, or fewer than k anchors.
        """
        names = options.CHANGEABLE
        if all(getattr(options, name) is getattr(self.options, name) for name in names):
            return self
        changed = dataclasses.replace(self.options, **{name: getattr(options, name) for name in names})
        inputs.prior(changed.class_prior, self.content.labels_C)
        if self.content.is_published:
            draws.check_k(changed.k, len(self.anchors))
        content = dataclasses.replace(self.content, options=changed, origin="")
        if changed.distance == self.options.distance:
            return dataclasses.replace(self, content=content)
        make_store = functools.cache(functools.partial(_build_store, content, self.model, self.states))
        make_store()  # It refuses label words that share a token.
        return dataclasses.replace(self, content=content, make_store=make_store)

    def build_prompts(self, examples: Sequence[Example]) -> Queries:
        """Return the examples' prompts; raise UserError as `layout.build_prompts`."""
        reader = views.PromptReader(self.model, self.task)
        content = self.content
        prompts = {view.demo_shots: reader.build(examples, content.demonstrations_of(view)) for view in content.views}
        return Queries(pool_fitting.joined_texts(self.task, examples), prompts)

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

    def first_view(self, readings: Readings) -> lm_lib.States:
        """Return the states of texts in the first view, in which neighbours are searched for."""
        return readings.states[self.content.views[0].demo_shots]

    def search(self, readings: Readings, k: int) -> search_lib.Neighbours:
        """Return the k nearest anchors of each text in the first view, or its nearest class mean."""
        return expert.search(self.store, self.first_view(readings), 1 if self.has_centroids else k)

    def search_among_anchors(self, k: int) -> search_lib.Neighbours:
        """Return the k nearest other anchors of each anchor; raise UserError if there are fewer.

        k + 1 are searched for. Where an anchor is not among its own nearest, because many others equal it, the first k
        are kept.
        """
        self.check_neighbours()
        if not 1 <= k < len(self.store):
            raise errors.UserError(f"k={k}: choose from 1 to {len(self.store) - 1}, the number of other anchors")
        nearest = self.store.search(parallel.put_rows(self.states.without_blocks(), self.model.mesh), k + 1)
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
        return inputs.prior(self.options.class_prior, self.content.labels_C)

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
        resources = resources_of(self.content, self.model)
        arguments = (self.readings, self.content.y_N, self.task.num_classes, resources)
        p_NC = pool_fitting.held_out_probabilities(self.content.choice, *arguments)
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
                f"fitted with centroid={self.options.centroid!r}: class means have no neighbours; fit with centroid='none'"
            )


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
    readings = Readings(pool_fitting.joined_texts(content.task, content.anchors), states)
    first_states = states[content.views[0].demo_shots]
    make_store = functools.cache(functools.partial(_build_store, content, model, first_states))
    pool = None
    if content.choice:
        check_label_words(content.task, model, content.options, content.choice)
        resources = resources_of(content, model)
        pool = pool_fitting.Pool.fit(content.choice, readings, content.y_N, content.task.num_classes, resources, terms)
    else:
        make_store()
    return Fitted(content, model, readings, make_store, pool)


def _build_store(content: Content, model: lm_lib.LanguageModel, states: lm_lib.States) -> store_lib.Store:
    """Build the store of the anchors, or of their class means."""
    options = content.options
    reads_label_words = distances.get(options.distance).reads_label_words
    return store_lib.build(
        options.store_options,
        options.distance,
        model.head,
        parallel.put_rows(states.without_blocks(), model.mesh),
        content.y_N,
        layout.label_tokens(content.task, model.tokenize, options.label_token) if reads_label_words else (),
        ids=content.ids_N,
        centroid=options.centroid,
    )


def resources_of(content: Content, model: lm_lib.LanguageModel) -> expert.Resources:
    """Return the resources of the experts of a classifier."""
    options = content.options
    return pool_fitting.resources_of(
        content.task, model, options.label_token, content.layer, options.encoder, options.store_options
    )


def check_label_words(
    task: Task, model: lm_lib.LanguageModel, options: AnyOptions, choice: Choice | None = None
) -> None:
    """Raise UserError if classes share a token, and the distance or an expert of the choice compares label words."""
    by_distance = distances.get(options.distance).reads_label_words
    by_expert = choice and any(member.expert == expert.LabelWords.name for member in choice.used)
    if by_distance or by_expert:
        layout.label_tokens(task, model.tokenize, options.label_token)


def _novelty_inputs(readings: Readings) -> list[np.ndarray]:
    """Return the state and, if it is read, the output of a block, in the view with the fewest demonstrations [Q, F].

    Without demonstrations, anchors and new texts are read alike.
    """
    states = readings.states[min(readings.states)]
    return [np.asarray(states.hidden_NE), *map(np.asarray, states.blocks.values())]
