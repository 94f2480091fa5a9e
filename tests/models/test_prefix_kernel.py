"""The kernels of both accelerators, interpreted: against float64, and within attention against the way of CPUs."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax import parallel
from knnprompt_jax.models import attention, prefix_kernel

TOLERANCE = {"float32": 2e-5, "bfloat16": 1e-2}
# Heads, queries, keys and size of a head; the first take several tiles of each, with some left over.
SIZES = {"tiles": (2, 1103, 1301, 17), "few": (3, 211, 61, 24)}


@pytest.fixture(params=["tpu", "gpu"])
def platform(request) -> str:
    return request.param


def make(sizes, dtype, scale=1.0):
    (heads, queries, keys, size), rng = sizes, np.random.default_rng(0)
    shapes = (heads, queries, size), (heads, keys, size), (heads, keys, size)
    return [jnp.asarray(scale * rng.normal(size=shape), dtype) for shape in shapes]


def reference(q_GTK, k_GPK, v_GPK, mask_TP, cap):
    """In float64: what is read, and the log-sum-exp of the logits."""
    q_GTK, k_GPK, v_GPK = (np.asarray(array, np.float64) for array in (q_GTK, k_GPK, v_GPK))
    logits_GTP = q_GTK @ k_GPK.swapaxes(1, 2)
    logits_GTP = np.where(mask_TP, cap * np.tanh(logits_GTP / cap) if cap else logits_GTP, -np.inf)
    top_GT1 = logits_GTP.max(-1, keepdims=True)
    weights_GTP = np.exp(logits_GTP - top_GT1)
    total_GT1 = weights_GTP.sum(-1, keepdims=True)
    return weights_GTP / total_GT1 @ v_GPK, (top_GT1 + np.log(total_GT1))[..., 0]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("sizes", "window", "cap"), [("tiles", 97, None), ("few", None, 3.0), ("few", None, None)], ids=str
)
def test_what_is_read_is_that_of_float64(platform, sizes, window, cap, dtype):
    arrays, keys = make(SIZES[sizes], dtype), SIZES[sizes][2]
    length, positions_T = keys - 13, np.random.default_rng(1).integers(keys - 13, keys + 60, SIZES[sizes][1])
    mask_TP = np.arange(keys)[None] < length
    mask_TP = mask_TP & (positions_T[:, None] - np.arange(keys) < (window or 10**6))
    limits = jnp.int32(length), jnp.asarray(positions_T), window and jnp.int32(window)
    got = prefix_kernel.read(*arrays, *limits, cap, platform, interpret=True)
    for ours, theirs in zip(got, reference(*arrays, mask_TP, cap), strict=True):
        assert ours.dtype == jnp.float32
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE[dtype])


def test_large_logits_do_not_overflow(platform):
    arrays = make(SIZES["few"], "float32", scale=30.0)
    read, log_sum = prefix_kernel.read(*arrays, jnp.int32(61), jnp.zeros(211), None, None, platform, interpret=True)
    want, want_log_sum = reference(*arrays, np.ones((211, 61), bool), None)
    np.testing.assert_allclose(log_sum, want_log_sum, rtol=1e-5)
    assert np.median(abs(read - want)) < 1e-3, "softmax is so sharp that rounding decides now and then"
    assert want_log_sum.max() > 10_000


@pytest.mark.parametrize("length", [0, 40])
def test_queries_that_see_no_key_weigh_nothing(platform, length):
    limits = jnp.int32(length), jnp.full(211, 99), jnp.int32(7)
    read, log_sum = prefix_kernel.read(*make(SIZES["few"], "float32"), *limits, None, platform, interpret=True)
    assert np.isfinite(read).all() and (log_sum < -1e29).all()


@pytest.mark.parametrize(
    "rule", [attention.LogitRule(0.3), attention.LogitRule(0.3, jnp.int32(23), 2.0)], ids=["all", "window"]
)
def test_attention_is_that_of_cpus(platform, rule, monkeypatch):
    """Grouped heads; rows with suffixes that do not see each other, and padding."""
    rng, (batch, width, heads, kv_heads, size, length) = np.random.default_rng(2), (3, 29, 6, 2, 7, 31)
    shapes = (batch, width, heads, size), (batch, width, kv_heads, size), (batch, width, kv_heads, size)
    own = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]
    stops_BS = np.tile(np.repeat([11, 24, 0], [11, 13, 5]), (batch, 1))
    positions_BS = length + np.tile(np.r_[:11, :13, [0] * 5], (batch, 1))
    kv = [jnp.asarray(rng.normal(size=(kv_heads, 37, size)), jnp.float32) for _ in range(2)]
    arguments = *own, attention.readable(stops_BS), positions_BS, attention.Prefix(*kv, jnp.int32(length)), rule, True
    want = attention.shared_prefix_attention(*arguments)
    monkeypatch.setattr(parallel, "platform", lambda: platform)
    monkeypatch.setattr(prefix_kernel, "read", functools.partial(prefix_kernel.read, interpret=True))
    got = attention.shared_prefix_attention(*arguments)
    read = stops_BS > 0
    np.testing.assert_allclose(np.asarray(got)[read], np.asarray(want)[read], atol=2e-6)
    assert np.isfinite(got).all()


def test_the_kernel_can_be_switched_off(monkeypatch, platform):
    assert attention.is_in_kernel(61, platform) and not attention.is_in_kernel(61, "cpu")
    monkeypatch.setenv(attention.SWITCH, attention.OFF)
    assert not attention.is_in_kernel(61, platform)
