"""Fitted classifiers, the two classes with scikit-learn's interface, and their options."""

from typing import Any, ClassVar

from knnprompt_jax.classifier.experts import PoolOptions
from knnprompt_jax.common import options
from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.datastore.search import KNNOptions
from knnprompt_jax.inference.prompts import PromptOptions

AUTO: Any = "auto"  # A value that is chosen for the rows.


class _ClassifierOptions(PromptOptions):
    """Options of both classifiers."""

    random_state: int = options.option(0, "Seed of the draw of demonstrations.", least=0)
    store_options: StoreOptions = options.argument(StoreOptions(), "The kind of the store of the anchors.")


class PublishedOptions(_ClassifierOptions, KNNOptions):
    """Options of `KNNPrompting`; the defaults are those of the paper."""

    CHANGEABLE: ClassVar = ("k", "distance", "weights", "tie_break")  # After a fit.

    demo_shots: int | None = options.argument(
        None, "Demonstrations per class, at most half of its rows; None: as many as the context holds."
    )


class AutoOptions(_ClassifierOptions, PoolOptions):
    """Options of `AutoClassifier`."""

    CHANGEABLE: ClassVar = ("class_prior",)

    demo_shots: Any = options.argument(
        AUTO,
        "Demonstrations per class; several numbers: one view of each row per number; None: as many as the context holds; auto: none, "
        "and all rows of a class or at most 16.",
    )
    class_prior: Any = options.argument(
        None,
        'The share of each class among the texts to classify: "uniform", a share for each label, or None, the shares of the '
        "rows. It may be changed after `fit`.",
    )


class AnswerOptions(options.Options):
    """The texts that get no label."""

    abstain: float = options.option(
        0.0, "Leave the label empty if its probability is below this; 0: never.", least=0, most=1
    )
    max_error: float | None = options.option(
        None,
        "Promise: the largest share of wrong labels among the written ones, such as 0.05; other labels are left empty. It assumes "
        "that these texts come from the same mixture as the train rows.",
        least=0.001,
        most=0.999,
    )
    reject_novel: float | None = options.option(
        None,
        "Leave the label empty if the text is unlike the train rows: if its p-value, in the column novelty, is at most this. 0.02 "
        "leaves out about 2 % of texts that do belong.",
        least=0.0001,
        most=0.9999,
    )
