"""In-context learning: the label word that the model finds most probable after the demonstrations (Brown et al., 2020)."""

from collections.abc import Sequence

import jax
import numpy as np

from knnprompt_jax import lm
from knnprompt_jax.methods import base
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import representations


class InContextLearning(base.StateClassifier):
    """argmax over the label words' next-token probabilities. The demonstrations are in the prompts; anchors are not used."""

    def __init__(self, head: head_lib.Head, label_ids: Sequence[int]):
        self.head, self.label_ids = head, label_ids
        self.classes_ = np.arange(len(label_ids))

    def fit(self, states: lm.States | None = None, y: np.ndarray | None = None) -> "InContextLearning":
        return self

    def predict_proba(self, states: lm.States) -> np.ndarray:
        """Probabilities of the label words, normalised over them."""
        return np.asarray(jax.nn.softmax(representations.label_log_probabilities(self.head, states, self.label_ids)))
