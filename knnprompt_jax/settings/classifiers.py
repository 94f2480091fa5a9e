"""Options of classifiers: how texts become prompts, and how anchors classify them."""

from typing import Any

from knnprompt_jax import errors, options
from knnprompt_jax.settings import stores

RULES = ("probe", "blend", "votes")  # The first is chosen where several are equally good.
USED_BY = {  # The settings that each rule uses.
    "votes": ("k", "distance", "weights"),
    "probe": ("penalty", "layer"),
    "blend": ("k", "distance", "weights", "penalty", "layer"),
}
WEIGHTS = ("uniform", "distance")
METRICS = ("log_loss", "accuracy", "macro_f1")
TIE_BREAKS = ("lowest", "nearest")
AUTO: Any = "auto"  # A value that is chosen by leave-one-out.
DISTANCE_HELP = (
    "kl is KL(test ‖ anchor), Eq. 5 of the paper; reverse_kl is KL(anchor ‖ test), as in its code; kl_labels and reverse_kl_labels "
    "compare label words only; l2 is the distance of hidden states."
)


class VoteOptions(options.Options):
    """The number of anchors that vote, and the rule for ties."""

    k: int = options.option(3, "Neighbours that vote.", least=1)
    tie_break: str = options.option(
        "lowest",
        "Winner of a tie: the lowest class index, or the class of the nearest neighbour.",
        choices=TIE_BREAKS,
    )


class KNNOptions(VoteOptions):
    """The vote of `KNNPrompting`."""

    distance: str = options.option("kl", DISTANCE_HELP, choices=stores.DISTANCES)
    weights: str = options.option(
        "uniform", "Weights of the votes: all equal, or 1 / distance, as in scikit-learn.", choices=WEIGHTS
    )
    centroid: str = options.option("none", "Replace the anchors of each class by their mean.", choices=stores.CENTROIDS)

    def __post_init__(self) -> None:
        super().__post_init__()
        stores.check_centroid(self.centroid, self.distance)


class RuleOptions(options.Options):
    """The rule of `AutoClassifier`; each setting that is auto is chosen by leave-one-out."""

    rule: str = options.option(
        AUTO,
        "votes of the nearest anchors, a linear probe of the states, or a blend of both. auto tries those that use all given settings.",
        choices=(AUTO, *RULES),
    )
    k: int = options.option(AUTO, "Neighbours that vote.", least=1, words={AUTO: AUTO})
    distance: str = options.option(AUTO, DISTANCE_HELP, choices=(AUTO, *stores.DISTANCES))
    weights: str = options.option(
        AUTO, "Weights of the votes: all equal, or decreasing with the distance.", choices=(AUTO, *WEIGHTS)
    )
    penalty: float = options.option(AUTO, "Ridge penalty of the probe.", least=1e-6, words={AUTO: AUTO})
    metric: str = options.option(METRICS[0], "Metric that candidates are compared by.", choices=METRICS)

    def refuse_unused(self) -> None:
        """Raise UserError on a setting that the given rule does not use."""
        for name in USED_BY["blend"]:
            if self.rule != AUTO and name not in USED_BY[self.rule] and (value := getattr(self, name, AUTO)) != AUTO:
                raise errors.UserError(f"{name}={value}: rule={self.rule!r} does not use it; leave it out")


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
    store_options: stores.StoreOptions = options.argument(
        stores.StoreOptions(), "The kind of the store of the anchors."
    )


class PublishedOptions(_ClassifierOptions, KNNOptions):
    """Options of `KNNPrompting`; the defaults are those of the paper."""

    demo_shots: int | None = options.argument(
        None, "Demonstrations per class, at most half of its rows; None: as many as the context holds."
    )


class AutoOptions(_ClassifierOptions, RuleOptions):
    """Options of `AutoClassifier`."""

    layer: int = options.option(
        AUTO,
        "Block, from 1, whose output the probe reads besides the last; 0: none; auto: the block at three quarters of the depth.",
        least=0,
        words={AUTO: AUTO},
    )
    demo_shots: Any = options.argument(
        AUTO,
        "Demonstrations per class, at most half of its rows; None: as many as the context holds; several numbers: candidates, each "
        "of which costs a pass over at most 1,024 anchors; auto: as many as the context holds (at most a quarter of the largest "
        "class), 2 and 0 are candidates.",
    )
    class_prior: Any = options.argument(
        None,
        'The share of each class among the texts to classify: "uniform", a share for each label, or None, the shares of the '
        "anchors. It may be changed after `fit`.",
    )
