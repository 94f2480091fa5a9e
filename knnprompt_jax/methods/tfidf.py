"""Logistic regression on TF-IDF features: what the train rows teach a classifier that has no language model.

The rows are the split's demonstrations and anchors, all that kNN Prompting sees too; what is read of a row is its bare text,
without template, several fields joined by blanks. Terms are scikit-learn's: lower-cased words of two or more letters or
digits, and runs of neighbouring words. The weight of a term that a text has n times is
(1 + ln n) · (1 + ln((1 + N) / (1 + N_term))), with N the train rows and N_term those that have the term, divided so that the
text's weights have norm 1. Terms that no train row has do not count.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors, options
from knnprompt_jax.methods import base, method
from knnprompt_jax.tasks.task import Example, Task


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of the regression."""

    inverse_penalty: float = options.option(1.0, "scikit-learn's C, and its default.", least=1e-6)
    ngrams: int = options.option(2, "The longest run of words that is a term; 1 for words alone.", least=1)


def predict_proba(
    settings: Settings, num_classes: int, texts: Sequence[str], y: np.ndarray, queries: Sequence[str]
) -> np.ndarray:
    """Class probabilities [Q, C] of queries after N texts with a word at least and their classes [N].

    A query of unknown terms alone has those of the intercepts; a class without texts is never predicted.
    """
    vectorizer = _vectorizer(settings.ngrams)
    regression = base.RidgeRegression(num_classes, settings.inverse_penalty, max_iter=10_000)
    return regression.fit(vectorizer.fit_transform(texts), y).predict_proba(vectorizer.transform(queries))


def bare_texts(task: Task, examples: Sequence[Example]) -> list[str]:
    """The fields of each example, with a blank between them; no template, and no word of the retrieval template."""
    return [" ".join(example.fields[field] for field in task.fields) for example in examples]


def run(context: method.Context, settings: Settings) -> method.Prediction:
    """Fits on demonstrations and anchors and predicts; of equally probable classes the lowest."""
    problem = context.problem
    texts, queries = (bare_texts(problem.task, rows) for rows in (problem.train_rows, problem.evaluation))
    y = context.classes(problem.train_rows)
    probabilities_QC = predict_proba(settings, context.num_classes, texts, y, queries)
    return method.Prediction(probabilities_QC.argmax(-1), probabilities_QC)


def check(problem: method.Problem) -> None:
    """Raises UserError where no train row has a word."""
    words = _vectorizer(1).build_analyzer()
    if not any(words(text) for text in bare_texts(problem.task, problem.train_rows)):
        raise errors.UserError("no train row of the split has a word of two or more letters or digits")


def _vectorizer(ngrams: int) -> Any:
    from sklearn.feature_extraction import text

    return text.TfidfVectorizer(ngram_range=(1, ngrams), sublinear_tf=True)


METHODS = (
    method.Method("tfidf", "TF-IDF, logistic regression", "scikit-learn", run, settings=Settings, check=check, look=3),
)
