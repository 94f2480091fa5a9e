"""Exact attention of packed suffixes over one shared prefix.

The prefix's keys and values have no batch axis, so that one matrix product per head serves the queries of all rows. They are stored
head-first, the order in which those products read them: a transposition in every layer made attention 12 % slower. Logits over the
prefix and over the row's tokens stay separate and share the subtracted maximum. Softmax runs in float32.
"""

import functools
import os

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax import parallel
from knnprompt_jax.models import layers, prefix_kernel

Array = jax.Array
MASKED = prefix_kernel.MASKED
SWITCH, OFF = "KNNPROMPT_PREFIX_KERNEL", "off"  # For devices whose compiler rejects the kernel.
QUERY_BLOCK = 256  # Tokens. A block's logits then fit into caches when a whole sequence is read.
# Float32 logits of the heads that are computed together. On two CPU cores two of GPT-2 small's heads were faster than 1, 3, 4 or 12.
# The limit on accelerators, 1 GiB, bounds memory and is not measured.
LOGITS_ON_CPU, LOGITS_ON_ACCELERATOR = 6 * 2**20, 2**28


@struct.dataclass
class Prefix:
    """Keys and values of the shared prefix: [G, P, K] of one layer, [L, G, P, K] of all layers.

    Positions from `length` on are padding.
    """

    k: Array
    v: Array
    length: Array


@struct.dataclass
class LogitRule:
    """The attention logits of one layer: inner products times `scale`, over the last `window` tokens.

    `window` counts the reading token itself. None: no layer has a window shorter than its texts.
    """

    scale: float
    window: Array | None = None

    def scaled(self, queries: Array) -> Array:
        return queries * jnp.asarray(self.scale, queries.dtype)

    def within(self, mask: Array, reader: Array, read: Array) -> Array:
        """Return the mask without tokens before the window, given the positions of the reading and the read tokens."""
        return mask if self.window is None else mask & (reader - read < self.window)


@jax.named_scope("attention")
def causal_attention(
    q_BTHK: Array, k_BTGK: Array, v_BTGK: Array, rule: LogitRule, dropout: layers.Dropout = layers.NO_DROPOUT
) -> Array:
    """Compute plain causal attention over whole sequences, in blocks of queries that skip the keys after their end."""
    (batch, length, heads, size), kv_heads = q_BTHK.shape, k_BTGK.shape[2]
    q_BTGMK = rule.scaled(q_BTHK).reshape(batch, length, kv_heads, heads // kv_heads, size)

    @functools.partial(jax.checkpoint, static_argnums=(3,))
    def attend(q_BTGMK: Array, k_BTGK: Array, v_BTGK: Array, start: int) -> Array:
        logits_BGMTT = jnp.einsum("btgmk,bsgk->bgmts", q_BTGMK, k_BTGK, preferred_element_type=jnp.float32)
        reader_T1, read_T = start + jnp.arange(q_BTGMK.shape[1])[:, None], jnp.arange(k_BTGK.shape[1])
        mask_TT = rule.within(read_T <= reader_T1, reader_T1, read_T)
        weights_BGMTT = dropout.at(start)(jax.nn.softmax(jnp.where(mask_TT, logits_BGMTT, MASKED)))
        return _mix(weights_BGMTT, v_BTGK, "bgmts,bsgk->btgmk").astype(q_BTGMK.dtype)

    starts = range(0, length, QUERY_BLOCK) or [0]  # An empty prefix is one empty block.
    ends = [min(start + QUERY_BLOCK, length) for start in starts]
    read = [
        attend(q_BTGMK[:, start:end], k_BTGK[:, :end], v_BTGK[:, :end], start)
        for start, end in zip(starts, ends, strict=True)
    ]
    return jnp.concatenate(read, 1).reshape(batch, length, heads, size)


def padded_attention(
    q_BTHK: Array,
    k_BTHK: Array,
    v_BTHK: Array,
    lengths_B: Array,
    scale: float,
    dropout: layers.Dropout = layers.NO_DROPOUT,
) -> Array:
    """Compute plain attention in both directions over sequences of `lengths_B` tokens, padded on the right."""
    logits_BHTT = jnp.einsum(
        "bthk,bshk->bhts", q_BTHK * jnp.asarray(scale, q_BTHK.dtype), k_BTHK, preferred_element_type=jnp.float32
    )
    mask_BT = jnp.arange(k_BTHK.shape[1]) < lengths_B[:, None]
    weights_BHTT = dropout(jax.nn.softmax(jnp.where(mask_BT[:, None, None], logits_BHTT, MASKED)))
    return _mix(weights_BHTT, v_BTHK, "bhts,bshk->bthk").astype(q_BTHK.dtype)


def readable(stops_BS: Array) -> Array:
    """Return the mask [B, S, S] of the tokens that a token may read in its row: itself and earlier ones of its suffix."""
    columns_S = jnp.arange(stops_BS.shape[1])
    return (columns_S <= columns_S[:, None]) & (columns_S[:, None] < stops_BS[:, None])


def readable_at(output_positions_J: Array, stops_BS: Array) -> Array:
    """Return the mask [J, B · S] of the tokens that the tokens `output_positions_J` (flat indices) may read."""
    rows, width = stops_BS.shape
    stops_T = (stops_BS + width * jnp.arange(rows)[:, None]).reshape(-1)
    return (jnp.arange(rows * width) <= output_positions_J[:, None]) & (output_positions_J[:, None] < stops_T)


@jax.named_scope("attention")
def shared_prefix_attention(
    q_BSHK: Array,
    k_BTGK: Array,
    v_BTGK: Array,
    mask_BST: Array,
    positions_BS: Array,
    prefix: Prefix,
    rule: LogitRule,
    stable_softmax: bool,
    in_order: bool,
) -> Array:
    """Return what each query reads from the prefix and from the tokens of its row that the mask allows, [B, S, H, K].

    The M = H / G query heads of a key head count as more queries of that head, so that keys and values are never repeated. A few key
    heads are computed at a time, each with all queries: the logits [H, B · S, P] never exist for all heads, and each matrix product
    prepares its right operand once for all rows.

    Softmax does not depend on the number subtracted from all logits of a query. With `stable_softmax` this is their maximum, which
    costs a pass over the prefix's logits, 5 % of a whole pass of the model on two CPU cores. Otherwise it is the maximum over the
    row's tokens. That is as exact, but if a logit of the prefix exceeds it by more than about 80, exponentials overflow, and the
    query reads NaN.

    Args:
        q_BSHK: the queries.
        k_BTGK, v_BTGK: keys and values of the rows' tokens.
        mask_BST: which tokens of its row each query may read.
        positions_BS: the positions of the queries.
        prefix: keys and values of the prefix in this layer.
        rule: how logits are computed.
        stable_softmax: see above.
        in_order: whether the queries are the row's tokens; then accelerators use `prefix_kernel`.
    """
    batch, width, heads, size = q_BSHK.shape
    kv_heads = k_BTGK.shape[2]
    queries, platform = heads // kv_heads, parallel.platform()
    if in_order and is_in_kernel(prefix.k.shape[1], platform):
        rows = q_BSHK, k_BTGK, v_BTGK, mask_BST, positions_BS
        return prefix_kernel.attend(*rows, prefix.k, prefix.v, prefix.length, rule.scale, rule.window, platform)
    shards = jax.sharding.get_abstract_mesh().shape.get(parallel.MODEL, 1)
    logits_per_head = queries * batch * width * (k_BTGK.shape[1] + prefix.k.shape[1])
    together = heads_together(kv_heads // shards, logits_per_head, platform)
    count = kv_heads // shards // together

    def in_groups(array_G: Array) -> Array:
        """Group the key heads of each shard; groups of all shards are computed together: [count, shards · together, …]."""
        grouped = array_G.reshape(shards, count, together, *array_G.shape[1:])
        return jnp.moveaxis(grouped, 1, 0).reshape(count, shards * together, *array_G.shape[1:])

    q_BSGMK = rule.scaled(q_BSHK).reshape(batch, width, kv_heads, queries, size)
    q_GBQK = jnp.einsum("bsgmk->gbmsk", q_BSGMK).reshape(kv_heads, batch, queries * width, size)
    mask_BQT, positions_BQ = jnp.tile(mask_BST, (1, queries, 1)), jnp.tile(positions_BS, (1, queries))
    far_mask = jnp.arange(prefix.k.shape[1]) < prefix.length
    if rule.window is not None:
        far_mask = rule.within(far_mask, positions_BQ[..., None], jnp.arange(prefix.k.shape[1]))
        far_mask = far_mask.reshape(batch * queries * width, prefix.k.shape[1])
    attend = functools.partial(
        _attend_heads, mask_BQT=mask_BQT, far_mask=far_mask, rule=rule, stable_softmax=stable_softmax
    )
    near = [jnp.moveaxis(array, 2, 0) for array in (k_BTGK, v_BTGK)]
    read = jax.lax.map(attend, [in_groups(array) for array in (q_GBQK, *near, prefix.k, prefix.v)])
    read = read.reshape(count, shards, together, batch, queries, width, size)
    return jnp.einsum("cnobmsk->bsncomk", read).reshape(batch, width, heads, size)


def is_in_kernel(prefix_tokens: int, platform: str) -> bool:
    """Return whether a kernel reads prefix and rows. Its softmax is always stable, and its logits take no memory."""
    return prefix_tokens > 0 and platform in prefix_kernel.TILES and os.environ.get(SWITCH) != OFF


def heads_together(heads: int, logits_per_head: int, platform: str) -> int:
    """Return the largest divisor of `heads` whose logits stay below the limit; at least 1."""
    limit = LOGITS_ON_CPU if platform == "cpu" else LOGITS_ON_ACCELERATOR
    return max(n for n in range(1, heads + 1) if heads % n == 0 and (n == 1 or n * logits_per_head <= limit))


def _attend_heads(group: list[Array], mask_BQT: Array, far_mask: Array, rule: LogitRule, stable_softmax: bool) -> Array:
    """Attend for a few key heads. All arrays are head-first, so that the matrix products of a head need no copies.

    Args:
        group: queries [G, B, Q, K], keys and values [G, B, T, K] of the rows, and [G, P, K] of the prefix. Q counts the queries of a
            row, S for each query head.
        mask_BQT: which tokens of its row each query may read.
        far_mask: which tokens of the prefix each query may read, [P] or, with a window, [B · Q, P].
        rule: how logits are computed.
        stable_softmax: see `shared_prefix_attention`.
    """
    q_GBQK, k_GBTK, v_GBTK, k_GPK, v_GPK = group
    heads, batch, queries, size = q_GBQK.shape
    near_GBQT = jnp.einsum("gbqk,gbtk->gbqt", q_GBQK, k_GBTK, preferred_element_type=jnp.float32)
    near_GBQT = jnp.where(mask_BQT, near_GBQT, MASKED)
    if not k_GPK.shape[1]:
        return _mix(jax.nn.softmax(near_GBQT), v_GBTK, "gbqt,gbtk->gbqk").astype(q_GBQK.dtype)
    far_GQP = jnp.einsum("gqk,gpk->gqp", q_GBQK.reshape(heads, -1, size), k_GPK, preferred_element_type=jnp.float32)
    far_GQP = jnp.where(far_mask, far_GQP, MASKED)
    top_GBQ = near_GBQT.max(-1)
    if stable_softmax:
        top_GBQ = jnp.maximum(top_GBQ, far_GQP.max(-1).reshape(heads, batch, queries))
    else:
        top_GBQ = jnp.where(top_GBQ > MASKED, top_GBQ, -MASKED)  # Padding reads nothing.
    near_GBQT = jnp.exp(near_GBQT - top_GBQ[..., None])
    far_GQP = jnp.exp(far_GQP - top_GBQ.reshape(heads, -1, 1))
    total_GBQ = near_GBQT.sum(-1) + far_GQP.sum(-1).reshape(heads, batch, queries)
    # At least 1, the exponential of the subtracted maximum; padding has none.
    total_GBQ = jnp.where(jnp.isfinite(total_GBQ), jnp.maximum(total_GBQ, 1), jnp.nan)
    far_GQK = _mix(far_GQP, v_GPK, "gqp,gpk->gqk")
    read_GBQK = _mix(near_GBQT, v_GBTK, "gbqt,gbtk->gbqk") + far_GQK.reshape(heads, batch, queries, size)
    return (read_GBQK / total_GBQ[..., None]).astype(q_GBQK.dtype)


def _mix(weights: Array, values: Array, equation: str) -> Array:
    return jnp.einsum(equation, weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
