"""The dense store, as in the paper: every anchor's log-probabilities of all V tokens."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax import lm
from knnprompt_jax.store import codec, distances, representations

Array = jax.Array


@struct.dataclass
class Keys:
    """One representation of the anchors, usually log-probabilities of all tokens."""

    values_NV: Array


class Codec(codec.Codec):
    """States → the representation that `built_for` compares, for anchors and queries alike. From all V log-probabilities,
    of which an anchor takes 4 V bytes, those of the label words can be read too. `key_dtype` "float16" or "bfloat16" halves
    that (docs/datastores.md has the errors).
    """

    kind: ClassVar[str] = "dense"
    keys_type: ClassVar[type] = Keys

    @staticmethod
    def serves(built_for: str) -> tuple[str, ...]:
        kept = _kept(built_for)
        readable = (kept, *representations.OF_LABEL_WORDS) if kept == "distribution" else (kept,)
        return tuple(name for name, each in distances.DISTANCES.items() if each.representation in readable)

    @classmethod
    def abstract_keys(
        cls, count: int, built_for: str, key_dtype: str, vocabulary: int, width: int, num_classes: int
    ) -> Keys:
        numbers = {"distribution": vocabulary, "hidden": width}.get(_kept(built_for), num_classes)
        return Keys(jax.ShapeDtypeStruct((count, numbers), key_dtype))

    @property
    def keeps_label_words(self) -> bool:
        return _kept(self.built_for) in representations.OF_LABEL_WORDS

    def encode(self, states: lm.States) -> Keys:
        values_NV = representations.represent(self.head, states, _kept(self.built_for), self.label_ids)
        return Keys(values_NV.astype(self.key_dtype))

    def queries(self, states: lm.States, distance: distances.Distance) -> Array:
        return representations.represent(self.head, states, distance.representation, self.label_ids)

    def references(self, keys: Keys, distance: distances.Distance) -> Array:
        if distance.representation == _kept(self.built_for):
            return keys.values_NV
        logk_NC = keys.values_NV[:, jnp.array(self.label_ids)].astype(jnp.float32)
        return representations.of_label_words(logk_NC, distance.representation)

    def distributions(self, keys: Keys) -> Array:
        return keys.values_NV.astype(jnp.float32)


def _kept(built_for: str) -> str:
    """The representation that is kept; all distributions serve most distances."""
    return distances.get(built_for).representation if built_for else "distribution"
