"""Model families: what the config.json of each means, and the names of its weights in published files."""

import dataclasses
from collections.abc import Callable

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models.families import weight_names


@dataclasses.dataclass(frozen=True)
class Family:
    """A model family.

    Attributes:
        name: the `model_type` of its config.json.
        config_from_hf: reads a config.json. Raises UserError for a value or switch that is not supported.
        table: the names of its weights.
    """

    name: str
    config_from_hf: Callable[[config_lib.Fields], config_lib.DecoderConfig]
    table: weight_names.NameTable
