"""What makes a kind of store: how states become keys, and what a search compares."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import jax

from knnprompt_jax import errors, lm
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import distances, placement

Array = jax.Array
KEY_DTYPES = ("float32", "float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Codec(abc.ABC):
    """One kind of store, for one head and one set of label words.

    Attributes:
        kind: the option by which it is chosen.
        keys_type: the pytree that its keys are.
        head: what it computes distributions with.
        label_ids: the token by which each class is read.
        constants: what follows from the first anchors' states and cannot be made again from the head alone.
        key_dtype: one of `KEY_DTYPES`.
        built_for: the distance whose needs the keys hold; "" is all that the kind can serve.
        deterministic: whether its products have fixed shapes, so that no number of queries or anchors shows in a distance.
    """

    kind: ClassVar[str]
    keys_type: ClassVar[type]
    head: head_lib.Head
    label_ids: tuple[int, ...]
    constants: Mapping[str, Array]
    key_dtype: str = "float32"
    built_for: str = ""
    deterministic: bool = False

    @staticmethod
    @abc.abstractmethod
    def serves(built_for: str) -> tuple[str, ...]:
        """Names of the distances by which a store that was built for this one can be searched."""

    @classmethod
    @abc.abstractmethod
    def abstract_keys(
        cls, count: int, built_for: str, key_dtype: str, vocabulary: int, width: int, num_classes: int
    ) -> Any:
        """Return the shapes and dtypes of the keys of `count` anchors, for states of this width."""

    @staticmethod
    def constants_of(head: head_lib.Head, states: lm.States) -> dict[str, Array]:
        """The constants of a new store, whose first anchors have these states."""
        del head, states
        return {}

    @classmethod
    def make(
        cls, head: head_lib.Head, label_ids: Sequence[int], constants: Mapping[str, Array], **options: Any
    ) -> Self:
        """The codec for the model's head; `options` are `key_dtype`, `built_for` and `deterministic`."""
        return cls(head, tuple(label_ids), constants, **options)

    @property
    def options(self) -> dict[str, str]:
        """The options that `make` takes, but for what the model's states say already."""
        return {"key_dtype": self.key_dtype, "built_for": self.built_for}

    @property
    def tile(self) -> int:
        """The anchors that are worked on together, so that each device holds a multiple of them; 1 where any number is."""
        return placement.TILE if self.deterministic else 1

    @property
    def keeps_label_words(self) -> bool:
        """Whether keys are of the label words alone, so that those of other label words are to be made anew."""
        return False

    @abc.abstractmethod
    def encode(self, states: lm.States) -> Any:
        """Keys of anchors: a pytree of arrays with N rows."""

    @abc.abstractmethod
    def queries(self, states: lm.States, distance: distances.Distance) -> Any:
        """What `kernel.search` takes as queries."""

    @abc.abstractmethod
    def references(self, keys: Any, distance: distances.Distance) -> Any:
        """What `kernel.search` takes as keys."""

    def measured_by(self, distance: distances.Distance) -> distances.Distance:
        """What `kernel.search` takes as distance: this one, or `distances.AFFINE` in its place."""
        return distance

    def log_probabilities(self, keys: Any, distance: distances.Distance) -> Array:
        """Return the anchors' log-probabilities as the distance compares them: [N, V], or [N, C] for label words."""
        return self.references(keys, distance) if distance.reads_label_words else self.distributions(keys)

    def states(self, keys: Any) -> lm.States:
        """Return the states of anchors; raise UserError if the keys do not hold them."""
        raise errors.UserError(f"a {self.kind} store keeps no states of its anchors: fit with kind='factored'")

    @abc.abstractmethod
    def distributions(self, keys: Any) -> Array:
        """Log-probabilities [N, V] of anchors; the keys themselves where a dense store keeps another representation."""
