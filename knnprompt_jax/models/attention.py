"""Exact attention of packed suffixes over one shared prefix.

The prefix's keys and values carry no batch axis, so that all queries of all rows meet them in one matrix product per head.
They are stored head-first, as those products read them: transposed anew by every block, they made attention 12 % slower.
Logits over the prefix and over the row's own tokens stay two parts that share what is subtracted; softmax runs in float32.
"""

import functools

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax.models import dropout as dropout_lib

Array = jax.Array
MASKED = -1e30  # Finite, so that a row of masked logits gives zeros through exp and never NaN.
# Tokens. Keeps a block's logits within caches, and below the size from which the C library fetches fresh pages each time.
QUERY_BLOCK = 256


@struct.dataclass
class Prefix:
    """Keys and values of the shared prefix: one layer's [H, P, K], or all layers' with a leading L.

    Positions from `length` on are padding.
    """

    k: Array
    v: Array
    length: Array


def causal_attention(
    q_BTHK: Array,
    k_BTHK: Array,
    v_BTHK: Array,
    scale: Array | float,
    dropout: dropout_lib.Dropout = dropout_lib.OFF,
) -> Array:
    """Plain causal attention over whole sequences, in blocks of queries that meet only the keys before their end."""
    q_BTHK = q_BTHK * jnp.asarray(scale, q_BTHK.dtype)

    @functools.partial(jax.checkpoint, static_argnums=(3,))
    def attend(q_BTHK: Array, k_BTHK: Array, v_BTHK: Array, start: int) -> Array:
        logits_BHTT = jnp.einsum("bthk,bshk->bhts", q_BTHK, k_BTHK, preferred_element_type=jnp.float32)
        mask_TT = jnp.arange(k_BTHK.shape[1]) <= start + jnp.arange(q_BTHK.shape[1])[:, None]
        weights_BHTT = dropout.at(start)(jax.nn.softmax(jnp.where(mask_TT, logits_BHTT, MASKED)))
        return _mix(weights_BHTT, v_BTHK, "bhts,bshk->bthk").astype(q_BTHK.dtype)

    starts = range(0, q_BTHK.shape[1], QUERY_BLOCK) or [0]  # An empty prefix is one empty block.
    ends = [min(start + QUERY_BLOCK, q_BTHK.shape[1]) for start in starts]
    read = [
        attend(q_BTHK[:, start:end], k_BTHK[:, :end], v_BTHK[:, :end], start)
        for start, end in zip(starts, ends, strict=True)
    ]
    return jnp.concatenate(read, 1)


def padded_attention(
    q_BTHK: Array,
    k_BTHK: Array,
    v_BTHK: Array,
    lengths_B: Array,
    scale: float,
    dropout: dropout_lib.Dropout = dropout_lib.OFF,
) -> Array:
    """Plain attention in both directions over sequences of `lengths_B` tokens, padded on the right."""
    logits_BHTT = jnp.einsum(
        "bthk,bshk->bhts", q_BTHK * jnp.asarray(scale, q_BTHK.dtype), k_BTHK, preferred_element_type=jnp.float32
    )
    mask_BT = jnp.arange(k_BTHK.shape[1]) < lengths_B[:, None]
    weights_BHTT = dropout(jax.nn.softmax(jnp.where(mask_BT[:, None, None], logits_BHTT, MASKED)))
    return _mix(weights_BHTT, v_BTHK, "bhts,bshk->bthk").astype(q_BTHK.dtype)


def readable(stops_BS: Array) -> Array:
    """Mask [B, S, S]: which tokens of its row a token may read, namely itself and those before it in its suffixes."""
    columns_S = jnp.arange(stops_BS.shape[1])
    return (columns_S <= columns_S[:, None]) & (columns_S[:, None] < stops_BS[:, None])


def readable_at(ends_J: Array, stops_BS: Array) -> Array:
    """Mask [J, B · S]: which of all tokens of all rows the tokens `ends_J` may read."""
    rows, width = stops_BS.shape
    stops_T = (stops_BS + width * jnp.arange(rows)[:, None]).reshape(-1)
    return (jnp.arange(rows * width) <= ends_J[:, None]) & (ends_J[:, None] < stops_T)


def shared_prefix_attention(
    q_BSHK: Array,
    k_BTHK: Array,
    v_BTHK: Array,
    mask_BST: Array,
    prefix: Prefix,
    scale: Array | float,
    safe: bool,
) -> Array:
    """What each query reads from the prefix and from those tokens of its row that the mask allows, [B, S, H, K].

    Queries are taken a block at a time, so that the logits [H, block, P] never exist for all of them.

    Softmax is the same whatever is subtracted from all logits of a query. `safe` subtracts their maximum, which takes a
    pass over the prefix's logits, 5 % of a whole pass of the model on two CPU cores. Otherwise it is the maximum over the
    row's own tokens alone: as exact, but where a logit of the prefix exceeds it by more than about 80, exponentials
    overflow, and the query reads NaN.
    """
    batch, width, heads, size = q_BSHK.shape
    q_BSHK = q_BSHK * jnp.asarray(scale, q_BSHK.dtype)
    cuts = next(cuts for cuts in range(-(-width // _block_tokens()), width + 1) if width % cuts == 0)
    if cuts > 1:  # Rows wider than a block: each part of a row's queries meets all of its keys.
        q_BSHK, mask_BST = (
            array.reshape(batch * cuts, width // cuts, *array.shape[2:]) for array in (q_BSHK, mask_BST)
        )
        k_BTHK, v_BTHK = jnp.repeat(k_BTHK, cuts, 0), jnp.repeat(v_BTHK, cuts, 0)
    own = len(q_BSHK)
    count = -(-own // max(1, _block_tokens() // q_BSHK.shape[1]))
    rows = -(-own // count)

    def in_blocks(array: Array) -> Array:
        """The last block is filled up with rows that nobody reads."""
        padding = [(0, count * rows - own)] + [(0, 0)] * (array.ndim - 1)
        return jnp.pad(array, padding).reshape(count, rows, *array.shape[1:])

    blocks = jax.tree.map(in_blocks, (q_BSHK, k_BTHK, v_BTHK, mask_BST))
    read = jax.lax.map(lambda block: _attend_block(*block, prefix=prefix, safe=safe), blocks)
    return read.reshape(-1, *q_BSHK.shape[1:])[:own].reshape(batch, width, heads, size)


def _block_tokens() -> int:
    return QUERY_BLOCK if jax.default_backend() == "cpu" else 16 * QUERY_BLOCK


def _attend_block(q_BSHK: Array, k_BTHK: Array, v_BTHK: Array, mask_BST: Array, *, prefix: Prefix, safe: bool) -> Array:
    """Head-first throughout: that is the order in which matrix products of a head's queries and keys need no further copy."""
    batch, width, heads, size = q_BSHK.shape
    q_HBSK, k_HBTK, v_HBTK = (jnp.moveaxis(array, 2, 0) for array in (q_BSHK, k_BTHK, v_BTHK))
    own_HBST = jnp.einsum("hbsk,hbtk->hbst", q_HBSK, k_HBTK, preferred_element_type=jnp.float32)
    own_HBST = jnp.where(mask_BST, own_HBST, MASKED)
    if not prefix.k.shape[1]:
        return jnp.moveaxis(_mix(jax.nn.softmax(own_HBST), v_HBTK, "hbst,hbtk->hbsk"), 0, 2).astype(q_BSHK.dtype)
    far_HSP = jnp.einsum("hsk,hpk->hsp", q_HBSK.reshape(heads, -1, size), prefix.k, preferred_element_type=jnp.float32)
    far_HSP = jnp.where(jnp.arange(prefix.k.shape[1]) < prefix.length, far_HSP, MASKED)
    top_HBS = own_HBST.max(-1)
    if safe:
        top_HBS = jnp.maximum(top_HBS, far_HSP.max(-1).reshape(heads, batch, width))
    else:
        top_HBS = jnp.where(top_HBS > MASKED, top_HBS, -MASKED)  # Padding has no token of its own and reads nothing.
    own_HBST = jnp.exp(own_HBST - top_HBS[..., None])
    far_HSP = jnp.exp(far_HSP - top_HBS.reshape(heads, -1, 1))
    total_HBS = own_HBST.sum(-1) + far_HSP.sum(-1).reshape(heads, batch, width)
    total_HBS = jnp.where(jnp.isfinite(total_HBS), jnp.maximum(total_HBS, 1), jnp.nan)  # The top alone gives 1.
    far_HSK = _mix(far_HSP, prefix.v, "hsp,hpk->hsk")
    read_HBSK = _mix(own_HBST, v_HBTK, "hbst,hbtk->hbsk") + far_HSK.reshape(heads, batch, width, size)
    return jnp.moveaxis(read_HBSK / total_HBS[..., None], 0, 2).astype(q_BSHK.dtype)


def _mix(weights: Array, values: Array, equation: str) -> Array:
    return jnp.einsum(equation, weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
