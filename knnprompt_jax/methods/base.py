"""The interface of methods that read states: fit on the anchors' states, predict from the queries'. And what several of them use."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from knnprompt_jax import lm
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import representations


class StateClassifier(abc.ABC):
    """A method that sees the model only through `States`; classes are indices 0 … C − 1.

    `log_ratio_moves` says how often the error of a label word's log-probability counts in the logarithm of two classes' ratio
    (`classifier.rounding`); 0 says that this is not known.
    """

    classes_: np.ndarray
    log_ratio_moves: ClassVar[int] = 0

    @abc.abstractmethod
    def fit(self, states: lm.States, y: np.ndarray) -> "StateClassifier":
        """Learns from N anchors' states and classes [N]; returns itself."""

    @abc.abstractmethod
    def predict_proba(self, states: lm.States) -> np.ndarray:
        """Class probabilities [Q, C] of queries."""

    def predict(self, states: lm.States) -> np.ndarray:
        """Classes [Q] of queries; of equally probable ones the lowest."""
        return self.predict_proba(states).argmax(-1)


class RidgeRegression:
    """scikit-learn's multinomial logistic regression over C classes; a class without rows is never predicted."""

    def __init__(self, num_classes: int, inverse_penalty: float, **options: Any):
        """`options` are further ones of scikit-learn's."""
        from sklearn import linear_model

        self.num_classes = num_classes
        self.regression = linear_model.LogisticRegression(C=inverse_penalty, tol=1e-6, **options)

    def fit(self, x_NF: Any, y: np.ndarray) -> "RidgeRegression":
        """Learns from features [N, F], which may be sparse, and classes [N]; returns itself."""
        self.present, y = np.unique(y, return_inverse=True)
        if len(self.present) > 1:
            self.regression.fit(x_NF, y)
        return self

    def predict_proba(self, x_QF: Any) -> np.ndarray:
        """Class probabilities [Q, C]."""
        p_QC = np.zeros((x_QF.shape[0], self.num_classes))
        p_QC[:, self.present] = self.regression.predict_proba(x_QF) if len(self.present) > 1 else 1.0
        return p_QC


class LabelWordClassifier(StateClassifier):
    """A method that sees of the model only how probable it finds the label words."""

    def __init__(self, head: head_lib.Head, label_ids: Sequence[int]):
        self.head, self.label_ids = head, label_ids
        self.classes_ = np.arange(len(label_ids))

    def label_log_probabilities(self, states: lm.States) -> np.ndarray:
        """log p of the label words [N, C] in nats, float64, not normalised over them."""
        log_p_NC = representations.label_log_probabilities(self.head, states, self.label_ids)
        return np.asarray(log_p_NC, np.float64)
