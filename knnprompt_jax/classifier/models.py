"""The language model that a classifier needs, by its name."""

import pathlib
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.models import shipped


def demo_model(name: str = shipped.DEFAULT, **options: Any) -> lm_lib.LanguageModel:
    """A model that needs no Hub: "smollm2", or "tiny", which comes with the package; options as for `LanguageModel.from_pretrained`.

    Raises:
        UserError: another name, or the package that has the model is not installed; it says how to install it.
    """
    shipped.locate(name)
    return lm_lib.LanguageModel.from_pretrained(name, **options)


def of_store(folder: pathlib.Path, name: str, **options: Any) -> lm_lib.LanguageModel:
    """The model by the name under which a saved classifier knows it; raises UserError with the way out where there is none."""
    try:
        return lm_lib.LanguageModel.from_pretrained(name, **options)
    except errors.UserError as error:
        raise errors.UserError(f"{folder}: its model cannot be loaded; give it as lm=: {error}") from None
