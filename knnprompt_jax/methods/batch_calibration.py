"""Batch Calibration: label words' log-probabilities less their mean over a batch of unlabelled queries.

Zhou, Wan, Proleev, Mincu, Chen, Heller, Roy: "Batch Calibration: Rethinking Calibration for In-Context Learning and
Prompt Engineering", 2023 (ICLR 2024), Section 3. No content-free input is needed: the batch itself shows the bias.
"""

import numpy as np
from scipy import special

from knnprompt_jax import lm
from knnprompt_jax.methods import base, method


class BatchCalibration(base.LabelWordClassifier):
    """argmax of log p(label | x) − mean over the batch of log p(label | x')."""

    log_ratio_moves = 2  # The query's error, and at most that of the mean.

    def fit(self, states: lm.States, y: np.ndarray | None = None) -> "BatchCalibration":
        """Reads the bias from any unlabelled batch: the queries themselves, as published, or anchors."""
        self.bias_C = self.label_log_probabilities(states).mean(0)
        return self

    def predict_proba(self, states: lm.States) -> np.ndarray:
        """The calibrated scores [Q, C], normalised over the classes."""
        return special.softmax(self.label_log_probabilities(states) - self.bias_C, axis=-1)


METHODS = (
    method.on_states(
        "batch_calibration",
        "Batch Calibration",
        lambda context, _: BatchCalibration(context.head, context.label_ids).fit(context.states[method.queries]),
        source="Zhou et al., ICLR 2024, Section 3",
        check=method.label_words_are_tokens,
        sees="demonstrations",
        look=4,
    ),
)
