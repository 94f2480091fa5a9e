"""Every kind of store behind one interface: states of anchors in, the nearest anchors of queries' states out.

The same states serve every distance and k. Memory per anchor: 4 V bytes for "dense", 4 (E + 1) for "factored", and
twice that if a factored store keeps mean rows for the reverse direction.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from knnprompt_jax import errors, lm, parallel
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.settings import stores
from knnprompt_jax.settings.stores import StoreOptions
from knnprompt_jax.store import codec as codec_lib
from knnprompt_jax.store import distances, factored, kernel, placement
from knnprompt_jax.store import search as search_lib

KINDS: dict[str, type[codec_lib.Codec]] = {"dense": codec_lib.Codec, "factored": factored.Codec}
Array = jax.Array
_HOST_BLOCK = 1024  # Anchors of a host store that are encoded on the device at a time.
_CENTROID_BLOCK = 64  # Anchors whose distributions are in memory at a time.


@dataclasses.dataclass(frozen=True)
class Store:
    """Searchable anchors.

    Attributes:
        codec: the kind of store.
        anchors: keys and classes on one device, split by row over `mesh`, or as NumPy arrays in host memory.
        ids_N: numbers of the anchors. The indices of neighbours are places in `ids_N`.
        labels_N: classes in the host memory of every process.
        memory_mb: bounds the memory of a search on each device (2**20 bytes each), beside the anchors and the head.
    """

    codec: codec_lib.Codec
    anchors: placement.Anchors
    ids_N: np.ndarray
    labels_N: np.ndarray
    mesh: Mesh | None = None
    memory_mb: float = StoreOptions.memory_mb

    @classmethod
    def placed(
        cls, codec: codec_lib.Codec, anchors: placement.Anchors, ids_N: np.ndarray, mesh: Any, options: StoreOptions
    ) -> "Store":
        """Return a store whose anchors lie in host memory or on the devices of the mesh, as the options say."""
        labels_N, mesh = np.asarray(anchors.labels_N), None if options.on_host else mesh
        anchors = placement.place(anchors, mesh, options.on_host, codec.tile)
        return cls(codec, anchors, ids_N, labels_N, mesh, options.memory_mb)

    def __len__(self) -> int:
        return len(self.ids_N)

    @property
    def unpadded(self) -> placement.Anchors:
        """The anchors without padding."""
        return placement.take(self.anchors, slice(0, len(self)))

    @property
    def distances(self) -> tuple[str, ...]:
        """The names of the distances that it can search by."""
        names = self.codec.serves(self.codec.built_for)
        return tuple(name for name in names if self.codec.label_ids or not distances.get(name).reads_label_words)

    @property
    def nbytes(self) -> int:
        """The bytes of all anchors, classes included."""
        return placement.row_bytes(self.anchors) * placement.num_rows(self.anchors)

    def search(self, states: lm.States, options: search_lib.SearchOptions) -> kernel.Neighbours:
        """Return the k nearest anchors of each query, [Q, k].

        Raises:
            UserError: k is not between 1 and the number of anchors, the store does not serve the distance, or the memory does not
                hold a single query and anchor.
        """
        plan = self.plan(len(states), options)
        return search_lib.run(self.codec, self.anchors, states, options, plan)

    def plan(self, num_queries: int, options: search_lib.SearchOptions) -> search_lib.SearchPlan:
        """Return the sizes and memory of a search; raise UserError like `search`."""
        k, distance, recall = options.k, options.distance, options.approximate_recall
        if not 1 <= k <= len(self):
            raise errors.UserError(f"k={k}: choose from 1 to {len(self)}, the number of anchors")
        if distance not in self.distances:
            choices = ", ".join(self.distances)
            why = "" if self.codec.label_ids else " (label words share a token)"
            raise errors.UserError(f"distance={distance!r}: choose from {choices}, which this store serves{why}")
        if recall is not None and not 0 < recall <= 1:
            raise errors.UserError(f"approximate_recall={recall}: choose a probability above 0 and at most 1")
        return search_lib.make_plan(self.codec, self.anchors, num_queries, options, int(self.memory_mb * 2**20))


def check_processes(options: StoreOptions) -> None:
    """Raise UserError if several processes would have to search anchors in host memory."""
    if options.on_host and jax.process_count() > 1:
        raise errors.UserError(
            "placement='host' is for a single process: with several, anchors are split over all their devices"
        )


def kind_of(options: StoreOptions, distance: str) -> str:
    """Return the kind of store for a distance ("": for all distances of the kind).

    Raises:
        UserError: the distance is unknown, or a factored store is requested but only a dense store is possible.
    """
    if distance:
        distances.get(distance)
    obstacle = ""
    if distance and distance not in factored.Codec.serves(distance):
        obstacle = f"distance={distance!r} is not an inner product of states"
    if options.kind == "factored" and obstacle:
        raise errors.UserError(f"kind='factored': {obstacle}; choose kind='dense'")
    if options.kind == "auto":
        return "dense" if obstacle else "factored"
    return options.kind


def anchor_bytes(options: StoreOptions, distance: str, config: config_lib.DecoderConfig, num_classes: int) -> int:
    """Return the bytes of an anchor's keys for a model's states before there is any; raise UserError like `kind_of`."""

    def keys() -> Any:
        head = head_lib.Head(jnp.zeros((config.vocab_size, config.state_width)))
        states = lm.States(jnp.zeros((1, config.state_width)), jnp.zeros(1))
        return _make_codec(options, distance, head, states, range(num_classes)).encode(states)

    return placement.row_bytes(jax.eval_shape(keys))


def build(
    options: StoreOptions,
    distance: str,
    head: head_lib.Head,
    states: lm.States,
    labels: Sequence[int] | np.ndarray,
    label_ids: Sequence[int],
    *,
    ids: Sequence[int] | np.ndarray | None = None,
) -> Store:
    """Return a store of anchors from their states and classes, split over the states' devices or in host memory.

    Args:
        distance: the distance to search by; "" stores everything that any distance of the kind needs.
        head: the model's head; each device gets a whole copy, centred for "factored".
        label_ids: one token per class, for distances between label words; without them, these are not served.
        ids: numbers of the anchors; by default 0 … N − 1.

    Raises:
        UserError: as `kind_of`, or there are no anchors.
    """
    if not len(states):
        raise errors.UserError("a store needs at least one anchor")
    codec = _make_codec(options, distance, parallel.replicate(head), states, label_ids)
    sharding = getattr(states.hidden_NE, "sharding", None)
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1 else None
    anchors = _encode(codec, states, labels, mesh, options.on_host)  # type: ignore[arg-type]
    ids_N = np.arange(len(states)) if ids is None else np.asarray(ids)
    return Store.placed(codec, anchors, ids_N, mesh, options)


def _make_codec(
    options: StoreOptions, distance: str, head: head_lib.Head, states: lm.States, label_ids: Sequence[int]
) -> codec_lib.Codec:
    codec_type = KINDS[kind_of(options, distance)]
    kept = {"key_dtype": options.key_dtype, "built_for": distance, "deterministic": states.deterministic}
    return codec_type.make(head, label_ids, codec_type.constants_of(head, states), **kept)


def _encode(
    codec: codec_lib.Codec, states: lm.States, labels: Sequence[int] | np.ndarray, mesh: Mesh | None, on_host: bool
) -> placement.Anchors:
    """Encode anchors without placing them. For host memory, encode block by block to bound device memory."""

    def encode(block: lm.States) -> Any:
        rows = placement.pad(block, placement.filled_up(len(block), mesh, codec.tile))
        keys = codec.encode(placement.split(rows, mesh) if mesh else rows)
        leaves = [leaf for leaf in jax.tree.leaves(keys) if leaf.ndim == 1 or codec.key_dtype == "float16"]
        if not all(jnp.isfinite(leaf).all() for leaf in leaves):
            raise errors.UserError(
                f"key_dtype={codec.key_dtype!r}: some states exceed its range; choose bfloat16 or float32"
            )
        return placement.take(keys, slice(0, len(block)))

    labels_N = np.asarray(labels, np.int32)
    if not on_host:
        return placement.Anchors(encode(states), jnp.asarray(labels_N))
    starts = range(0, max(1, len(states)), _HOST_BLOCK)
    blocks = [jax.tree.map(np.asarray, encode(states[start : start + _HOST_BLOCK])) for start in starts]
    return placement.Anchors(jax.tree.map(lambda *parts: np.concatenate(parts), *blocks), labels_N)


def centroids(store: Store, kind: str, head: head_lib.Head, distance: str) -> Store:
    """Return a dense store of one centroid per class that has anchors, to search by this distance; "none" keeps all anchors.

    "arithmetic" is the mean distribution, which minimises Σ KL(k_i ‖ c), as in the paper's section "Imbalance"; "geometric" is the
    normalised mean of logarithms, which minimises Σ KL(c ‖ k_i).

    Raises:
        UserError: as `stores.check_centroid`.
    """
    stores.check_centroid(kind, distance)
    if kind == "none":
        return store
    classes = np.unique(store.labels_N)
    members = [np.flatnonzero(store.labels_N == label) for label in classes]
    keys = codec_lib.DenseKeys(jnp.stack([_centroid(store, members_n, kind, distance) for members_n in members]))
    codec = codec_lib.Codec(head, store.codec.label_ids, {}, built_for=distance)
    anchors = placement.Anchors(keys, jnp.asarray(classes))
    return Store(codec, anchors, classes, classes, memory_mb=store.memory_mb)


def _centroid(store: Store, members_n: np.ndarray, kind: str, distance: str) -> Array:
    """Return the centroid of some anchors over the tokens that the distance compares, from blocks of one shape."""
    total_V = jnp.array(-jnp.inf if kind == "arithmetic" else 0.0)
    for start in range(0, len(members_n), _CENTROID_BLOCK):
        keys = placement.take(
            store.unpadded.keys, np.resize(members_n[start : start + _CENTROID_BLOCK], _CENTROID_BLOCK)
        )
        logk_nV = store.codec.log_probabilities(keys, distances.get(distance))
        total_V = _add(total_V, logk_nV, np.arange(_CENTROID_BLOCK) < len(members_n) - start, kind=kind)
    if kind == "arithmetic":
        return total_V - np.log(len(members_n))
    return jax.nn.log_softmax(total_V / len(members_n))


@functools.partial(jax.jit, static_argnames="kind")
def _add(total_V: Array, logk_nV: Array, counted_n: Array, *, kind: str) -> Array:
    """Add a block's counted rows to the total: of probabilities if the mean is arithmetic, otherwise of logarithms."""
    if kind == "arithmetic":
        block_V = jax.nn.logsumexp(jnp.where(counted_n[:, None], logk_nV, -jnp.inf), 0)
        return jnp.logaddexp(total_V, block_V)
    return total_V + jnp.where(counted_n[:, None], logk_nV, 0).sum(0)
