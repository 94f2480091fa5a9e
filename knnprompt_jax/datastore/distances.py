"""Representations of prompts, and distances between them. Each distance is one object of `DISTANCES`.

The object carries everything about its distance. To add a distance, add an object. A dense store searches by every
distance.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from knnprompt_jax.common import errors
from knnprompt_jax.datastore import rowwise
from knnprompt_jax.inference import lm
from knnprompt_jax.models import head as head_lib

Array = jax.Array


class Representation(enum.Enum):
    """The W numbers of a prompt that a distance compares: a function of its state and the head (`represent`)."""

    DISTRIBUTION = "log-probabilities of all V tokens"
    LABEL_WORDS = "log-probabilities of the C label words, renormalised over them"
    HIDDEN = "the hidden state [E] after the last normalisation"


def represent(
    head: head_lib.Head,
    states: lm.States,
    representation: Representation,
    label_tokens: Sequence[int],
    then: Callable[[Array], Any] = lambda row_W: row_W,
) -> Any:
    """Return `then(row_W)` of the representation of each prompt, float32."""
    options = representation, tuple(label_tokens), then
    return rowwise.map_rows(_represent, head, states, *options, rows_per_tile=rowwise.ROWS_PER_TILE_OF_LOGITS)


def log_probabilities(head: head_lib.Head, states: lm.States) -> Array:
    """Return log p [N, V] in nats, normalised to float32's last digit; only the result has size N · V."""
    return represent(head, states, Representation.DISTRIBUTION, ())


def label_log_probabilities(head: head_lib.Head, states: lm.States, label_tokens: Sequence[int]) -> Array:
    """Return log p of the label words, [N, C] in nats."""
    return rowwise.map_rows(_label_log_probabilities, head, states, tuple(label_tokens))


def _represent(
    head: head_lib.Head,
    state: lm.States,
    representation: Representation,
    label_tokens: tuple[int, ...],
    then: Callable[[Array], Any],
) -> Any:
    """Return `then` of a row's representation.

    `state`, here and below, is a single row of `map_rows`: its `hidden_NE` is [E], and its `log_z_N` a scalar.
    """
    if representation is Representation.HIDDEN:
        return then(state.hidden_NE)
    if representation is Representation.LABEL_WORDS:
        return then(jax.nn.log_softmax(_label_log_probabilities(head, state, label_tokens)))
    logp_V = head.logits(state.hidden_NE) - state.log_z_N
    return then(logp_V - jax.nn.logsumexp(logp_V))


def _label_log_probabilities(head: head_lib.Head, state: lm.States, label_tokens: tuple[int, ...]) -> Array:
    return head.take(jnp.array(label_tokens)).logits(state.hidden_NE) - state.log_z_N


@struct.dataclass
class Affine:
    """A vector [W] with an offset, of a query or an anchor.

    The distance is the sum of both offsets minus the inner product of the vectors.
    """

    vector: Array
    offset: Array


@dataclasses.dataclass(frozen=True)
class Distance:
    """A distance between a query and anchors in the same representation, in float32.

    A dense store uses all attributes. A factored store prepares states by itself, for the same `measure`.

    Attributes:
        name: the option value that selects it.
        title: the name in tables.
        unit: the unit of its values.
        representation: what is compared.
        measure: maps a prepared query and N prepared anchors to distances [N].
        prepare_query: maps the representation [W] of a query to a pytree, before a search of a dense store.
        prepare_anchor: the same for an anchor; a dense store keeps the result.
        direction: the direction of a KL divergence: "kl", whose terms the query's probabilities weight, or
            "reverse_kl", whose terms the anchor's weight; empty for other distances.
        terms: maps log-probabilities of a query [W] and of anchors [N, W] to the terms [N, W] that add up to the
            distance. None if it is no sum over tokens.
    """

    name: str
    title: str
    unit: str
    representation: Representation
    measure: Callable[[Any, Any], Array]
    prepare_query: Callable[[Array], Any] = lambda query: query
    prepare_anchor: Callable[[Array], Any] = lambda anchor: anchor
    direction: str = ""
    terms: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    @property
    def reads_label_words(self) -> bool:
        """Whether it compares label words only, so that two classes need different ones."""
        return self.representation is Representation.LABEL_WORDS

    @property
    def is_factorable(self) -> bool:
        """Whether it is an inner product in E dimensions: a divergence over all tokens, as a factored store needs it.

        The side whose probabilities weight the terms then enters as its mean head row Wᵀp, the other side as its state
        (`datastore.factored` has the algebra).
        """
        return bool(self.direction) and self.representation is Representation.DISTRIBUTION

    def explain(self, logp_W: Any, logk_NW: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the terms [N, W] of each anchor's distance and the probabilities [W] and [N, W], in float64.

        The terms of an anchor add up to its distance.

        Args:
            logp_W: log-probabilities of the query, for all tokens or for the label words, as the distance compares
                them.
            logk_NW: the same for anchors.
        """
        assert self.terms is not None, self.name
        logp_W = _normalised(logp_W)
        logk_NW = _normalised(logk_NW)
        return self.terms(logp_W, logk_NW), np.exp(logp_W), np.exp(logk_NW)


def _normalised(logs: Any) -> np.ndarray:
    """Normalise log-probabilities to the last digit of float64."""
    logs = np.asarray(logs, np.float64)
    return logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True)


def _expectation(logp_W: Array) -> Affine:
    """Return p and Σ p log p: the side of a divergence whose probabilities weight the terms."""
    p_W = jnp.exp(logp_W)
    return Affine(p_W, (p_W * logp_W).sum())


def _logarithm(logp_W: Array) -> Affine:
    """Return log p and 0: the other side of a divergence."""
    return Affine(logp_W, jnp.zeros(()))


def divergence(query: Affine, anchors: Affine) -> Array:
    """Return KL divergences [N].

    They are Σ p log p − Σ p log k (Eq. 5 of the paper), or Σ k log k − Σ k log p (its released code). Mapped over
    queries by `vmap`, the inner products are one matrix product.
    """
    # The barrier keeps the order of the operands: XLA would swap them, and a CPU is up to five times slower for few
    # queries.
    return query.offset + anchors.offset - jax.lax.optimization_barrier(anchors.vector @ query.vector)


def _euclidean(h_E: Array, keys_NE: Array) -> Array:
    """Return ‖h − h_i‖ [N], centred on the query so that nearby states lose no digits."""
    return jnp.linalg.norm(keys_NE - h_E, axis=-1)


_kl = functools.partial(
    Distance,
    unit="nats",
    measure=divergence,
    prepare_query=_expectation,
    prepare_anchor=_logarithm,
    direction="kl",
    terms=lambda logp_W, logk_NW: np.exp(logp_W) * (logp_W - logk_NW),
)
_reverse_kl = functools.partial(
    Distance,
    unit="nats",
    measure=divergence,
    prepare_query=_logarithm,
    prepare_anchor=_expectation,
    direction="reverse_kl",
    terms=lambda logp_W, logk_NW: np.exp(logk_NW) * (logk_NW - logp_W),
)
_WHOLE = Representation.DISTRIBUTION
_WORDS = Representation.LABEL_WORDS
_DISTANCES = (
    _kl("kl", "KL(test ‖ anchor)", representation=_WHOLE),
    _reverse_kl("reverse_kl", "KL(anchor ‖ test)", representation=_WHOLE),
    _kl("kl_labels", "label words, KL(test ‖ anchor)", representation=_WORDS),
    _reverse_kl("reverse_kl_labels", "label words, KL(anchor ‖ test)", representation=_WORDS),
    Distance("l2", "hidden states", "L2", Representation.HIDDEN, _euclidean),
)
DISTANCES = {distance.name: distance for distance in _DISTANCES}
"""Every distance by name."""
DIRECTIONS = ("kl", "reverse_kl")


def get(name: str) -> Distance:
    """Return the distance of this name; raise UserError with the choices if there is none."""
    if name not in DISTANCES:
        raise errors.UserError(f"distance={name!r}: choose from {', '.join(DISTANCES)}")
    return DISTANCES[name]


def with_direction(name: str, direction: str) -> str:
    """Return the name of the same divergence in this direction; a distance without a direction keeps its name."""
    distance = get(name)
    if not distance.direction:
        return name
    wanted = distance.representation, direction
    return next(name for name, found in DISTANCES.items() if (found.representation, found.direction) == wanted)
