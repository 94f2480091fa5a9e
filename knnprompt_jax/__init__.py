"""kNN Prompting for JAX: training-free text classification with frozen language models.

A frozen language model reads each training example as a prompt. Each such example is an anchor; its distribution of the
next token is kept. A new text gets the majority label of the anchors whose distributions are nearest to its own in KL
divergence (Xu et al., "kNN Prompting", ICLR 2023).

Shape notation of the whole package: a name ends in one letter per axis, as in `h_NE` and `logk_NV`, and einsum strings
use the same letters. A lower-case letter is a part of that axis: a tile or a selection. A file that uses letters of its
own lists them at its top.

    N  anchors or prompts     Q  queries              V  vocabulary      D  model width
    L  layers                 H  attention heads      K  head size       F  MLP width
    E  width of the head's input: D, except in OPT-350m and Phi          G  key heads
    P  prefix tokens          S  row width in tokens  B  rows per step   T  steps, or tokens of a whole sequence
    J  outputs per step       C  classes              k  neighbours      W  numbers that a distance compares

A digit is an axis of that size, as in `x_1TD`. In `datastore`, M counts anchors with padding. In `models`, M counts the
query heads of a key head (H / G). There, T may also count the tokens of all rows of a step (B · S), and F the columns
of all heads (H · K).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knnprompt_jax.classifier.estimator import AutoClassifier, KNNPrompting, load
    from knnprompt_jax.common.errors import UserError
    from knnprompt_jax.inference.lm import LanguageModel
    from knnprompt_jax.tasks.task import Task

__version__: str
__all__ = ["AutoClassifier", "KNNPrompting", "LanguageModel", "Task", "UserError", "demo_model", "load"]

# Imported on first use, so that the package itself is quick to import and starts no device.
_MODULES = {
    "AutoClassifier": "classifier.estimator",
    "KNNPrompting": "classifier.estimator",
    "LanguageModel": "inference.lm",
    "Task": "tasks.task",
    "UserError": "common.errors",
    "load": "classifier.estimator",
}


def demo_model(name: str = "smollm2", **options: Any) -> "LanguageModel":
    """Return a model that needs no download.

    Args:
        name: "smollm2", or "tiny", which comes with this package.
        **options: options of `LanguageModel.from_pretrained`.

    Raises:
        UserError: the name is unknown, or the package with the model is not installed.
    """
    from knnprompt_jax.inference import lm
    from knnprompt_jax.models import hub

    hub.locate(name)
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
