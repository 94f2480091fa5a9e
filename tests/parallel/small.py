"""Random decoders that split eight ways, for programs on forced CPU devices."""

import pathlib
import tempfile
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from knnprompt_jax.common import parallel
from knnprompt_jax.inference import lm
from knnprompt_jax.models import decoder, registry, sharding
from tests import random_weights
from tools import export_model

# One vocabulary splits eight ways, the other not at all.
MODELS = {
    "opt": {"model_type": "opt", "vocab_size": 208, "hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 8}
    | {"ffn_dim": 56, "max_position_embeddings": 101},
    "gpt2": {"model_type": "gpt2", "vocab_size": 211, "n_embd": 40, "n_layer": 2, "n_head": 8, "n_inner": 56}
    | {"n_positions": 101},
}
# Eight query heads over fewer key heads. Some meshes hold a key head more than once.
_GROUPED = {"vocab_size": 208, "hidden_size": 40, "num_hidden_layers": 3, "num_attention_heads": 8}
_GROUPED |= {"intermediate_size": 56, "max_position_embeddings": 101, "rope_theta": 100.0}
_GEMMA3 = {"head_dim": 6, "sliding_window": 29, "sliding_window_pattern": 2, "query_pre_attn_scalar": 11}
MODELS |= {
    "llama over 2": {**_GROUPED, "model_type": "llama", "num_key_value_heads": 2, "head_dim": 6},
    "phi over 2": {**_GROUPED, "model_type": "phi", "num_key_value_heads": 2, "hidden_size": 48}
    | {"partial_rotary_factor": 0.7},
    "olmo2 over 4": {**_GROUPED, "model_type": "olmo2", "num_key_value_heads": 4, "hidden_size": 48},
    "gemma3 over 2": {**_GROUPED, **_GEMMA3, "model_type": "gemma3_text", "num_key_value_heads": 2},
}
LABEL_TOKENS = [183, 138, 93, 198]


def make_decoder(name: str) -> decoder.Decoder:
    """Return a decoder with large weights: its distributions are peaked and depend on the whole text."""
    return random_weights.make(registry.config_from_hf(MODELS[name]), 0, (0.3, 0.5, 0.25))


def loaded(
    name: str, original: decoder.Decoder, meshes: Sequence[tuple[int, int]]
) -> Iterator[tuple[jax.sharding.Mesh, decoder.Decoder]]:
    """Load the decoder from a file onto each mesh (devices over data, over model); print which are done."""
    with tempfile.TemporaryDirectory() as folder:
        export_model.save(pathlib.Path(folder), original, MODELS[name], np.float32)
        for sizes in meshes:
            mesh = parallel.make_mesh(*sizes)
            places = sharding.placement(original.config, mesh)
            yield mesh, registry.load(pathlib.Path(folder), original.config, np.float32, places)
            print(name, *sizes, flush=True)


def language_model(model: decoder.Decoder, mesh: jax.sharding.Mesh) -> lm.LanguageModel:
    return lm.LanguageModel.from_decoder(model, range(208), step_tokens=256, mesh=mesh)
