"""Language models that need no Hub."""

from typing import Any

from knnprompt_jax import lm as lm_lib
from knnprompt_jax.models import shipped


def demo_model(name: str = shipped.DEFAULT, **options: Any) -> lm_lib.LanguageModel:
    """A model that needs no Hub: "smollm2", or "tiny", which comes with the package; options as for `LanguageModel.from_pretrained`.

    Raises:
        UserError: another name, or the package that has the model is not installed; it says how to install it.
    """
    shipped.locate(name)
    return lm_lib.LanguageModel.from_pretrained(name, **options)
