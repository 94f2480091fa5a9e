"""Attention with the kernels of both accelerators, interpreted, gives what it computes on CPUs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax.common import parallel
from knnprompt_jax.models import attention, prefix_kernel

TOLERANCE = {"float32": 2e-5, "bfloat16": 4e-2}
# Rows, tokens of a row, heads, key heads, size of a head, tokens of the prefix. A TPU computes heads of 64 and 32
# together; the last of an odd number has no partner. Wide rows are cut into parts. Several rows share a block without
# filling it.
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


def attend(sizes, dtype, platform, monkeypatch, rule, magnitude=1.0):
    """Return the attention outputs by a platform's kernel and by the CPU's float32 computation.

    The last token is padding.
    """
    (batch, width, heads, kv_heads, size, prefix), rng = sizes, np.random.default_rng(0)
    shapes = (batch, width, heads, size), *[(batch, width, kv_heads, size)] * 2, *[(kv_heads, prefix, size)] * 2
    arrays = [jnp.asarray(magnitude * rng.normal(size=shape), dtype) for shape in shapes]
    mask_BSS = np.tril(rng.random((batch, width, width)) < 0.5) | np.eye(width, dtype=bool)
    mask_BSS[:, -1] = False
    positions_BS = rng.integers(prefix - 13, prefix + 60, (batch, width))

    def read(arrays, use_kernel, _):
        known = attention.Prefix(*arrays[3:], jnp.int32(prefix - 13))
        masks = mask_BSS, positions_BS
        return attention.shared_prefix_attention(*arrays[:3], *masks, known, rule, use_kernel)

    # The platform is an argument so that JAX traces `read` for each.
    compiled = jax.jit(read, static_argnums=(1, 2))
    want = compiled([array.astype(jnp.float32) for array in arrays], False, "cpu")
    monkeypatch.setattr(parallel, "platform", lambda: platform)
    monkeypatch.setattr(prefix_kernel, "attend", functools.partial(prefix_kernel.attend, interpret=True))
    got = compiled(arrays, True, platform)
    assert got.dtype == dtype and np.isfinite(got).all()
    return np.asarray(got, np.float32)[:, :-1], np.asarray(want)[:, :-1]


@pytest.mark.parametrize(
    ("sizes", "window", "dtype"),
    [
        *[(name, None, "float32") for name in SIZES],
        *[("odd pairs", 37, "float32"), ("grouped", 29, "float32"), ("wide rows", 17, "float32")],
        *[(name, None, "bfloat16") for name in ("odd pairs", "grouped")],
    ],
    ids=str,
)
def test_outputs_are_those_of_cpus(platform, monkeypatch, sizes, window, dtype):
    rule = attention.LogitRule(0.3, window and jnp.int32(window))
    got, want = attend(SIZES[sizes], dtype, platform, monkeypatch, rule)
    np.testing.assert_allclose(got, want, atol=TOLERANCE[dtype])


def test_large_logits_do_not_overflow(platform, monkeypatch):
    """Without a running maximum, exponentials overflow where the prefix's logits exceed the row's by hundreds."""
    got, want = attend(SIZES["grouped"], "float32", platform, monkeypatch, attention.LogitRule(1.0), magnitude=10.0)
    assert abs(got - want).max() < 0.02
