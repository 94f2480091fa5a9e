"""kNN Prompting for JAX: training-free text classification with frozen language models.

A frozen language model reads each training example as a prompt. Its distribution of the next token is stored as the
example's anchor. A new text gets the majority label of the anchors nearest to its own distribution in KL divergence (Xu
et al., "kNN Prompting", ICLR 2023).

Shape notation of the whole package: a name ends in one letter per axis, `h_NE`, `logk_NV`, and einsum strings use the same letters.

    N anchors or prompts   Q queries          V vocabulary        D model width       E width of the head's input (D but for OPT-350m)
    L layers               H attention heads  K head size         F MLP width         M position embeddings
    P prefix tokens        R packed rows      S row width, tokens B rows per step     T steps, or tokens of a whole sequence
    J suffix ends per step C classes          k neighbours
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knnprompt_jax.classifier.estimator import AutoClassifier, KNNPrompting, load
    from knnprompt_jax.errors import UserError
    from knnprompt_jax.lm import LanguageModel
    from knnprompt_jax.tasks.task import Task

__version__: str
__all__ = ["AutoClassifier", "KNNPrompting", "LanguageModel", "Task", "UserError", "demo_model", "load"]

# Imported on first use, so that the package itself is quick to import and starts no device.
_MODULES = {
    "AutoClassifier": "classifier.estimator",
    "KNNPrompting": "classifier.estimator",
    "LanguageModel": "lm",
    "Task": "tasks.task",
    "UserError": "errors",
    "load": "classifier.estimator",
}


def demo_model(name: str = "smollm2", **options: Any) -> "LanguageModel":
    """Return a model that needs no download: "smollm2", or "tiny", which comes with this package.

    Args:
        options: as for `LanguageModel.from_pretrained`.

    Raises:
        UserError: another name, or the package that has the model is not installed.
    """
    from knnprompt_jax import lm, shipped

    shipped.locate(name)
    return lm.LanguageModel.from_pretrained(name, **options)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        value: Any = metadata.version(__name__)
    elif name in _MODULES:
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
