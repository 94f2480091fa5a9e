"""The methods that records name: those of a comparison, and those that train a model of their own."""

import dataclasses

from knnprompt_jax.methods import all_methods
from knnprompt_jax.settings import fine_tuning


@dataclasses.dataclass(frozen=True)
class KnownMethod:
    """The description of a method in tables.

    Attributes:
        title: its name in tables.
        printed_as: its names in the paper's tables.
        rows_used: which of a split's train rows it uses, as `methods.method.Method` describes; "train": all.
        own_model: the model that it trains; empty if it reads the language model of the run.
    """

    title: str
    printed_as: tuple[str, ...]
    rows_used: str
    own_model: str = ""


_COMPARED = {
    name: KnownMethod(method.title, method.printed_as, method.rows_used) for name, method in all_methods.METHODS.items()
}
_FINE_TUNED = {
    name: KnownMethod(entry.title, entry.printed_as, "train", entry.model)
    for name, entry in fine_tuning.METHODS.items()
}
METHODS = {**_COMPARED, **_FINE_TUNED}
