"""The distances by which anchors are near a query. Each is one object of `DISTANCES`, and adding one touches this file alone.

A dense store searches by every distance. A factored store needs no distribution in memory, and so it serves the KL divergences
over all tokens, which are inner products of states, and distances between label words or hidden states.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax import errors
from knnprompt_jax.store import representations

Array = jax.Array
DIRECTIONS = ("forward", "released")


@struct.dataclass
class Affine:
    """Queries [Q, W] or anchors [N, W] with offsets, whose distance is query.offset + anchor.offset − anchor.vector · query.vector."""

    vector: Array
    offset: Array


@dataclasses.dataclass(frozen=True)
class Distance:
    """A distance between a query and anchors, which are compared in the same representation, in float32.

    Attributes:
        name: the option by which it is chosen.
        title: what it is called in tables.
        unit: what it is measured in.
        representation: what is compared, one of `representations.REPRESENTATIONS`.
        measure: a query [W] and prepared anchors → their distances [N].
        prepare: keys [N, W] of a tile of anchors → what `measure` takes; done once per tile.
        copies: how many arrays as large as the keys `prepare` makes; the search plans its memory with them.
        direction: of a KL divergence, one of `DIRECTIONS`; empty for other distances.
    """

    name: str
    title: str
    unit: str
    representation: str
    measure: Callable[[Any, Any], Array]
    prepare: Callable[[Any], Any] = lambda keys: keys
    copies: int = 0
    direction: str = ""

    @property
    def reads_label_words(self) -> bool:
        return self.representation in representations.OF_LABEL_WORDS


def _forward_kl(logp_V: Array, logk_NV: Array) -> Array:
    """KL(p ‖ k_i) = Σ p log p − Σ p log k_i: Eq. 5 of the paper."""
    p_V = jnp.exp(logp_V)
    return p_V @ logp_V - logk_NV @ p_V


def _released_anchors(logk_NV: Array) -> Affine:
    k_NV = jnp.exp(logk_NV)
    return Affine(k_NV, (k_NV * logk_NV).sum(-1))


def _released_kl(logp_V: Array, anchors: Affine) -> Array:
    """KL(k_i ‖ p) = Σ k_i log k_i − Σ k_i log p: the direction by which the paper's released code ranks."""
    return anchors.offset - anchors.vector @ logp_V


def _euclidean(h_E: Array, keys_NE: Array) -> Array:
    """‖h − h_i‖, centred on the query so that nearby states lose no digits."""
    return jnp.linalg.norm(keys_NE - h_E, axis=-1)


def _inner_product(query: Affine, anchors: Affine) -> Array:
    return query.offset + anchors.offset - anchors.vector @ query.vector


AFFINE = Distance(
    "affine", "inner product", "nats", "distribution", _inner_product
)  # Between `Affine`s, in factored stores.
_FORWARD = Distance("forward", "KL(text ‖ anchor)", "nats", "distribution", _forward_kl, direction="forward")
_RELEASED = Distance(
    *("released", "KL(anchor ‖ text)", "nats", "distribution", _released_kl, _released_anchors),
    copies=1,
    direction="released",
)


def _between_label_words(distance: Distance, name: str, words: str, representation: str) -> Distance:
    return dataclasses.replace(distance, name=name, title=f"{words}, {distance.title}", representation=representation)


DISTANCES: dict[str, Distance] = {
    distance.name: distance
    for distance in (
        _FORWARD,
        _RELEASED,
        _between_label_words(_FORWARD, "partial", "label words", "partial"),
        _between_label_words(_RELEASED, "partial_released", "label words", "partial"),
        _between_label_words(_FORWARD, "partial_raw", "label words, raw", "partial_raw"),
        _between_label_words(_RELEASED, "partial_raw_released", "label words, raw", "partial_raw"),
        Distance("hidden", "hidden state, L2", "Euclidean", "hidden", _euclidean),
    )
}


def get(name: str) -> Distance:
    """The distance of this name; raises UserError, with the choices, where there is none."""
    if name not in DISTANCES:
        raise errors.UserError(f"distance={name!r}: choose from {', '.join(DISTANCES)}")
    return DISTANCES[name]


def turned(name: str, direction: str) -> str:
    """The KL divergence of the same representation in this direction; a distance that has no direction stays as it is."""
    distance = get(name)
    if not distance.direction or distance.direction == direction:
        return name
    return next(
        other.name
        for other in DISTANCES.values()
        if (other.representation, other.direction) == (distance.representation, direction)
    )
