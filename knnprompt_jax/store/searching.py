"""A search, from states to neighbours, in bounded memory: queries in blocks, anchors in tiles, host anchors streamed."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from knnprompt_jax import errors, lm
from knnprompt_jax.store import codec as codec_lib
from knnprompt_jax.store import kernel, placement, rows


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked about states: how many neighbours, by which distance."""

    k: int = 1
    direction: str = "forward"
    representation: str = "distribution"
    approximate_recall: float | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """Queries a block, host anchors a transfer (0: none), anchors a tile; the bytes that `knn.search` may take, and those
    that the search takes in all.

    They are bytes on each device, beside the anchors (where they are not streamed), the head and the neighbours found.
    """

    queries: int
    transfer: int
    tile: int
    tile_bytes: int
    nbytes: int


def check(codec: codec_lib.Codec, num_anchors: int, question: Question) -> None:
    """Raises UserError, with the choices, where a store has no answer."""
    if not 1 <= question.k <= num_anchors:
        raise errors.UserError(f"k={question.k}: choose from 1 to {num_anchors}, the number of anchors")
    for name, value, choices in (
        ("direction", question.direction, codec_lib.DIRECTIONS),
        ("representation", question.representation, codec.representations),
    ):
        if value not in choices:
            raise errors.UserError(
                f"{name}={value!r}: choose from {', '.join(choices)}, which this {codec.kind} store has"
            )
    if not 0 < (question.approximate_recall or 1) <= 1:
        raise errors.UserError(
            f"approximate_recall={question.approximate_recall}: choose a probability above 0 and at most 1"
        )
    codec.check(question.representation, question.direction)


def make_plan(
    codec: codec_lib.Codec,
    anchors: placement.Anchors,
    num_queries: int,
    question: Question,
    memory: int,
    mesh: Mesh | None,
) -> Plan:
    """Shares out `memory` bytes: after the encoding of states, a quarter goes to queries; of the rest, half to transfers.

    Raises:
        UserError: they are too few for one query and one anchor.
    """
    query, key = _shapes(codec, anchors, question)
    encoding = rows.working_bytes(len(codec.head))
    query_bytes, anchor_bytes = placement.row_bytes(query), placement.row_bytes(anchors)
    left = memory - encoding
    block = max(1, min(num_queries, left // 4 // (2 * query_bytes)))
    left -= 2 * block * query_bytes  # The search copies them into its tiles.
    searched, transfer = placement.num_rows(anchors) // (mesh.size if mesh else 1), 0
    if anchors.on_host:
        searched = transfer = max(1, min(searched, left // 4 // anchor_bytes))
        left -= 2 * transfer * anchor_bytes
    if left <= 0:
        raise errors.UserError(
            f"search memory of {memory / 2**20:g} MB: more than {(memory - left) / 2**20:.1f} are needed here"
        )
    distance = codec.distance(question.representation, question.direction)
    tile = kernel.plan(_resized(query, block), _resized(key, searched), distance, left)
    return Plan(block, transfer, tile.anchors, left, memory - left + tile.nbytes)


def run(
    codec: codec_lib.Codec,
    anchors: placement.Anchors,
    states: lm.States,
    question: Question,
    plan: Plan,
    mesh: Mesh | None = None,
) -> kernel.Neighbours:
    """The neighbours of each state."""
    found = []
    for start in range(0, max(1, len(states)), plan.queries):
        block = states[start : start + plan.queries]
        if start:  # All blocks have one shape, and there is one compilation.
            block = placement.pad(block, plan.queries)
        if mesh:
            block = placement.split(block, mesh)
        found.append(placement.take(_search(codec, anchors, block, question, plan), slice(0, plan.queries)))
    return jax.tree.map(lambda *blocks: jnp.concatenate(blocks)[: len(states)], *found)


def _search(
    codec: codec_lib.Codec, anchors: placement.Anchors, states: lm.States, question: Question, plan: Plan
) -> kernel.Neighbours:
    how = (question.representation, question.direction)
    queries = codec.queries(states, *how)

    def search(anchors: placement.Anchors) -> kernel.Neighbours:
        return kernel.search(
            queries,
            codec.references(anchors.keys, *how),
            anchors.labels_N,
            k=min(question.k, placement.num_rows(anchors)),
            distance=codec.distance(*how),
            tile_bytes=plan.tile_bytes,
            approximate_recall=question.approximate_recall,
        )

    if not anchors.on_host:
        return search(anchors)
    best: list[kernel.Neighbours] = []
    for start, tile in placement.stream(anchors, plan.transfer):
        found = search(tile)
        jax.block_until_ready(best)  # No more than two tiles are on the device at a time.
        found = dataclasses.replace(found, indices_Qk=found.indices_Qk + start)
        best = [kernel.merge([*best, found], min(question.k, start + placement.num_rows(tile)))]
    return best[0]


def _shapes(codec: codec_lib.Codec, anchors: placement.Anchors, question: Question) -> tuple[Any, Any]:
    """What a query and an anchor become in the search, as abstract arrays."""
    how = (question.representation, question.direction)
    width = codec.head.rows_VE.shape[1]
    state = jax.eval_shape(lambda: lm.States(jnp.zeros((1, width), jnp.float32), jnp.zeros(1, jnp.float32)))
    query = jax.eval_shape(lambda state: codec.queries(state, *how), state)
    return query, jax.eval_shape(lambda keys: codec.references(keys, *how), _resized(anchors.keys, 1))


def _resized(tree: Any, count: int) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), tree)
