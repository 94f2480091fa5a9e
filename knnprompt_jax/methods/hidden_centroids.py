"""Hidden Calibration: the class whose mean hidden state is nearest.

Cho, Sakai, Kato, Tanaka, Ishii, Inoue: "Token-based Decision Criteria Are Suboptimal in In-context Learning", 2024
(NAACL 2025), Section 3: centroids of the last token's last hidden states, Euclidean distance.
"""

import numpy as np
from scipy import special

from knnprompt_jax import lm, options
from knnprompt_jax.methods import base, method


class HiddenCentroids(base.StateClassifier):
    """Nearest class centroid in the head's input; a class without anchors is never predicted."""

    def __init__(self, num_classes: int):
        self.classes_ = np.arange(num_classes)

    def fit(self, states: lm.States, y: np.ndarray) -> "HiddenCentroids":
        hidden_NE, y = np.asarray(states.hidden_NE, np.float64), np.asarray(y)
        self.centroids = {label: hidden_NE[y == label].mean(0) for label in np.unique(y)}
        return self

    def distances(self, states: lm.States) -> np.ndarray:
        """Euclidean distances [Q, C] to the centroids, infinite for a class without anchors."""
        hidden_QE = np.asarray(states.hidden_NE, np.float64)
        distances_QC = np.full((len(hidden_QE), len(self.classes_)), np.inf)
        for label, centroid_E in self.centroids.items():
            distances_QC[:, label] = np.linalg.norm(hidden_QE - centroid_E, axis=-1)
        return distances_QC

    def predict_proba(self, states: lm.States) -> np.ndarray:
        """Softmax of the negative distances, as released."""
        return special.softmax(-self.distances(states), axis=-1)

    def predict(self, states: lm.States) -> np.ndarray:
        return self.distances(states).argmin(-1)


def fitted(context: method.Context, settings: options.Options) -> HiddenCentroids:
    del settings
    return HiddenCentroids(context.num_classes).fit(context.states[method.anchors], context.y)


METHODS = (
    method.on_states(
        "hidden_centroids",
        "Hidden Calibration",
        fitted,
        source="Cho et al., NAACL 2025, Section 3",
        needs=(method.anchors,),
        look=6,
    ),
)
