"""The options of `KNNPrompting` and `AutoClassifier`."""

from typing import Any, ClassVar

from knnprompt_jax import options
from knnprompt_jax.experts import PoolOptions
from knnprompt_jax.prompts import PromptOptions
from knnprompt_jax.store import StoreOptions
from knnprompt_jax.store.search import KNNOptions

AUTO: Any = "auto"  # A value that is chosen for the rows.


class _ClassifierOptions(PromptOptions):
    """Options of both classifiers."""

    random_state: int = options.option(0, "Seed of the draw of demonstrations.", least=0)
    store_options: StoreOptions = options.argument(StoreOptions(), "The kind of the store of the anchors.")


class PublishedOptions(_ClassifierOptions, KNNOptions):
    """Options of `KNNPrompting`; the defaults are those of the paper.

    The options of `AutoClassifier` are constants here, and the other way round, so that code reads both alike.
    """

    CHANGEABLE: ClassVar = ("k", "distance", "weights", "tie_break")  # After a fit.
    names: ClassVar[tuple[str, ...]] = ()
    encoder: ClassVar[str] = ""
    class_prior: ClassVar[Any] = None

    demo_shots: int | None = options.argument(
        None, "Demonstrations per class, at most half of its rows; None: as many as the context holds."
    )


class AutoOptions(_ClassifierOptions, PoolOptions):
    """Options of `AutoClassifier`; its neighbours do not vote, but are shown."""

    CHANGEABLE: ClassVar = ("class_prior",)
    k: ClassVar[int] = 3
    distance: ClassVar[str] = "kl"
    centroid: ClassVar[str] = "none"

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
