"""Fitted classifiers, the two classes with scikit-learn's interface, and their options."""

from typing import Any

from knnprompt_jax.common import errors, options

SMALLEST_P = 0.0001  # Limits of `reject_novel`.
LARGEST_P = 0.9999
ESTIMATE = "estimate"  # A `class_prior`: the shares of classes among texts without labels.


class PromiseOptions(options.Options):
    """The texts that get no label."""

    max_error: float | None = options.option(
        None,
        "Maximum share of wrong labels, such as 0.05, if texts are like the train rows; uncertain texts get no label.",
        least=0.001,
        most=0.999,
    )
    reject_novel: float | None = options.option(
        None,
        "Give no label to texts with at most this novelty; 0.02 leaves out about 2 % of texts like the train rows.",
        least=SMALLEST_P,
        most=LARGEST_P,
    )


class AnswerOptions(PromiseOptions):
    """The texts that get no label, also by their probability."""

    abstain: float = options.option(0.0, "Smallest probability of a label; others are empty.", least=0, most=1)


def check_unlabelled(is_given: bool, class_prior: Any) -> None:
    """Raise UserError unless texts without labels have an effect on predictions, or none are given and required."""
    is_required = isinstance(class_prior, str) and class_prior == ESTIMATE
    has_effect = is_required or class_prior is None
    if (is_required and not is_given) or (is_given and not has_effect):
        advice = "are required" if is_required else f"have no effect; leave them out, or set class_prior={ESTIMATE}"
        message = f"class_prior={class_prior}: texts without labels (unlabelled_file, in Python unlabelled) {advice}"
        raise errors.UserError(message)
