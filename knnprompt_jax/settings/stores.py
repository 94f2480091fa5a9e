"""The options of stores: the kind of a store, the place of its anchors, and the distances that it is searched by."""

from knnprompt_jax import errors, options

DIRECTIONS = ("kl", "reverse_kl")  # KL(test ‖ anchor), KL(anchor ‖ test).
DISTRIBUTION_DISTANCES = (*DIRECTIONS, "kl_labels", "reverse_kl_labels")  # Between distributions that add up to 1.
DISTANCES = (*DISTRIBUTION_DISTANCES, "l2")
CENTROIDS = ("none", "arithmetic", "geometric")
KINDS = ("dense", "factored")
KEY_DTYPES = ("float32", "float16", "bfloat16")


class StoreOptions(options.Options):
    """Kind, precision and place of stored anchors."""

    kind: str = options.option(
        "auto",
        "dense: an anchor is a log-probability per token of the vocabulary, as in the paper; factored: its hidden state and one "
        "more number, for the same KL; auto: factored, or dense where the model or the distance requires it.",
        choices=("auto", *KINDS),
    )
    key_dtype: str = options.option(
        "float32",
        "Dtype of anchors; float16 and bfloat16 halve the memory; up to 3 % (float16) or 11 % (bfloat16) of the 3 nearest anchors differ.",
        choices=KEY_DTYPES,
    )
    placement: str = options.option(
        "device",
        "Where to keep anchors: on the device, or in host memory, from which a search streams them.",
        choices=("device", "host"),
    )
    memory_mb: float = options.option(512.0, "MiB on each device for a search, in addition to the anchors.", least=1)

    @property
    def on_host(self) -> bool:
        return self.placement == "host"


def check_centroid(kind: str, distance: str) -> None:
    """Raise UserError with the choices if there are no such centroids to search by this distance."""
    if kind != "none" and distance not in DISTRIBUTION_DISTANCES:
        choices = ", ".join(DISTRIBUTION_DISTANCES)
        raise errors.UserError(f"centroid={kind!r} needs a distance between distributions: choose distance={choices}")
