"""Options of classifiers: how texts become prompts, how anchors are stored, and how they classify."""

import re
from typing import Any, ClassVar

from knnprompt_jax import errors, options

# Names of distances, whose functions are in `knnprompt_jax.distances`.
DIRECTIONS = ("kl", "reverse_kl")  # KL(test ‖ anchor), KL(anchor ‖ test).
DIVERGENCES = (*DIRECTIONS, "kl_labels", "reverse_kl_labels")
DISTANCES = (*DIVERGENCES, "l2")
CENTROIDS = ("none", "arithmetic", "geometric")
WEIGHTS = ("uniform", "distance")
TIE_BREAKS = ("lowest", "nearest")
EXPERTS = ("labels", "means", "knn", "probe", "words", "encoder")
READ_PROMPTS = EXPERTS[:4]
# A label, which may contain commas and equals signs, and its share.
_SHARE = re.compile(r"([^,].*?)=\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(?:,(?=.)|$)", re.DOTALL | re.IGNORECASE)
AUTO: Any = "auto"  # A value that is chosen for the rows.
EXPERTS_HELP = (
    "Experts of the pool: labels (the label words' probabilities), means (of each class's states), knn (votes of the nearest rows), "
    "probe (ridge regression on states), words (TF-IDF, without the language model), encoder (sentence embeddings)."
)
PRIOR_HELP = (
    "Share of each class among the texts to classify: uniform, or label=share for every label, such as yes=0.9,no=0.1. By default the "
    "shares of the train rows."
)
ENCODER_HELP = "Sentence encoder whose embeddings an expert reads; none by default."
DISTANCE_HELP = (
    "kl is KL(test ‖ anchor), Eq. 5 of the paper; reverse_kl is KL(anchor ‖ test), as in its code; kl_labels and reverse_kl_labels "
    "compare label words only; l2 is the distance of hidden states."
)


def parse_prior(text: str) -> Any:
    """Return the `class_prior` that a flag names; None if it is empty.

    Raises:
        UserError: neither uniform nor a number for each label.
    """
    if not text or "=" not in text:
        return text or None
    shares: dict[str, float] = {}
    rest = text
    while rest:
        if not (found := _SHARE.match(rest)):
            raise errors.UserError(f"--class_prior={text}: {rest!r} is not label=share")
        label = found[1].strip()
        if label in shares:
            raise errors.UserError(f"--class_prior={text}: {label!r} is given twice")
        shares[label] = float(found[2])
        rest = rest[found.end() :]
    return shares


class StoreOptions(options.Options):
    """The kind of a store and the memory of its search."""

    kind: str = options.option(
        "auto",
        "dense: an anchor is a number per token of the vocabulary, as in the paper; factored: its hidden state or mean head row, and "
        "one more number, for the same KL; auto: factored, or dense where the distance requires it.",
        choices=("auto", "dense", "factored"),
    )
    memory_mb: float = options.option(512.0, "MiB on each device for a search, in addition to the anchors.", least=1)


class VoteOptions(options.Options):
    """The number of anchors that vote, and the rule for ties."""

    k: int = options.option(
        3,
        "Neighbours that vote; in methods at most the anchors per class, as in the released code. Of centroids only the nearest votes.",
        least=1,
    )
    tie_break: str = options.option(
        "lowest",
        "Winner of a tie: the lowest class index, or the class of the nearest neighbour.",
        choices=TIE_BREAKS,
    )


class KNNOptions(VoteOptions):
    """The vote of `KNNPrompting`."""

    distance: str = options.option("kl", DISTANCE_HELP, choices=DISTANCES)
    weights: str = options.option(
        "uniform", "Weights of the votes: all equal, or 1 / distance, as in scikit-learn.", choices=WEIGHTS
    )
    centroid: str = options.option("none", "Replace the anchors of each class by their mean.", choices=CENTROIDS)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_centroid(self.centroid, self.distance)


def check_centroid(kind: str, distance: str) -> None:
    """Raise UserError with the choices if there are no such centroids to search by this distance."""
    if kind != "none" and distance not in DIVERGENCES:
        choices = ", ".join(DIVERGENCES)
        raise errors.UserError(f"centroid={kind!r} needs a distance between distributions: choose distance={choices}")


class PoolOptions(options.Options):
    """The experts of a pool."""

    experts: tuple[str, ...] | None = options.option(
        None, f"{EXPERTS_HELP} By default all that the rows and the encoder allow.", choices=EXPERTS, nonempty=True
    )
    encoder: str = options.option("", ENCODER_HELP)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not set(self.names) & set(READ_PROMPTS):
            raise errors.UserError(
                f"experts={','.join(self.names)}: add one that reads prompts: {', '.join(READ_PROMPTS)}; words without a "
                "language model are the method tfidf: knnprompt compare --methods=tfidf"
            )
        if ("encoder" in self.names) != bool(self.encoder):
            raise errors.UserError(
                f"encoder={self.encoder!r}, experts={','.join(self.names)}: the expert and its model go together"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the experts, in the order of `EXPERTS`."""
        if self.experts is not None:
            return tuple(name for name in EXPERTS if name in self.experts)
        return EXPERTS if self.encoder else EXPERTS[:-1]


class PromptOptions(options.Options):
    """The truncation of prompts and the tokens of label words."""

    truncation: str = options.option(
        "left",
        "Prompts longer than the context: cut their beginning (left, as published) or refuse them (error).",
        choices=("left", "error"),
    )
    label_token: str = options.option(
        "last",
        "Token of each label word that is read: last (released code) or first (our reading of the paper).",
        choices=("last", "first"),
    )


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
