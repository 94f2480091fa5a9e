"""Approximate search by FAISS over a factored store: nearest in KL divergence is largest inner product.

An anchor is [h_i, −log Z_i] against the query [Wᵀp, 1] (or [Wᵀk_i, H(k_i)] against [h_p, 1] for the released direction): the
divergence is a constant of the query minus their inner product. The index keeps anchors in lists around centres, and a search
reads only the lists with the nearest centres. It needs the extra `faiss`; docs/datastores.md has measured recall.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.store import distances, kernel
from knnprompt_jax.store import store as store_lib

try:
    import faiss
except ImportError:
    faiss = None  # type: ignore[assignment]

_ANCHORS_PER_LIST = 39  # FAISS warns below this number.


@dataclasses.dataclass(frozen=True)
class Index:
    """A FAISS index over the anchors of a factored store, for one direction of the KL divergence."""

    store: store_lib.Store
    distance: distances.Distance
    index: Any

    @classmethod
    def build(cls, store: store_lib.Store, distance: str = "forward", lists: int = 0, read: int = 16) -> "Index":
        """Return an index over the anchors of a store.

        Recall depends on the data: measure it with `recall`. Reading all lists is exact.

        Args:
            lists: the number of lists; 0 derives it from the number of anchors.
            read: the number of lists that a search reads.

        Raises:
            UserError: FAISS is not installed, the store has no inner products for this distance, or a number is out of range.
        """
        if faiss is None:
            raise errors.UserError("FAISS is not installed: pip install 'knnprompt_jax[faiss]'")
        compared = distances.get(distance)
        if distance not in store.distances or store.codec.measured_by(compared) is not distances.AFFINE:
            products = " or ".join(name for name, each in distances.DISTANCES.items() if each.mean_row)
            raise errors.UserError(
                f"distance={distance!r}: this {store.codec.kind} store has no inner products for it; "
                f"choose {products} and a factored store that was built for it"
            )
        if not 0 <= lists <= len(store) or read < 1:
            raise errors.UserError(
                f"lists={lists}, read={read}: choose lists from 1 to {len(store)} anchors, read from 1"
            )
        lists = lists or max(1, min(int(4 * math.sqrt(len(store))), len(store) // _ANCHORS_PER_LIST))
        keys = store.codec.references(store.unpadded.keys, compared)
        vectors_NW = _augmented(keys.vector, -np.asarray(keys.offset))
        index: Any = faiss.index_factory(vectors_NW.shape[1], f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
        index.cp.min_points_per_centroid = 1  # Quiet about few anchors.
        index.train(vectors_NW)
        index.add(vectors_NW)
        index.nprobe = read
        return cls(store, compared, index)

    def search(self, states: lm.States, k: int) -> kernel.Neighbours:
        """Return the k nearest anchors that the index finds, with distances in nats like `Store.search`.

        If the lists read hold fewer, the missing indices and labels are −1 and their distances are infinite.
        """
        queries = self.store.codec.queries(states, self.distance)
        product_Qk, indices_Qk = self.index.search(_augmented(queries.vector, np.ones(len(states))), k)
        real_Qk = indices_Qk >= 0
        distances_Qk = np.where(real_Qk, np.asarray(queries.offset)[:, None] - product_Qk, np.inf)
        return kernel.Neighbours(distances_Qk, indices_Qk, np.where(real_Qk, self.store.labels_N[indices_Qk], -1))


def recall(approximate: kernel.Neighbours, exact: kernel.Neighbours) -> float:
    """Return the share of exact neighbours that are among the approximate ones."""
    pairs = zip(np.asarray(approximate.indices_Qk), np.asarray(exact.indices_Qk), strict=True)
    return float(np.mean([np.isin(wanted, got).mean() for got, wanted in pairs]))


def _augmented(vector_RW: Any, last_R: np.ndarray) -> np.ndarray:
    return np.concatenate([np.asarray(vector_RW, np.float32), last_R.astype(np.float32)[:, None]], 1)
