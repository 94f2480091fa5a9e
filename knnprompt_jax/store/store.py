"""Every kind of store behind one interface: anchors' states in, the nearest anchors of queries' states out.

A state, once computed, serves every distance and k. Memory per anchor: 4 V bytes for "dense" and 4 (E + 1) for "factored",
twice that where it keeps what the released direction needs.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from knnprompt_jax import errors, lm, parallel
from knnprompt_jax import options as options_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import codec as codec_lib
from knnprompt_jax.store import dense, distances, factored, kernel, placement
from knnprompt_jax.store import search as search_lib

KINDS: dict[str, type[codec_lib.Codec]] = {"dense": dense.Codec, "factored": factored.Codec}
_HOST_BLOCK = 1024


@dataclasses.dataclass(frozen=True)
class StoreOptions(options_lib.Options):
    """What anchors are kept as, and where."""

    kind: str = options_lib.option(
        "auto",
        "factored: E + 1 numbers per anchor for the same KL; dense: V log-probabilities per anchor, as in the paper; "
        "auto: factored, or dense where the model caps its logits or the distance is no inner product.",
        choices=("auto", *KINDS),
    )
    key_dtype: str = options_lib.option(
        "float32",
        "Of anchors; float16 and bfloat16 take half the memory, and 3 % or 11 % of the 3 nearest may change.",
        choices=codec_lib.KEY_DTYPES,
        decisive=True,
    )
    placement: str = options_lib.option(
        "device",
        "Where anchors lie: on the device, or in host memory, from where a search streams them.",
        choices=("device", "host"),
    )
    memory_mb: float = options_lib.option(
        512.0, "What a search may take on each device beside the anchors, in MB of 2**20 bytes.", least=1
    )


@dataclasses.dataclass(frozen=True)
class Store:
    """Anchors and how they are searched. Appending and removing give another store; no anchor is computed again.

    `anchors` lie on one device, split by row over `mesh`, or as NumPy arrays in host memory, from where a search streams them.
    `ids_N` are numbers of the anchors, which removals leave as they are; neighbours' indices are places in `ids_N`.
    `labels_N` are their classes, which every process has in host memory.
    A search works in at most `memory_mb` on each device (2**20 bytes each), beside the anchors and the head.
    """

    codec: codec_lib.Codec
    anchors: placement.Anchors
    ids_N: np.ndarray
    labels_N: np.ndarray
    mesh: Mesh | None = None
    memory_mb: float = StoreOptions.memory_mb

    @classmethod
    def placed(
        cls,
        codec: codec_lib.Codec,
        anchors: placement.Anchors,
        ids_N: np.ndarray,
        mesh: Mesh | None,
        options: StoreOptions,
    ) -> "Store":
        """The anchors where the options have them, on the devices of the mesh if there is one, searched in their memory."""
        on_host, labels_N = options.placement == "host", np.asarray(anchors.labels_N)
        anchors = placement.place(anchors, mesh, on_host, codec.tile)
        return cls(codec, anchors, ids_N, labels_N, None if on_host else mesh, options.memory_mb)

    def __len__(self) -> int:
        return len(self.ids_N)

    @property
    def unpadded(self) -> placement.Anchors:
        """The anchors alone, without the rows that fill up a split store."""
        return placement.take(self.anchors, slice(0, len(self)))

    @property
    def distances(self) -> tuple[str, ...]:
        """Names of the distances by which it can be searched."""
        return self.codec.serves(self.codec.built_for)

    @property
    def bytes_per_anchor(self) -> int:
        """Bytes of the keys of an anchor."""
        return placement.row_bytes(self.anchors.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of all anchors, classes included."""
        return placement.row_bytes(self.anchors) * placement.num_rows(self.anchors)

    def search(self, states: lm.States, options: search_lib.SearchOptions) -> kernel.Neighbours:
        """The k nearest anchors of each query, [Q, k].

        Raises:
            UserError: k is not between 1 and the number of anchors; a distance that the store does not serve; too little
                memory for a single query and anchor.
        """
        plan = self.plan(len(states), options)
        return search_lib.run(self.codec, self.anchors, states, options, plan, self.mesh)

    def plan(self, num_queries: int, options: search_lib.SearchOptions) -> search_lib.SearchPlan:
        """How a search goes and the memory that it takes; raises UserError as `search`."""
        search_lib.check(self.distances, len(self), options)
        memory = int(self.memory_mb * 2**20)
        return search_lib.make_plan(self.codec, self.anchors, num_queries, options, memory, self.mesh)

    def describe(self, num_queries: int, options: search_lib.SearchOptions) -> dict[str, Any]:
        """What the anchors take, where they lie and how so many queries are searched for; raises UserError as `search`."""
        plan = dataclasses.asdict(self.plan(num_queries, options))
        return {
            "kind": self.codec.kind,
            "key_dtype": self.codec.key_dtype,
            "placement": "host" if self.anchors.on_host else "device",
            "anchors": len(self),
            "bytes_per_anchor": self.bytes_per_anchor,
            "bytes": self.nbytes,
            **{name: number for name, number in plan.items() if "_per_" in name},
            "search_bytes": plan["nbytes"],
            "search_memory_mb": self.memory_mb,
        }

    def append(
        self, states: lm.States, labels: Sequence[int] | np.ndarray, ids: Sequence[int] | None = None
    ) -> "Store":
        """A store with more anchors after the present ones; by default ids go on from the highest. Raises UserError as `build`."""
        if ids is None:
            ids = np.arange(len(states)) + self.ids_N.max(initial=-1) + 1
        ids_N = np.concatenate([self.ids_N, ids])
        new = _encode(self.codec, states, labels, self.mesh, self.anchors.on_host)
        labels_N = np.concatenate([self.labels_N, new.labels_N])
        return self._with(placement.concatenate(self.unpadded, new), ids_N, labels_N)

    def remove(self, ids: Sequence[int]) -> "Store":
        """A store without the anchors of these ids; raises UserError on an id that it does not have, or where none would be left."""
        self._check_known(ids)
        kept_n = np.flatnonzero(~np.isin(self.ids_N, ids))
        if not kept_n.size:
            raise errors.UserError("no anchor would be left in the store")
        return self._with(placement.take(self.unpadded, kept_n), self.ids_N[kept_n], self.labels_N[kept_n])

    def relabel(self, ids: Sequence[int], labels: Sequence[int]) -> "Store":
        """A store in which the anchors of these ids have these classes; raises UserError on an id that it does not have."""
        self._check_known(ids)
        places, labels_N = {number: place for place, number in enumerate(self.ids_N.tolist())}, self.labels_N.copy()
        labels_N[[places[number] for number in ids]] = labels
        return self._with(placement.Anchors(self.unpadded.keys, labels_N), self.ids_N, labels_N)

    def _check_known(self, ids: Sequence[int]) -> None:
        if (unknown := np.setdiff1d(ids, self.ids_N)).size:
            raise errors.UserError(f"id {unknown[0]} is not in the store")

    def _with(self, anchors: placement.Anchors, ids_N: np.ndarray, labels_N: np.ndarray) -> "Store":
        _check_ids(ids_N, placement.num_rows(anchors))
        anchors = placement.place(anchors, self.mesh, self.anchors.on_host, self.codec.tile)
        return dataclasses.replace(self, anchors=anchors, ids_N=ids_N, labels_N=labels_N)


def check_processes(options: StoreOptions) -> None:
    """Raises UserError where several processes would have to search anchors in host memory."""
    if options.placement == "host" and jax.process_count() > 1:
        raise errors.UserError(
            "placement='host' is for a single process: with several, anchors are split over all their devices"
        )


def kind_of(options: StoreOptions, distance: str, logit_cap: float | None) -> str:
    """The kind of store for this distance ("": all that the kind can serve) and a model with or without a cap of its logits.

    Raises:
        UserError: there is no such distance, or a factored store is chosen where only a dense store is possible.
    """
    if distance:
        distances.get(distance)
    obstacle = ""
    if logit_cap is not None:
        obstacle = f"this model caps its logits at {logit_cap:g}, so that its divergences are no inner products"
    elif distance and distance not in factored.Codec.serves(distance):
        obstacle = f"distance={distance!r} is no inner product of states"
    if options.kind == "factored" and obstacle:
        raise errors.UserError(f"kind='factored': {obstacle}; choose kind='dense'")
    if options.kind == "auto":
        return "dense" if obstacle else "factored"
    return options.kind


def anchor_bytes(
    options: StoreOptions, distance: str, logit_cap: float | None, vocabulary: int, width: int, num_classes: int
) -> int:
    """Bytes of the keys of an anchor at most, before there is any; raises UserError as `kind_of`."""
    codec_type = KINDS[kind_of(options, distance, logit_cap)]
    return placement.row_bytes(codec_type.abstract_keys(1, distance, options.key_dtype, vocabulary, width, num_classes))


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
    """A store of anchors from their states and classes, split over the devices over which the states are, or in host memory.

    Args:
        distance: what it is to be searched by; the store keeps what that needs, or, where this is "", what every distance needs
            that its kind can serve.
        head: the model's head; a whole copy, centred for "factored", comes to each device.
        label_ids: the token by which each class is read, for distances between label words.
        ids: numbers of the anchors; by default 0 … N − 1.

    Raises:
        UserError: as `kind_of`; no anchors, not as many labels or ids as states, a negative label, an id twice.
    """
    codec_type = KINDS[kind_of(options, distance, head.cap)]
    if not len(states):
        raise errors.UserError("a store needs at least one anchor")
    head, kept = parallel.replicate(head), {"key_dtype": options.key_dtype, "built_for": distance}
    constants = codec_type.constants_of(head, states)
    codec = codec_type.make(head, label_ids, constants, **kept, deterministic=states.deterministic)
    mesh = _mesh(states)
    anchors = _encode(codec, states, labels, mesh, options.placement == "host")
    ids_N = np.arange(len(states)) if ids is None else np.asarray(ids)
    _check_ids(ids_N, len(states))
    return Store.placed(codec, anchors, ids_N, mesh, options)


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
        rows = placement.pad(block, placement.filled_up(len(block), mesh, codec.tile))
        keys = codec.encode(placement.split(rows, mesh) if mesh else rows)
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
    return sharding.mesh if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1 else None  # type: ignore[return-value]
