"""Maps: positions of texts, and what the page's script shows about them."""

import numpy as np

from knnprompt_jax.report import maps


def test_similar_rows_lie_together():
    rng = np.random.default_rng(3)
    centres = np.array([[0.0] * 7, [40.0] * 7])
    classes = np.repeat([0, 1], (11, 13))
    positions_N2 = maps.layout(centres[classes] + rng.normal(size=(24, 7)))
    assert np.all((positions_N2 > 0) & (positions_N2 < maps.SIZE))
    distances_NN = np.linalg.norm(positions_N2[:, None] - positions_N2[None], axis=-1)
    same_NN = classes[:, None] == classes[None]
    assert distances_NN[same_NN].max() < distances_NN[~same_NN].min()
