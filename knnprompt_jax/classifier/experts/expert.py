"""Experts, each of which scores the classes of a text from one kind of evidence.

| name | reads | score |
|---|---|---|
| labels | the label words' probabilities after the prompt | log p, relative to its mean over the rows |
| means | the state and the output of a block, or the mean of its outputs over tokens | the cosine to the class means |
| knn | the next-token distribution | votes of the nearest rows by KL(text ‖ row), Eq. 5 of the paper |
| probe | what `means` reads | ridge regression |
| words | words and parts of words, without the language model | ridge regression on TF-IDF |
| encoder | the embedding of a sentence encoder | ridge regression |

The first four read the prompts of a view: label words are read in every view, other last tokens in that with the most
demonstrations, and means over tokens in that with the fewest. No score depends on the classes' shares of the rows.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from knnprompt_jax.classifier.experts import linear, views, words
from knnprompt_jax.common import parallel
from knnprompt_jax.datastore import StoreOptions, distances, rowwise
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore import store as store_lib
from knnprompt_jax.inference import lm
from knnprompt_jax.models import encoders
from knnprompt_jax.models import head as head_lib

PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)
KS = (3, 7, 15, 31)
DISTANCE = "kl"
_DEPTH = 0.75  # Of the block whose output is read beside the state.
_TOKEN_DEPTH = 0.5  # Of the block whose outputs are averaged over tokens.


@dataclasses.dataclass(frozen=True, eq=False)
class Readings:
    """The readings of N texts, which experts score.

    Attributes:
        texts: the fields of each text, joined.
        states: the states of the texts' prompts, in host memory, by demonstrations per class.
    """

    texts: Sequence[str]
    states: Mapping[int, lm.States]

    def take(self, rows: np.ndarray) -> "Readings":
        """Return the readings of some texts."""
        states = {shots: rowwise.take(view, rows) for shots, view in self.states.items()}
        return Readings([self.texts[row] for row in rows], states)


Scorer = Callable[[Readings], np.ndarray]
"""A function from the readings of Q texts to scores [Q, C]."""


@dataclasses.dataclass(frozen=True, eq=False)
class Resources:
    """The inputs of experts besides readings. Only experts that read prompts need the model.

    Attributes:
        label_tokens: the token of each class; empty if classes share a token, for the reason `label_obstacle`.
        encoder: the sentence encoder; empty if there is none.
        names_CD: the mean over tokens of the name of each class, as experts read that of a text; None if none do.
    """

    head: head_lib.Head | None = None
    mesh: Mesh | None = None
    label_tokens: Sequence[int] = ()
    label_obstacle: str = ""
    encoder: str = ""
    store_options: StoreOptions = StoreOptions()
    names_CD: np.ndarray | None = None

    def of_classes(self, classes_P: np.ndarray) -> "Resources":
        """Return the resources for some of the classes, which are then numbered from 0."""
        label_tokens = tuple(self.label_tokens[label] for label in classes_P) if self.label_tokens else ()
        names_PD = None if self.names_CD is None else self.names_CD[classes_P]
        return dataclasses.replace(self, label_tokens=label_tokens, names_CD=names_PD)


@dataclasses.dataclass(frozen=True, eq=False)
class Expert(abc.ABC):
    """An expert on the prompts with `demo_shots` demonstrations per class; None if it reads no prompts.

    It reads the mean of the outputs of `token_block` over the tokens of a text or, if that is 0, the last token.
    """

    name: ClassVar[str]
    reads_prompts: ClassVar[bool] = True
    reads_every_view: ClassVar[bool] = False  # Otherwise the last token only with the most demonstrations.
    reads_blocks: ClassVar[bool] = False
    default_setting: ClassVar[float] = 0.0  # If no row can be held out.

    resources: Resources
    demo_shots: int | None
    token_block: int = 0

    @classmethod
    def for_views(cls, shots: Sequence[int], num_layers: int, resources: Resources) -> list["Expert"]:
        """Return the experts of this kind, for views of these demonstrations per class in descending order."""
        if not cls.reads_prompts:
            return [cls(resources, None)]
        experts = [cls(resources, number) for number in (shots if cls.reads_every_view else shots[:1])]
        if cls.reads_blocks and (block := int(_TOKEN_DEPTH * num_layers)):
            experts.append(cls(resources, shots[-1], block))
        return experts

    def held_out(
        self, readings: Readings, y_N: np.ndarray, folds_N: np.ndarray, num_classes: int
    ) -> tuple[np.ndarray, float]:
        """Return each row's scores [N, C] by the expert fitted to all other folds, and its chosen setting."""
        scores_NC = np.empty((len(y_N), num_classes))
        for rest, members in views.fold_splits(folds_N):
            fitted = self.fit(readings.take(rest), y_N[rest], num_classes, self.default_setting)
            scores_NC[members] = fitted(readings.take(members))
        return scores_NC, self.default_setting

    @abc.abstractmethod
    def fit(self, readings: Readings, y_N: np.ndarray, num_classes: int, setting: float) -> Scorer:
        """Return the expert fitted to all rows."""

    @property
    def token_activation(self) -> lm.Activation:
        """The mean over tokens that it reads, if any."""
        return lm.Activation(self.token_block, is_mean=True)

    def _states(self, readings: Readings) -> lm.States:
        assert self.demo_shots is not None
        return readings.states[self.demo_shots]

    def _inputs(self, readings: Readings) -> np.ndarray:
        states = self._states(readings)
        if self.token_block:
            return np.asarray(states.activations[self.token_activation])
        return np.concatenate(last_token_arrays(states), -1)


class LabelWords(Expert):
    """Reads the probabilities of the label words."""

    name = "labels"
    reads_every_view = True

    def fit(self, readings: Readings, y_N: np.ndarray, num_classes: int, setting: float) -> Scorer:
        log_p_NC = self._log_p(readings)
        # All classes count the same, however many rows they have.
        mean_C = np.average(log_p_NC, axis=0, weights=linear.class_weights(y_N))
        return lambda queries: self._log_p(queries) - mean_C

    def _log_p(self, readings: Readings) -> np.ndarray:
        """Return the log-probability [N, C] (nats) of each label word."""
        assert self.resources.head is not None
        states = _padded(self._states(readings))
        log_p_NC = distances.label_log_probabilities(self.resources.head, states, self.resources.label_tokens)
        return np.asarray(log_p_NC, np.float64)[: len(readings.texts)]


class ClassMeans(Expert):
    """Compares states with the mean of each class; for means over tokens, the name of a class is one more row of it."""

    name = "means"
    reads_blocks = True

    def fit(self, readings: Readings, y_N: np.ndarray, num_classes: int, setting: float) -> Scorer:
        x_NF = self._inputs(readings)
        mean_F, scale_F = linear.standardise(x_NF)
        if self.token_block and self.resources.names_CD is not None:
            x_NF = np.concatenate([x_NF, self.resources.names_CD])
            y_N = np.concatenate([y_N, np.arange(num_classes)])
        fitted = linear.fit_means((x_NF - mean_F) / scale_F, y_N, num_classes)
        return lambda queries: fitted((self._inputs(queries) - mean_F) / scale_F)


class _Ridge(Expert):
    """Ridge regression of the classes, whose penalty has the least squared error on rows that are held out."""

    default_setting = 1.0

    def held_out(
        self, readings: Readings, y_N: np.ndarray, folds_N: np.ndarray, num_classes: int
    ) -> tuple[np.ndarray, float]:
        x_NF = self._fit_inputs(readings)(readings)
        scores_JNC = linear.held_out_ridge(x_NF, y_N, folds_N, num_classes, PENALTIES)
        errors_JNC = (scores_JNC - linear.centred_targets(y_N, num_classes)) ** 2
        best = int(np.argmin(np.einsum("jnc,n->j", errors_JNC, linear.class_weights(y_N))))
        return scores_JNC[best], PENALTIES[best]

    def fit(self, readings: Readings, y_N: np.ndarray, num_classes: int, setting: float) -> Scorer:
        inputs = self._fit_inputs(readings)
        fitted = linear.fit_ridge(inputs(readings), y_N, num_classes, setting)
        return lambda queries: fitted(inputs(queries))

    @abc.abstractmethod
    def _fit_inputs(self, readings: Readings) -> Callable[[Readings], Any]:
        """Return the function from readings to inputs [Q, F]; it may depend on the rows, but not on their classes."""


class Probe(_Ridge):
    """Reads states."""

    name = "probe"
    reads_blocks = True

    def _fit_inputs(self, readings: Readings) -> Callable[[Readings], Any]:
        mean_F, scale_F = linear.standardise(self._inputs(readings))
        return lambda queries: (self._inputs(queries) - mean_F) / scale_F


class Words(_Ridge):
    """Reads words, pairs of words and runs of two to five characters in words; uses no model."""

    name = "words"
    reads_prompts = False

    def fit(self, readings: Readings, y_N: np.ndarray, num_classes: int, setting: float) -> words.Terms:
        return words.fit(readings.texts, y_N, num_classes, setting)

    def _fit_inputs(self, readings: Readings) -> Callable[[Readings], Any]:
        vocabulary = words.Vocabulary.of(readings.texts)
        return lambda queries: vocabulary.matrix(queries.texts)


class SentenceEmbedding(_Ridge):
    """Reads the embedding of the sentence encoder."""

    name = "encoder"
    reads_prompts = False

    def _fit_inputs(self, readings: Readings) -> Callable[[Readings], Any]:
        return lambda queries: np.asarray(encoders.embed(self.resources.encoder, queries.texts), np.float64)


class Votes(Expert):
    """The votes of the nearest rows, as in kNN Prompting."""

    name = "knn"
    default_setting = 3.0

    def held_out(
        self, readings: Readings, y_N: np.ndarray, folds_N: np.ndarray, num_classes: int
    ) -> tuple[np.ndarray, float]:
        distances_NN = self._store(readings, y_N).distances(self._states(readings))
        distances_NN[folds_N[:, None] == folds_N] = np.inf
        order_NN = np.argsort(distances_NN, -1, kind="stable")
        largest = len(y_N) - np.bincount(folds_N).max()
        ks = sorted({min(k, largest) for k in KS})
        scores_JNC = np.stack([vote_scores(y_N[order_NN[:, :k]], _shares(y_N, num_classes)) for k in ks])
        best = int(np.argmin(np.mean(scores_JNC.argmax(-1) != y_N, -1)))
        return scores_JNC[best], float(ks[best])

    def fit(self, readings: Readings, y_N: np.ndarray, num_classes: int, setting: float) -> Scorer:
        store = self._store(readings, y_N)
        shares_C = _shares(y_N, num_classes)
        k = max(1, min(int(setting), len(y_N)))
        return lambda queries: vote_scores(np.asarray(search(store, self._states(queries), k).classes_Qk), shares_C)

    def _store(self, readings: Readings, y_N: np.ndarray) -> store_lib.Store:
        resources = self.resources
        assert resources.head is not None and resources.mesh is not None
        states = parallel.put_rows(self._states(readings).without_activations(), resources.mesh)
        return store_lib.build(resources.store_options, DISTANCE, resources.head, states, y_N, ())


def search(store: store_lib.Store, states: lm.States, k: int) -> search_lib.Neighbours:
    """Return the k nearest anchors of each state; calls of about the same size share a compiled program."""
    return rowwise.take(store.search(_padded(states), k), slice(0, len(states)))


def _padded(states: lm.States) -> lm.States:
    """Return a power of two of states on the device, without activations."""
    on_device = jax.tree.map(jnp.asarray, states.without_activations())
    return rowwise.pad(on_device, parallel.next_power_of_two(max(1, len(states))))


def vote_scores(classes_Qk: np.ndarray, shares_C: np.ndarray) -> np.ndarray:
    """Return log(share of the vote / share of the rows) [Q, C], smoothed by one vote distributed like the rows.

    Args:
        classes_Qk: the classes of the nearest rows.
        shares_C: the classes' shares of the rows, each above 0.
    """
    votes_QC = np.zeros((len(classes_Qk), len(shares_C)))
    np.add.at(votes_QC, (np.arange(len(classes_Qk))[:, None], classes_Qk), 1.0)
    return np.log((votes_QC / shares_C + 1) / (classes_Qk.shape[1] + 1))


def _shares(y_N: np.ndarray, num_classes: int) -> np.ndarray:
    return np.bincount(y_N, minlength=num_classes) / len(y_N)


def last_token_arrays(states: lm.States) -> list[np.ndarray]:
    """Return the hidden state of each prompt and the activations at its last token, [N, F] each."""
    at_last_token = [array for activation, array in states.activations.items() if not activation.is_mean]
    return [np.asarray(array) for array in (states.hidden_NE, *at_last_token)]


def activations_by_view(experts: Sequence[Expert], num_layers: int) -> dict[int, tuple[lm.Activation, ...]]:
    """Return the activations to read in each view that experts read, the most demonstrations first."""
    last = lm.Activation(max(1, round(_DEPTH * num_layers)))
    common = {last} if any(expert.reads_blocks for expert in experts) else set()
    means = {(expert.demo_shots, expert.token_activation) for expert in experts if expert.token_block}
    views_read = {expert.demo_shots for expert in experts if expert.demo_shots is not None}
    return {
        shots: (*common, *(mean for read_shots, mean in means if read_shots == shots))
        for shots in sorted(views_read, reverse=True)
    }


KINDS: Mapping[str, type[Expert]] = {
    kind.name: kind for kind in (LabelWords, ClassMeans, Votes, Probe, Words, SentenceEmbedding)
}
