"""The interface of methods that read states: fit on the anchors' states, predict from the queries'."""

import abc
from collections.abc import Sequence

import numpy as np

from knnprompt_jax import lm
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import representations


class StateClassifier(abc.ABC):
    """A method that sees the model only through `States`; classes are indices 0 … C − 1."""

    classes_: np.ndarray

    @abc.abstractmethod
    def fit(self, states: lm.States, y: np.ndarray) -> "StateClassifier":
        """Learns from N anchors' states and classes [N]; returns itself."""

    @abc.abstractmethod
    def predict_proba(self, states: lm.States) -> np.ndarray:
        """Class probabilities [Q, C] of queries."""

    def predict(self, states: lm.States) -> np.ndarray:
        """Classes [Q] of queries; of equally probable ones the lowest."""
        return self.predict_proba(states).argmax(-1)


class LabelWordClassifier(StateClassifier):
    """A method that sees of the model only how probable it finds the label words."""

    def __init__(self, head: head_lib.Head, label_ids: Sequence[int]):
        self.head, self.label_ids = head, label_ids
        self.classes_ = np.arange(len(label_ids))

    def label_log_probabilities(self, states: lm.States) -> np.ndarray:
        """log p of the label words [N, C] in nats, float64, not normalised over them."""
        log_p_NC = representations.label_log_probabilities(self.head, states, self.label_ids)
        return np.asarray(log_p_NC, np.float64)
