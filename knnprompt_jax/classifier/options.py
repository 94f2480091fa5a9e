"""How texts are classified: the options of kNN Prompting as published, for the registry of methods, and those of people's classifiers,
where what is not named is chosen."""

import dataclasses
from typing import Any

from knnprompt_jax import errors, options
from knnprompt_jax.classifier import choosing, rules, votes
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import centroids, distances

TIE_BREAKS = ("lowest", "nearest")
AUTO: Any = "auto"  # Stands for a value that is chosen by leave-one-out.
_WORDS = {AUTO: AUTO}


@dataclasses.dataclass(frozen=True)
class SearchedOptions(options.Options):
    """How anchors are searched and ties broken."""

    tie_break: str = options.option(
        "lowest", "Of equal votes, the lowest class index or the class of the nearest neighbour.", choices=TIE_BREAKS
    )
    approximate_recall: float = options.option(
        0.0, "Recall that TPUs aim at in approximate search; 0: exact, as elsewhere.", least=0, most=1
    )


@dataclasses.dataclass(frozen=True)
class VoteOptions(SearchedOptions):
    """How many anchors vote, and how."""

    k: int = options.option(3, "Neighbours that vote.", least=1)


@dataclasses.dataclass(frozen=True)
class KNNOptions(VoteOptions):
    """How many anchors vote, by which distance they are near, and whether class means stand for them."""

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
class RuleOptions(SearchedOptions):
    """What answers; each setting is chosen unless it is named."""

    rule: str = options.option(
        AUTO,
        "knn: the votes of the nearest anchors; probe: a linear probe of the states; blend: both. auto leaves out what a named "
        "setting has no part in.",
        choices=(AUTO, *rules.RULES),
    )
    k: int = options.option(AUTO, "Neighbours that vote, or auto.", least=1, words=_WORDS)
    distance: str = options.option(
        AUTO,
        "forward is KL(text ‖ anchor), released KL(anchor ‖ text); partial ones compare label words alone; hidden is "
        "Euclidean between states.",
        choices=(AUTO, *distances.DISTANCES),
    )
    weights: str = options.option(
        AUTO, "Votes count the same, or less with the distance.", choices=(AUTO, *votes.WEIGHTS)
    )
    penalty: float = options.option(AUTO, "Ridge penalty of the probe, or auto.", least=1e-6, words=_WORDS)
    metric: str = options.option(
        choosing.METRICS[0], "What is compared where something is chosen.", choices=choosing.METRICS
    )
    calibrated: bool = options.option(
        True,
        "Probabilities by leave-one-out; False: the shares of the plain vote, as published (k=3, distance=forward).",
    )
    centroid: str = options.option(
        "none", "One anchor per class, its mean, instead of all anchors; as published.", choices=centroids.CENTROIDS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        centroids.check(self.centroid, "forward" if self.distance == AUTO else self.distance)
        if self.is_plain and (self.rule not in (AUTO, "knn") or self.weights not in (AUTO, "uniform")):
            told = "calibrated=False" if not self.calibrated else f"centroid={self.centroid!r}"
            raise errors.UserError(f"{told}: is for rule='knn' with weights='uniform'")

    @property
    def is_plain(self) -> bool:
        """Whether labels and probabilities are those of the plain vote."""
        return not self.calibrated or self.centroid != "none"

    def grid(self) -> choosing.Grid:
        """The values among which each setting is chosen."""
        unused = {"probe": {self.k, self.distance, self.weights} != {AUTO}, "knn": self.penalty != AUTO}
        tried = choosing.Grid()
        if self.is_plain:
            tried = dataclasses.replace(tried, rules=("knn",), weights=("uniform",))
        elif self.rule != AUTO:
            tried = dataclasses.replace(tried, rules=(self.rule,))
        else:
            tried = dataclasses.replace(tried, rules=tuple(name for name in tried.rules if not unused.get(name)))
        named: dict[str, Any] = {
            "ks": self.k,
            "distances": self.distance,
            "weights": self.weights,
            "penalties": self.penalty,
        }
        values: dict[str, Any] = {name: (value,) for name, value in named.items() if value != AUTO}
        return dataclasses.replace(tried, **values)


@dataclasses.dataclass(frozen=True)
class PromptOptions(options.Options):
    """How texts become prompts and label words are read."""

    truncation: str = options.option(
        "left",
        "Of prompts longer than the context: their last tokens stay (left, as published), they are refused (error), "
        "or whole demonstrations go (drop).",
        choices=layout.TRUNCATIONS,
        decisive=True,
    )
    label_token: str = options.option(
        "last",
        "The token of a label word by which its class is read: last (released code) or first (paper).",
        choices=layout.LABEL_TOKENS,
        decisive=True,
    )


@dataclasses.dataclass(frozen=True)
class ClassifierOptions(PromptOptions, RuleOptions):
    """Options of rules and of prompts, and the seed."""

    random_state: int = options.option(0, "Seed of the draw of demonstrations.", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.truncation == "drop":  # Texts would be read after other demonstrations than the anchors were.
            raise errors.UserError("truncation='drop': choose from left, error")


DEFAULTS = ClassifierOptions()
