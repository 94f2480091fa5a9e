"""Hidden Calibration: the class whose mean hidden state is nearest.

Cho, Sakai, Kato, Tanaka, Ishii, Inoue: "Token-based Decision Criteria Are Suboptimal in In-context Learning", 2024
(NAACL 2025), Section 3: centroids of the last token's last hidden states, Euclidean distance.
"""

import numpy as np
from scipy import special
from scipy.spatial import distance

from knnprompt_jax import lm
from knnprompt_jax.methods import base, method


class HiddenCentroids(base.StateClassifier):
    """Nearest class centroid in the head's input; a class without anchors is never predicted."""

    def __init__(self, num_classes: int):
        self.classes_ = np.arange(num_classes)

    def fit(self, states: lm.States, y: np.ndarray) -> "HiddenCentroids":
        hidden_NE = np.asarray(states.hidden_NE, np.float64)
        self.centroids_CE = np.full((len(self.classes_), hidden_NE.shape[1]), np.inf)
        for label in np.unique(y):
            self.centroids_CE[label] = hidden_NE[y == label].mean(0)
        return self

    def predict_proba(self, states: lm.States) -> np.ndarray:
        """Softmax of the negative Euclidean distances to the centroids, as released."""
        distances_QC = distance.cdist(np.asarray(states.hidden_NE, np.float64), self.centroids_CE)
        return special.softmax(-distances_QC, axis=-1)


METHODS = (
    method.on_states(
        "hidden_centroids",
        "Hidden Calibration",
        lambda context, _: HiddenCentroids(context.num_classes).fit(context.states[method.anchors], context.y),
        source="Cho et al., NAACL 2025, Section 3",
        needs=(method.anchors,),
        look=6,
    ),
)
