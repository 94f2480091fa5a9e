"""What makes a kind of datastore: how states become keys, and what a search compares."""

from typing import Any, Protocol

import jax

from knnprompt_jax import lm
from knnprompt_jax.models import head as head_lib

Array = jax.Array
DIRECTIONS = ("forward", "released")
KEY_DTYPES = ("float32", "float16", "bfloat16")


class Codec(Protocol):
    """One kind of datastore, for one head and one set of label words."""

    @property
    def kind(self) -> str:
        """Its name."""

    @property
    def keys_type(self) -> type:
        """The pytree that its keys are."""

    @property
    def key_dtype(self) -> str:
        """One of `KEY_DTYPES`."""

    @property
    def label_ids(self) -> tuple[int, ...]:
        """The token by which each class is read."""

    @property
    def head(self) -> head_lib.Head:
        """The head that it works with."""

    @property
    def representations(self) -> tuple[str, ...]:
        """Those that can be searched by."""

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, beside the head, the states and the label words."""

    @property
    def constants(self) -> dict[str, Array]:
        """What follows from the first states and cannot be made again from the head alone."""

    def check(self, representation: str, direction: str) -> None:
        """Raises UserError where it keeps too little to search that way; asks nothing of the head."""

    def encode(self, states: lm.States) -> Any:
        """Keys of anchors: a pytree of arrays with N rows."""

    def queries(self, states: lm.States, representation: str, direction: str) -> Any:
        """What `knn.search` takes as queries."""

    def references(self, keys: Any, representation: str, direction: str) -> Any:
        """What `knn.search` takes as keys."""

    def distance(self, representation: str, direction: str) -> str:
        """What `knn.search` takes as distance."""

    def distributions(self, keys: Any) -> Array:
        """Log-probabilities [N, V] of anchors; the keys themselves where a dense store keeps another representation."""
