"""The options of stores."""

from knnprompt_jax import distances, errors, options

DISTANCES = tuple(distances.DISTANCES)
DIRECTIONS = ("kl", "reverse_kl")  # KL(test ‖ anchor), KL(anchor ‖ test).
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
    if kind != "none" and not distances.get(distance).direction:
        choices = ", ".join(name for name, each in distances.DISTANCES.items() if each.direction)
        raise errors.UserError(f"centroid={kind!r} needs a distance between distributions: choose distance={choices}")
