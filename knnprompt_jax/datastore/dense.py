"""The dense store: each anchor as its distance prepares it, e.g. log-probabilities of all tokens, as in the paper."""

import dataclasses
from typing import Any

from knnprompt_jax.datastore import representations, rowwise
from knnprompt_jax.datastore.distances import Distance
from knnprompt_jax.inference import lm
from knnprompt_jax.models import head as head_lib


@dataclasses.dataclass(frozen=True)
class DenseCodec:
    """Maps states to keys and queries of W numbers each (V, C or E), as the distance compares them.

    The keys and queries of a divergence also have an offset.

    Attributes:
        head: the head that gives distributions.
        distance: the distance of the search.
        label_tokens: one token per class.
        deterministic: whether products have fixed shapes, so that no distance depends on the number of queries or
            anchors.
    """

    head: head_lib.Head
    distance: Distance
    label_tokens: tuple[int, ...]
    deterministic: bool = False

    def encode_anchors(self, states: lm.States) -> Any:
        """Return the keys of anchors: a pytree of arrays with N rows."""
        distance = self.distance
        return representations.represent(
            self.head, states, distance.representation, self.label_tokens, distance.prepare_anchor
        )

    def encode_queries(self, states: lm.States) -> Any:
        """Return the queries of `search_lib.search`: a pytree of arrays with Q rows, each as large as a key."""
        distance = self.distance
        return representations.represent(
            self.head, states, distance.representation, self.label_tokens, distance.prepare_query
        )

    def working_bytes(self, num_queries: int) -> int:
        """Return an upper bound on the memory of `encode_queries` beside its argument, its result and the head."""
        return 3 * 4 * rowwise.ROWS_PER_TILE_OF_LOGITS * len(self.head)
