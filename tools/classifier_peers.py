"""Classifiers that `benchmark_classifiers.py` times, each in a process of its own.

`peer_process` calls `fit` and `predict`. Libraries are imported by the procedure that needs them, so that their imports
count as part of `fit`.
"""

from collections.abc import Callable, Sequence
from typing import Any

_BATCH = 32
_MAX_ITERATIONS = 1000

Predict = Callable[[list[str]], Sequence[str]]


class Peers:
    """One classifier at a time."""

    def fit(self, procedure: str, path: str, texts: list[str], labels: list[str]) -> None:
        """Load the model at `path` and fit the procedure's classifier on the texts."""
        self._predict: Predict = _PROCEDURES[procedure](path, texts, labels)

    def predict(self, texts: list[str]) -> list[str]:
        """Return the labels of texts."""
        return list(map(str, self._predict(texts)))


def _fit_auto(path: str, texts: list[str], labels: list[str]) -> Predict:
    """Fit our pool of experts, without demonstrations."""
    import knnprompt_jax as kp

    return kp.AutoClassifier(_model(path), demo_shots=0).fit(texts, labels).predict


def _fit_knn(path: str, texts: list[str], labels: list[str]) -> Predict:
    """Fit kNN Prompting, with the default demonstrations."""
    import knnprompt_jax as kp

    return kp.KNNPrompting(_model(path)).fit(texts, labels).predict


def _model(path: str) -> Any:
    from knnprompt_jax.inference import lm

    return lm.LanguageModel.from_pretrained(path)


def _fit_setfit(path: str, texts: list[str], labels: list[str]) -> Predict:
    """Fit SetFit's head, logistic regression, on a sentence encoder that stays as it is."""
    import setfit

    model = setfit.SetFitModel.from_pretrained(path)
    model.fit(texts, labels, num_epochs=1)
    return model.predict


def _fit_pipeline(path: str, texts: list[str], labels: list[str]) -> Predict:
    """Fit logistic regression on the last token's state, from the pipeline of `transformers`."""
    import numpy as np
    import transformers
    from sklearn import linear_model

    tokenizer = transformers.AutoTokenizer.from_pretrained(path, padding_side="left")  # The last token is a text's.
    tokenizer.pad_token = tokenizer.eos_token
    extract = transformers.pipeline("feature-extraction", model=path, tokenizer=tokenizer, batch_size=_BATCH)

    def states_ND(texts: list[str]) -> np.ndarray:
        return np.array([states[0][-1] for states in extract(texts)])

    head = linear_model.LogisticRegression(max_iter=_MAX_ITERATIONS).fit(states_ND(texts), labels)
    return lambda texts: head.predict(states_ND(texts))


_PROCEDURES = {"auto": _fit_auto, "knn": _fit_knn, "setfit": _fit_setfit, "pipeline": _fit_pipeline}
