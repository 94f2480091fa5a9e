"""Attention of packed suffixes over a shared prefix as one kernel that writes no logits to memory.

Pallas compiles it with Mosaic for TPUs and with Triton for GPUs.

The kernel reads keys and values of the row and of the prefix in blocks. For each query it keeps a running maximum, the
sum of exponentials below it and the weighted sum of values, all in float32. It does not overflow, however large a logit
is. See Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, and Dao et al., "FlashAttention",
2022.

Inputs and outputs have the layout of the projections, a token's heads side by side [T, H · K], so that no copy puts
heads first. A TPU's registers hold 128 numbers in a row, so heads of 64 are computed in pairs. A query has zeros in the
part of the other head. Its inner product with both heads' keys is then that with its own head's keys. The other head's
half of the output is dropped. A head of 64 by itself would cost the matrix unit the same zeros.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu
from jax.sharding import PartitionSpec as P

from knnprompt_jax.common import parallel
from knnprompt_jax.models.layers import MASKED

Array = jax.Array
Ref = jax.Ref
# For each query: the largest logit, the sum of exponentials below it, the weighted sum of values.
Carry = tuple[Array, Array, Array]
_LANES = 128  # Numbers in a row of a TPU's registers.


# By platform, as in `attention.KERNEL_PLATFORMS`: the maximum numbers of 16-bit queries and of keys in a block, and the
# number that divides the latter.
TILES = {"tpu": (1024, 1024, 128), "gpu": (128, 64, 64), "cuda": (128, 64, 64)}


@dataclasses.dataclass(frozen=True)
class Tiling:
    """The sizes of blocks that arrays are cut into.

    Attributes:
        rows: rows in a block of queries; 1 if rows are cut into parts.
        parts: the number of parts of a wide row.
        width: tokens in a row or in a part of one.
        heads: heads that are computed together.
        lanes: numbers that these heads fill.
        keys: keys of the prefix in a block.
        shared: query heads with the same keys.
    """

    rows: int
    parts: int
    width: int
    heads: int
    lanes: int
    keys: int
    shared: int

    @property
    def queries(self) -> int:
        return self.rows * self.width


def attend(
    q_BSHK: Array,
    k_BSGK: Array,
    v_BSGK: Array,
    mask_BSS: Array,
    positions_BS: Array,
    k_GPK: Array,
    v_GPK: Array,
    length: Array,
    scale: Array | float,
    window: Array | None,
    platform: str,
    interpret: bool = False,
) -> Array:
    """Return attention to the first `length` tokens of the prefix and to the row [B, S, H, K].

    Logits are inner products times `scale`. With a window, the query at position p attends to the prefix from position
    p − `window` + 1 on. The mask says which tokens of its row a query attends to; it must exclude later tokens. The
    output of a query that attends to nothing is finite and meaningless.
    """
    limits = jnp.stack([length, jnp.asarray(0 if window is None else window)]).astype(jnp.int32)
    scale = jnp.asarray(scale, q_BSHK.dtype)
    whole = [scale, mask_BSS, limits] if window is None else [scale, mask_BSS, limits, positions_BS.astype(jnp.int32)]
    on_device = functools.partial(_attend, platform=platform, interpret=interpret)
    if parallel.MODEL in jax.sharding.get_abstract_mesh().shape:  # The compiler cannot split a kernel over devices.
        heads = P(None, None, parallel.MODEL)
        specs = (*[heads] * 3, *[P(parallel.MODEL)] * 2, *[P()] * len(whole))
        on_device = jax.shard_map(
            on_device, in_specs=specs, out_specs=heads, axis_names={parallel.MODEL}, check_vma=False
        )
    return on_device(q_BSHK, k_BSGK, v_BSGK, k_GPK, v_GPK, *whole)


def _attend(*arrays: Array, platform: str, interpret: bool) -> Array:
    """Pad rows, prefix and heads to whole tiles, flatten tokens and heads, and run the kernel.

    For heads in pairs, keys and values that several query heads share are repeated. Pallas masks the last tile of rows.
    """
    q_BSHK, k_BSGK, v_BSGK, k_GPK, v_GPK, scale, mask_BSS, limits, *positions = arrays
    batch, width, heads, size = q_BSHK.shape
    prefix = k_GPK.shape[1]
    tiling = _tiling(q_BSHK, k_BSGK.shape[2], prefix, platform)
    if (copies := heads // k_BSGK.shape[2] // tiling.shared) > 1:
        k_BSGK = jnp.repeat(k_BSGK, copies, 2)
        v_BSGK = jnp.repeat(v_BSGK, copies, 2)
        k_GPK = jnp.repeat(k_GPK, copies, 0)
        v_GPK = jnp.repeat(v_GPK, copies, 0)
    head_size = tiling.lanes // tiling.heads
    row = tiling.width * tiling.parts

    def flat(array: Array, *tile: int) -> Array:
        filled = _filled(array, tile)
        return filled.reshape(filled.shape[0] * filled.shape[1], -1)

    tokens = [flat(array, 1, row, 1, head_size) for array in (q_BSHK, k_BSGK, v_BSGK)]
    far = [
        flat(_filled(jnp.swapaxes(array, 0, 1), (tiling.keys, tiling.heads, head_size))[None], 1)
        for array in (k_GPK, v_GPK)
    ]
    bias_BSS = jnp.where(_filled(mask_BSS, (1, row, row)), 0, MASKED).astype(jnp.bfloat16)
    bias_TS = flat(bias_BSS, 1)
    positions = [flat(array[..., None], 1, row, 1) for array in positions]
    tokens[0] = tokens[0] * scale
    run = _on_tpu if platform == "tpu" else _on_gpu
    attended = run(limits, *tokens, *far, bias_TS, *positions, heads=heads, tiling=tiling, interpret=interpret)
    return attended.reshape(batch, row, heads, head_size)[:, :width, :, :size]


def _tiling(q_BSHK: Array, kv_heads: int, prefix: int, platform: str) -> Tiling:
    batch, width, heads, size = q_BSHK.shape
    max_queries, max_keys, unit = TILES[platform]
    is_tpu = platform == "tpu"
    together = _LANES // size if is_tpu and size < _LANES and _LANES % size == 0 else 1
    lanes = parallel.round_up(together * size, _LANES) if is_tpu else max(16, pl.next_power_of_2(size))
    # A TPU's fast memory holds no more; Triton would compile more in float32 for minutes.
    queries = max_queries // max(1, q_BSHK.dtype.itemsize // 2) // (lanes // _LANES if is_tpu else 1)
    parts = pl.cdiv(width, queries)
    width = pl.cdiv(width, parts)
    width = parallel.round_up(width, _LANES if parts > 1 else 16) if is_tpu else max(16, pl.next_power_of_2(width))
    rows = pl.cdiv(batch, pl.cdiv(batch, max(1, queries // width))) if is_tpu else 1
    keys = parallel.round_up(pl.cdiv(prefix, pl.cdiv(prefix, max_keys)), unit)
    return Tiling(rows, parts, width, together, lanes, keys, 1 if together > 1 else heads // kv_heads)


def _on_tpu(limits: Array, *arrays: Array, heads: int, tiling: Tiling, interpret: bool) -> Array:
    """Run on a TPU. The last axis of the grid is the blocks of keys, the row's and then the prefix's."""
    q_TF, _, _, k_PF, *_ = arrays
    tile = tiling.queries
    lanes = tiling.lanes
    parts = tiling.parts
    blocks = parts + k_PF.shape[0] // tiling.keys

    def own(head: Array, query: Array, key: Array) -> tuple[Array, Array]:
        return query // parts * parts + jnp.minimum(key, query % parts), head // tiling.shared

    by_query = pl.BlockSpec((tile, lanes), lambda head, query, key: (query, head))
    by_row = pl.BlockSpec((tile, lanes), own)
    by_key = pl.BlockSpec(
        (tiling.keys, lanes), lambda head, query, key: (jnp.maximum(key - parts, 0), head // tiling.shared)
    )
    bias = pl.BlockSpec((tile, tiling.width), lambda head, query, key: (query, jnp.minimum(key, query % parts)))
    position = pl.BlockSpec((tile, 1), lambda head, query, key: (query, 0))
    per_head = [pltpu.VMEM((tiling.heads, tile, _LANES), jnp.float32)] * 2
    return pl.pallas_call(
        functools.partial(_tpu_kernel, heads=heads, tiling=tiling),
        grid=(pl.cdiv(heads, tiling.heads), pl.cdiv(len(q_TF), tile), blocks),
        in_specs=[
            *[pl.BlockSpec(memory_space=pltpu.SMEM), by_query, by_row, by_row, by_key, by_key, bias],
            *[position] * (len(arrays) - 6),
        ],
        out_specs=by_query,
        out_shape=jax.ShapeDtypeStruct(q_TF.shape, q_TF.dtype),
        scratch_shapes=[*per_head, pltpu.VMEM((tile, lanes), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        cost_estimate=_cost(heads, tiling, *arrays[:4]),
        interpret=interpret,
    )(limits, *arrays)


def _tpu_kernel(limits_ref: Ref, q_ref: Ref, *refs: Ref, heads: int, tiling: Tiling) -> None:
    """Add one block of keys of the row or of the prefix for one block of queries; fully masked blocks are skipped."""
    tile = tiling.queries
    lanes = tiling.lanes
    parts = tiling.parts
    size = tiling.lanes // tiling.heads
    k_ref, v_ref, far_k_ref, far_v_ref, bias_ref, *positions, attended_ref, top_ref, total_ref, sum_ref = refs
    number = pl.program_id(2)
    start = (number - parts) * tiling.keys
    lane_1F = jax.lax.broadcasted_iota(jnp.int32, (1, lanes), 1)
    # The last of an odd number of heads has no partner.
    exists_1F = lane_1F < heads * size - pl.program_id(0) * lanes

    def absorb(k_PF: Array, v_PF: Array, masked: Callable[[Array], Array], rows: int, first: bool = False) -> None:
        q_TF = q_ref[...]
        sum_TF = None if first else sum_ref[...]
        for head in range(tiling.heads):
            carry = None if first else (top_ref[head, :, :1], total_ref[head, :, :1], sum_ref[...])
            is_own_1F = lane_1F // size == head
            head_q_TF = q_TF if tiling.heads == 1 else jnp.where(is_own_1F, q_TF, 0)
            top_T1, total_T1, new_TF = _absorb(carry, head_q_TF, k_PF, v_PF, masked, rows)
            top_ref[head] = jnp.broadcast_to(top_T1, (tile, _LANES))
            total_ref[head] = jnp.broadcast_to(total_T1, (tile, _LANES))
            sum_TF = new_TF if sum_TF is None or tiling.heads == 1 else jnp.where(is_own_1F, new_TF, sum_TF)
        sum_ref[...] = sum_TF

    def absorb_row(first: bool) -> None:
        bias_TS = bias_ref[...].astype(jnp.float32)
        k_TF = jnp.where(exists_1F, k_ref[...], 0)
        absorb(k_TF, v_ref[...], lambda logits_TS: logits_TS + bias_TS, tiling.rows, first)

    def absorb_prefix() -> None:
        mask_TP = _mask(limits_ref, positions, start, (tile, tiling.keys))
        absorb(far_k_ref[...], far_v_ref[...], lambda logits_TP: jnp.where(mask_TP, logits_TP, MASKED), 1)

    def finish() -> None:
        total_TF = total_ref[0, :, :1]
        for head in range(1, tiling.heads):
            total_TF = jnp.where(lane_1F < head * size, total_TF, total_ref[head, :, :1])
        attended_ref[...] = (sum_ref[...] / jnp.maximum(total_TF, 1e-30)).astype(attended_ref.dtype)

    pl.when(number == 0)(functools.partial(absorb_row, first=True))
    if parts > 1:
        later = (number > 0) & (number <= pl.program_id(1) % parts)
        pl.when(later)(functools.partial(absorb_row, first=False))
    pl.when((start >= 0) & (start < limits_ref[0]))(absorb_prefix)
    pl.when(number == pl.num_programs(2) - 1)(finish)


def _on_gpu(limits: Array, *arrays: Array, heads: int, tiling: Tiling, interpret: bool) -> Array:
    """Run on a GPU. One loop goes over the blocks of the prefix, a second loop over those of the row."""
    q_TF, _, _, k_PF, *_ = arrays
    tile = tiling.width
    parts = tiling.parts
    lanes = tiling.lanes

    def kernel(limits_ref: Ref, q_ref: Ref, *refs: Ref) -> None:
        k_ref, v_ref, far_k_ref, far_v_ref, bias_ref, *positions, attended_ref = refs
        q_TF = q_ref[...]

        def from_prefix(number: Array, carry: Carry) -> Carry:
            here = pl.ds(number * tiling.keys, tiling.keys)
            mask_TP = _mask(limits_ref, positions, number * tiling.keys, (tile, tiling.keys))
            return _absorb(
                carry, q_TF, far_k_ref[here], far_v_ref[here], lambda logits: jnp.where(mask_TP, logits, MASKED)
            )

        def from_row(number: Array, carry: Carry) -> Carry:
            here = pl.ds(number * tile, tile)
            bias_TT = bias_ref[:, here].astype(jnp.float32)
            return _absorb(carry, q_TF, k_ref[here], v_ref[here], lambda logits: logits + bias_TT)

        zeros_T1 = jnp.zeros((tile, 1), jnp.float32)
        carry = zeros_T1 + MASKED, zeros_T1, jnp.zeros((tile, lanes), jnp.float32)
        carry = jax.lax.fori_loop(0, pl.cdiv(limits_ref[0], tiling.keys), from_prefix, carry)
        _, total_T1, sum_TF = jax.lax.fori_loop(0, pl.program_id(0) % parts + 1, from_row, carry)
        attended_ref[...] = (sum_TF / jnp.maximum(total_T1, 1e-30)).astype(attended_ref.dtype)

    by_query = pl.BlockSpec((tile, lanes), lambda query, head: (query, head))
    by_row = pl.BlockSpec((tile * parts, lanes), lambda query, head: (query // parts, head // tiling.shared))
    by_head = pl.BlockSpec((k_PF.shape[0], lanes), lambda query, head: (0, head // tiling.shared))
    bias = pl.BlockSpec((tile, tile * parts), lambda query, head: (query, 0))
    position = pl.BlockSpec((tile, 1), lambda query, head: (query, 0))
    return pl.pallas_call(
        kernel,
        grid=(q_TF.shape[0] // tile, heads),
        in_specs=[
            *[pl.BlockSpec((2,), lambda query, head: (0,)), by_query, by_row, by_row, by_head, by_head, bias],
            *[position] * (len(arrays) - 6),
        ],
        out_specs=by_query,
        out_shape=jax.ShapeDtypeStruct(q_TF.shape, q_TF.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4 if lanes <= 64 else 8, num_stages=2),
        cost_estimate=_cost(heads, tiling, *arrays[:4]),
        interpret=interpret,
    )(limits, *arrays)


def _mask(limits_ref: Ref, positions: list[Ref], start: Array, shape: tuple[int, int]) -> Array:
    """Return which of the prefix's keys from index `start` on each query attends to."""
    key_TP = start + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
    mask_TP = key_TP < limits_ref[0]
    for position_ref in positions:
        mask_TP &= position_ref[...] - key_TP < limits_ref[1]
    return mask_TP


def _absorb(
    carry: Carry | None, q_TF: Array, k_PF: Array, v_PF: Array, masked: Callable[[Array], Array], rows: int = 1
) -> Carry:
    """Return the carry after one more block of keys; each query attends only to its own row, one of `rows`."""
    logits_TP = masked(_products(q_TF, k_PF, 1, rows))
    top_T1 = logits_TP.max(-1, keepdims=True)
    if carry is not None:
        top_T1 = jnp.maximum(carry[0], top_T1)
    weights_TP = jnp.exp(logits_TP - top_T1)
    total_T1 = weights_TP.sum(-1, keepdims=True)
    sum_TF = _products(weights_TP.astype(v_PF.dtype), v_PF, 0, rows)
    if carry is not None:
        shrink_T1 = jnp.exp(carry[0] - top_T1)
        total_T1 = shrink_T1 * carry[1] + total_T1
        sum_TF = shrink_T1 * carry[2] + sum_TF
    return top_T1, total_T1, sum_TF


def _products(left: Array, right: Array, axis: int, rows: int) -> Array:
    """Return `_product` of each row's part of `left` and `right`."""
    parts = zip(jnp.split(left, rows), jnp.split(right, rows), strict=True) if rows > 1 else [(left, right)]
    products = [_product(*pair, axis) for pair in parts]
    return jnp.concatenate(products) if rows > 1 else products[0]


def _product(left: Array, right: Array, axis: int) -> Array:
    """Return left · right over `axis` of `right` in float32, as exact as their dtype."""
    precision = jax.lax.Precision.HIGHEST if left.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
    contracted = ((1,), (axis,)), ((), ())
    return jax.lax.dot_general(left, right, contracted, precision=precision, preferred_element_type=jnp.float32)


def _cost(heads: int, tiling: Tiling, q_TF: Array, k_TF: Array, v_TF: Array, k_PF: Array) -> pl.CostEstimate:
    """Estimate the cost of the real heads, without padding."""
    logits = heads * q_TF.shape[0] * (k_PF.shape[0] + tiling.width * (tiling.parts + 1) // 2)
    moved = q_TF.dtype.itemsize * (2 * q_TF.size + k_TF.size + v_TF.size + 2 * k_PF.size)
    flops = 4 * logits * tiling.lanes // tiling.heads
    return pl.CostEstimate(flops=flops, transcendentals=logits, bytes_accessed=moved)


def _filled(array: Array, tile: tuple[int, ...]) -> Array:
    """Pad with zeros so that tiles divide the first axes."""
    missing = [(0, -size % whole) for size, whole in zip(array.shape, tile, strict=False)]
    missing += [(0, 0)] * (array.ndim - len(missing))
    return jnp.pad(array, missing) if any(after for _, after in missing) else array
