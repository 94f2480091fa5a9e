"""Run on 8 forced CPU devices: on every mesh log-likelihoods are those of one device."""

import jax
import numpy as np

from knnprompt_jax import likelihood, parallel
from tests.parallel import small

MESHES = [(1, 1), (8, 1), (2, 4)]


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
    for name in small.MODELS:
        original, expected = small.make_decoder(name), None
        for sizes in MESHES:
            model = small.language_model(original, parallel.make_mesh(*sizes))
            found = np.concatenate(model.log_likelihoods(continuations))
            expected = found if expected is None else expected
            np.testing.assert_allclose(found, expected, atol=1e-4)
            print(name, *sizes)
