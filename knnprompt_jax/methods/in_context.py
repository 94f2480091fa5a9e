"""In-context learning: the label word that the model finds most probable after the demonstrations (Brown et al., 2020)."""

import jax
import numpy as np

from knnprompt_jax import lm
from knnprompt_jax.methods import base, method
from knnprompt_jax.store import representations


class InContextLearning(base.LabelWordClassifier):
    """argmax over the label words' next-token probabilities. The demonstrations are in the prompts; anchors are not used."""

    log_ratio_moves = 1

    def fit(self, states: lm.States | None = None, y: np.ndarray | None = None) -> "InContextLearning":
        """There is nothing to learn."""
        return self

    def predict_proba(self, states: lm.States) -> np.ndarray:
        """Probabilities of the label words, normalised over them."""
        return np.asarray(jax.nn.softmax(representations.label_log_probabilities(self.head, states, self.label_ids)))


METHODS = (
    method.on_states(
        "icl",
        "In-context learning",
        lambda context, _: InContextLearning(context.head, context.label_ids),
        source="Brown et al., NeurIPS 2020",
        check=method.label_words_differ,
        sees="demonstrations",
        printed_as=("ICL", "In-Context Learning", "ICL Baseline"),
        look=1,
    ),
)
