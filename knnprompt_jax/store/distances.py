"""Distances between a query and anchors. Each is one object of `DISTANCES` that carries everything about it.

A dense store searches by every distance. A factored store keeps no distribution in memory. It serves the KL divergences over
all tokens, which are inner products of states, and distances between label words or hidden states.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from knnprompt_jax import errors

Array = jax.Array


@struct.dataclass
class Affine:
    """Vectors [Q, W] of queries or [N, W] of anchors with offsets; distance = both offsets − the inner product of the vectors."""

    vector: Array
    offset: Array


@dataclasses.dataclass(frozen=True)
class Distance:
    """A distance between a query and anchors in the same representation, in float32.

    Attributes:
        name: the option value that selects it.
        title: the name in tables.
        unit: the unit of its values.
        representation: what is compared, as in `representations.represent`.
        measure: maps a prepared query and prepared anchors to distances [N].
        prepare: maps keys [N, W] of a tile of anchors to the argument of `measure`; called once per tile.
        prepare_query: maps a query [W] to the argument of `measure`, before the search.
        copies: the number of arrays as large as the keys that `prepare` makes; a search plans its memory with it.
        direction: the direction of a KL divergence, "kl" or "reverse_kl"; empty for other distances.
        mean_row: the side, "query" or "anchor", that enters the inner product of a factored store as a mean row of the head.
            The remaining side enters as a state (factored.py has the algebra). Empty if the distance is no such product.
        terms: maps log-probabilities of a query [W] and of anchors [N, W] to the terms [N, W] that add up to the distance.
            None if it is no sum over tokens.
        is_candidate: whether a classifier that chooses its distance tries this one.
    """

    name: str
    title: str
    unit: str
    representation: str
    measure: Callable[[Any, Any], Array]
    prepare: Callable[[Any], Any] = lambda keys: keys
    prepare_query: Callable[[Any], Any] = lambda query: query
    copies: int = 0
    direction: str = ""
    mean_row: str = ""
    terms: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    is_candidate: bool = False

    @property
    def reads_label_words(self) -> bool:
        """Whether it compares label words alone, so that two classes need different ones."""
        return self.representation == "label_words"

    def explain(self, logp_W: Any, logk_NW: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the terms [N, W] that add up to each anchor's distance, and the probabilities [W] and [N, W], in float64.

        Args:
            logp_W: log-probabilities of the query, for all tokens or for the label words, as the distance compares them.
            logk_NW: the same for anchors.
        """
        assert self.terms is not None, self.name
        logs = [np.asarray(log, np.float64) for log in (logp_W, logk_NW)]
        if self.representation != "hidden":  # Normalise to the last digit of float64.
            logs = [log - np.logaddexp.reduce(log, axis=-1, keepdims=True) for log in logs]
        return self.terms(*logs), np.exp(logs[0]), np.exp(logs[1])


def _expectations(logp_NV: Array) -> Affine:
    p_NV = jnp.exp(logp_NV)
    return Affine(p_NV, (p_NV * logp_NV).sum(-1))


def _logarithms(logp_NV: Array) -> Affine:
    return Affine(logp_NV, jnp.zeros(logp_NV.shape[:-1]))


def _inner_product(query: Affine, anchors: Affine) -> Array:
    """A KL divergence: Σ p log p − Σ p log k (Eq. 5 of the paper), or Σ k log k − Σ k log p as the paper's released code ranks."""
    # The barrier keeps the order of the operands: XLA would swap them, and a CPU is up to five times slower for few queries.
    return query.offset + anchors.offset - jax.lax.optimization_barrier(anchors.vector @ query.vector)


def _euclidean(h_E: Array, keys_NE: Array) -> Array:
    """‖h − h_i‖, centred on the query so that nearby states lose no digits."""
    return jnp.linalg.norm(keys_NE - h_E, axis=-1)


# The distance of factored stores, for both directions.
AFFINE = Distance("affine", "inner product", "nats", "distribution", _inner_product)
_kl = functools.partial(
    Distance,
    unit="nats",
    measure=_inner_product,
    prepare=_logarithms,
    prepare_query=_expectations,
    direction="kl",
    terms=lambda logp_W, logk_NW: np.exp(logp_W) * (logp_W - logk_NW),
)
_reverse_kl = functools.partial(
    Distance,
    unit="nats",
    measure=_inner_product,
    prepare=_expectations,
    prepare_query=_logarithms,
    copies=1,
    direction="reverse_kl",
    terms=lambda logp_W, logk_NW: np.exp(logk_NW) * (logk_NW - logp_W),
)
DISTANCES: dict[str, Distance] = {
    distance.name: distance
    for distance in (
        _kl("kl", "KL(test ‖ anchor)", representation="distribution", mean_row="query", is_candidate=True),
        _reverse_kl(
            "reverse_kl", "KL(anchor ‖ test)", representation="distribution", mean_row="anchor", is_candidate=True
        ),
        _kl("kl_labels", "label words, KL(test ‖ anchor)", representation="label_words", is_candidate=True),
        _reverse_kl("reverse_kl_labels", "label words, KL(anchor ‖ test)", representation="label_words"),
        Distance("l2", "hidden states", "L2", "hidden", _euclidean, is_candidate=True),
    )
}


def get(name: str) -> Distance:
    """Return the distance of this name; raise UserError with the choices if there is none."""
    if name not in DISTANCES:
        raise errors.UserError(f"distance={name!r}: choose from {', '.join(DISTANCES)}")
    return DISTANCES[name]


def turned(name: str, direction: str) -> str:
    """Return the name of the same divergence in this direction; a distance without a direction keeps its name."""
    distance = get(name)
    if not distance.direction or distance.direction == direction:
        return name
    wanted = distance.representation, direction
    return next(name for name, each in DISTANCES.items() if (each.representation, each.direction) == wanted)
