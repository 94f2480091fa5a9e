"""Decoders with large random weights: their distributions are peaked and depend on the whole text."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import decoder


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
