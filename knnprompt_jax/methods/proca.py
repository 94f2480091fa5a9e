"""Prototypical Calibration: a Gaussian mixture over label words' log-probabilities, its clusters matched to labels.

Han, Hao, Dong, Sun, Wei: "Prototypical Calibration for Few-shot Learning of Language Models", ICLR 2023, Section 3:
x = (log p(label_1), …, log p(label_C)), one cluster per class by EM on unlabelled rows; the maximum-weight bipartite
matching of clusters to labels has the cluster means as weights, and of many restarts the heaviest matching
is kept. As in the released code there are 100 restarts, and clusters weigh the same when a query is assigned.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import optimize

from knnprompt_jax import errors, lm, options
from knnprompt_jax.methods import base, method
from knnprompt_jax.models import head as head_lib


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of Prototypical Calibration."""

    restarts: int = options.option(100, "Mixtures estimated, of which the one that matches best is kept.", least=1)


class PrototypicalCalibration(base.LabelWordClassifier):
    """The label of the likeliest cluster."""

    def __init__(self, head: head_lib.Head, label_ids: Sequence[int], settings: Settings, seed: int = 0):
        super().__init__(head, label_ids)
        self.restarts, self.seed = settings.restarts, seed

    def fit(self, states: lm.States, y: np.ndarray | None = None) -> "PrototypicalCalibration":
        """Estimates the clusters; labels are not used; raises UserError where there are fewer rows than clusters."""
        log_p_NC = self.label_log_probabilities(states)
        _check_rows(len(log_p_NC), len(self.classes_))
        seeds = np.random.default_rng(self.seed).integers(2**31, size=self.restarts)
        mixtures = [_estimate(log_p_NC, len(self.classes_), int(seed)) for seed in seeds]
        self.mixture = max(mixtures, key=lambda mixture: _match(mixture.means_)[1])
        self.mixture.weights_ = np.full_like(self.mixture.weights_, 1 / len(self.classes_))
        self.cluster_of_label = _match(self.mixture.means_)[0]
        return self

    def predict_proba(self, states: lm.States) -> np.ndarray:
        """The posterior [Q, C] of each label's cluster."""
        return self.mixture.predict_proba(self.label_log_probabilities(states))[:, self.cluster_of_label]


def fitted(context: method.Context, settings: Settings) -> PrototypicalCalibration:
    """The anchors, without their labels, are the rows to estimate from."""
    classifier = PrototypicalCalibration(context.head, context.label_ids, settings, context.seed)
    return classifier.fit(context.states[method.anchors])


def check(problem: method.Problem) -> None:
    """Raises UserError where label words are not tokens, or where there are fewer anchors than clusters."""
    method.label_words_are_tokens(problem)
    _check_rows(len(problem.split.anchors), problem.task.num_classes)


def _check_rows(rows: int, clusters: int) -> None:
    least = max(2, clusters)
    if rows < least:
        raise errors.UserError(f"Prototypical Calibration of {rows} anchors: at least {least} are needed")


def _estimate(log_p_NC: np.ndarray, clusters: int, seed: int) -> Any:
    from sklearn import exceptions, mixture

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)  # Few or equal rows; the matching decides.
        return mixture.GaussianMixture(clusters, random_state=seed).fit(log_p_NC)


def _match(means_CC: np.ndarray) -> tuple[np.ndarray, float]:
    """The cluster of each label, and the weight of the matching; `means_CC[cluster, label]`."""
    clusters, labels = optimize.linear_sum_assignment(means_CC, maximize=True)
    return clusters[np.argsort(labels)], float(means_CC[clusters, labels].sum())


METHODS = (
    method.on_states(
        "proca",
        "Prototypical Calibration",
        fitted,
        Settings,
        source="Han et al., ICLR 2023, Section 3",
        needs=(method.anchors,),
        check=check,
    ),
)
