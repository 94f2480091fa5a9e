"""Int8 kernels: their distance from the stored weights, and that a model computes with exactly the restored kernels."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax import lm
from knnprompt_jax.models import layers
from knnprompt_jax.models.weights import checkpoints
from tests.parallel import small


def test_a_model_computes_with_the_restored_kernels(tmp_path):
    """States are bit for bit those of the bfloat16 model with the restored kernels."""
    original, prompts = small.make_decoder("llama over 2"), small.make_prompts(23)
    checkpoints.save(tmp_path, original, small.MODELS["llama over 2"], np.float32)
    ours, plain = (checkpoints.load(tmp_path, original.config, dtype) for dtype in (jnp.int8, jnp.bfloat16))
    leaves = {".".join(path): leaf for path, leaf in nnx.to_flat_state(nnx.state(ours))}
    kernels = [path for path, leaf in leaves.items() if leaf.dtype == jnp.int8]
    assert len(kernels) == 5 and all(path.startswith("blocks.") for path in kernels)
    for path, leaf in nnx.to_flat_state(nnx.state(plain)):
        path = ".".join(path)
        if path in kernels:
            restored = layers.restore(leaves[path][...], leaves[f"{path}_scale"][...], jnp.bfloat16)
            assert abs(restored - leaf[...]).max() < 0.01 * abs(leaf[...]).max()
            leaf.set_value(restored)
    models = [lm.LanguageModel(model, range(208), step_tokens=256) for model in (ours, plain)]
    assert [model.dtype for model in models] == ["int8", "bfloat16"]
    got, want = (small.read(model, prompts) for model in models)
    jax.tree.map(np.testing.assert_array_equal, got, want)
