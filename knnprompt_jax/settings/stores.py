"""The options of stores, and the names of distances, whose functions are in `knnprompt_jax.distances`."""

from knnprompt_jax import errors, options

DIRECTIONS = ("kl", "reverse_kl")  # KL(test ‖ anchor), KL(anchor ‖ test).
DIVERGENCES = (*DIRECTIONS, "kl_labels", "reverse_kl_labels")
DISTANCES = (*DIVERGENCES, "l2")
CENTROIDS = ("none", "arithmetic", "geometric")


class StoreOptions(options.Options):
    """The kind of a store and the memory of its search."""

    kind: str = options.option(
        "auto",
        "dense: an anchor is a log-probability per token of the vocabulary, as in the paper; factored: its hidden state and one "
        "more number, for the same KL; auto: factored, or dense where the distance requires it.",
        choices=("auto", "dense", "factored"),
    )
    memory_mb: float = options.option(512.0, "MiB on each device for a search, in addition to the anchors.", least=1)


def check_centroid(kind: str, distance: str) -> None:
    """Raise UserError with the choices if there are no such centroids to search by this distance."""
    if kind != "none" and distance not in DIVERGENCES:
        choices = ", ".join(DIVERGENCES)
        raise errors.UserError(f"centroid={kind!r} needs a distance between distributions: choose distance={choices}")
