"""A fitted classifier as one immutable object, and its predictions."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax.classifier import arguments
from knnprompt_jax.classifier.arguments import AutoOptions, Predictions, PublishedOptions
from knnprompt_jax.classifier.confidence.novelty import Novelty
from knnprompt_jax.classifier.experts import expert, pool, pool_fitting, views, words
from knnprompt_jax.classifier.experts.expert import Readings
from knnprompt_jax.classifier.experts.pool import Choice
from knnprompt_jax.common import errors, parallel
from knnprompt_jax.datastore import distances
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore import store as store_lib
from knnprompt_jax.datastore.search import VoteOptions
from knnprompt_jax.inference import lm as lm_lib
from knnprompt_jax.inference import states as states_lib
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.tasks.task import Example, Task

AnyOptions = PublishedOptions | AutoOptions


@dataclasses.dataclass(frozen=True)
class ViewDemonstrations:
    """The demonstrations of one view: at most `demo_shots` per class, as row numbers in the order of the prompt.

    `activations` are stored beside its states.
    """

    demo_shots: int
    rows: tuple[int, ...]
    activations: tuple[lm_lib.Activation, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Content:
    """A classifier without its states: the JSON document of its file.

    Attributes:
        task: the task of the prompts.
        labels: the labels as in y, in class order.
        options: the options of the fit.
        rows: the examples. `Example.row` is the number of a row.
        text_numbers: the number of the text of each row; near copies have one number.
        views: the demonstrations of each view; neighbours are searched for in the first.
        table: the train file as texts, its header first, in which a row's number is its index; () without a file.
        choice: the experts and their weights; None for `KNNPrompting`.
        num_unlabelled: the number of texts without labels that were read.
        estimated_prior: the shares of classes among these texts; () if there are none.
        encoder: the fingerprint of the sentence encoder; empty if there is none.
        model: the identity of the language model.
        label_column: the column of the labels in the train file.
    """

    task: Task
    labels: tuple[str | int | bool, ...]
    options: AnyOptions
    rows: tuple[Example, ...]
    text_numbers: tuple[int, ...]
    views: tuple[ViewDemonstrations, ...] = ()
    table: tuple[tuple[str, ...], ...]
    choice: Choice | None = None
    num_unlabelled: int = 0
    estimated_prior: tuple[float, ...] = ()
    encoder: str
    model: lm_lib.Identity
    label_column: str

    @property
    def labels_C(self) -> np.ndarray:
        """The labels as in y, in class order."""
        return np.array(self.labels)

    @property
    def demonstrations(self) -> tuple[Example, ...]:
        """The examples that begin the prompts of the first view."""
        return self.demonstrations_of(self.views[0])

    def demonstrations_of(self, view: ViewDemonstrations) -> tuple[Example, ...]:
        """Return the examples that begin the prompts of a view."""
        by_number = {example.row: example for example in self.rows}
        return tuple(by_number[number] for number in view.rows)

    @property
    def anchors(self) -> tuple[Example, ...]:
        """The examples that classify; those of `KNNPrompting` are not its demonstrations."""
        excluded = set(self.views[0].rows) if self.is_published else set()
        return tuple(example for example in self.rows if example.row not in excluded)

    @property
    def y_N(self) -> np.ndarray:
        """The class index of each anchor."""
        return np.array([self.task.class_index(example.label) for example in self.anchors], int)

    @property
    def is_described(self) -> bool:
        """Whether the rows are the descriptions of the classes, in place of labelled texts."""
        return [row.fields for row in self.rows] == [row.fields for row in self.task.described()]

    @property
    def text_N(self) -> np.ndarray:
        """The number of the text of each anchor; near copies have one number."""
        number_of = dict(zip((row.row for row in self.rows), self.text_numbers, strict=True))
        return np.unique([number_of[anchor.row] for anchor in self.anchors], return_inverse=True)[1]

    @property
    def unit_N(self) -> np.ndarray:
        """The number of the text and label of each anchor: near copies with one label count once."""
        return np.unique(self.text_N * self.task.num_classes + self.y_N, return_inverse=True)[1]

    @property
    def first_U(self) -> np.ndarray:
        """The first anchor of each unit."""
        return np.unique(self.unit_N, return_index=True)[1]

    @property
    def is_published(self) -> bool:
        """Whether the classifier is `KNNPrompting`."""
        return isinstance(self.options, PublishedOptions)

    @property
    def vote(self) -> VoteOptions:
        """The search for neighbours and their vote; a pool only lists its neighbours."""
        return self.options if isinstance(self.options, PublishedOptions) else VoteOptions()

    @property
    def k(self) -> int:
        """The number of neighbours of a text."""
        return min(self.vote.k, len(self.anchors))

    @property
    def prior_C(self) -> np.ndarray | None:
        """The given share of each class among the texts; None if it is that of the rows."""
        if isinstance(self.options, PublishedOptions):
            return None
        return arguments.prior(self.options.class_prior, self.labels_C, self.estimated_prior)

    def kept_predictions(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each held-out prediction of the pool, near copies once, and whether it is right.

        Raises:
            UserError: there are too few rows, or other shares of classes are given.
        """
        assert self.choice
        if self.prior_C is None and self.choice.held_out_p:
            return np.array(self.choice.held_out_p), np.array(self.choice.held_out_right)
        if self.prior_C is None:
            reason = f"{len(self.first_U):,} texts, near copies once, are too few: fit {pool.ROWS_FOR_ESTIMATE}"
        else:
            reason = "class_prior is given, but a promise assumes that classes are as common as among the rows"
        raise errors.UserError(f"no error rate can be promised: {reason}")

    @property
    def predicted(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The texts whose held-out predictions novelty counts, and their probabilities; None with few classes or rows.

        A text is the number of its unit.
        """
        choice = self.choice
        if not choice or len(np.unique(self.y_N)) < views.MANY_CLASSES or not choice.held_out_p:
            return None
        compared = views.sample(self.rows, self.options.random_state)
        return np.unique(self.unit_N[compared]), np.array(choice.held_out_p)

    @property
    def num_novelty_rows(self) -> int:
        """The number of rows that p-values of novelty count."""
        return len(self.predicted[1]) if self.predicted else len(self.first_U)


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
        pool: the experts, fitted to the anchors; None for the published vote.
    """

    content: Content
    model: lm_lib.LanguageModel
    readings: Readings
    pool: pool_fitting.Pool | None

    @property
    def task(self) -> Task:
        return self.content.task

    @property
    def classes(self) -> np.ndarray:
        """The labels [C] as in y, sorted: the columns of probabilities."""
        labels_C = self.content.labels_C
        return labels_C[arguments.sorted_order(labels_C)]

    @property
    def states(self) -> lm_lib.States:
        """The states of the anchors in the first view, without activations."""
        return self.first_view(self.readings).without_activations()

    @functools.cached_property
    def label_tokens(self) -> Sequence[int]:
        """The token of each class, if the distance compares label words; otherwise empty."""
        if not distances.get(self.content.vote.distance).reads_label_words:
            return ()
        return layout.label_tokens(self.task, self.model.tokenize, self.content.options.label_token)

    @functools.cached_property
    def store(self) -> store_lib.Store:
        """The store of the anchors' states in the first view, whose ids are row numbers."""
        content = self.content
        return store_lib.build(
            content.options.store_options,
            content.vote.distance,
            self.model.head,
            parallel.put_rows(self.states, self.model.mesh),
            content.y_N,
            self.label_tokens,
            ids=[example.row for example in content.anchors],
        )

    def with_options(self, options: AnyOptions) -> "Fitted":
        """Return the classifier with the given values of the options that may change after a fit.

        Raises:
            UserError: a prior that does not match the labels, or fewer than k anchors.
        """
        given = {name: getattr(options, name) for name in options.CHANGEABLE}
        if all(value is getattr(self.content.options, name) for name, value in given.items()):
            return self
        content = dataclasses.replace(self.content, options=dataclasses.replace(self.content.options, **given))
        check_options(content)
        check_label_words(content, self.model)
        return dataclasses.replace(self, content=content)

    def build_prompts(self, examples: Sequence[Example]) -> Queries:
        """Return the examples' prompts; raise UserError as `layout.build_prompts`."""
        reader = views.PromptReader(self.model, self.task)
        content = self.content
        prompts = {view.demo_shots: reader.build(examples, content.demonstrations_of(view)) for view in content.views}
        return Queries(pool_fitting.joined_texts(self.task, examples), prompts)

    def read_prompts(
        self, batches: Iterable[Queries], cache: states_lib.Cache | None = None, title: str = "reading"
    ) -> Iterator[Readings]:
        """Yield the readings of each batch of texts; later batches are built while earlier ones are read."""
        taken: collections.deque[Queries] = collections.deque()

        def sets() -> Iterator[layout.Prompts]:
            for queries in batches:
                taken.append(queries)
                yield from queries.prompts.values()

        kept = itertools.cycle(view.activations for view in self.content.views)
        results = states_lib.read_sets(self.model, sets(), cache, itertools.repeat(title), True, kept)
        for first in results:
            queries = taken.popleft()
            by_view = [first, *itertools.islice(results, len(queries.prompts) - 1)]
            states = [parallel.replicate(result.states) for result in by_view]
            yield Readings(queries.texts, dict(zip(queries.prompts, states, strict=True)))

    def read(self, examples: Sequence[Example], cache: states_lib.Cache | None = None) -> Readings:
        """Return the readings of examples."""
        [readings] = self.read_prompts([self.build_prompts(examples)], cache)
        return readings

    def first_view(self, readings: Readings) -> lm_lib.States:
        """Return the states of texts in the first view, in which neighbours are searched for."""
        return readings.states[self.content.views[0].demo_shots]

    def search(self, readings: Readings, k: int) -> search_lib.Neighbours:
        """Return the k nearest anchors of each text in the first view."""
        return expert.search(self.store, self.first_view(readings), k)

    def search_among_anchors(self, k: int, text_N: np.ndarray | None = None) -> search_lib.Neighbours:
        """Return the k nearest other anchors of each anchor; raise UserError if there are fewer.

        The search finds more than k and drops the anchor itself. If many others equal the anchor, the first k remain.

        Args:
            text_N: a number for the text of each anchor, if near copies of an anchor do not count as others.
        """
        text_N = np.arange(len(self.store)) if text_N is None else text_N
        num_excluded = np.bincount(text_N).max()
        num_others = len(text_N) - num_excluded
        if not 1 <= k <= num_others:
            raise errors.UserError(f"k={k}: choose from 1 to {num_others}, the number of other anchors")
        nearest = self.store.search(parallel.put_rows(self.states, self.model.mesh), k + num_excluded)
        itself_Nk = jnp.asarray(text_N)[nearest.indices_Qk] == text_N[:, None]
        # Sort the other anchors first, in their order, and the anchor itself last.
        order_Nk = jnp.argsort(itself_Nk, -1, stable=True)[:, :k]
        return jax.tree.map(lambda array: jnp.take_along_axis(array, order_Nk, -1), nearest)

    def answer(self, readings: Readings, with_neighbours: bool = True) -> Predictions:
        """Return predictions for texts.

        Args:
            with_neighbours: whether a pool searches for neighbours.
        """
        distances_Qk = np.zeros((len(readings.texts), 0), np.float32)
        ids_Qk = np.zeros(distances_Qk.shape, int)
        if self.pool is None or with_neighbours:
            near = self.search(readings, self.content.k)
            distances_Qk = np.asarray(near.distances_Qk)
            ids_Qk = self.store.ids_N[np.asarray(near.indices_Qk)]
        if self.pool is None:
            classes_Q, p_QC = search_lib.vote(near, self.task.num_classes)
        else:
            p_QC = self.pool.probabilities(readings, self.content.prior_C)
            classes_Q = p_QC.argmax(-1)
        order_C = arguments.sorted_order(self.content.labels_C)
        return Predictions(
            labels=self.content.labels_C[classes_Q],
            probabilities=_break_ties(p_QC, classes_Q)[:, order_C],
            distances=distances_Qk,
            ids=ids_Qk,
        )

    def novelty(self, readings: Readings) -> np.ndarray:
        """Return a p-value [Q] for each text; small values mean that it is unlike the anchors."""
        return self.scope.p_values(self.novelty_scores(readings))

    def novelty_scores(self, readings: Readings) -> np.ndarray:
        """Return how unlike the anchors each text is [Q]; larger is more unlike."""
        p_Q = None
        if self.pool and self.scope.doubt_weight:
            p_Q = self.pool.probabilities(readings).max(-1)
        return self.scope.scores(_novelty_inputs(readings), p_Q)

    @functools.cached_property
    def scope(self) -> Novelty:
        """The novelty of texts, fitted to the anchors, near copies once."""
        content = self.content
        inputs = _novelty_inputs(self.readings.take(content.first_U))
        return Novelty.fit(inputs, content.y_N[content.first_U], content.predicted)

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each anchor's class [N] and class probabilities [N, C] by other anchors, in class order.

        `KNNPrompting` leaves out the anchor and its near copies, `AutoClassifier` a fold of anchors.

        Raises:
            UserError: there is a single text.
        """
        content = self.content
        text_N = content.text_N
        num_others = len(text_N) - np.bincount(text_N).max()
        if not num_others:
            raise errors.UserError("leave-one-out needs at least two anchors of different texts: add rows")
        if content.choice is None:
            near = self.search_among_anchors(min(content.k, num_others), text_N)
            return search_lib.vote(near, self.task.num_classes)
        assert self.pool
        y_N = content.y_N
        p_NC = np.zeros((len(y_N), self.task.num_classes))
        for rest, members in views.fold_splits(views.deal_folds(y_N, text_N)):
            rows = self.readings.take(rest)
            fold = pool_fitting.Pool.fit(content.choice, rows, y_N[rest], p_NC.shape[1], self.pool.resources)
            p_NC[members] = fold.probabilities(self.readings.take(members))
        return p_NC.argmax(-1), p_NC

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of the prediction of each held-out row, near copies once, and whether it is right.

        `KNNPrompting` leaves out each anchor in turn. The pool has kept what its weights were fitted to.

        Raises:
            UserError: as `left_out` and `Content.kept_predictions`.
        """
        if self.content.choice:
            return self.content.kept_predictions()
        classes_N, p_NC = self.left_out()
        first_U = self.content.first_U
        return p_NC[first_U].max(-1), (classes_N == self.content.y_N)[first_U]

    def __reduce__(self) -> Any:
        """Pickle the model's name, the content and the states; the rest is fitted to them again."""
        return complete, (self.content, self.model, self.readings.states, None, self.names_CD)

    @property
    def names_CD(self) -> np.ndarray | None:
        """The means over tokens of the names of classes, if the pool reads them."""
        return self.pool.resources.names_CD if self.pool else None


def complete(
    content: Content,
    model: lm_lib.LanguageModel,
    states: Mapping[int, lm_lib.States],
    terms: words.Terms | None = None,
    names_CD: np.ndarray | None = None,
) -> Fitted:
    """Return a fitted classifier, whose experts are fitted to the anchors.

    Args:
        states: the states of the anchors, in host memory, of each view.
        terms: the expert on words, if it is fitted already.
        names_CD: as in `expert.Resources`.
    """
    readings = Readings(pool_fitting.joined_texts(content.task, content.anchors), states)
    fitted_pool = None
    if content.choice:
        num_classes = content.task.num_classes
        resources = dataclasses.replace(resources_of(content, model), names_CD=names_CD)
        fitted_pool = pool_fitting.Pool.fit(content.choice, readings, content.y_N, num_classes, resources, terms)
    return Fitted(content, model, readings, fitted_pool)


def resources_of(content: Content, model: lm_lib.LanguageModel) -> expert.Resources:
    """Return the resources of the experts of a classifier."""
    options = content.options
    assert isinstance(options, AutoOptions)
    return pool_fitting.resources_of(content.task, model, options.label_token, options.encoder, options.store_options)


def check_options(content: Content) -> None:
    """Raise UserError if the prior does not match the labels, or there are fewer than k anchors to vote."""
    num_anchors = len(content.anchors)
    if content.is_published and content.vote.k > num_anchors:
        k = content.vote.k
        raise errors.UserError(f"k={k}: there are {num_anchors} anchors; choose k ≤ {num_anchors}")
    _ = content.prior_C  # Raises UserError.


def check_label_words(content: Content, model: lm_lib.LanguageModel) -> None:
    """Raise UserError if classes share a token, and the distance or an expert in use compares label words."""
    by_distance = distances.get(content.vote.distance).reads_label_words
    used = content.choice.used if content.choice else ()
    if by_distance or any(member.expert == expert.LabelWords.name for member in used):
        layout.label_tokens(content.task, model.tokenize, content.options.label_token)


def _break_ties(p_QC: np.ndarray, classes_Q: np.ndarray) -> np.ndarray:
    """Reduce the probabilities that tie with the predicted class by one bit, so that argmax returns this class."""
    is_tied_QC = p_QC == p_QC.max(-1, keepdims=True, initial=0)
    is_tied_QC[np.arange(len(p_QC)), classes_Q] = False
    return np.where(is_tied_QC, np.nextafter(p_QC, 0), p_QC)


def _novelty_inputs(readings: Readings) -> list[np.ndarray]:
    """Return what experts read at the last token, in the view with the fewest demonstrations [Q, F].

    Without demonstrations, anchors and new texts are read alike.
    """
    return expert.last_token_arrays(readings.states[min(readings.states)])
