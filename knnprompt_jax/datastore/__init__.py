"""Anchors on devices, and the search for the nearest of them."""

from knnprompt_jax.common import options


class StoreOptions(options.Options):
    """The kind of a store and the memory of its search."""

    kind: str = options.option(
        "auto",
        "dense: an anchor is a number per token of the vocabulary, as in the paper; factored: its hidden state or mean head row, and "
        "one more number, for the same KL; auto: factored, or dense where the distance requires it.",
        choices=("auto", "dense", "factored"),
    )
    memory_mb: float = options.option(512.0, "MiB on each device for a search, in addition to the anchors.", least=1)
