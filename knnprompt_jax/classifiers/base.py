"""The interface of methods that read states: fit on the anchors' states, predict from the queries'."""

import abc

import numpy as np

from knnprompt_jax import lm


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

    def score(self, states: lm.States, y: np.ndarray) -> float:
        """Accuracy, between 0 and 1."""
        return float(np.mean(self.predict(states) == np.asarray(y)))
