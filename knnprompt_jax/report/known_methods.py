"""The methods that records name: those of a comparison, and those that train a model of their own."""

import dataclasses

from knnprompt_jax.methods import registry


@dataclasses.dataclass(frozen=True)
class KnownMethod:
    """What tables show of a method.

    Attributes:
        title: its name in tables.
        printed_as: its names in the paper's tables.
        rows_used: which of a split's train rows it uses, as `methods.method.Method` describes.
        own_model: the model that it trains; empty if it reads the language model of the run.
    """

    title: str
    printed_as: tuple[str, ...]
    rows_used: str
    own_model: str = ""


METHODS = {
    name: KnownMethod(
        one.title, one.entry.printed_as, one.rows_used, one.entry.preset["model"] if one.own_model else ""
    )
    for name, one in registry.METHODS.items()
}
