"""The language model that a classifier needs, by its name."""

import pathlib
from typing import Any

from knnprompt_jax import demo, errors
from knnprompt_jax import lm as lm_lib

DEMO = "demo"


def demo_model(**options: Any) -> lm_lib.LanguageModel:
    """The small model that comes with the package; options as for `LanguageModel.from_pretrained`."""
    model = lm_lib.LanguageModel.from_pretrained(str(demo.model_folder()), **options)
    model.name = DEMO
    return model


def of_store(folder: pathlib.Path, name: str, **options: Any) -> lm_lib.LanguageModel:
    """The model by the name under which a saved classifier knows it; raises UserError with the way out where there is none."""
    if name == DEMO:
        return demo_model(**options)
    try:
        return lm_lib.LanguageModel.from_pretrained(name, **options)
    except errors.UserError as error:
        raise errors.UserError(f"{folder}: its model cannot be loaded; give it as lm=: {error}") from None
