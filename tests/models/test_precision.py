"""Reduced precision: an accelerator's products of states with a bfloat16 head."""

import jax.numpy as jnp
import numpy as np
import pytest

from knnprompt_jax.models import head


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_are_those_of_float32(dtype):
    rng = np.random.default_rng(0)
    h_NE, rows_VE = rng.normal(size=(7, 131)).astype(np.float32), jnp.asarray(rng.normal(size=(211, 131)), dtype)
    want_NV = h_NE.astype(np.float64) @ np.asarray(rows_VE, np.float64).T
    np.testing.assert_allclose(head._products(h_NE, rows_VE, "tpu"), want_NV, atol=2e-4)
