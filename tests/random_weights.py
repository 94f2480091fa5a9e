"""Decoders with large random weights: their distributions are peaked and depend on the whole text."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import decoder

_SIZES = {"vocab_size": 211, "width": 30, "num_layers": 3, "num_heads": 5, "num_kv_heads": 5, "head_size": 6}
_SIZES |= {"mlp_width": 41, "num_positions": 307, "attention_scale": 6**-0.5}
_SWITCHES = {"position_offset": 2, "activation": "relu", "norm_positions": ("after",), "final_norm": False}
_CONFIGS = {
    "gpt2": config_lib.DecoderConfig("gpt2", **_SIZES, embed_width=30),
    "opt-350m": config_lib.DecoderConfig("opt", **_SIZES, embed_width=17, **_SWITCHES),
}


def make(
    config: config_lib.DecoderConfig, seed: int, spread: tuple[float, float, float], dtype: jnp.dtype = jnp.float32
) -> decoder.Decoder:
    """Return a decoder whose scales around 1, tables and other weights have these standard deviations."""
    model = nnx.eval_shape(lambda: decoder.Decoder(config, nnx.Rngs(0), dtype))  # Its own weights take long to compile.
    rng, (scales, tables, others) = np.random.default_rng(seed), spread
    for path, leaf in nnx.to_flat_state(nnx.state(model)):
        noise = rng.normal(size=leaf.shape)
        values = 1 + scales * noise if path[-1] == "scale" else (tables if len(path) == 1 else others) * noise
        leaf.set_value(jnp.asarray(values, dtype))
    return model


def small(shape: str, dtype: jnp.dtype = jnp.float32) -> decoder.Decoder:
    """Return a decoder of the shape "gpt2" or "opt-350m" (V = 211, 307 positions)."""
    return make(_CONFIGS[shape], 1, (0.3, 0.5, 0.25), dtype)
