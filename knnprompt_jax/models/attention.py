"""Exact attention of packed suffixes over one shared prefix.

A query attends to two sets of keys: those of the prefix ("far") and those of its own row ("near"). The keys and values
of the prefix have no batch axis, so that one matrix product per head serves the queries of all rows. They are stored
head-first, as these products need them: a transposition in every layer made attention 12 % slower. Far and near logits
stay in separate arrays. They share the number that softmax subtracts and the sum that it divides by. Softmax runs in
float32.

`attention_mask` restricts a query to the earlier tokens of its own suffix (`prompts.packing` has an example).

In names of arrays, M counts the heads that share a key head, and Q = S · M their queries in a row. T counts the tokens
of near keys: S, or B · S where rows are joined.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax.common import parallel
from knnprompt_jax.models import layers
from knnprompt_jax.models.layers import MASKED

Array = jax.Array
# JAX calls a running GPU "gpu", and "cuda" as the target of a dry run (`devices.estimate`).
KERNEL_PLATFORMS = ("tpu", "gpu", "cuda")
QUERY_BLOCK = 256  # Tokens. The logits of a block of queries then fit into a CPU's caches.
# The maximum number of float32 logits of the heads that are computed together. On two CPU cores, two of GPT-2 small's
# heads were faster than 1, 3, 4 or 12. The limit on accelerators, 1 GiB, bounds memory and is not measured.
LOGITS_ON_CPU = 6 * 2**20
LOGITS_ON_ACCELERATOR = 2**28


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
    """The attention logits of one layer.

    Attributes:
        scale: the factor of the inner products of queries and keys.
        window: how many tokens back a query attends, itself included; None: no window is shorter than the texts.
    """

    scale: float
    window: Array | None = None

    def scaled(self, queries: Array) -> Array:
        """Return the queries times `scale`."""
        return queries * jnp.asarray(self.scale, queries.dtype)

    def within(self, mask: Array, query_positions: Array, key_positions: Array) -> Array:
        """Return the mask without the keys before each query's window."""
        return mask if self.window is None else mask & (query_positions - key_positions < self.window)


@jax.named_scope("attention")
def causal_attention(
    q_BTHK: Array, k_BTGK: Array, v_BTGK: Array, rule: LogitRule, dropout: layers.Dropout = layers.NO_DROPOUT
) -> Array:
    """Compute plain causal attention over whole sequences, in blocks of queries that skip the keys after their end."""
    batch, length, heads, size = q_BTHK.shape
    kv_heads = k_BTGK.shape[2]
    q_BTGMK = rule.scaled(q_BTHK).reshape(batch, length, kv_heads, heads // kv_heads, size)

    @functools.partial(jax.checkpoint, static_argnums=(3,))
    def attend(q_BTGMK: Array, k_BTGK: Array, v_BTGK: Array, start: int) -> Array:
        logits_BGMTT = jnp.einsum("btgmk,bsgk->bgmts", q_BTGMK, k_BTGK, preferred_element_type=jnp.float32)
        query_T1 = start + jnp.arange(q_BTGMK.shape[1])[:, None]
        key_T = jnp.arange(k_BTGK.shape[1])
        mask_TT = rule.within(key_T <= query_T1, query_T1, key_T)
        weights_BGMTT = dropout.at(start)(jax.nn.softmax(jnp.where(mask_TT, logits_BGMTT, MASKED)))
        return _mix(weights_BGMTT, v_BTGK, "bgmts,bsgk->btgmk").astype(q_BTGMK.dtype)

    starts = range(0, length, QUERY_BLOCK) or [0]  # An empty prefix is one empty block.
    ends = [min(start + QUERY_BLOCK, length) for start in starts]
    attended = [
        attend(q_BTGMK[:, start:end], k_BTGK[:, :end], v_BTGK[:, :end], start)
        for start, end in zip(starts, ends, strict=True)
    ]
    return jnp.concatenate(attended, 1).reshape(batch, length, heads, size)


def padded_attention(
    q_BTHK: Array,
    k_BTGK: Array,
    v_BTGK: Array,
    lengths_B: Array,
    rule: LogitRule,
    dropout: layers.Dropout = layers.NO_DROPOUT,
) -> Array:
    """Compute plain attention in both directions over sequences of `lengths_B` tokens, padded on the right."""
    heads_per_key = q_BTHK.shape[2] // k_BTGK.shape[2]
    k_BTHK = jnp.repeat(k_BTGK, heads_per_key, axis=2)
    v_BTHK = jnp.repeat(v_BTGK, heads_per_key, axis=2)
    logits_BHTT = jnp.einsum("bthk,bshk->bhts", rule.scaled(q_BTHK), k_BTHK, preferred_element_type=jnp.float32)
    key_T = jnp.arange(k_BTHK.shape[1])
    query_T1 = key_T[:, None]
    mask_BTT = rule.within(key_T < lengths_B[:, None, None], query_T1, key_T)  # [B, 1, T] without a window.
    mask_BTT = rule.within(mask_BTT, key_T, query_T1)
    weights_BHTT = dropout(jax.nn.softmax(jnp.where(mask_BTT[:, None], logits_BHTT, MASKED)))
    return _mix(weights_BHTT, v_BTHK, "bhts,bshk->bthk").astype(q_BTHK.dtype)


def attention_mask(stops_BS: Array) -> Array:
    """Return which tokens of its row each token attends to [B, S, S]: itself and the earlier tokens of its suffix."""
    columns_S = jnp.arange(stops_BS.shape[1])
    return (columns_S <= columns_S[:, None]) & (columns_S[:, None] < stops_BS[:, None])


def attention_mask_at(output_positions_J: Array, stops_BS: Array) -> Array:
    """Return which tokens of a step each of the tokens `output_positions_J` (flat indices) attends to [J, B · S].

    The B rows count as one long row. A stop never exceeds the end of its own row, so that no token sees another row.
    """
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
    use_kernel: bool,
) -> Array:
    """Return attention to the prefix and to the tokens of the row that the mask allows [B, S, H, K].

    The M = H / G query heads of a key head count as more queries of that head, so that keys and values are never
    repeated. A few key heads are computed at a time, each with all queries. The logits [H, B · S, P] never exist for
    all heads, and each matrix product prepares its right operand once for all rows.

    Args:
        q_BSHK: the queries.
        k_BTGK: keys of the rows' tokens.
        v_BTGK: values of the rows' tokens.
        mask_BST: which tokens of its row each query attends to.
        positions_BS: the positions of the queries.
        prefix: keys and values of the prefix in this layer.
        rule: how logits are computed.
        use_kernel: whether `prefix_kernel` computes it; the queries must be the row's tokens.
    """
    batch, width, heads, size = q_BSHK.shape
    kv_heads = k_BTGK.shape[2]
    heads_per_key = heads // kv_heads
    platform = parallel.platform()
    if use_kernel and prefix.k.shape[1]:
        from knnprompt_jax.models import prefix_kernel  # Pallas takes half a second to import.

        rows = q_BSHK, k_BTGK, v_BTGK, mask_BST, positions_BS
        return prefix_kernel.attend(*rows, prefix.k, prefix.v, prefix.length, rule.scale, rule.window, platform)
    mask_BQT = jnp.tile(mask_BST, (1, heads_per_key, 1))
    far_mask = _far_mask(prefix, rule, jnp.tile(positions_BS, (1, heads_per_key)))
    attend = functools.partial(_attend_heads, mask_BQT=mask_BQT, far_mask=far_mask)
    q_BSGMK = rule.scaled(q_BSHK).reshape(batch, width, kv_heads, heads_per_key, size)
    q_GBQK = jnp.einsum("bsgmk->gbmsk", q_BSGMK).reshape(kv_heads, batch, heads_per_key * width, size)
    near = [jnp.moveaxis(array, 2, 0) for array in (k_BTGK, v_BTGK)]
    logits_per_head = heads_per_key * batch * width * (k_BTGK.shape[1] + prefix.k.shape[1])
    attended_GBQK = _map_heads(attend, [q_GBQK, *near, prefix.k, prefix.v], logits_per_head, platform)
    attended_GBMSK = attended_GBQK.reshape(kv_heads, batch, heads_per_key, width, size)
    return jnp.einsum("gbmsk->bsgmk", attended_GBMSK).reshape(batch, width, heads, size)


def _far_mask(prefix: Prefix, rule: LogitRule, positions_BQ: Array) -> Array:
    """Return which tokens of the prefix are attended to: [P], or [B · Q, P] if the layer has a window."""
    key_P = jnp.arange(prefix.k.shape[1])
    mask_P = key_P < prefix.length
    if rule.window is None:
        return mask_P
    return rule.within(mask_P, positions_BQ[..., None], key_P).reshape(positions_BQ.size, len(key_P))


def _map_heads(
    attend: Callable[[list[Array]], Array], arrays: list[Array], logits_per_head: int, platform: str
) -> Array:
    """Apply `attend` to groups of key heads [G, …], one group after the other.

    A group has as many heads of every shard as `heads_together` allows.
    """
    num_heads = len(arrays[0])
    shards = jax.sharding.get_abstract_mesh().shape.get(parallel.MODEL, 1)
    together = heads_together(num_heads // shards, logits_per_head, platform)
    count = num_heads // shards // together

    def in_groups(array_G: Array) -> Array:
        grouped = array_G.reshape(shards, count, together, *array_G.shape[1:])
        return jnp.moveaxis(grouped, 1, 0).reshape(count, shards * together, *array_G.shape[1:])

    output = jax.lax.map(attend, [in_groups(array) for array in arrays])
    by_shard = output.reshape(count, shards, together, *output.shape[2:])
    return jnp.moveaxis(by_shard, 0, 1).reshape(num_heads, *output.shape[2:])


def heads_together(heads: int, logits_per_head: int, platform: str) -> int:
    """Return the largest divisor of `heads` whose logits stay below the limit; at least 1."""
    limit = LOGITS_ON_CPU if platform == "cpu" else LOGITS_ON_ACCELERATOR
    return max(n for n in range(1, heads + 1) if heads % n == 0 and (n == 1 or n * logits_per_head <= limit))


def _attend_heads(group: list[Array], mask_BQT: Array, far_mask: Array) -> Array:
    """Compute attention of a few key heads. All arrays are head-first, so that the matrix products need no copies.

    Args:
        group: scaled queries [G, B, Q, K], keys and values [G, B, T, K] of the rows, and [G, P, K] of the prefix. Q
            counts the queries of a row: S for each query head.
        mask_BQT: which tokens of its row each query attends to.
        far_mask: which tokens of the prefix each query attends to, [P] or, with a window, [B · Q, P].

    Returns:
        The weighted means of the values [G, B, Q, K].
    """
    q_GBQK, k_GBTK, v_GBTK, k_GPK, v_GPK = group
    heads, batch, queries, size = q_GBQK.shape
    near_GBQT = jnp.einsum("gbqk,gbtk->gbqt", q_GBQK, k_GBTK, preferred_element_type=jnp.float32)
    near_GBQT = jnp.where(mask_BQT, near_GBQT, MASKED)
    if not k_GPK.shape[1]:
        return _mix(jax.nn.softmax(near_GBQT), v_GBTK, "gbqt,gbtk->gbqk").astype(q_GBQK.dtype)
    far_GQP = jnp.einsum("gqk,gpk->gqp", q_GBQK.reshape(heads, -1, size), k_GPK, preferred_element_type=jnp.float32)
    far_GQP = jnp.where(far_mask, far_GQP, MASKED)
    top_GBQ = jnp.maximum(near_GBQT.max(-1), far_GQP.max(-1).reshape(heads, batch, queries))
    near_GBQT = jnp.exp(near_GBQT - top_GBQ[..., None])
    far_GQP = jnp.exp(far_GQP - top_GBQ.reshape(heads, -1, 1))
    total_GBQ = near_GBQT.sum(-1) + far_GQP.sum(-1).reshape(heads, batch, queries)
    far_GQK = _mix(far_GQP, v_GPK, "gqp,gpk->gqk")
    attended_GBQK = _mix(near_GBQT, v_GBTK, "gbqt,gbtk->gbqk") + far_GQK.reshape(heads, batch, queries, size)
    return (attended_GBQK / total_GBQ[..., None]).astype(q_GBQK.dtype)


def _mix(weights: Array, values: Array, equation: str) -> Array:
    """Return sums of values with these weights, in float32."""
    return jnp.einsum(equation, weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
