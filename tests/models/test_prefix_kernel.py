"""The kernels of both accelerators, interpreted: compared with float64, and within attention with the computation on CPUs."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax import parallel
from knnprompt_jax.models import attention, prefix_kernel

TOLERANCE = {"float32": 2e-5, "bfloat16": 4e-2}
# Rows, tokens of a row, heads, key heads, size of a head, tokens of the prefix. A TPU computes heads of 64 and 32 together; the last of
# an odd number has no partner. Wide rows are cut into parts. Several rows share a block without filling it.
SIZES = {
    "odd pairs": (5, 47, 3, 3, 64, 61),
    "grouped pairs": (3, 29, 6, 2, 64, 131),
    "grouped": (2, 37, 4, 2, 24, 61),
    "fours": (2, 19, 5, 5, 32, 67),
    "large": (1, 23, 2, 1, 136, 1301),
    "wide rows": (2, 1103, 2, 1, 17, 31),
    "many rows": (17, 131, 1, 1, 16, 23),
}


@pytest.fixture(params=["tpu", "gpu"])
def platform(request) -> str:
    return request.param


def make(sizes, dtype, scale=1.0):
    """Return queries, keys and values of rows, a mask (each token reads itself and some earlier ones), positions, the prefix."""
    (batch, width, heads, kv_heads, size, prefix), rng = sizes, np.random.default_rng(0)
    shapes = (batch, width, heads, size), *[(batch, width, kv_heads, size)] * 2, *[(kv_heads, prefix, size)] * 2
    q, k, v, *far = (jnp.asarray(scale * rng.normal(size=shape), dtype) for shape in shapes)
    mask_BSS = np.tril(rng.random((batch, width, width)) < 0.5) | np.eye(width, dtype=bool)
    positions_BS = rng.integers(prefix - 13, prefix + 60, (batch, width))
    return q, k, v, mask_BSS, positions_BS, *far


def reference(arrays, length, scale, window, cap):
    """Compute softmax over the prefix and the row at once, in float64."""
    q, k, v, mask_BSS, positions_BS, k_GPK, v_GPK = (np.asarray(array, np.float64) for array in arrays)
    batch, width, heads, size = q.shape
    group = heads // k.shape[2]
    keys, values = (
        np.concatenate([np.broadcast_to(far.swapaxes(0, 1), (batch, *far.swapaxes(0, 1).shape)), near], 1).repeat(
            group, 2
        )
        for far, near in ((k_GPK, k), (v_GPK, v))
    )
    logits_BHST = scale * np.einsum("bshk,bthk->bhst", q, keys)
    logits_BHST = cap * np.tanh(logits_BHST / cap) if cap else logits_BHST
    far_P = np.arange(k_GPK.shape[1])
    sees_BSP = (far_P < length) & (positions_BS[..., None] - far_P < (window or 10**6))
    sees_BST = np.concatenate([sees_BSP, mask_BSS.astype(bool)], -1)[:, None]
    logits_BHST = np.where(sees_BST, logits_BHST, -np.inf)
    weights_BHST = np.exp(logits_BHST - logits_BHST.max(-1, keepdims=True))
    return np.einsum("bhst,bthk->bshk", weights_BHST / weights_BHST.sum(-1, keepdims=True), values)


@pytest.mark.parametrize(
    ("sizes", "window", "cap", "dtype"),
    [
        *[(name, None, None, "float32") for name in SIZES],
        *[("odd pairs", 37, 3.0, "float32"), ("grouped", 29, 2.0, "float32"), ("wide rows", 17, None, "float32")],
        *[(name, None, None, "bfloat16") for name in ("odd pairs", "grouped", "many rows")],
    ],
    ids=str,
)
def test_outputs_are_those_of_float64(platform, sizes, window, cap, dtype):
    arrays, length, scale = make(SIZES[sizes], dtype), SIZES[sizes][-1] - 13, 0.3
    limits = jnp.int32(length), scale, window and jnp.int32(window), cap
    read = prefix_kernel.attend(*arrays, *limits, platform, interpret=True)
    assert read.dtype == dtype
    want = reference(arrays, length, scale, window, cap)
    np.testing.assert_allclose(np.asarray(read, np.float64), want, atol=TOLERANCE[dtype])


def test_large_logits_do_not_overflow(platform):
    arrays = make(SIZES["grouped"], "float32", scale=30.0)
    read = prefix_kernel.attend(*arrays, jnp.int32(61), 1.0, None, None, platform, interpret=True)
    want = reference(arrays, 61, 1.0, None, None)
    assert np.isfinite(read).all()
    assert np.median(abs(read - want)) < 1e-3, "softmax is so sharp that rounding sometimes decides"


@pytest.mark.parametrize(
    "rule", [attention.LogitRule(0.3), attention.LogitRule(0.3, jnp.int32(23), 2.0)], ids=["all", "window"]
)
def test_attention_is_that_of_cpus(platform, rule, monkeypatch):
    """Grouped heads; rows with padding and with suffixes that do not read each other."""
    rng, (batch, width, heads, kv_heads, size, length) = np.random.default_rng(2), (3, 29, 6, 2, 7, 31)
    shapes = (batch, width, heads, size), (batch, width, kv_heads, size), (batch, width, kv_heads, size)
    own = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]
    stops_BS = np.tile(np.repeat([11, 24, 0], [11, 13, 5]), (batch, 1))
    positions_BS = length + np.tile(np.r_[:11, :13, [0] * 5], (batch, 1))
    kv = [jnp.asarray(rng.normal(size=(kv_heads, 37, size)), jnp.float32) for _ in range(2)]
    prefix = attention.Prefix(*kv, jnp.int32(length))
    arguments = *own, attention.readable(stops_BS), positions_BS, prefix, rule, True, True
    want = attention.shared_prefix_attention(*arguments)
    monkeypatch.setattr(parallel, "platform", lambda: platform)
    attend = prefix_kernel.attend
    monkeypatch.setattr(prefix_kernel, "attend", functools.partial(attend, interpret=True))
    got = attention.shared_prefix_attention(*arguments)
    read = stops_BS > 0
    np.testing.assert_allclose(np.asarray(got)[read], np.asarray(want)[read], atol=2e-6)
    assert np.isfinite(got).all()


def test_the_kernel_can_be_switched_off(monkeypatch, platform):
    assert attention.is_in_kernel(61, platform) and not attention.is_in_kernel(61, "cpu")
    monkeypatch.setenv(attention.SWITCH, attention.OFF)
    assert not attention.is_in_kernel(61, platform)
