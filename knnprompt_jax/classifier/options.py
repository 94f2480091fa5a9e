"""How neighbours are found and counted: the options of kNN Prompting, for people and for the registry of methods alike."""

import dataclasses

from knnprompt_jax import errors, options
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import centroids, distances

TIE_BREAKS = ("lowest", "nearest")


@dataclasses.dataclass(frozen=True)
class VoteOptions(options.Options):
    """How many anchors vote, and how."""

    k: int = options.option(3, "Neighbours that vote.", least=1)
    tie_break: str = options.option(
        "lowest", "Of equal votes, the lowest class index or the class of the nearest neighbour.", choices=TIE_BREAKS
    )
    approximate_recall: float = options.option(
        0.0, "Recall that TPUs aim at in approximate search; 0: exact, as elsewhere.", least=0, most=1
    )


@dataclasses.dataclass(frozen=True)
class KNNOptions(VoteOptions):
    """The same, and what is compared by which distance."""

    distance: str = options.option(
        "forward",
        "forward is KL(text ‖ anchor), Eq. 5 of the paper; released KL(anchor ‖ text), its code; partial ones compare "
        "label words alone; hidden is Euclidean between states.",
        choices=distances.DISTANCES,
    )
    centroid: str = options.option(
        "none", "One anchor per class, its mean, instead of all anchors.", choices=centroids.CENTROIDS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        centroids.check(self.centroid, self.distance)


@dataclasses.dataclass(frozen=True)
class PromptOptions(options.Options):
    """How texts become prompts and label words are read."""

    truncation: str = options.option(
        "left",
        "Of prompts longer than the context: their last tokens stay (left, as published), they are refused (error), "
        "or whole demonstrations go (drop).",
        choices=layout.TRUNCATIONS,
    )
    label_token: str = options.option(
        "last",
        "The token of a label word by which its class is read: last (released code) or first (paper).",
        choices=layout.LABEL_TOKENS,
    )


@dataclasses.dataclass(frozen=True)
class ClassifierOptions(PromptOptions, KNNOptions):
    """Options of neighbours and of prompts, and the seed."""

    random_state: int = options.option(0, "Seed of the draw of demonstrations.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.truncation == "drop":  # Texts would be read after other demonstrations than the anchors were.
            raise errors.UserError("truncation='drop': choose from left, error")


DEFAULTS = ClassifierOptions()
