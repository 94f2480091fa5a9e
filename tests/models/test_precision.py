"""Reduced precision: int8 kernels, and an accelerator's products of states with a bfloat16 head."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from knnprompt_jax.models import head, layers
from knnprompt_jax.models.weights import checkpoints
from tests.parallel import small


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_are_those_of_float32(dtype):
    rng = np.random.default_rng(0)
    h_NE, rows_VE = rng.normal(size=(7, 131)).astype(np.float32), jnp.asarray(rng.normal(size=(211, 131)), dtype)
    want_NV = h_NE.astype(np.float64) @ np.asarray(rows_VE, np.float64).T
    np.testing.assert_allclose(head._products(h_NE, rows_VE, "tpu"), want_NV, atol=2e-4)


def test_an_int8_model_computes_with_the_restored_kernels(tmp_path):
    """States are bit for bit those of the bfloat16 model with the restored kernels."""
    original, tokens_BT = small.make_decoder("llama over 2"), np.random.default_rng(0).integers(0, 208, (3, 23))
    checkpoints.save(tmp_path, original, small.MODELS["llama over 2"], np.float32)
    ours, plain = (checkpoints.load(tmp_path, original.config, dtype) for dtype in (jnp.int8, jnp.bfloat16))
    assert (ours.dtype, plain.dtype) == ("int8", "bfloat16")
    leaves = {".".join(path): leaf for path, leaf in nnx.to_flat_state(nnx.state(ours))}
    kernels = [path for path, leaf in leaves.items() if leaf.dtype == jnp.int8]
    assert len(kernels) == 5 and all(path.startswith("blocks.") for path in kernels)
    for path, leaf in nnx.to_flat_state(nnx.state(plain)):
        path = ".".join(path)
        if path in kernels:
            restored = layers.restore(leaves[path][...], leaves[f"{path}_scale"][...], jnp.bfloat16)
            assert abs(restored - leaf[...]).max() < 0.01 * abs(leaf[...]).max()
            leaf.set_value(restored)
    got, want = (jax.jit(model)(tokens_BT) for model in (ours, plain))
    np.testing.assert_array_equal(got, want)
