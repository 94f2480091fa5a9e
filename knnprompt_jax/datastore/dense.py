"""The datastore as in the paper: every anchor's keys as one device-resident array."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from knnprompt_jax import errors, knn

Array = jax.Array
CENTROIDS = ("none", "arithmetic", "geometric")


@struct.dataclass
class Datastore:
    """Keys of the anchors (log-probabilities [N, V], label words' [N, C] or hidden states [N, E]) and their classes."""

    keys_NV: Array
    labels_N: Array

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def nbytes(self) -> int:
        return self.keys_NV.nbytes + self.labels_N.nbytes

    def search(self, queries_QV: Array, k: int, distance: str) -> knn.Neighbours:
        """The k nearest anchors of each query.

        Raises:
            UserError: k is not between 1 and the number of anchors.
        """
        if not 1 <= k <= len(self):
            raise errors.UserError(f"k={k}: choose from 1 to {len(self)}, the number of anchors")
        return knn.search(queries_QV, self.keys_NV, self.labels_N, k=k, distance=distance)

    def centroids(self, kind: str) -> "Datastore":
        """One anchor a class that has any. Of log-probabilities, "arithmetic" is the mean distribution (which minimises Σ KL(k_i‖c)),
        "geometric" the normalised mean of logarithms (which minimises Σ KL(c‖k_i)). Section "Imbalance" of the paper uses the former.

        Raises:
            UserError: unknown kind.
        """
        if kind not in CENTROIDS[1:]:
            raise errors.UserError(f"centroid={kind!r}: choose from {', '.join(CENTROIDS)}")
        classes = np.unique(np.asarray(self.labels_N))
        members = [self.keys_NV[np.flatnonzero(np.asarray(self.labels_N) == label)] for label in classes]
        mean = _log_mean if kind == "arithmetic" else _mean_log
        return Datastore(jnp.stack([mean(keys_NV) for keys_NV in members]), jnp.asarray(classes))


def _log_mean(logk_NV: Array) -> Array:
    return jax.nn.logsumexp(logk_NV, 0) - jnp.log(len(logk_NV))


def _mean_log(logk_NV: Array) -> Array:
    return jax.nn.log_softmax(logk_NV.mean(0))
