"""Attention to the shared prefix as one kernel that writes no logits to memory: for TPUs (Mosaic) and NVIDIA's GPUs (Triton).

The prefix's keys and values go by in blocks. Of each query a running maximum, the sum of exponentials below it and the values that
these weigh are kept in float32 (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
"FlashAttention", 2022). With the log-sum-exp that comes out beside what was read, softmax over further keys is a weighted mean of
parts, and nothing overflows however large a logit is.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu
from jax.sharding import PartitionSpec as P

from knnprompt_jax import parallel
from knnprompt_jax.models import head as head_lib

Array = jax.Array
Ref = jax.Ref
Carry = tuple[
    Array, Array, Array
]  # Of each query: the largest logit, the sum of exponentials below it, what they weigh.
MASKED = -1e30  # Finite, so that a row of masked logits gives zeros through exp and never NaN.
_LANES = 128  # Numbers in a row of a TPU's registers.


@dataclasses.dataclass(frozen=True)
class Tiles:
    """How many queries, and how many keys, are taken together; `keys` come in multiples of `unit`."""

    queries: int
    keys: int
    unit: int


# The most of each, by the platform's names.
TILES = {"tpu": Tiles(1024, 1024, 128), "gpu": Tiles(128, 64, 64), "cuda": Tiles(128, 64, 64)}


def read(
    q_GTK: Array,
    k_GPK: Array,
    v_GPK: Array,
    length: Array,
    positions_T: Array,
    window: Array | None,
    cap: float | None,
    platform: str,
    interpret: bool = False,
) -> tuple[Array, Array]:
    """What the T queries of each key head read from the first `length` keys [G, T, K], and the log-sum-exp of their logits [G, T].

    Both are float32. Logits are inner products, capped softly at `cap`. With a window the query at position p sees the keys from
    p − `window` + 1 on. Where a query sees none, its log-sum-exp is about `MASKED`, and what it reads is finite and means nothing.
    """
    limits = jnp.stack([length, jnp.asarray(0 if window is None else window)]).astype(jnp.int32)
    whole = [limits] if window is None else [limits, positions_T.astype(jnp.int32)[:, None]]
    on_device = functools.partial(_read, cap=cap, platform=platform, interpret=interpret)
    if parallel.MODEL in jax.sharding.get_abstract_mesh().shape:  # The compiler cannot split a kernel over devices.
        specs = (*[P(parallel.MODEL)] * 3, *[P()] * len(whole))
        on_device = jax.shard_map(
            on_device, in_specs=specs, out_specs=P(parallel.MODEL), axis_names={parallel.MODEL}, check_vma=False
        )
    return on_device(q_GTK, k_GPK, v_GPK, *whole)


def _read(
    q_GTK: Array,
    k_GPK: Array,
    v_GPK: Array,
    limits: Array,
    *positions: Array,
    cap: float | None,
    platform: str,
    interpret: bool,
) -> tuple[Array, Array]:
    """All arrays are filled up to whole tiles; heads, on a GPU, to a power of two."""
    (heads, queries, size), keys, most = q_GTK.shape, k_GPK.shape[1], TILES[platform]
    tile_T = math.gcd(_up(queries, 128), most.queries)
    tile_P = _up(pl.cdiv(keys, pl.cdiv(keys, most.keys)), most.unit)
    width = size if platform == "tpu" else pl.next_power_of_2(size)
    q_GTK = _filled(q_GTK, (heads, tile_T, width))
    k_GPK, v_GPK = (_filled(array, (heads, tile_P, width)) for array in (k_GPK, v_GPK))
    positions = tuple(_filled(array, (tile_T, 1)) for array in positions)
    run = _on_tpu if platform == "tpu" else _on_gpu
    read_GTK, log_sum_G1T = run(
        limits, q_GTK, k_GPK, v_GPK, *positions, tiles=(tile_T, tile_P), cap=cap, interpret=interpret
    )
    return read_GTK[:, :queries, :size], log_sum_G1T[:, 0, :queries]


def _on_tpu(
    limits: Array, *arrays: Array, tiles: tuple[int, int], cap: float | None, interpret: bool
) -> tuple[Array, Array]:
    """One block of keys after the other is the last axis of the grid; blocks of padding alone are not computed."""
    (heads, queries, size), (tile_T, tile_P) = arrays[0].shape, tiles

    def kernel(limits_ref: Ref, q_ref: Ref, k_ref: Ref, v_ref: Ref, *refs: Ref) -> None:
        *positions, read_ref, log_sum_ref, top_ref, total_ref, sum_ref = refs
        start = pl.program_id(2) * tile_P

        @pl.when(start == 0)
        def _() -> None:
            top_ref[...] = jnp.full_like(top_ref, MASKED)
            total_ref[...], sum_ref[...] = jnp.zeros_like(total_ref), jnp.zeros_like(sum_ref)

        @pl.when(start < limits_ref[0])
        def _() -> None:
            carry = top_ref[:, :1], total_ref[:, :1], sum_ref[...]
            mask_TP = _mask(limits_ref, positions, start, (tile_T, tile_P))
            top_T1, total_T1, sum_ref[...] = _absorb(carry, q_ref[0], k_ref[0], v_ref[0], mask_TP, cap)
            top_ref[...] = jnp.broadcast_to(top_T1, top_ref.shape)
            total_ref[...] = jnp.broadcast_to(total_T1, total_ref.shape)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _() -> None:
            read_ref[0], log_sum_ref[0, 0] = _finished((top_ref[...], total_ref[...], sum_ref[...]), size)

    by_query = pl.BlockSpec((1, tile_T, size), lambda head, query, key: (head, query, 0))
    by_key = pl.BlockSpec((1, tile_P, size), lambda head, query, key: (head, key, 0))
    position = pl.BlockSpec((tile_T, 1), lambda head, query, key: (query, 0))
    log_sum = pl.BlockSpec((1, 1, tile_T), lambda head, query, key: (head, 0, query))
    scratch = [pltpu.VMEM((tile_T, width), jnp.float32) for width in (_LANES, _LANES, size)]
    return pl.pallas_call(
        kernel,
        grid=(heads, queries // tile_T, arrays[1].shape[1] // tile_P),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), by_query, by_key, by_key, *[position] * (len(arrays) - 3)],
        out_specs=[by_query, log_sum],
        out_shape=_results(arrays[0]),
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        cost_estimate=_cost(*arrays[:2]),
        interpret=interpret,
    )(limits, *arrays)


def _on_gpu(
    limits: Array, *arrays: Array, tiles: tuple[int, int], cap: float | None, interpret: bool
) -> tuple[Array, Array]:
    """One block of keys after the other is a loop, which ends with the prefix."""
    (heads, queries, size), keys, (tile_T, tile_P) = arrays[0].shape, arrays[1].shape[1], tiles

    def kernel(limits_ref: Ref, q_ref: Ref, k_ref: Ref, v_ref: Ref, *refs: Ref) -> None:
        *positions, read_ref, log_sum_ref = refs
        q_TK = q_ref[0]

        def body(number: Array, carry: Carry) -> Carry:
            here = pl.ds(number * tile_P, tile_P)
            mask_TP = _mask(limits_ref, positions, number * tile_P, (tile_T, tile_P))
            return _absorb(carry, q_TK, k_ref[0, here], v_ref[0, here], mask_TP, cap)

        zeros_T1 = jnp.zeros((tile_T, 1), jnp.float32)
        carry = zeros_T1 + MASKED, zeros_T1, jnp.zeros((tile_T, size), jnp.float32)
        carry = jax.lax.fori_loop(0, pl.cdiv(limits_ref[0], tile_P), body, carry)
        read_ref[0], log_sum_ref[0, 0] = _finished(carry, size)

    by_query = pl.BlockSpec((1, tile_T, size), lambda query, head: (head, query, 0))
    by_head = pl.BlockSpec((1, keys, size), lambda query, head: (head, 0, 0))
    position = pl.BlockSpec((tile_T, 1), lambda query, head: (query, 0))
    log_sum = pl.BlockSpec((1, 1, tile_T), lambda query, head: (head, 0, query))
    return pl.pallas_call(
        kernel,
        grid=(queries // tile_T, heads),
        in_specs=[
            pl.BlockSpec((2,), lambda query, head: (0,)),
            by_query,
            by_head,
            by_head,
            *[position] * (len(arrays) - 3),
        ],
        out_specs=[by_query, log_sum],
        out_shape=_results(arrays[0]),
        compiler_params=plgpu.CompilerParams(num_warps=4 if size <= 64 else 8, num_stages=2),
        cost_estimate=_cost(*arrays[:2]),
        interpret=interpret,
    )(limits, *arrays)


def _mask(limits_ref: Ref, positions: list[Ref], start: Array, shape: tuple[int, int]) -> Array:
    """Which of the keys from number `start` on each query sees."""
    key_TP = start + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
    mask_TP = key_TP < limits_ref[0]
    for position_ref in positions:
        mask_TP &= position_ref[...] - key_TP < limits_ref[1]
    return mask_TP


def _absorb(carry: Carry, q_TK: Array, k_PK: Array, v_PK: Array, mask_TP: Array, cap: float | None) -> Carry:
    """The carry after one more block of keys and values."""
    top_T1, total_T1, sum_TK = carry
    logits_TP = jnp.where(mask_TP, head_lib.soft_cap(_product(q_TK, k_PK, 1), cap), MASKED)
    new_top_T1 = jnp.maximum(top_T1, logits_TP.max(-1, keepdims=True))
    shrink_T1, weights_TP = jnp.exp(top_T1 - new_top_T1), jnp.exp(logits_TP - new_top_T1)
    total_T1 = shrink_T1 * total_T1 + weights_TP.sum(-1, keepdims=True)
    return new_top_T1, total_T1, shrink_T1 * sum_TK + _product(weights_TP.astype(v_PK.dtype), v_PK, 0)


def _finished(carry: Carry, size: int) -> tuple[Array, Array]:
    """What was read [T, K] and the log-sum-exp [T]."""
    top_Tn, total_Tn, sum_TK = carry
    total_Tn = jnp.maximum(total_Tn, 1e-30)  # Zero after an empty prefix alone.
    return sum_TK / total_Tn[:, :1], (top_Tn + jnp.log(total_Tn))[:, 0]


def _product(left: Array, right: Array, axis: int) -> Array:
    """left · right over `axis` of `right`, in float32: as exact as their type, whatever precision JAX is set to."""
    precision = jax.lax.Precision.HIGHEST if left.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
    contracted = ((1,), (axis,)), ((), ())
    return jax.lax.dot_general(left, right, contracted, precision=precision, preferred_element_type=jnp.float32)


def _results(q_GTK: Array) -> list[jax.ShapeDtypeStruct]:
    heads, queries, _ = q_GTK.shape
    return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (q_GTK.shape, (heads, 1, queries))]


def _cost(q_GTK: Array, k_GPK: Array) -> pl.CostEstimate:
    (heads, queries, size), keys, nbytes = q_GTK.shape, k_GPK.shape[1], q_GTK.dtype.itemsize
    logits, moved = heads * queries * keys, nbytes * (q_GTK.size + 2 * k_GPK.size) + 4 * q_GTK.size
    return pl.CostEstimate(flops=4 * logits * size, transcendentals=logits, bytes_accessed=moved)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _filled(array: Array, tile: tuple[int, ...]) -> Array:
    """With zeros after its last numbers, so that tiles divide it."""
    missing = [(0, -size % whole) for size, whole in zip(array.shape, tile, strict=True)]
    return jnp.pad(array, missing) if any(after for _, after in missing) else array
