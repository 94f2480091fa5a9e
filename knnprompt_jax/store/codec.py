"""Kinds of stores: how states become keys and what a search compares. `Codec` is the paper's store."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax import lm
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import distances, placement, representations

Array = jax.Array


@struct.dataclass
class DenseKeys:
    """One representation of the anchors, usually log-probabilities of all tokens."""

    values_NV: Array


@dataclasses.dataclass(frozen=True)
class Codec:
    """A kind of store for one head and one set of label words. This class is the paper's; `factored.Codec` overrides it.

    The paper's store keeps the representation that `built_for` compares, by default log-probabilities of all V tokens. These take
    4 V bytes per anchor, and the label words can be read from them. A `key_dtype` of "float16" or "bfloat16" halves that
    (docs/datastores.md has the errors).

    Attributes:
        head: the head that gives distributions.
        label_ids: one token per class.
        constants: values that depend on the anchors' states.
        key_dtype: one of `settings.stores.KEY_DTYPES`.
        built_for: the distance that the keys serve; "" means every distance that the kind can serve.
        deterministic: whether products have fixed shapes, so that no distance depends on the number of queries or anchors.
    """

    head: head_lib.Head
    label_ids: tuple[int, ...]
    constants: Mapping[str, Array]
    key_dtype: str = "float32"
    built_for: str = ""
    deterministic: bool = False

    @staticmethod
    def serves(built_for: str) -> tuple[str, ...]:
        """Return the names of the distances that a store built for the distance `built_for` can search by."""
        kept = _kept(built_for)
        return tuple(
            name
            for name, distance in distances.DISTANCES.items()
            if distance.representation == kept or (kept == "distribution" and distance.reads_label_words)
        )

    @staticmethod
    def constants_of(head: head_lib.Head, states: lm.States) -> dict[str, Array]:
        """Return the constants of a store whose anchors have these states."""
        del head, states
        return {}

    @classmethod
    def make(
        cls, head: head_lib.Head, label_ids: Sequence[int], constants: Mapping[str, Array], **options: Any
    ) -> Self:
        """Return the codec for a model's head; `options` are `key_dtype`, `built_for` and `deterministic`."""
        return cls(head, tuple(label_ids), constants, **options)

    @property
    def tile(self) -> int:
        """Each device holds a multiple of this number of anchors."""
        return placement.TILE if self.deterministic else 1

    def encode(self, states: lm.States) -> Any:
        """Return the keys of anchors: a pytree of arrays with N rows."""
        values_NV = representations.represent(self.head, states, _kept(self.built_for), self.label_ids)
        return DenseKeys(values_NV.astype(self.key_dtype))

    def queries(self, states: lm.States, distance: distances.Distance) -> Any:
        """Return the queries of `kernel.search`."""
        return representations.represent(
            self.head, states, distance.representation, self.label_ids, distance.prepare_query
        )

    def references(self, keys: Any, distance: distances.Distance) -> Any:
        """Return the keys of `kernel.search`."""
        if distance.representation == _kept(self.built_for):
            return keys.values_NV
        logk_NC = keys.values_NV[:, jnp.array(self.label_ids)].astype(jnp.float32)
        return jax.nn.log_softmax(logk_NC)

    def working_bytes(self, num_queries: int) -> int:
        """Return an upper bound on the memory of `queries` beside its argument, its result and the head."""
        return 3 * 4 * placement.ROWS_OF_LOGITS * len(self.head)

    def measured_by(self, distance: distances.Distance) -> distances.Distance:
        """Return the distance of `kernel.search`: this one, or `distances.AFFINE` in its place."""
        return distance

    def log_probabilities(self, keys: Any, distance: distances.Distance) -> Array:
        """Return the anchors' log-probabilities as the distance compares them: [N, V], or [N, C] for label words."""
        return self.references(keys, distance).astype(jnp.float32)


def _kept(built_for: str) -> str:
    """Return the representation that keys hold; whole distributions serve most distances."""
    return distances.get(built_for).representation if built_for else "distribution"
