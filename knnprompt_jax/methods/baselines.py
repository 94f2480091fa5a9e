"""A baseline without a language model: logistic regression on TF-IDF features of demonstrations and anchors.

Its texts are bare: no template, several fields joined by spaces. Terms are scikit-learn's: lower-cased words of two or more
letters or digits, and runs of neighbouring words. A term that occurs n times in a text has the weight
(1 + ln n) · (1 + ln((1 + N) / (1 + N_term))), with N train rows, N_term of which contain it. A text's weights are scaled to norm 1.
Terms that no train row contains are ignored.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.methods import linear_probe, method
from knnprompt_jax.settings import methods
from knnprompt_jax.tasks.task import Example, Task


def predict_proba(
    settings: methods.TfidfOptions, num_classes: int, texts: Sequence[str], y: np.ndarray, queries: Sequence[str]
) -> np.ndarray:
    """Return class probabilities [Q, C] of queries, from N texts with at least one word and their classes `y` [N].

    A query without known terms gets the probabilities of the intercepts. A class without texts has probability 0.
    """
    vectorizer = _vectorizer(settings.ngrams)
    x_NF, x_QF = vectorizer.fit_transform(texts), vectorizer.transform(queries)
    return linear_probe.logistic_regression(x_NF, y, x_QF, num_classes, settings.inverse_penalty, max_iter=10_000)


def bare_texts(task: Task, examples: Sequence[Example]) -> list[str]:
    """Return the fields of each example, joined by spaces, without any template."""
    return [" ".join(example.fields[field] for field in task.fields) for example in examples]


def run_tfidf(context: method.Context, settings: methods.TfidfOptions) -> method.Prediction:
    """Fit on demonstrations and anchors and predict the queries."""
    problem = context.problem
    texts, queries = (bare_texts(problem.task, rows) for rows in (problem.train_rows, problem.evaluation))
    y = context.classes(problem.train_rows)
    return method.Prediction.most_probable(predict_proba(settings, context.num_classes, texts, y, queries))


def check_rows(problem: method.Problem) -> None:
    """Raise UserError if the split has no rows."""
    if not problem.train_rows:
        raise errors.UserError("the split has no train rows: choose more shots")


def check_words(problem: method.Problem) -> None:
    """Raise UserError if no train row has a word."""
    words = _vectorizer(1).build_analyzer()
    if not any(words(text) for text in bare_texts(problem.task, problem.train_rows)):
        raise errors.UserError("no train row of the split has a word of two or more letters or digits")


def _vectorizer(ngrams: int) -> Any:
    from sklearn.feature_extraction import text

    return text.TfidfVectorizer(ngram_range=(1, ngrams), sublinear_tf=True)


METHODS = (method.Method("tfidf", "TF-IDF, logistic regression", run_tfidf, check=check_words),)
