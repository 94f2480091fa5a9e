"""Every kind of datastore behind one interface: anchors' states in, the nearest anchors of queries' states out.

A state, once computed, serves every representation, direction and k. Memory per anchor: 4 V bytes for "dense" and
4 (E + 1) for "factored", twice that where it keeps the released direction.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from knnprompt_jax import errors, lm, parallel
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import codec as codec_lib
from knnprompt_jax.store import dense, factored, kernel, placement, searching

KINDS: dict[str, Any] = {"dense": dense.Codec, "factored": factored.Codec}
MEMORY_MB = 512.0
_HOST_BLOCK = 1024


@dataclasses.dataclass(frozen=True)
class Store:
    """Anchors and how they are searched. Appending and removing give another store; no anchor is computed again.

    `anchors` lie on one device, split by row over `mesh`, or as NumPy arrays in host memory, from where a search streams them.
    `ids_N` are the anchors' own numbers, which removals leave as they are; neighbours' indices are places in `ids_N`.
    A search works in at most `memory_mb` on each device (2**20 bytes each), beside the anchors and the head.
    """

    codec: codec_lib.Codec
    anchors: placement.Anchors
    ids_N: np.ndarray
    mesh: Mesh | None = None
    memory_mb: float = MEMORY_MB

    def __len__(self) -> int:
        return len(self.ids_N)

    @property
    def labels_N(self) -> np.ndarray:
        return np.asarray(parallel.replicate(self.anchors.labels_N))[: len(self)]

    @property
    def unpadded(self) -> placement.Anchors:
        """The anchors alone, without the rows that fill up a split store."""
        return placement.take(self.anchors, slice(0, len(self)))

    @property
    def bytes_per_anchor(self) -> int:
        """Bytes of one anchor's keys."""
        return placement.row_bytes(self.anchors.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of all anchors, classes included."""
        return placement.row_bytes(self.anchors) * placement.num_rows(self.anchors)

    def search(
        self,
        states: lm.States,
        k: int,
        direction: str = "forward",
        representation: str = "distribution",
        approximate_recall: float | None = None,
    ) -> kernel.Neighbours:
        """The k nearest anchors of each query; distances are KL divergences in nats, for the hidden state Euclidean lengths.

        Raises:
            UserError: k is not between 1 and the number of anchors; a direction or representation that the store does not
                have; too little memory for one query and one anchor.
        """
        question = searching.Question(k, direction, representation, approximate_recall)
        plan = self.plan(len(states), question)
        return searching.run(self.codec, self.anchors, states, question, plan, self.mesh)

    def plan(self, num_queries: int, question: searching.Question) -> searching.Plan:
        """How a search goes and the memory that it takes; raises UserError as `search`."""
        searching.check(self.codec, len(self), question)
        memory = int(self.memory_mb * 2**20)
        return searching.make_plan(self.codec, self.anchors, num_queries, question, memory, self.mesh)

    def append(
        self, states: lm.States, labels: Sequence[int] | np.ndarray, ids: Sequence[int] | None = None
    ) -> "Store":
        """A store with more anchors after the present ones; by default ids go on from the highest.

        Raises:
            UserError: not as many labels or ids as states, a negative label, an id twice.
        """
        if ids is None:
            ids = np.arange(len(states)) + self.ids_N.max(initial=-1) + 1
        ids_N = np.concatenate([self.ids_N, ids])
        new = _encode(self.codec, states, labels, self.mesh, self.anchors.on_host)
        return self._with(placement.concatenate(self.unpadded, new), ids_N)

    def remove(self, ids: Sequence[int]) -> "Store":
        """A store without the anchors of these ids.

        Raises:
            UserError: an id that the store does not have, or no anchor would be left.
        """
        if (unknown := np.setdiff1d(ids, self.ids_N)).size:
            raise errors.UserError(f"id {unknown[0]} is not in the store")
        kept_n = np.flatnonzero(~np.isin(self.ids_N, ids))
        if not kept_n.size:
            raise errors.UserError("no anchor would be left in the store")
        return self._with(placement.take(self.unpadded, kept_n), self.ids_N[kept_n])

    def on_host(self) -> "Store":
        """The same anchors in host memory, for stores larger than a device's."""
        return dataclasses.replace(self, anchors=jax.tree.map(np.asarray, self.unpadded), mesh=None)

    def on_device(self, mesh: Mesh | None = None) -> "Store":
        """The same anchors on the default device, or split by row over all devices of a mesh."""
        anchors = self.unpadded
        anchors = placement.split_anchors(anchors, mesh) if mesh else jax.tree.map(jnp.asarray, anchors)
        return dataclasses.replace(self, anchors=anchors, mesh=mesh)

    def _with(self, anchors: placement.Anchors, ids_N: np.ndarray) -> "Store":
        _check_ids(ids_N, placement.num_rows(anchors))
        if self.mesh:
            anchors = placement.split_anchors(anchors, self.mesh)
        return dataclasses.replace(self, anchors=anchors, ids_N=ids_N)


def build(
    kind: str,
    head: head_lib.Head,
    states: lm.States,
    labels: Sequence[int] | np.ndarray,
    label_ids: Sequence[int],
    *,
    ids: Sequence[int] | None = None,
    memory_mb: float = MEMORY_MB,
    on_host: bool = False,
    **options: Any,
) -> Store:
    """A store of anchors from their states and classes, split over the devices over which the states are, or in host memory.

    Args:
        kind: "dense" or "factored".
        head: the model's head; a whole copy, centred for "factored", comes to each device.
        label_ids: the token by which each class is read, for the representations "partial" and "partial_raw".
        ids: the anchors' own numbers; by default 0 … N − 1.
        options: `key_dtype` of either kind; `representation` of "dense"; `released` of "factored", which keeps what that
            direction needs.

    Raises:
        UserError: an unknown kind or key_dtype, no anchors, not as many labels or ids as states, a negative label, an id twice.
    """
    blank(kind, label_ids, **options)
    if not len(states):
        raise errors.UserError("a datastore needs at least one anchor")
    mesh = _mesh(states)
    codec = KINDS[kind].make(parallel.replicate(head), states, label_ids, **options)
    anchors = _encode(codec, states, labels, mesh, on_host)
    ids_N = np.arange(len(states)) if ids is None else np.asarray(ids)
    _check_ids(ids_N, len(states))
    if on_host:
        mesh = None
    elif mesh:
        anchors = placement.split_anchors(anchors, mesh)
    return Store(codec, anchors, ids_N, mesh, memory_mb)


def blank(kind: str, label_ids: Sequence[int], **options: Any) -> codec_lib.Codec:
    """A codec without a head: it tells what a store of this kind, with these options, answers, and what it defaults to.

    Raises:
        UserError: an unknown kind or key_dtype.
    """
    if kind not in KINDS:
        raise errors.UserError(f"kind={kind!r}: choose from {', '.join(KINDS)}")
    codec = KINDS[kind](None, tuple(label_ids), **options)
    if codec.key_dtype not in codec_lib.KEY_DTYPES:
        raise errors.UserError(f"key_dtype={codec.key_dtype!r}: choose from {', '.join(codec_lib.KEY_DTYPES)}")
    return codec


def bytes_per_anchor(kind: str, vocab_size: int, width: int, key_dtype: str = "float32", released: bool = False) -> int:
    """Bytes of one anchor's keys in a store of distributions, without building it."""
    item = jnp.dtype(key_dtype).itemsize
    return item * vocab_size if kind == "dense" else (1 + released) * (item * width + 4)


def _encode(
    codec: codec_lib.Codec, states: lm.States, labels: Sequence[int] | np.ndarray, mesh: Mesh | None, on_host: bool
) -> placement.Anchors:
    """Anchors as their keys come; for host memory block by block, so that the device holds one block of keys."""
    labels_N = np.asarray(labels, np.int32)
    if labels_N.shape != (len(states),):
        raise errors.UserError(f"{labels_N.size} labels for {len(states)} anchors: each needs one")
    if labels_N.min(initial=0) < 0:
        raise errors.UserError(f"label {labels_N.min()}: classes are numbers from 0")

    def encode(block: lm.States) -> Any:
        keys = codec.encode(placement.split(block, mesh) if mesh else block)
        return placement.take(keys, slice(0, len(block)))

    if not on_host:
        return placement.Anchors(encode(states), jnp.asarray(labels_N))
    starts = range(0, max(1, len(states)), _HOST_BLOCK)
    blocks = [jax.tree.map(np.asarray, encode(states[start : start + _HOST_BLOCK])) for start in starts]
    return placement.Anchors(jax.tree.map(lambda *parts: np.concatenate(parts), *blocks), labels_N)


def _check_ids(ids_N: np.ndarray, count: int) -> None:
    if ids_N.shape != (count,):
        raise errors.UserError(f"{ids_N.size} ids for {count} anchors: each needs one")
    values, counts = np.unique(ids_N, return_counts=True)
    if (counts > 1).any():
        raise errors.UserError(f"id {values[counts > 1][0]} occurs more than once")


def _mesh(states: lm.States) -> Mesh | None:
    """The mesh of several devices on which the states lie, if there is one."""
    sharding = getattr(states.hidden_NE, "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    return mesh if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1 else None
