"""Run on 8 forced CPU devices: kernels in 8 bits are on every mesh those of one device, each device has its part, and states agree."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax import parallel
from knnprompt_jax.models import decoder
from tests.parallel import small

MESHES = {"opt": [(1, 1), (2, 4), (1, 8)], "llama over 2": [(1, 1), (2, 4), (1, 8)]}
KERNELS = {"opt": ("q", "kv", "out", "up", "down"), "llama over 2": ("q", "kv", "out", "gate_up", "down")}
TOLERANCE = 0.03  # Of activations in bfloat16, in the mean; sums over shards round elsewhere. States are of size 1.


def weights(model: decoder.Decoder) -> dict[str, jax.Array]:
    return {".".join(path): leaf[...] for path, leaf in nnx.to_flat_state(nnx.state(model))}


def check_kernels(name: str, found: dict[str, jax.Array], shards: int) -> None:
    """The blocks' kernels alone are whole numbers, and as large a part of each is on every device as the mesh says."""
    whole = {path.split(".")[-1].removesuffix("_kernel") for path, array in found.items() if array.dtype == jnp.int8}
    assert whole == set(KERNELS[name])
    for path, array in found.items():
        kept_whole = path == "blocks.attention.kv_kernel" and name == "llama over 2" and shards > 2
        if array.dtype == jnp.int8:
            parts = {shard.data.size for shard in array.addressable_shards}
            assert parts == {array.size // (1 if kept_whole else shards)}, path


def check_model(name: str) -> None:
    original, prompts, want, states_of_one = small.make_decoder(name), small.make_prompts(16), None, None
    for mesh, loaded in small.loaded(name, original, MESHES[name], jnp.int8):
        found = weights(loaded)
        check_kernels(name, found, mesh.shape[parallel.MODEL])
        want = want or {path: np.asarray(array) for path, array in found.items()}
        for path, array in found.items():
            np.testing.assert_array_equal(array, want[path], err_msg=path)
        states = np.asarray(small.read(small.language_model(loaded, mesh), prompts).hidden_NE)
        states_of_one = states if states_of_one is None else states_of_one
        assert np.abs(states - states_of_one).mean() < TOLERANCE < np.abs(states_of_one).mean() / 10


if __name__ == "__main__":
    assert jax.device_count() == 8
    for name in MESHES:
        check_model(name)
