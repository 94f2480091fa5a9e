"""Exact attention of packed suffixes over one shared prefix.

The prefix's keys and values carry no batch axis, so that all queries of all rows meet them in one matrix product per head.
They are stored head-first, as those products read them: transposed anew by every layer, they made attention 12 % slower.
Logits over the prefix and over the row's own tokens stay two parts that share what is subtracted; softmax runs in float32.
"""

import functools

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax import parallel
from knnprompt_jax.models import dropout as dropout_lib

Array = jax.Array
MASKED = -1e30  # Finite, so that a row of masked logits gives zeros through exp and never NaN.
QUERY_BLOCK = 256  # Tokens. Keeps a block's logits within caches when a whole sequence is read.
# Float32 logits of the heads that are taken together. On two CPU cores two of GPT-2 small's heads were faster than 1, 3, 4 or 12;
# the limit on accelerators, 1 GiB, is a matter of memory and not measured.
LOGITS_ON_CPU, LOGITS_ON_ACCELERATOR = 6 * 2**20, 2**28


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

    Heads are taken a few at a time, each with all queries, so that the logits [H, B · S, P] never exist for all of them, and
    what a matrix product does once with its right operand serves as many rows as there are.

    Softmax is the same whatever is subtracted from all logits of a query. `safe` subtracts their maximum, which takes a
    pass over the prefix's logits, 5 % of a whole pass of the model on two CPU cores. Otherwise it is the maximum over the
    row's own tokens alone: as exact, but where a logit of the prefix exceeds it by more than about 80, exponentials
    overflow, and the query reads NaN.
    """
    batch, width, heads, size = q_BSHK.shape
    q_BSHK = q_BSHK * jnp.asarray(scale, q_BSHK.dtype)
    shards = jax.sharding.get_abstract_mesh().shape.get(parallel.MODEL, 1)
    logits_a_head = batch * width * (k_BTHK.shape[1] + prefix.k.shape[1])
    together = heads_together(heads // shards, logits_a_head)
    count = heads // shards // together

    def in_groups(array_H: Array) -> Array:
        """The heads of each shard in groups, of which those of all shards go together: [G, shards · together, …]."""
        array_MGH = array_H.reshape(shards, count, together, *array_H.shape[1:])
        return jnp.moveaxis(array_MGH, 1, 0).reshape(count, shards * together, *array_H.shape[1:])

    own = [jnp.moveaxis(array, 2, 0) for array in (q_BSHK, k_BTHK, v_BTHK)]
    groups = [in_groups(array) for array in (*own, prefix.k, prefix.v)]
    attend = functools.partial(_attend_heads, mask_BST=mask_BST, length=prefix.length, safe=safe)
    read_GHBSK = jax.lax.map(lambda group: attend(*group), groups)
    read_GMHBSK = read_GHBSK.reshape(count, shards, together, batch, width, size)
    return jnp.moveaxis(read_GMHBSK, (1, 0, 2), (2, 3, 4)).reshape(batch, width, heads, size)


def heads_together(heads: int, logits_a_head: int) -> int:
    """The most heads that divide all of a device's and whose logits are few enough; at least one."""
    limit = LOGITS_ON_CPU if jax.default_backend() == "cpu" else LOGITS_ON_ACCELERATOR
    return max(n for n in range(1, heads + 1) if heads % n == 0 and (n == 1 or n * logits_a_head <= limit))


def _attend_heads(
    q_HBSK: Array,
    k_HBTK: Array,
    v_HBTK: Array,
    k_HPK: Array,
    v_HPK: Array,
    *,
    mask_BST: Array,
    length: Array,
    safe: bool,
) -> Array:
    """Head-first throughout: that is the order in which matrix products of a head's queries and keys need no further copy."""
    heads, batch, width, size = q_HBSK.shape
    own_HBST = jnp.einsum("hbsk,hbtk->hbst", q_HBSK, k_HBTK, preferred_element_type=jnp.float32)
    own_HBST = jnp.where(mask_BST, own_HBST, MASKED)
    if not k_HPK.shape[1]:
        return _mix(jax.nn.softmax(own_HBST), v_HBTK, "hbst,hbtk->hbsk").astype(q_HBSK.dtype)
    far_HSP = jnp.einsum("hsk,hpk->hsp", q_HBSK.reshape(heads, -1, size), k_HPK, preferred_element_type=jnp.float32)
    far_HSP = jnp.where(jnp.arange(k_HPK.shape[1]) < length, far_HSP, MASKED)
    top_HBS = own_HBST.max(-1)
    if safe:
        top_HBS = jnp.maximum(top_HBS, far_HSP.max(-1).reshape(heads, batch, width))
    else:
        top_HBS = jnp.where(top_HBS > MASKED, top_HBS, -MASKED)  # Padding has no token of its own and reads nothing.
    own_HBST = jnp.exp(own_HBST - top_HBS[..., None])
    far_HSP = jnp.exp(far_HSP - top_HBS.reshape(heads, -1, 1))
    total_HBS = own_HBST.sum(-1) + far_HSP.sum(-1).reshape(heads, batch, width)
    total_HBS = jnp.where(jnp.isfinite(total_HBS), jnp.maximum(total_HBS, 1), jnp.nan)  # The top alone gives 1.
    far_HSK = _mix(far_HSP, v_HPK, "hsp,hpk->hsk")
    read_HBSK = _mix(own_HBST, v_HBTK, "hbst,hbtk->hbsk") + far_HSK.reshape(heads, batch, width, size)
    return (read_HBSK / total_HBS[..., None]).astype(q_HBSK.dtype)


def _mix(weights: Array, values: Array, equation: str) -> Array:
    return jnp.einsum(equation, weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
