"""Run on 8 forced CPU devices: families with fewer key heads than query heads, windows and caps give the states of one device."""

import jax
import numpy as np

from knnprompt_jax.models import attention, registry
from tests.parallel import meshes, small

MESHES = {
    "llama over 2": [(1, 1), (2, 4), (1, 8), (8, 1)],
    "phi over 2": [(1, 1), (2, 4)],
    "mistral over 2": [(1, 1), (1, 8)],
    "olmo2 over 4": [(1, 1), (2, 4)],
    "gemma2 over 2": [(1, 1), (2, 4)],
    "llama over 4": [(1, 1), (2, 4)],
}


def check_model(name: str) -> None:
    original, prompts, want = small.make_decoder(name), small.make_prompts(meshes.NUM_PROMPTS), None
    for mesh, loaded in small.loaded(name, original, MESHES[name]):
        meshes.check_weights(loaded, original, mesh)
        model = small.language_model(loaded, mesh)
        states = small.read(model, prompts)
        meshes.check_states(states, mesh)
        meshes.check_collectives(model)
        got = np.asarray(states.hidden_NE), np.asarray(states.log_z_N)
        want = want or got
        for ours, theirs in zip(got, want, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)


def check_refusals() -> None:
    sizes = {"num_attention_heads": 24, "num_key_value_heads": 6, "intermediate_size": 48}
    config = registry.config_from_hf(small.MODELS["llama over 2"] | sizes)
    for model in (4, 8):
        message = f"mesh.model={model} does not divide the model's 6 key and value heads: choose from 1, 2, 3, 6"
        meshes.refuses(message, meshes.check, config, model)


if __name__ == "__main__":
    assert jax.device_count() == 8
    check_refusals()
    for name in MESHES:
        if name == "llama over 4":
            attention.LOGITS_ON_CPU = 1  # One key head of each shard at a time.
        check_model(name)
