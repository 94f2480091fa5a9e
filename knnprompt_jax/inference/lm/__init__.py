"""The language model and its passes.

`states.read` and `states.read_sets` read prompts with it, and `methods.method.Inputs.score` and `harness` score
texts.
"""

from knnprompt_jax.inference.lm.execution import PassStatistics
from knnprompt_jax.inference.lm.language_model import Identity, LanguageModel, MeshChoice, QueuedPass, find_fingerprint
from knnprompt_jax.models.head import Activation, States

__all__ = [
    "Activation",
    "Identity",
    "LanguageModel",
    "MeshChoice",
    "PassStatistics",
    "QueuedPass",
    "States",
    "find_fingerprint",
]
