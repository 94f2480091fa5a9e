"""What makes a kind of store: how states become keys, and what a search compares."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import jax

from knnprompt_jax import lm
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import distances

Array = jax.Array
KEY_DTYPES = ("float32", "float16", "bfloat16")


class Codec(Protocol):
    """One kind of store, for one head and one set of label words.

    A codec is made for a distance, `built_for`, and its keys hold what that needs; "" is all that its kind can serve.
    """

    kind: ClassVar[str]
    keys_type: ClassVar[type]
    """The pytree that its keys are."""

    @staticmethod
    def serves(built_for: str) -> tuple[str, ...]:
        """Names of the distances by which a store that was built for this one can be searched."""

    @classmethod
    def make(cls, head: head_lib.Head, states: lm.States, label_ids: Sequence[int], **options: str) -> "Codec":
        """The codec of a new store, whose first anchors have these states; `options` are as below."""

    @classmethod
    def restore(
        cls, head: head_lib.Head, constants: Mapping[str, Array], label_ids: Sequence[int], **options: str
    ) -> "Codec":
        """The codec with these `constants` and `options`, of the same head."""

    @property
    def key_dtype(self) -> str:
        """One of `KEY_DTYPES`."""

    @property
    def built_for(self) -> str:
        """The distance whose needs it keeps."""

    @property
    def label_ids(self) -> tuple[int, ...]:
        """The token by which each class is read."""

    @property
    def head(self) -> head_lib.Head:
        """The head that it works with."""

    @property
    def options(self) -> dict[str, Any]:
        """`key_dtype` and `built_for` by name, as `make` and `restore` take them."""

    @property
    def constants(self) -> dict[str, Array]:
        """What follows from the first states and cannot be made again from the head alone."""

    def encode(self, states: lm.States) -> Any:
        """Keys of anchors: a pytree of arrays with N rows."""

    def queries(self, states: lm.States, distance: distances.Distance) -> Any:
        """What `kernel.search` takes as queries."""

    def references(self, keys: Any, distance: distances.Distance) -> Any:
        """What `kernel.search` takes as keys."""

    def measured_by(self, distance: distances.Distance) -> distances.Distance:
        """What `kernel.search` takes as distance: this one, or `distances.AFFINE` in its place."""

    def distributions(self, keys: Any) -> Array:
        """Log-probabilities [N, V] of anchors; the keys themselves where a dense store keeps another representation."""
