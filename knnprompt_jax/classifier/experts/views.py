"""An order of rows by a seeded hash of their texts, folds of rows with the same shares of classes, and views.

A view reads every row and every new text after the same number of demonstrations per class.

A row must not follow itself, or a near copy of its text, as a demonstration. So the rows that are demonstrations of new
texts are dealt to folds, and each fold is read after demonstrations from the other rows. With few rows, all of them can
thus be demonstrations, and still each of them counts as a labelled text.
"""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from knnprompt_jax.common import parallel
from knnprompt_jax.inference import lm
from knnprompt_jax.inference import states as states_lib
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.tasks.task import Example, Task

MAX_SHOTS = 16  # Demonstrations per class by default, at most.
MAX_TOKENS = 1024  # Tokens of all demonstrations by default, at most; and at most half of the context.
_NUM_FOLDS = 4
MAX_COMPARED_ROWS = 1024  # The maximum number of rows that experts are compared on.
MANY_CLASSES = 20  # From so many on, prompts have no demonstrations, and priors differ.
_MAX_FOLDS = 10
Activations = tuple[lm.Activation, ...]


def hash_order(rows: Sequence[Example], seed: int) -> list[int]:
    """Return the indices of all rows in the order of a seeded hash of their texts.

    New rows keep the order of the others. Equal texts have different hashes, by their order among the rows. Labels do
    not matter.
    """
    digests = []
    earlier: collections.Counter[str] = collections.Counter()
    for row in rows:
        text = json.dumps(dict(row.fields), sort_keys=True)
        digests.append(hashlib.sha256(f"{seed} {earlier[text]} {text}".encode()).digest())
        earlier[text] += 1
    return sorted(range(len(rows)), key=digests.__getitem__)


def sample(rows: Sequence[Example], seed: int) -> list[int]:
    """Return the indices of the rows that experts are compared on, in ascending order."""
    return sorted(hash_order(rows, seed)[:MAX_COMPARED_ROWS])


def first_per_class(rows: Sequence[Example], order: Sequence[int], shots: int | Mapping[str, int]) -> list[int]:
    """Return the indices of the first `shots` rows of each label, in this order of the rows.

    Args:
        shots: one number for all labels, or a number for each.
    """
    missing = {row.label: shots if isinstance(shots, int) else shots[row.label] for row in rows}
    first = []
    for index in order:
        if missing[rows[index].label] > 0:
            missing[rows[index].label] -= 1
            first.append(index)
    return first


def fold_splits(folds_N: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows outside each fold, and the rows of the fold."""
    for fold in np.unique(folds_N):
        yield np.flatnonzero(folds_N != fold), np.flatnonzero(folds_N == fold)


def deal_folds(y_N: np.ndarray, text_N: np.ndarray) -> np.ndarray:
    """Return the fold [N] of each row, from 0; each class is spread evenly over at most ten folds.

    Near copies, which have one number in `text_N`, share a fold, so that no row is classified by its copy.

    A fold that is held out then leaves the other rows with the same shares of classes. Leaving out one row instead
    would make its class rarer than in the whole, which few rows turn into a bias against the true class.
    """
    _, first_U, copies_N = np.unique(text_N, return_index=True, return_inverse=True)
    y_U = y_N[first_U]
    num_folds = max(2, min(_MAX_FOLDS, np.bincount(y_U).max()))
    order_U = np.random.default_rng(0).permutation(len(y_U))
    order_U = order_U[np.argsort(y_U[order_U], kind="stable")]
    folds_U = np.empty(len(y_U), int)
    folds_U[order_U] = np.arange(len(y_U)) % num_folds
    return folds_U[copies_N]


class Group(NamedTuple):
    """Rows that are read after the same demonstrations; both are indices of rows."""

    demonstrations: tuple[int, ...]
    members: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class View:
    """The prompts of rows and new texts.

    Attributes:
        demonstrations: the rows that new texts follow, in the order of the prompt.
        groups: a partition of all rows.
    """

    demonstrations: tuple[int, ...]
    groups: tuple[Group, ...]


def deal(rows: Sequence[Example], text_N: np.ndarray, demo_shots: int, seed: int) -> View:
    """Return the view with `demo_shots` demonstrations per class, or all rows of a smaller class.

    Near copies have one number in `text_N`. The demonstrations of a class are its first rows in `hash_order`.
    """
    order = hash_order(rows, seed)
    demonstrations = first_per_class(rows, order, demo_shots)
    rest = [index for index in order if text_N[index] not in text_N[demonstrations]]
    groups = [Group(tuple(demonstrations), tuple(sorted(rest)))]
    following = first_per_class(rows, rest, demo_shots)
    labels = {row.label for row in rows}
    if len(following) == demo_shots * len(labels):
        groups.append(Group(tuple(following), tuple(sorted(set(order).difference(rest)))))
    else:
        groups += _cross_fitted(rows, order, demonstrations, text_N, demo_shots)
    return View(tuple(demonstrations), tuple(group for group in groups if group.members))


def _cross_fitted(
    rows: Sequence[Example], order: Sequence[int], demonstrations: Sequence[int], text_N: np.ndarray, demo_shots: int
) -> list[Group]:
    """Return the demonstrations and their copies in folds, each after rows of the other folds."""
    counts: collections.Counter[str] = collections.Counter()
    fold_of: dict[int, int] = {}
    for index in demonstrations:
        fold_of.setdefault(text_N[index], counts[rows[index].label] % _NUM_FOLDS)
        counts[rows[index].label] += 1
    folds_N = np.array([fold_of.get(text, -1) for text in text_N])
    groups = []
    for fold in dict.fromkeys(fold_of.values()):
        following = first_per_class(rows, [index for index in order if folds_N[index] != fold], demo_shots)
        groups.append(Group(tuple(following), tuple(np.flatnonzero(folds_N == fold).tolist())))
    return groups


def default_numbers(
    task: Task, rows: Sequence[Example], lengths: Callable[[Sequence[str]], np.ndarray], context: int, seed: int
) -> tuple[int, ...]:
    """Return the demonstrations per class of each default view: a number whose prefix is short, and 0.

    The number is the largest of 16 (or all), 8, 4, 2 and 1 that gives a short prefix, which limits the time of each
    prompt; M_T (`prompts.shot_limits`) is how many the context holds. With many classes a prefix costs more time than
    it is worth: the only view is the one without demonstrations.

    Args:
        lengths: maps N texts to their numbers of tokens [N], without special tokens.
        context: the number of tokens that the model can read.
    """
    sizes = collections.Counter(row.label for row in rows)
    largest = max(sizes.values())
    if largest < 2 or len(sizes) >= MANY_CLASSES:
        return (0,)
    limit = min(MAX_TOKENS, context // 2)
    order = hash_order(rows, seed)
    for shots in sorted({min(largest, MAX_SHOTS), 8, 4, 2, 1}, reverse=True):
        texts = [task.render(rows[index], rows[index].label) for index in first_per_class(rows, order, shots)]
        if shots <= largest and int(lengths(texts).sum()) <= limit:
            return shots, 0
    return (0,)


@dataclasses.dataclass(frozen=True, eq=False)
class PromptReader:
    """Reads prompts of a task with a model, through a cache, into host memory; `sets` are all that it has read."""

    model: lm.LanguageModel
    task: Task
    cache: states_lib.Cache | None = None
    repeated: bool = False
    sets: list[layout.Prompts] = dataclasses.field(default_factory=list)

    def read_view(
        self, rows: Sequence[Example], view: View, chosen: Sequence[int], activations: Activations, title: str
    ) -> lm.States:
        """Return the states of the chosen rows of a view, in their order."""
        sets = []
        read: list[int] = []
        for demonstrations, members in view.groups:
            if found := sorted({*members} & {*chosen}):
                sets.append(self.build([rows[index] for index in found], [rows[index] for index in demonstrations]))
                read += found
        position = {index: number for number, index in enumerate(read)}
        return self._read(sets, np.array([position[index] for index in chosen]), activations, title)

    def read_after(
        self, demonstrations: Sequence[Example], examples: Sequence[Example], activations: Activations, title: str
    ) -> lm.States:
        """Return the states of examples after these demonstrations."""
        return self._read([self.build(examples, demonstrations)], np.arange(len(examples)), activations, title)

    def build(self, examples: Sequence[Example], demonstrations: Sequence[Example]) -> layout.Prompts:
        """Return the examples' prompts; raise UserError as `layout.build_prompts`."""
        model = self.model
        return layout.build_prompts(self.task, demonstrations, examples, model.tokenize, model.context)

    def _read(
        self, sets: Sequence[layout.Prompts], order_N: np.ndarray, activations: Activations, title: str
    ) -> lm.States:
        self.sets.extend(sets)
        count = len(sets)
        results = states_lib.read_sets(
            self.model, sets, self.cache, [title] * count, self.repeated, [activations] * count
        )
        parts = [jax.tree.map(np.asarray, parallel.replicate(result.states)) for result in results]
        layout.warn_truncated(sum(prompts.num_truncated for prompts in sets), len(order_N), self.model.context)
        return jax.tree.map(lambda *arrays: np.concatenate(arrays)[order_N], *parts)
