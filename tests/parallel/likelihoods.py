"""Check on 8 forced CPU devices that log-likelihoods on every mesh are those of one device."""

import jax
import numpy as np

from knnprompt_jax import parallel
from knnprompt_jax.prompts import continuations as likelihood
from tests.parallel import small

MESHES = {"opt": (2, 4), "gpt2": (8, 1)}


def make_continuations() -> likelihood.Continuations:
    rng = np.random.default_rng(2)

    def tokens(length: int) -> np.ndarray:
        return rng.integers(0, 208, length).astype(np.int32)

    def family(prefix_length: int) -> likelihood.Family:
        return likelihood.Family(
            tokens(prefix_length), [tokens(1 + i % 3) for i in range(23)], [tokens(1 + i % 17) for i in range(23)]
        )

    return likelihood.lay_out([family(53), family(31), family(0)], 61)


if __name__ == "__main__":
    assert jax.device_count() == 8
    continuations = make_continuations()
    assert continuations.num_truncated
    for name, sizes in MESHES.items():
        original, found = small.make_decoder(name), []
        for mesh in (parallel.make_mesh(1, 1), parallel.make_mesh(*sizes)):
            found.append(np.concatenate(small.language_model(original, mesh).score(continuations).log_p))
        np.testing.assert_allclose(found[1], found[0], atol=1e-4)
        print(name, *sizes)
