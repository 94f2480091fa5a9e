"""Contextual calibration: label words' probabilities divided by those under content-free inputs.

Zhao, Wallace, Feng, Klein, Singh: "Calibrate Before Use: Improving Few-Shot Performance of Language Models", ICML 2021,
Section 5: W = diag(p_cf)⁻¹, b = 0, with p_cf from "N/A", "" and "[MASK]" in the place of the query.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from scipy import special

from knnprompt_jax import lm, options
from knnprompt_jax.methods import base, method
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.tasks.task import Example

CONTENT_FREE = ("N/A", "", "[MASK]")


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of contextual calibration."""

    prior: str = options.option(
        "balanced",
        "The classes' prior: all equal, or their shares of the split's train rows.",
        choices=("balanced", "trainset"),
    )


def content_free_queries(problem: method.Problem) -> list[Example]:
    """Queries without content: every field holds the same content-free text."""
    fields = problem.task.fields
    return [Example(dict.fromkeys(fields, text), "", source=f"content-free {text!r}") for text in CONTENT_FREE]


def log_bias(log_p_NC: np.ndarray) -> np.ndarray:
    """log p_cf [C]: probabilities of the label words averaged over content-free inputs, then normalised over the words."""
    return special.log_softmax(special.logsumexp(log_p_NC, axis=0))


class ContextualCalibration(base.LabelWordClassifier):
    """argmax of p(label) / p_cf(label), and times its frequency among the train rows with prior "trainset"."""

    log_ratio_moves = 2  # The query's error, and that of the content-free inputs.

    def __init__(self, head: head_lib.Head, label_ids: Sequence[int], content_free: lm.States, settings: Settings):
        """`content_free` are the states of content-free queries after the same demonstrations."""
        super().__init__(head, label_ids)
        self.content_free, self.prior = content_free, settings.prior

    def fit(self, states: lm.States | None = None, y: np.ndarray | None = None) -> "ContextualCalibration":
        """Reads the bias from the content-free states; classes `y` of train rows count for prior "trainset" alone."""
        self.shift_C = -log_bias(self.label_log_probabilities(self.content_free))
        if self.prior == "trainset":
            y = np.asarray(y)
            frequency_C = np.bincount(y, minlength=len(self.classes_)) / len(y)
            with np.errstate(divide="ignore"):
                self.shift_C += np.log(frequency_C)  # −∞, hence never predicted, for a class without train rows.
        return self

    def predict_proba(self, states: lm.States) -> np.ndarray:
        """The calibrated scores [Q, C], normalised over the classes."""
        return special.softmax(self.label_log_probabilities(states) + self.shift_C, axis=-1)


def fitted(
    context: method.Context, settings: Settings, inputs: method.PromptSet = content_free_queries
) -> ContextualCalibration:
    """By these content-free `inputs`; `trainset` frequencies are those of all the split's rows, demonstrations and anchors."""
    classifier = ContextualCalibration(context.head, context.label_ids, context.states[inputs], settings)
    return classifier.fit(y=context.classes(context.problem.train_rows))


_declare = functools.partial(
    method.on_states,
    fitted=fitted,
    needs=(content_free_queries,),
    check=method.label_words_are_tokens,
    sees="demonstrations",
)
METHODS = (
    _declare(
        "contextual_calibration",
        "Contextual calibration",
        settings=Settings,
        source="Zhao et al., ICML 2021, Section 5",
        printed_as=("Contextual Calibration", "ContextualCalibration w/ Balanced Prior"),
        look=2,
    ),
    _declare(
        "contextual_calibration_trainset",
        "Contextual calibration, train prior",
        settings=method.with_defaults(Settings, prior="trainset"),
        source="Xu et al., ICLR 2023, appendix",
        printed_as=("ContextualCalibration w/ Trainset Prior",),
        look=5,
    ),
)
