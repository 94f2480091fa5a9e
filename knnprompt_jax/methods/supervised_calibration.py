"""Supervised Calibration: each label word's log-probability times a number of its class plus another, learned on labelled rows.

Gundem, Dong, Zhang, Tarokh, Qi: "Boosting In-Context Learning in LLMs Through the Lens of Classical Supervised Learning", 2025
(arXiv 2505.23783). Other calibrations only shift the boundary between two classes; a slope per class turns it, and may reverse it.

This is a reading of the paper's abstract, for no code is public. The pseudo-queries are the split's anchors: none of them stands in the
context after which it is read. The trust region is a penalty that draws the map to the identity, in-context learning's. The
context-invariance term, which compares several contexts, is left out: all anchors are read after one.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy import optimize, special

from knnprompt_jax import lm, options
from knnprompt_jax.methods import base, method
from knnprompt_jax.models import head as head_lib


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of Supervised Calibration."""

    penalty: float = options.option(1.0, "How strongly slopes are drawn to 1 and shifts to 0.", least=1e-6)


class SupervisedCalibration(base.LabelWordClassifier):
    """argmax over classes of w_c log p_c + b_c, with p normalised over the label words."""

    def __init__(self, head: head_lib.Head, label_ids: Sequence[int], settings: Settings):
        super().__init__(head, label_ids)
        self.penalty = settings.penalty

    def fit(self, states: lm.States, y: np.ndarray) -> "SupervisedCalibration":
        """The slopes and shifts [C] with the least Σ −log softmax(w log p + b)_y + penalty / 2 · (Σ (w − 1)² + Σ b²), which is convex."""
        logp_NC, is_label_NC = self._inputs(states), np.eye(len(self.classes_))[np.asarray(y, int)]
        identity_2C = np.stack([np.ones(len(self.classes_)), np.zeros(len(self.classes_))])

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            map_2C = flat.reshape(2, -1)
            scores_NC = special.log_softmax(map_2C[0] * logp_NC + map_2C[1], axis=-1)
            error_NC, away_2C = np.exp(scores_NC) - is_label_NC, map_2C - identity_2C
            slope_2C = np.stack([(error_NC * logp_NC).sum(0), error_NC.sum(0)]) + self.penalty * away_2C
            return -(scores_NC * is_label_NC).sum() + self.penalty / 2 * (away_2C**2).sum(), slope_2C.ravel()

        found = optimize.minimize(loss, identity_2C.ravel(), jac=True, method="L-BFGS-B", options={"gtol": 1e-8})
        self.slope_C, self.shift_C = found.x.reshape(2, -1)
        return self

    def predict_proba(self, states: lm.States) -> np.ndarray:
        """The mapped scores [Q, C], normalised over the classes."""
        return special.softmax(self._inputs(states) * self.slope_C + self.shift_C, axis=-1)

    def _inputs(self, states: lm.States) -> np.ndarray:
        return special.log_softmax(self.label_log_probabilities(states), axis=-1)


def fitted(context: method.Context, settings: Settings) -> SupervisedCalibration:
    classifier = SupervisedCalibration(context.head, context.label_ids, settings)
    return classifier.fit(context.states[method.anchors], context.y)


METHODS = (
    method.on_states(
        "supervised_calibration",
        "Supervised Calibration",
        fitted,
        Settings,
        source="Gundem et al., 2025, abstract",
        needs=(method.anchors,),
        check=method.label_words_are_tokens,
        look=2,
    ),
)
